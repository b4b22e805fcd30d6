package jobs_test

import (
	"context"
	"fmt"
	"log"

	"github.com/agentjobs/jobs"
)

// Start work in the background, go on, and collect the result later.
func ExampleSupervisor_Start() {
	ctx := context.Background()
	s, err := jobs.New(jobs.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close(ctx)

	job, err := s.Start(ctx, jobs.Spec{Tool: "greet", Argv: []string{"sh", "-c", "echo hello; exit 3"}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(job.Tool, job.State)

	result, err := s.Collect(ctx, job.ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Outcome())
	fmt.Printf("%s", result.Output.Bytes())
	// Output:
	// greet running
	// failed, exit 3
	// hello
}
