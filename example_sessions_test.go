package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/agentjobs/jobs"
)

// Give each session jobs of its own: ids, places and notices of one are nothing
// to the other, and its end takes its jobs along.
func ExampleSupervisor_Child() {
	ctx := context.Background()
	host, err := jobs.New(jobs.Config{MaxRunning: 10}) // all sessions together
	if err != nil {
		log.Fatal(err)
	}
	defer host.Close(ctx)

	session := func(name string) *jobs.Supervisor {
		s, err := host.Child(jobs.ChildConfig{Name: name, MaxRunning: 3})
		if err != nil {
			log.Fatal(err)
		}
		return s
	}
	ann, bob := session("ann"), session("bob")
	server, err := ann.Start(ctx, jobs.Spec{Tool: "server", Argv: []string{"sleep", "600"}})
	if err != nil {
		log.Fatal(err)
	}
	_, err = bob.Check(server.ID)
	fmt.Println(errors.Is(err, jobs.ErrNotFound), errors.Is(err, jobs.ErrForeign))

	report, err := ann.Close(ctx)
	for _, job := range report.Stopped {
		fmt.Println(job.Owner, job.Tool, job.State, job.Reason)
	}
	fmt.Println(err, len(host.Children()))
	// Output:
	// true true
	// ann server cancelled owner_closed
	// <nil> 1
}
