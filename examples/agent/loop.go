package main

import (
	"context"
	"encoding/json"
	"io"

	"github.com/agentjobs/jobs"
	"github.com/agentjobs/jobs/examples/internal/host"
)

// converse lets the model work on the prompt until it answers.
func converse(ctx context.Context, s *jobs.Supervisor, c client, prompt string, out io.Writer) (string, error) {
	host.Say(out, "user", prompt)
	conversation := []message{{Role: "system", Content: host.System}, {Role: "user", Content: prompt}}
	tell := func(text string) {
		host.Say(out, "told", text)
		conversation = append(conversation, message{Role: "user", Content: text})
	}
	for {
		tools := host.Toolset(s)
		reply, err := c.complete(ctx, conversation, append(declare(tools), tool{"function", host.ShellTool}))
		if err != nil {
			return "", err
		}
		conversation = append(conversation, reply)
		if reply.Content != "" {
			host.Say(out, "model", reply.Content)
		}
		if len(reply.ToolCalls) == 0 {
			open := jobs.Texts{}.Reminder(s.TurnEnd(ctx))
			if open == "" {
				return reply.Content, nil
			}
			tell(open)
			continue
		}
		for _, call := range reply.ToolCalls {
			host.Say(out, "call", call.Function.Name+" "+call.Function.Arguments)
			result := perform(ctx, s, tools, call)
			host.Say(out, "result", result.Content)
			conversation = append(conversation, result)
		}
		// Not before: an API refuses what stands between calls and results.
		if news := host.News(s); news != "" {
			tell(news)
		}
	}
}

// perform returns the result of a call.
func perform(ctx context.Context, s *jobs.Supervisor, tools *jobs.Toolset, call toolCall) message {
	if call.Function.Name == host.ShellTool.Name {
		text := host.Shell(ctx, s, json.RawMessage(call.Function.Arguments))
		return message{Role: "tool", ToolCallID: call.ID, Content: text}
	}
	return answer(ctx, tools, call) // which says so if there is no such tool
}
