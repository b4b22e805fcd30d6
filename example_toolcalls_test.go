package jobs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"

	"github.com/agentjobs/jobs"
)

// Give a model the tools. For each request make a Toolset of what that request
// declares, append its declarations, and hand it every call of a tool that is
// named in them.
func ExampleToolset() {
	ctx := context.Background()
	s, err := jobs.New(jobs.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close(ctx)

	tools := s.Toolset(jobs.ToolsetOptions{
		Declared: []string{"shell"}, // what the request declares besides
		Resolve: func(_ context.Context, tool string, args json.RawMessage) (jobs.Spec, error) {
			var in struct{ Command string }
			err := json.Unmarshal(args, &in)
			return jobs.Spec{Argv: []string{"sh", "-c", in.Command}}, err
		},
	})
	for _, d := range tools.Declarations() {
		fmt.Println(d.Name) // and d.Description, d.Parameters
	}

	// The model calls; answer and isError are what it gets back.
	answer, isError := tools.Call(ctx, "job__start", json.RawMessage(`{"tool":"shell","arguments":"{\"command\":\"echo building\"}"}`))
	var started struct {
		Status string
		JobID  string `json:"job_id"`
	}
	json.Unmarshal(answer, &started)
	fmt.Println(started.Status, isError)
	// Output:
	// job__start
	// job__check
	// job__collect
	// job__cancel
	// job__list
	// ok false
}
