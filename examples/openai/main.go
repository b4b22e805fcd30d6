// Openai gives background jobs to a model behind the official Go SDK of OpenAI,
// here a fake one.
package main

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

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

// clientOf returns a client of the fake model. openai.NewClient() without options is
// one of the real API.
func clientOf(url string) openai.Client {
	return openai.NewClient(option.WithBaseURL(url), option.WithAPIKey("none"), option.WithMaxRetries(0))
}

// run holds one conversation. Whatever ends it ends its jobs too.
func run(ctx context.Context, c openai.Client, prompt string, out io.Writer) error {
	s, err := host.New()
	if err != nil {
		return err
	}
	defer s.Close(context.WithoutCancel(ctx))
	_, err = converse(ctx, s, c, prompt, out)
	return err
}

// converse lets the model work on the prompt until it answers.
func converse(ctx context.Context, s *jobs.Supervisor, c openai.Client, prompt string, out io.Writer) (string, error) {
	host.Say(out, "user", prompt)
	params := openai.ChatCompletionNewParams{Model: "fake"}
	add := func(m openai.ChatCompletionMessageParamUnion) { params.Messages = append(params.Messages, m) }
	tell := func(text string) {
		host.Say(out, "told", text)
		add(openai.UserMessage(text))
	}
	add(openai.SystemMessage(host.System))
	add(openai.UserMessage(prompt))
	for {
		tools := host.Toolset(s)
		var err error
		if params.Tools, err = declare(append(tools.Declarations(), host.ShellTool)...); err != nil {
			return "", err
		}
		completion, err := c.Chat.Completions.New(ctx, params)
		if err != nil {
			return "", err
		}
		if len(completion.Choices) == 0 {
			return "", io.ErrUnexpectedEOF
		}
		reply := completion.Choices[0].Message
		add(reply.ToParam())
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
			add(openai.ToolMessage(result, call.ID))
		}
		// Not before: the API refuses what stands between calls and results.
		if news := host.News(s); news != "" {
			tell(news)
		}
	}
}

// perform returns the result of a call.
func perform(ctx context.Context, s *jobs.Supervisor, tools *jobs.Toolset, call openai.ChatCompletionMessageToolCallUnion) string {
	if call.Function.Name == host.ShellTool.Name {
		return host.Shell(ctx, s, json.RawMessage(call.Function.Arguments))
	}
	return answer(ctx, tools, call) // which says so if there is no such tool
}
