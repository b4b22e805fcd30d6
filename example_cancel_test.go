package jobs_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/agentjobs/jobs"
)

// Stop a job that does not want to stop. When Cancel returns its processes are
// dead, or named as survivors.
func ExampleSupervisor_Cancel() {
	ctx := context.Background()
	s, err := jobs.New(jobs.Config{KillGrace: 100 * time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close(ctx)
	job, err := s.Start(ctx, jobs.Spec{Tool: "stubborn", Argv: []string{"sh", "-c", "trap '' TERM; while :; do sleep 1; done"}})
	if err != nil {
		log.Fatal(err)
	}

	result, err := s.Cancel(ctx, job.ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.State, result.Reason, len(result.Survivors))

	// A second look changes nothing.
	result, err = s.Cancel(ctx, job.ID)
	fmt.Println(result.State, err)
	// Output:
	// cancelled cancelled 0
	// cancelled <nil>
}
