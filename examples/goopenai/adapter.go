package main

import (
	"context"
	"encoding/json"

	"github.com/sashabaranov/go-openai"

	"github.com/agentjobs/jobs"
)

// declare returns tools as the client declares them. It takes a schema as it is.
func declare(ds ...jobs.Declaration) (tools []openai.Tool) {
	for _, d := range ds {
		tools = append(tools, openai.Tool{Type: openai.ToolTypeFunction, Function: &openai.FunctionDefinition{
			Name:        d.Name,
			Description: d.Description,
			Parameters:  d.Parameters,
		}})
	}
	return tools
}

// answer returns the result of a call of a job tool. An error needs no other
// way than the result: the API has none.
func answer(ctx context.Context, t *jobs.Toolset, call openai.ToolCall) string {
	out, _ := t.Call(ctx, call.Function.Name, json.RawMessage(call.Function.Arguments))
	return string(out)
}
