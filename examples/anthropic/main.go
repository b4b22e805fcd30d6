// Anthropic gives background jobs to a model behind the tool runner of
// Anthropic's Go SDK, here a fake one.
package main

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"

	"github.com/agentjobs/jobs"
	"github.com/agentjobs/jobs/examples/internal/fakemodel"
	"github.com/agentjobs/jobs/examples/internal/host"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log.SetFlags(0)

	server := serve(fakemodel.Demo())
	defer server.Close()
	if err := run(ctx, clientOf(server.URL), fakemodel.Prompt, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// clientOf returns a client of the fake model. anthropic.NewClient() without
// options is one of the real API.
func clientOf(url string) anthropic.Client {
	return anthropic.NewClient(option.WithBaseURL(url), option.WithAPIKey("none"), option.WithMaxRetries(0))
}

// run holds one conversation. Whatever ends it ends its jobs too.
func run(ctx context.Context, c anthropic.Client, prompt string, out io.Writer) error {
	s, err := host.New()
	if err != nil {
		return err
	}
	defer s.Close(context.WithoutCancel(ctx))
	_, err = converse(ctx, s, c, prompt, out)
	return err
}

// converse lets the model work on the prompt until it answers.
func converse(ctx context.Context, s *jobs.Supervisor, c anthropic.Client, prompt string, out io.Writer) (string, error) {
	host.Say(out, "user", prompt)
	conversation := []anthropic.BetaMessageParam{message(prompt)}
	for {
		runner := c.Beta.Messages.NewToolRunner(toolsOf(s, out), anthropic.BetaToolRunnerParams{
			BetaMessageNewParams: anthropic.BetaMessageNewParams{
				Model:     "fake",
				MaxTokens: 4096,
				System:    []anthropic.BetaTextBlockParam{{Text: host.System}},
				Messages:  conversation,
			},
			// The fake model keeps no threads: each request holds all of the
			// conversation. This too is why news come with the results: what is
			// appended to the runner while it works would stand before them.
			DisableThread: true,
		})
		var answer string
		for reply, err := range runner.All(ctx) {
			if err != nil {
				return "", err
			}
			answer = show(out, reply)
		}
		open := jobs.Texts{}.Reminder(s.TurnEnd(ctx))
		if open == "" {
			return answer, nil
		}
		host.Say(out, "told", open)
		conversation = append(runner.Messages(), message(open))
	}
}

func message(text string) anthropic.BetaMessageParam {
	return anthropic.NewBetaUserMessage(anthropic.NewBetaTextBlock(text))
}

// toolsOf returns what the model may call. The runner calls several at once, and
// leaves no place for a message between their results and the next request. So
// the news ride along in the results: those of job tools have them anyway, any
// other tool has to add them.
func toolsOf(s *jobs.Supervisor, out io.Writer) (tools []anthropic.BetaTool) {
	set := host.Toolset(s)
	for _, d := range set.Declarations() {
		tools = append(tools, shown{jobTool(set, d), out})
	}
	shell := tool{host.ShellTool, func(ctx context.Context, args json.RawMessage) (json.RawMessage, bool) {
		result := json.RawMessage(host.Shell(ctx, s, args))
		return jobs.Texts{}.Merge(result, "", s.Drain()), false
	}}
	return append(tools, shown{shell, out})
}

// A shown tool prints its results.
type shown struct {
	anthropic.BetaTool
	out io.Writer
}

func (t shown) Execute(ctx context.Context, args json.RawMessage) ([]anthropic.BetaToolResultBlockParamContentUnion, error) {
	result, err := t.BetaTool.Execute(ctx, args)
	if err != nil {
		host.Say(t.out, "result", err.Error())
	}
	for _, block := range result {
		host.Say(t.out, "result", block.OfText.Text)
	}
	return result, err
}

// show prints a reply and returns its text.
func show(out io.Writer, reply *anthropic.BetaMessage) string {
	var text strings.Builder
	for _, block := range reply.Content {
		text.WriteString(block.Text)
	}
	if text.Len() > 0 {
		host.Say(out, "model", text.String())
	}
	for _, block := range reply.Content {
		if block.Type == "tool_use" {
			host.Say(out, "call", block.Name+" "+string(block.Input))
		}
	}
	return text.String()
}
