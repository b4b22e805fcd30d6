package jobs_test

import (
	"context"
	"fmt"
	"io"
	"log"

	"github.com/agentjobs/jobs"
)

// Be woken when a job ends. A host that waits for its user waits for Ready as
// well; what Drain returns goes to the model with the next request.
func ExampleSupervisor_Ready() {
	ctx := context.Background()
	s, err := jobs.New(jobs.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close(ctx)
	_, err = s.Start(ctx, jobs.Spec{Tool: "index", Func: func(context.Context, io.Writer) (any, error) {
		return "42 documents", nil
	}})
	if err != nil {
		log.Fatal(err)
	}

	input := make(chan string) // nobody types
	select {
	case line := <-input:
		fmt.Println("the user says", line)
	case <-s.Ready():
		for _, n := range s.Drain() {
			fmt.Println(n.Event, n.Tool) // as JSON it names the next action, too
		}
	}
	// Output: job_completed index
}
