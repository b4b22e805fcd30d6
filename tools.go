package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"time"
)

// The names of the tools, before any rename.
const (
	toolStart   = "job__start"
	toolCheck   = "job__check"
	toolCollect = "job__collect"
	toolCancel  = "job__cancel"
	toolList    = "job__list"
	toolWait    = "job__wait"
	toolOutput  = "job__output"
	toolWrite   = "job__write"
)

// OptionalTools are tools that a Toolset has only if asked. They can be
// combined with "|".
type OptionalTools uint8

const (
	// WaitTool is job__wait: wait for one of several jobs, for all of them, or
	// for a line of output.
	WaitTool OptionalTools = 1 << iota
	// OutputTool is job__output: read output from any offset.
	OutputTool
	// WriteTool is job__write: type into the standard input of a job that was
	// started with [Spec.Input].
	WriteTool
)

// DefaultToolWait is how long job__collect and job__wait wait at most.
const DefaultToolWait = 25 * time.Second

// ToolsetOptions configures a [Toolset].
type ToolsetOptions struct {
	// Declared holds the names of the tools that the model was told of in this
	// request. Only they can be started as jobs. It is copied.
	Declared []string

	// ExplainID is asked about an id that is not a job's. If it knows better,
	// such as that this is the id of a sub-agent and which tool takes it, it
	// returns the sentence for the model, else "". May be nil.
	ExplainID func(id string) string

	// Optional says which tools there are besides the five that every Toolset
	// has. Defaults to none.
	Optional OptionalTools

	// Policy decides which declared tools may run in the background. Nil means
	// [DefaultPolicy].
	Policy Policy

	// Rename gives the tools other names, a different one for each. It is asked
	// once, when the Toolset is made. Nil means no change.
	Rename func(name string) string

	// Resolve turns a call of a declared tool into what to run. args is a JSON
	// object. An error is shown to the model. If Resolve is nil no tool can be
	// started. See [ScriptTools] for tools that are executables.
	Resolve func(ctx context.Context, tool string, args json.RawMessage) (Spec, error)

	// Wait is how long job__collect waits for the end of a job before it
	// answers that the job still runs, and the most that job__wait waits.
	// Defaults to 25 seconds.
	Wait time.Duration
}

// A Toolset is the face that a model sees: tools, their declarations and the
// answers to their calls. Make one for each request to the model, so that
// what can be started is what that request declared. Its methods are safe for
// concurrent use.
type Toolset struct {
	s        *Supervisor
	declared []string
	tools    []tool
	policy   Policy
	resolve  func(context.Context, string, json.RawMessage) (Spec, error)
	explain  func(string) string
	wait     time.Duration
	words    words
}

// Toolset returns the tools for one request to a model.
func (s *Supervisor) Toolset(o ToolsetOptions) *Toolset {
	t := &Toolset{
		s:        s,
		declared: slices.Clone(o.Declared),
		policy:   o.Policy,
		resolve:  o.Resolve,
		explain:  o.ExplainID,
		wait:     o.Wait,
		words:    newWords(o.Rename),
	}
	for _, tool := range toolTable {
		if tool.optional == 0 || tool.optional&o.Optional != 0 {
			t.tools = append(t.tools, tool)
		}
	}
	if t.policy == nil {
		t.policy = DefaultPolicy
	}
	if t.wait <= 0 {
		t.wait = DefaultToolWait
	}
	return t
}

// A Declaration describes a tool to a model.
type Declaration struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	// Parameters is a JSON Schema of the subset that every provider takes: an
	// object with properties and required, of strings, integers and booleans.
	Parameters json.RawMessage `json:"parameters"`
}

// Declarations returns the tools to declare to the model, in a fixed order. It
// returns none if the supervisor is disabled.
func (t *Toolset) Declarations() []Declaration {
	if t.s.cfg.Disabled {
		return nil
	}
	ds := make([]Declaration, len(t.tools))
	for i, tool := range t.tools {
		ds[i] = Declaration{
			Name:        t.words[tool.name],
			Description: tool.description,
			Parameters:  tool.schema(),
		}
	}
	return ds
}

// Call answers a model's call of one of the tools. args is the JSON object of
// its arguments; empty or null means none.
//
// The answer is always one JSON object, no longer than 64 KiB unless
// full_result asks for more. isError is set if its status is "error": nothing
// was done, and its message says what to do instead. Call never panics and has
// no other way to fail.
//
// The context ends a wait, never a job.
//
// Ends that the model has not been told of come along as "notices", a few at a
// time; they count as told when Call returns.
func (t *Toolset) Call(ctx context.Context, name string, args json.RawMessage) (out json.RawMessage, isError bool) {
	a := t.answer(ctx, name, args)
	// A call that was given up may have nobody who reads its answer.
	if !t.s.cfg.Disabled && ctx.Err() == nil {
		for _, n := range t.s.takeNotices(noticesPerAnswer) {
			a.Notices = append(a.Notices, n.view(t.words))
		}
	}
	return a.encode(), a.Status == statusError
}

// answer finds the tool, reads its arguments and runs it. Code of the host may
// panic in here.
func (t *Toolset) answer(ctx context.Context, name string, args json.RawMessage) (a answer) {
	defer func() {
		if v := recover(); v != nil {
			a = failed(t.words.hostFailed(v))
		}
	}()
	if t.s.cfg.Disabled {
		return failed(t.words.disabled())
	}
	for _, tool := range t.tools {
		if t.words[tool.name] != name {
			continue
		}
		in, fault := tool.read(t.words, args)
		if fault != "" {
			return failed(fault)
		}
		return tool.run(t, ctx, in)
	}
	return failed(t.words.unknownTool(name, t.tools))
}

func (t *Toolset) start(ctx context.Context, in input) answer {
	if err := t.Backgroundable(in.Tool); err != nil {
		var refused *NotAllowedError
		errors.As(err, &refused)
		return failed(t.words.notAllowed(refused, t.backgroundable()))
	}
	if t.resolve == nil {
		return failed(t.words.noResolver())
	}
	spec, err := t.resolve(ctx, in.Tool, in.Arguments)
	if err != nil {
		return failed(t.words.startError(err, t.backgroundable(), t.running()))
	}
	if spec.Tool == "" {
		spec.Tool = in.Tool
	}
	snap, err := t.s.Start(ctx, spec)
	if err != nil {
		return failed(t.words.startError(err, t.backgroundable(), t.running()))
	}
	return answer{Status: statusOK, JobID: snap.ID, Tool: readable(snap.Tool, nameLimit), Message: t.words.started()}
}

func (t *Toolset) check(_ context.Context, in input) answer {
	snap, look, err := t.s.look(in.ID)
	if err != nil {
		return t.failedJob(err)
	}
	a := about(snap)
	a.Tool = ""
	if snap.Ended() {
		a.outcome(snap)
		a.Message = t.words.endedNotCollected(snap)
		if snap.Collected {
			a.Message = t.words.alreadyCollected()
		}
	} else {
		a.NextCheckSecs = look.nextCheck()
		a.Unchanged = look.same > 0
		if look.same >= unchangedBeforeHint {
			a.Hint = t.words.unchanged()
		}
		if a.WaitingForInput = snap.WaitingForInput; a.WaitingForInput {
			a.Hint = t.words.waitingForInput(t.has(toolWrite), a.Unchanged)
		}
	}
	if snap.Collected || in.TailLines == nil && (a.Unchanged || snap.Ended()) {
		return a
	}
	a.Tool = readable(snap.Tool, nameLimit)
	a.LeaderExited = snap.LeaderExited && !snap.Ended()
	a.IdleSecs = seconds(snap.Idle)
	if chunkLog, err := t.s.logs(in.ID); err == nil {
		a.tail(chunkLog, snap, TextOptions{TailLines: in.tailLines()}, checkTailCap)
	}
	return a
}

func (t *Toolset) collect(ctx context.Context, in input) answer {
	wait, cancel := context.WithTimeout(ctx, t.wait)
	defer cancel()
	r, err := t.s.Collect(wait, in.ID)
	if err != nil && r.Ended() {
		r, err = t.s.Collect(context.WithoutCancel(ctx), in.ID) // the end came as the wait did
	}
	if err != nil && r.ID != "" {
		// The wait is over, the job is not.
		a := about(r.Snapshot)
		a.Captured = r.captured()
		a.Message = t.words.stillRunning(t.wait)
		if !a.pending(t.words, err) && ctx.Err() != nil {
			a.Message = t.words.notDone(r.Snapshot)
		}
		return a
	}
	if err != nil {
		return t.failedJob(err)
	}
	return t.result(r, in)
}

// result is the answer that hands out the result of an ended job.
func (t *Toolset) result(r Result, in input) answer {
	a := about(r.Snapshot)
	a.full = in.FullResult
	a.outcome(r.Snapshot)
	o := TextOptions{TailLines: in.tailLines(), Full: in.FullResult}
	a.Note = r.File.Problem
	a.Result = r.File.JSON() // "DONE", if it is blank
	tailCap := TextCap
	if !r.File.blank() {
		text := r.File.Text(o)
		a.setResult(r.File, text)
		a.capped = !in.FullResult && text.Shown == TextCap
		tailCap = besideResultCap
	}
	if r.State != Completed {
		a.setFailure(t.words.callError(r.Snapshot))
	}
	a.tail(logsOf(r), r.Snapshot, o, tailCap)
	return a
}

func (t *Toolset) cancel(ctx context.Context, in input) answer {
	r, err := t.s.Cancel(ctx, in.ID)
	if err != nil && r.Ended() {
		r, err = t.s.Cancel(context.WithoutCancel(ctx), in.ID) // the end came as the wait did
	}
	if err != nil && r.ID == "" {
		return t.failedJob(err)
	}
	a := about(r.Snapshot)
	if err != nil {
		a.Message = t.words.notDone(r.Snapshot)
		return a
	}
	a.outcome(r.Snapshot)
	a.Message = t.words.stopped(r.Snapshot)
	if r.State == Cancelled {
		a.tail(logsOf(r), r.Snapshot, TextOptions{}, besideResultCap)
	}
	return a
}

func (t *Toolset) list(context.Context, input) answer {
	l := t.s.List()
	a := answer{Status: statusOK, ActiveJobs: new(int), MaxJobs: &l.MaxRunning, Jobs: []jobLine{}}
	for _, snap := range l.Jobs {
		if !snap.Ended() {
			*a.ActiveJobs++
		}
		a.Jobs = append(a.Jobs, lineOf(snap))
	}
	return a
}

// running counts the jobs that the model can wait for or stop.
func (t *Toolset) running() (n int) {
	for _, snap := range t.s.List().Jobs {
		if !snap.Ended() {
			n++
		}
	}
	return n
}

// has reports whether the Toolset has a tool.
func (t *Toolset) has(name string) bool {
	return slices.ContainsFunc(t.tools, func(tool tool) bool { return tool.name == name })
}

// failedJob answers an error about one job.
func (t *Toolset) failedJob(err error) answer {
	var je *JobError
	if errors.As(err, &je) && errors.Is(err, ErrNotFound) && t.explain != nil {
		if text := t.explain(je.ID); text != "" {
			return failed(readable(text, 4000))
		}
	}
	return failed(t.words.jobError(err))
}

// encodeJSON encodes v without making "<" unreadable: the reader is a model,
// not a browser.
func encodeJSON(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// seconds rounds d to tenths of a second.
func seconds(d time.Duration) float64 {
	return math.Round(d.Seconds()*10) / 10
}
