package jobs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"

	"github.com/agentjobs/jobs"
)

// An mcpSession stands for a connected client of an MCP server.
type mcpSession struct{}

func (mcpSession) callTool(ctx context.Context, name string, args json.RawMessage, progress func(string)) (string, error) {
	progress("half of it")
	return name + " says hello", ctx.Err()
}

// Let a model start the tools of an MCP server as jobs: each call is a function
// that passes its context on and prints progress.
func ExampleToolset_mcp() {
	ctx := context.Background()
	s, err := jobs.New(jobs.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close(ctx)

	var server mcpSession
	tools := s.Toolset(jobs.ToolsetOptions{
		Declared: []string{"mcp_invoke_greet"},
		Resolve: func(_ context.Context, tool string, args json.RawMessage) (jobs.Spec, error) {
			return jobs.Spec{Tool: tool, Func: func(ctx context.Context, out io.Writer) (any, error) {
				return server.callTool(ctx, tool, args, func(text string) { fmt.Fprintln(out, text) })
			}}, nil
		},
	})
	answer, _ := tools.Call(ctx, "job__start", json.RawMessage(`{"tool":"mcp_invoke_greet"}`))
	var started struct {
		JobID string `json:"job_id"`
	}
	if err := json.Unmarshal(answer, &started); err != nil {
		log.Fatal(err)
	}
	result, err := s.Collect(ctx, started.JobID)
	fmt.Printf("%s %s %q %v", result.State, result.File.JSON(), result.Output.Bytes(), err)
	// Output: completed "mcp_invoke_greet says hello" "half of it\n" <nil>
}
