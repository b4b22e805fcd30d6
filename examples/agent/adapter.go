package main

import (
	"context"
	"encoding/json"

	"github.com/agentjobs/jobs"
)

// A tool is how the chat completions API wants a tool declared.
type tool struct {
	Type     string           `json:"type"`
	Function jobs.Declaration `json:"function"`
}

// declare returns the job tools for a request.
func declare(t *jobs.Toolset) (tools []tool) {
	for _, d := range t.Declarations() {
		tools = append(tools, tool{Type: "function", Function: d})
	}
	return tools
}

// answer returns the result of a call of a job tool. An error needs no other
// way than the result: the API has none.
func answer(ctx context.Context, t *jobs.Toolset, call toolCall) message {
	out, _ := t.Call(ctx, call.Function.Name, json.RawMessage(call.Function.Arguments))
	return message{Role: "tool", ToolCallID: call.ID, Content: string(out)}
}
