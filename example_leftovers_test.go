//go:build linux

package jobs_test

import (
	"context"
	"fmt"
	"log"

	"github.com/agentjobs/jobs"
)

// A command that leaves a process behind ends when the command does; what it
// left is killed and named. KeepLeftovers would let it live.
func ExampleLeftovers() {
	ctx := context.Background()
	s, err := jobs.New(jobs.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close(ctx)
	job, err := s.Start(ctx, jobs.Spec{Argv: []string{"sh", "-c", "sleep 600 & echo started"}})
	if err != nil {
		log.Fatal(err)
	}
	result, err := s.Collect(ctx, job.ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Outcome())
	for _, p := range result.Leftovers {
		fmt.Println("killed", p.Name)
	}
	// Output:
	// completed, exit 0
	// killed sleep
}
