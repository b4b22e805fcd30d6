package jobs_test

import (
	"context"
	"fmt"
	"log"
	"regexp"
	"time"

	"github.com/agentjobs/jobs"
)

// Start a server and go on as soon as it says that it is ready, or has failed.
func ExampleSupervisor_Wait() {
	ctx := context.Background()
	s, err := jobs.New(jobs.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close(ctx)
	server, err := s.Start(ctx, jobs.Spec{
		Tool: "server",
		Argv: []string{"sh", "-c", "echo compiling; sleep 0.1; echo listening on :8080; exec sleep 600"},
		Key:  "server", // a second start finds this one
	})
	if err != nil {
		log.Fatal(err)
	}

	r, err := s.Wait(ctx, jobs.WaitSpec{
		IDs:     []string{server.ID},
		Pattern: regexp.MustCompile(`listening on \S+`),
		Timeout: time.Minute,
	})
	switch {
	case err != nil:
		log.Fatal(err)
	case r.Match != nil:
		fmt.Println("ready:", r.Match.Line)
	case r.TimedOut:
		fmt.Println("it takes longer")
	default:
		fmt.Println("it failed:", r.Jobs[0].Outcome())
	}
	// Output: ready: listening on :8080
}
