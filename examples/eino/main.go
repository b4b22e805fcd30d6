// Eino gives background jobs to an agent of CloudWeGo's eino, with a fake model.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"log"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/cloudwego/eino/adk"
	"github.com/cloudwego/eino/components/model"
	"github.com/cloudwego/eino/components/tool"
	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/schema"

	"github.com/agentjobs/jobs"
	"github.com/agentjobs/jobs/examples/internal/fakemodel"
	"github.com/agentjobs/jobs/examples/internal/host"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log.SetFlags(0)
	if err := run(ctx, fake{Model: fakemodel.Demo()}, fakemodel.Prompt, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run holds one conversation. Whatever ends it ends its jobs too.
func run(ctx context.Context, m model.ToolCallingChatModel, prompt string, out io.Writer) error {
	s, err := host.New()
	if err != nil {
		return err
	}
	defer s.Close(context.WithoutCancel(ctx))
	_, err = converse(ctx, s, m, prompt, out)
	return err
}

// converse lets the model work on the prompt until it answers.
func converse(ctx context.Context, s *jobs.Supervisor, m model.ToolCallingChatModel, prompt string, out io.Writer) (string, error) {
	tools, err := toolsOf(s)
	if err != nil {
		return "", err
	}
	conversation := []adk.Message{schema.SystemMessage(host.System), schema.UserMessage(prompt)}
	keep := func(_ context.Context, state *adk.ChatModelAgentState) error {
		show(out, state.Messages[len(conversation):])
		conversation = slices.Clone(state.Messages)
		return nil
	}
	agent, err := adk.NewChatModelAgent(ctx, &adk.ChatModelAgentConfig{
		Name:        "worker",
		Description: "works with background jobs",
		Model:       m,
		ToolsConfig: adk.ToolsConfig{ToolsNodeConfig: compose.ToolsNodeConfig{
			Tools: tools,
			UnknownToolsHandler: func(ctx context.Context, name, args string) (string, error) {
				return answerFor(host.Toolset(s), name)(ctx, args), nil // says so
			},
		}},
		// The conversation begins with the system prompt; eino's own would come
		// before it again in each turn.
		GenModelInput: func(_ context.Context, _ string, in *adk.AgentInput) ([]adk.Message, error) {
			return in.Messages, nil
		},
		MaxIterations: 100,
		Middlewares: []adk.AgentMiddleware{{
			// The results of the last calls are in the state, and the model has
			// not been asked yet.
			BeforeChatModel: func(ctx context.Context, state *adk.ChatModelAgentState) error {
				if news := host.News(s); news != "" {
					state.Messages = append(state.Messages, schema.UserMessage(news))
				}
				return keep(ctx, state)
			},
			AfterChatModel: keep,
		}},
	})
	if err != nil {
		return "", err
	}
	runner := adk.NewRunner(ctx, adk.RunnerConfig{Agent: agent})
	host.Say(out, "user", prompt)
	for {
		if err := turn(runner.Run(ctx, conversation)); err != nil {
			return "", err
		}
		open := jobs.Texts{}.Reminder(s.TurnEnd(ctx))
		if open == "" {
			return conversation[len(conversation)-1].Content, nil
		}
		conversation = append(conversation, schema.UserMessage(open))
		show(out, conversation[len(conversation)-1:])
	}
}

// toolsOf returns what the model may call. eino calls several at once.
func toolsOf(s *jobs.Supervisor) ([]tool.BaseTool, error) {
	shell, err := newTool(host.ShellTool, func(ctx context.Context, args string) string {
		return host.Shell(ctx, s, json.RawMessage(args))
	})
	if err != nil {
		return nil, err
	}
	var tools []tool.BaseTool
	set := host.Toolset(s)
	for _, d := range set.Declarations() {
		t, err := newTool(d, answerFor(set, d.Name))
		if err != nil {
			return nil, err
		}
		tools = append(tools, t)
	}
	return append(tools, shell), nil
}

// turn waits for the end of a turn.
func turn(events *adk.AsyncIterator[*adk.AgentEvent]) (err error) {
	for {
		event, ok := events.Next()
		if !ok {
			return err
		}
		err = cmp.Or(err, event.Err)
	}
}

// show prints messages of a conversation.
func show(out io.Writer, messages []adk.Message) {
	titles := map[schema.RoleType]string{schema.User: "told", schema.Assistant: "model", schema.Tool: "result"}
	for _, m := range messages {
		if m.Content != "" {
			host.Say(out, titles[m.Role], m.Content)
		}
		for _, call := range m.ToolCalls {
			host.Say(out, "call", call.Function.Name+" "+call.Function.Arguments)
		}
	}
}
