package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/openai/openai-go/v3"

	"github.com/agentjobs/jobs"
)

// declare returns tools as the SDK declares them. They are not strict: that
// would make every argument required.
func declare(ds ...jobs.Declaration) ([]openai.ChatCompletionToolUnionParam, error) {
	var tools []openai.ChatCompletionToolUnionParam
	for _, d := range ds {
		var schema openai.FunctionParameters
		if err := json.Unmarshal(d.Parameters, &schema); err != nil {
			return nil, fmt.Errorf("tool %s: %w", d.Name, err)
		}
		tools = append(tools, openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{
			Name:        d.Name,
			Description: openai.String(d.Description),
			Parameters:  schema,
		}))
	}
	return tools, nil
}

// answer returns the result of a call of a job tool. An error needs no other
// way than the result: the API has none.
func answer(ctx context.Context, t *jobs.Toolset, call openai.ChatCompletionMessageToolCallUnion) string {
	out, _ := t.Call(ctx, call.Function.Name, json.RawMessage(call.Function.Arguments))
	return string(out)
}
