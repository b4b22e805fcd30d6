package jobs_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/agentjobs/jobs"
)

// Run a tool call in the foreground, and let it go on in the background if it
// takes too long.
func ExampleSupervisor_Run() {
	ctx := context.Background()
	s, err := jobs.New(jobs.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close(ctx)

	call := func(script string, grace time.Duration) jobs.Result {
		r, err := s.Run(ctx, jobs.Spec{Tool: "shell", Argv: []string{"sh", "-c", script}}, grace)
		if err != nil {
			log.Fatal(err)
		}
		return r
	}
	quick := call("echo at once", time.Minute)
	fmt.Printf("%s: %s", quick.Outcome(), quick.Output.Bytes())

	slow := call("sleep 0.3; echo at last", 20*time.Millisecond)
	if !slow.Ended() {
		// The answer of the tool call; the model knows the id from it.
		text := jobs.Texts{}.Demoted(slow.Snapshot)
		fmt.Println("demoted:", len(text) < 400)
	}
	slow, err = s.Collect(ctx, slow.ID)
	fmt.Printf("%s: %s%v\n", slow.Outcome(), slow.Output.Bytes(), err)
	// Output:
	// completed, exit 0: at once
	// demoted: true
	// completed, exit 0: at last
	// <nil>
}
