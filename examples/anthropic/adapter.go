package main

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/anthropics/anthropic-sdk-go/v2"

	"github.com/agentjobs/jobs"
)

// A tool is one that the tool runner can declare and call.
type tool struct {
	about jobs.Declaration
	call  func(ctx context.Context, args json.RawMessage) (out json.RawMessage, isError bool)
}

// jobTool returns one of the job tools.
func jobTool(t *jobs.Toolset, d jobs.Declaration) anthropic.BetaTool {
	return tool{d, func(ctx context.Context, args json.RawMessage) (json.RawMessage, bool) {
		return t.Call(ctx, d.Name, args)
	}}
}

func (t tool) Name() string        { return t.about.Name }
func (t tool) Description() string { return t.about.Description }

func (t tool) InputSchema() anthropic.BetaToolInputSchemaParam {
	var schema map[string]any
	json.Unmarshal(t.about.Parameters, &schema) // of a Declaration: always an object
	return anthropic.BetaToolInputSchema(schema)
}

// Execute returns an error where the runner is to mark the result as one.
func (t tool) Execute(ctx context.Context, args json.RawMessage) ([]anthropic.BetaToolResultBlockParamContentUnion, error) {
	out, isError := t.call(ctx, args)
	if isError {
		return nil, errors.New(string(out))
	}
	return []anthropic.BetaToolResultBlockParamContentUnion{{OfText: &anthropic.BetaTextBlockParam{Text: string(out)}}}, nil
}
