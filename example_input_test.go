package jobs_test

import (
	"context"
	"fmt"
	"log"

	"github.com/agentjobs/jobs"
)

// Type into a job that asks.
func ExampleSupervisor_Input() {
	ctx := context.Background()
	s, err := jobs.New(jobs.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close(ctx)
	job, err := s.Start(ctx, jobs.Spec{Tool: "sum", Argv: []string{"sh", "-c", "read a; read b; echo $((a + b))"}, Input: true})
	if err != nil {
		log.Fatal(err)
	}
	in, err := s.Input(job.ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Fprintln(in, 40)
	fmt.Fprintln(in, 2)
	in.Close() // it would read the end of file now

	result, err := s.Collect(ctx, job.ID)
	fmt.Printf("%s%v", result.Output.Bytes(), err)
	// Output:
	// 42
	// <nil>
}
