package jobs_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/agentjobs/jobs"
)

// End a session. Close gives every job the kill grace, but no more time than
// its context has, and reports what was left undone.
func ExampleSupervisor_Close() {
	ctx := context.Background()
	s, err := jobs.New(jobs.Config{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := s.Start(ctx, jobs.Spec{Tool: "server", Argv: []string{"sleep", "600"}}); err != nil {
		log.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	report, err := s.Close(ctx)
	for _, job := range report.Stopped {
		fmt.Println("stopped", job.Tool+":", job.State, job.Reason)
	}
	fmt.Println(err)
	_, err = s.Start(ctx, jobs.Spec{Argv: []string{"true"}})
	fmt.Println(err)
	// Output:
	// stopped server: cancelled shutdown
	// <nil>
	// jobs: supervisor is closed
}
