package jobs_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/agentjobs/jobs"
)

// Keep a model from ending its turn while jobs of it are open.
func ExampleSupervisor_TurnEnd() {
	ctx := context.Background()
	s, err := jobs.New(jobs.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close(ctx)
	if _, err := s.Start(ctx, jobs.Spec{Tool: "server", Argv: []string{"sleep", "600"}}); err != nil {
		log.Fatal(err)
	}

	for {
		// The model has said its last word.
		r := s.TurnEnd(ctx)
		if r.Action == jobs.TurnOver {
			break
		}
		// It gets the text and another turn; this one never takes the hint.
		head, _, _ := strings.Cut(jobs.Texts{}.Reminder(r), ":")
		fmt.Println(r.Action, len(r.Running), len(r.Discarded), head)
	}
	// Output:
	// inject 1 0 Before your turn ends
	// inject 1 0 Before your turn ends
	// inject 1 0 Before your turn ends
	// discard 0 1 Warning
}
