package jobs_test

import (
	"context"
	"fmt"
	"log"
	"regexp"

	"github.com/agentjobs/jobs"
)

// Be told of lines while a job runs, without being flooded.
func ExampleSupervisor_Watch() {
	ctx := context.Background()
	s, err := jobs.New(jobs.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close(ctx)
	// It waits for a line of input, so that the watch is there in time.
	job, err := s.Start(ctx, jobs.Spec{Tool: "test", Argv: []string{"sh", "-c", "read go; seq -f 'FAIL: case %g' 100"}, Input: true})
	if err != nil {
		log.Fatal(err)
	}
	stop, err := s.Watch(job.ID, jobs.WatchSpec{Pattern: regexp.MustCompile(`^FAIL`), Burst: 2})
	if err != nil {
		log.Fatal(err)
	}
	defer stop()
	in, err := s.Input(job.ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Fprintln(in, "go")

	for ended := false; !ended; {
		<-s.Ready()
		for _, n := range s.Drain() {
			fmt.Printf("%s %q, %d suppressed\n", n.Event, n.Line, n.Suppressed)
			ended = n.State.Ended()
		}
	}
	// Output:
	// job_matched "FAIL: case 1", 0 suppressed
	// job_matched "FAIL: case 2", 0 suppressed
	// job_matched "", 98 suppressed
	// job_completed "", 0 suppressed
}
