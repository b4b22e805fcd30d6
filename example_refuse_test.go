package jobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"

	"github.com/agentjobs/jobs"
)

// Keep a tool in the foreground, and tell the model why. A host that adds to
// the default policy asks that first.
func ExamplePolicy() {
	ctx := context.Background()
	s, err := jobs.New(jobs.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close(ctx)
	tools := s.Toolset(jobs.ToolsetOptions{
		Declared: []string{"build", "deploy", "fs_cat"},
		Policy: func(tool string) string {
			if tool == "deploy" {
				return "somebody must watch it; call it directly"
			}
			return jobs.DefaultPolicy(tool)
		},
	})

	answer, isError := tools.Call(ctx, "job__start", json.RawMessage(`{"tool":"deploy"}`))
	var r struct{ Message string }
	if err := json.Unmarshal(answer, &r); err != nil {
		log.Fatal(err)
	}
	fmt.Println(isError, r.Message)

	// The host can ask, too; for one, to offer only what can be had.
	for _, tool := range []string{"build", "deploy", "fs_cat"} {
		err := tools.Backgroundable(tool)
		fmt.Println(tool, errors.Is(err, jobs.ErrNotAllowed))
	}
	// Output:
	// true "deploy" cannot run as a job: somebody must watch it; call it directly. These can run in the background: build.
	// build false
	// deploy true
	// fs_cat true
}
