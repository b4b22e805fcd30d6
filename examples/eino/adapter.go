package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/schema"
	"github.com/eino-contrib/jsonschema"

	"github.com/agentjobs/jobs"
)

// A jobTool is a tool as eino wants it.
type jobTool struct {
	info *schema.ToolInfo
	call func(ctx context.Context, args string) string
}

// newTool makes a tool of a declaration and of what answers its calls.
func newTool(d jobs.Declaration, call func(ctx context.Context, args string) string) (tool.BaseTool, error) {
	var s jsonschema.Schema
	if err := json.Unmarshal(d.Parameters, &s); err != nil {
		return nil, fmt.Errorf("tool %s: %w", d.Name, err)
	}
	return jobTool{&schema.ToolInfo{Name: d.Name, Desc: d.Description, ParamsOneOf: schema.NewParamsOneOfByJSONSchema(&s)}, call}, nil
}

func (t jobTool) Info(context.Context) (*schema.ToolInfo, error) { return t.info, nil }

// InvokableRun never returns an error, as that would end the run.
func (t jobTool) InvokableRun(ctx context.Context, args string, _ ...tool.Option) (string, error) {
	return t.call(ctx, args), nil
}

// answerFor answers the calls of one job tool.
func answerFor(t *jobs.Toolset, name string) func(context.Context, string) string {
	return func(ctx context.Context, args string) string {
		out, _ := t.Call(ctx, name, json.RawMessage(args))
		return string(out)
	}
}
