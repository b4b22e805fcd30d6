// Goopenai gives background jobs to a model behind sashabaranov/go-openai, the
// client with the smallest module graph, here a fake one.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/sashabaranov/go-openai"

	"github.com/agentjobs/jobs"
	"github.com/agentjobs/jobs/examples/internal/fakemodel"
	"github.com/agentjobs/jobs/examples/internal/host"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log.SetFlags(0)

	server := fakemodel.Demo().OpenAI()
	defer server.Close()
	if err := run(ctx, clientOf(server.URL), fakemodel.Prompt, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// clientOf returns a client of the fake model. openai.NewClient(key) is one of the
// real API.
func clientOf(url string) *openai.Client {
	config := openai.DefaultConfig("none")
	config.BaseURL = url
	return openai.NewClientWithConfig(config)
}

// run holds one conversation. Whatever ends it ends its jobs too.
func run(ctx context.Context, c *openai.Client, prompt string, out io.Writer) error {
	s, err := host.New()
	if err != nil {
		return err
	}
	defer s.Close(context.WithoutCancel(ctx))
	_, err = converse(ctx, s, c, prompt, out)
	return err
}

// converse lets the model work on the prompt until it answers.
func converse(ctx context.Context, s *jobs.Supervisor, c *openai.Client, prompt string, out io.Writer) (string, error) {
	host.Say(out, "user", prompt)
	request := openai.ChatCompletionRequest{Model: "fake", Messages: []openai.ChatCompletionMessage{
		{Role: openai.ChatMessageRoleSystem, Content: host.System},
		{Role: openai.ChatMessageRoleUser, Content: prompt},
	}}
	tell := func(text string) {
		host.Say(out, "told", text)
		request.Messages = append(request.Messages, openai.ChatCompletionMessage{Role: openai.ChatMessageRoleUser, Content: text})
	}
	for {
		tools := host.Toolset(s)
		request.Tools = declare(append(tools.Declarations(), host.ShellTool)...)
		response, err := c.CreateChatCompletion(ctx, request)
		if err != nil {
			return "", err
		}
		if len(response.Choices) == 0 {
			return "", errors.New("the model has no reply")
		}
		reply := response.Choices[0].Message
		request.Messages = append(request.Messages, reply)
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
			host.Say(out, "result", result)
			request.Messages = append(request.Messages, openai.ChatCompletionMessage{
				Role: openai.ChatMessageRoleTool, Content: result, ToolCallID: call.ID,
			})
		}
		// Not before: the API refuses what stands between calls and results.
		if news := host.News(s); news != "" {
			tell(news)
		}
	}
}

// perform returns the result of a call.
func perform(ctx context.Context, s *jobs.Supervisor, tools *jobs.Toolset, call openai.ToolCall) string {
	if call.Function.Name == host.ShellTool.Name {
		return host.Shell(ctx, s, json.RawMessage(call.Function.Arguments))
	}
	return answer(ctx, tools, call) // which says so if there is no such tool
}
