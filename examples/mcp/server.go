package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// progressEvery is how often a client that waits hears that its call is alive.
const progressEvery = time.Second

// instructions tell a model what a server is for that it has just met.
const instructions = "Runs commands as background jobs. Start one with %s, go on with other work, " +
	"and take the result with %s. A job goes on when a call that waits for it is cancelled or times out."

// A server is the MCP face of a supervisor.
type server struct {
	jobs  *jobs.Supervisor
	tools *jobs.Toolset
	mcp   *mcp.Server
	board *board
}

func newServer(s *jobs.Supervisor, set settings, log *slog.Logger) *server {
	c := newCommands(set)
	rename := func(name string) string { return name }
	if set.FlatNames {
		rename = func(name string) string { return strings.ReplaceAll(name, "__", "_") }
	}
	sv := &server{
		jobs: s,
		tools: s.Toolset(jobs.ToolsetOptions{
			Declared: []string{runTool},
			Optional: jobs.WaitTool | jobs.OutputTool,
			Policy:   c.policy,
			Rename:   rename,
			Resolve:  c.resolve,
			Wait:     time.Duration(set.Wait),
		}),
	}
	start, collect := rename("job__start"), rename("job__collect")
	sv.board = newBoard(s)
	sv.mcp = mcp.NewServer(&mcp.Implementation{Name: "jobs-mcp", Version: "1.0.0"}, &mcp.ServerOptions{
		Instructions:       fmt.Sprintf(instructions, start, collect),
		Logger:             log,
		Capabilities:       &mcp.ServerCapabilities{Extensions: map[string]any{tasksExtension: map[string]any{}}},
		SubscribeHandler:   sv.board.subscribe,
		UnsubscribeHandler: sv.board.unsubscribe,
		SetCacheable:       func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) { c.CacheScope = "private" },
	})
	for _, d := range sv.tools.Declarations() {
		if d.Name == start {
			d.Description += " " + c.usage()
		}
		sv.mcp.AddTool(&mcp.Tool{Name: d.Name, Description: d.Description, InputSchema: d.Parameters}, sv.call)
	}
	sv.board.register(sv.mcp)
	newTasks(sv, collect).register(sv.mcp)
	return sv
}

// call answers the call of a tool. What is wrong with it is for the model to
// read, so it is never a protocol error.
func (sv *server) call(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	stop := sv.reportProgress(ctx, req)
	answer, isError := sv.tools.Call(ctx, req.Params.Name, req.Params.Arguments)
	stop()
	sv.board.look()
	return toolResult(answer, isError), nil
}

func toolResult(answer json.RawMessage, isError bool) *mcp.CallToolResult {
	return &mcp.CallToolResult{
		Content:           []mcp.Content{&mcp.TextContent{Text: string(answer)}},
		StructuredContent: answer,
		IsError:           isError,
	}
}

// reportProgress tells the client of a call that takes long that it is alive, if
// the client asked for that, until stop is called.
func (sv *server) reportProgress(ctx context.Context, req *mcp.CallToolRequest) (stop func()) {
	token := req.Params.GetProgressToken()
	if token == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		begun := time.Now()
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: token,
				Progress:      time.Since(begun).Seconds(),
				Message:       sv.progress(req.Params.Arguments),
			})
		}
	}()
	// No notification may follow the answer.
	return func() { cancel(); <-stopped }
}

// progress says in a few words how the job of a call stands, or all of them.
func (sv *server) progress(args json.RawMessage) string {
	var about struct{ ID string }
	json.Unmarshal(args, &about) // the call itself complains
	snap, err := sv.jobs.Check(about.ID)
	if err != nil {
		return fmt.Sprintf("%d jobs running", sv.jobs.List().Running)
	}
	return fmt.Sprintf("%s: %s for %s, %d bytes of output", snap.Tool, snap.State, snap.Elapsed.Round(time.Second), snap.OutputTotal)
}
