package main

import (
	"context"
	"encoding/json"

	"github.com/cloudwego/eino/components/model"
	"github.com/cloudwego/eino/schema"

	"github.com/agentjobs/jobs"
	"github.com/agentjobs/jobs/examples/internal/fakemodel"
)

// A fake is the fake model as eino asks a model.
type fake struct {
	*fakemodel.Model
	tools []*schema.ToolInfo
}

// WithTools returns the model with the tools bound.
func (f fake) WithTools(tools []*schema.ToolInfo) (model.ToolCallingChatModel, error) {
	return fake{f.Model, tools}, nil
}

// Generate returns the reply to a conversation.
func (f fake) Generate(ctx context.Context, in []*schema.Message, _ ...model.Option) (*schema.Message, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var conversation []fakemodel.Message
	for _, m := range in {
		message := fakemodel.Message{Role: string(m.Role), Text: m.Content, CallID: m.ToolCallID}
		for _, c := range m.ToolCalls {
			message.Calls = append(message.Calls, fakemodel.Call{ID: c.ID, Name: c.Function.Name, Arguments: c.Function.Arguments})
		}
		conversation = append(conversation, message)
	}
	var tools []jobs.Declaration
	for _, info := range f.tools {
		s, err := info.ToJSONSchema()
		if err != nil {
			return nil, err
		}
		parameters, err := json.Marshal(s)
		if err != nil {
			return nil, err
		}
		tools = append(tools, jobs.Declaration{Name: info.Name, Description: info.Desc, Parameters: parameters})
	}
	reply, err := f.Reply(conversation, tools)
	if err != nil {
		return nil, err
	}
	var calls []schema.ToolCall
	for _, c := range reply.Calls {
		calls = append(calls, schema.ToolCall{ID: c.ID, Type: "function", Function: schema.FunctionCall{Name: c.Name, Arguments: c.Arguments}})
	}
	return schema.AssistantMessage(reply.Text, calls), nil
}

// Stream returns the same reply in one piece.
func (f fake) Stream(ctx context.Context, in []*schema.Message, _ ...model.Option) (*schema.StreamReader[*schema.Message], error) {
	m, err := f.Generate(ctx, in)
	if err != nil {
		return nil, err
	}
	return schema.StreamReaderFromArray([]*schema.Message{m}), nil
}
