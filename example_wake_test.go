package jobs_test

import (
	"context"
	"fmt"
	"io"
	"log"

	"github.com/agentjobs/jobs"
)

// Wake an idle agent. Deliver calls the host with all that has ended; what ends
// while the agent replies waits for the next call.
func ExampleSupervisor_Deliver() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, err := jobs.New(jobs.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close(context.WithoutCancel(ctx))

	gate := make(chan struct{})
	for _, tool := range []string{"lint", "test"} {
		_, err := s.Start(ctx, jobs.Spec{Tool: tool, Func: func(context.Context, io.Writer) (any, error) {
			<-gate
			return nil, nil
		}})
		if err != nil {
			log.Fatal(err)
		}
	}
	close(gate) // both end at once

	tries := 0
	err = s.Deliver(ctx, func(ctx context.Context, notices []jobs.Notice) error {
		if tries++; tries == 1 {
			return fmt.Errorf("the model is overloaded") // they are offered again
		}
		fmt.Println(len(notices), "jobs ended, one reply begins") // as Texts.Turn words it
		cancel()
		return nil // now they count as told
	})
	fmt.Println(err, len(s.Drain()))
	// Output:
	// 2 jobs ended, one reply begins
	// context canceled 0
}
