package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// tasksExtension lets a client have a handle in place of the answer to a call
// that would wait. The SDK knows nothing of it.
const (
	tasksExtension = "io.modelcontextprotocol/tasks"
	tasksSince     = "2026-07-28" // the first protocol that has it
)

// tasks makes collecting a job that still runs a task, for clients that know
// tasks. The task is the job: its id is the job's, so the handle lasts as long
// as the job's record does, and with a state directory longer than this process.
type tasks struct {
	*server
	collect string // the name of the tool

	mu   sync.Mutex
	kept map[string]*collecting // by job id
}

// collecting is what a task has beyond its job.
type collecting struct {
	args   json.RawMessage     // of the call that became a task
	result *mcp.CallToolResult // once there is one: it can be collected once, and asked for again
}

// A taskResult is a task as the extension shows it.
type taskResult struct {
	mcp.ResultBase
	ResultType     string              `json:"resultType"`
	TaskID         string              `json:"taskId"`
	Status         string              `json:"status"`
	StatusMessage  string              `json:"statusMessage,omitempty"`
	CreatedAt      time.Time           `json:"createdAt"`
	LastUpdatedAt  time.Time           `json:"lastUpdatedAt"`
	TTLMs          int64               `json:"ttlMs"`
	PollIntervalMs int                 `json:"pollIntervalMs"`
	Result         *mcp.CallToolResult `json:"result,omitempty"`
}

// An acknowledgement is an empty answer.
type acknowledgement struct {
	mcp.ResultBase
	ResultType string `json:"resultType"`
}

type taskParams struct {
	mcp.ParamsBase
	TaskID         string          `json:"taskId"`
	InputResponses json.RawMessage `json:"inputResponses,omitempty"`
}

func newTasks(sv *server, collect string) *tasks {
	return &tasks{server: sv, collect: collect, kept: make(map[string]*collecting)}
}

func (t *tasks) register(s *mcp.Server) {
	s.AddReceivingMiddleware(t.middleware)
	// They fail only for the name of a method that the SDK has.
	mcp.AddReceivingCustomMethod(s, "tasks/get", t.get)
	mcp.AddReceivingCustomMethod(s, "tasks/update", t.update)
	mcp.AddReceivingCustomMethod(s, "tasks/cancel", t.cancel)
}

// middleware answers a call that would wait for a job with a task.
func (t *tasks) middleware(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		call, ok := req.(*mcp.CallToolRequest)
		if !ok || call.Params.Name != t.collect || !declaresTasks(call.Params.Meta) {
			return next(ctx, method, req)
		}
		answer, err := next(over(ctx), method, req)
		result, ok := answer.(*mcp.CallToolResult)
		if err != nil || !ok {
			return answer, err
		}
		id := running(result)
		snap, err := t.jobs.Check(id)
		if id == "" || err != nil {
			return answer, nil
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		t.kept[id] = &collecting{args: call.Params.Arguments}
		task := show(snap)
		task.ResultType = "task"
		return task, nil
	}
}

// over returns a context that is over, for a call that is not to wait. The tools
// then answer how things stand.
func over(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

// running returns the id of the job that a collect found running, "" if it has
// another answer.
func running(result *mcp.CallToolResult) string {
	var job struct {
		ID     string
		Status jobs.State
	}
	answer, _ := result.StructuredContent.(json.RawMessage)
	if json.Unmarshal(answer, &job) != nil || result.IsError || job.Status.Ended() {
		return ""
	}
	return job.ID
}

func (t *tasks) get(ctx context.Context, _ *mcp.ServerSession, p *taskParams) (*taskResult, error) {
	snap, err := t.find(p)
	if err != nil {
		return nil, err
	}
	if snap.State == jobs.Cancelled || !snap.Ended() {
		return show(snap), nil
	}
	task := show(snap)
	task.Status, task.Result = "completed", t.settle(ctx, snap.ID)
	return task, nil
}

// settle returns the answer to the call that became a task, the same each time.
func (t *tasks) settle(ctx context.Context, id string) *mcp.CallToolResult {
	t.mu.Lock()
	defer t.mu.Unlock()
	for other := range t.kept {
		if _, err := t.jobs.Check(other); err != nil {
			delete(t.kept, other) // the job is forgotten
		}
	}
	c := t.kept[id]
	if c == nil { // a server before this one made the task
		args, _ := json.Marshal(map[string]string{"id": id})
		c = &collecting{args: args}
		t.kept[id] = c
	}
	if c.result == nil {
		c.result = toolResult(t.tools.Call(over(ctx), t.collect, c.args))
		t.board.look()
	}
	return c.result
}

// update takes input for a task. None ever asks for any.
func (t *tasks) update(_ context.Context, _ *mcp.ServerSession, p *taskParams) (*acknowledgement, error) {
	if _, err := t.find(p); err != nil {
		return nil, err
	}
	return &acknowledgement{ResultType: "complete"}, nil
}

// cancel stops the job of a task. The stop goes on after the answer.
func (t *tasks) cancel(ctx context.Context, _ *mcp.ServerSession, p *taskParams) (*acknowledgement, error) {
	if _, err := t.find(p); err != nil {
		return nil, err
	}
	t.jobs.Cancel(over(ctx), p.TaskID)
	return &acknowledgement{ResultType: "complete"}, nil
}

// find returns the job of a task, for a client that may ask.
func (t *tasks) find(p *taskParams) (jobs.Snapshot, error) {
	if !declaresTasks(p.Meta) {
		data, _ := json.Marshal(map[string]any{"requiredCapabilities": map[string]any{"extensions": map[string]any{tasksExtension: struct{}{}}}})
		return jobs.Snapshot{}, &jsonrpc.Error{Code: mcp.CodeMissingRequiredClientCapabilities, Message: "the client does not declare " + tasksExtension, Data: data}
	}
	snap, err := t.jobs.Check(p.TaskID)
	if err != nil {
		return jobs.Snapshot{}, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("no such task: %v", err)}
	}
	return snap, nil
}

// show returns the task of a job, without the result.
func show(s jobs.Snapshot) *taskResult {
	task := &taskResult{
		ResultType:     "complete",
		TaskID:         s.ID,
		Status:         "working",
		StatusMessage:  s.Tool + ": " + s.Outcome(),
		CreatedAt:      s.Started.UTC(),
		LastUpdatedAt:  s.Started.Add(s.Elapsed - s.Idle).UTC(),
		TTLMs:          (s.Elapsed + jobs.DefaultRetainFor).Milliseconds(),
		PollIntervalMs: 1000,
	}
	if s.State == jobs.Cancelled {
		task.Status = "cancelled"
	}
	return task
}

// declaresTasks reports whether a request says that its client knows tasks.
// Each request of a protocol that has them says what its client knows; what an
// older client declares when it connects does not count, since it would take a
// task for an empty answer.
func declaresTasks(meta mcp.Meta) bool {
	version, _ := meta[mcp.MetaKeyProtocolVersion].(string)
	caps, _ := meta[mcp.MetaKeyClientCapabilities].(map[string]any)
	extensions, _ := caps["extensions"].(map[string]any)
	_, ok := extensions[tasksExtension]
	return ok && version >= tasksSince
}
