package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/agentjobs/jobs"
)

// A tour is one dialogue with the package. Its steps do nothing once err is
// set.
type tour struct {
	ctx   context.Context
	s     *jobs.Supervisor
	tools *jobs.Toolset
	begun time.Time
	ids   []string
	pids  []int // every process that must be gone in the end
	chars int   // of calls and answers
	err   error
}

func newTour(ctx context.Context, s *jobs.Supervisor) *tour {
	return &tour{
		ctx: ctx,
		s:   s,
		tools: s.Toolset(jobs.ToolsetOptions{
			Declared: []string{"go_vet", "go_test", "count", "server", "runaway", "user__ask"},
			Optional: jobs.WaitTool,
			Resolve:  resolve,
		}),
		begun: time.Now(),
	}
}

// A reply is what the tour needs to know of an answer.
type reply struct {
	Status     string
	JobID      string `json:"job_id"`
	Tool       string
	ExitCode   *int `json:"exit_code"`
	Signal     string
	Result     json.RawMessage
	OutputTail string `json:"output_tail"`
	Message    string
	Match      struct{ Line string }
	Survivors  []struct{ PID int }
	Jobs       []struct{ ID string }
}

func (t *tour) title(text string) {
	if t.err == nil {
		fmt.Printf("\n%s\n", text)
	}
}

// say prints one line of the transcript.
func (t *tour) say(mark, format string, args ...any) {
	fmt.Printf("%6.1fs %s %s\n", time.Since(t.begun).Seconds(), mark, fmt.Sprintf(format, args...))
}

// expect makes the tour fail unless what it has just shown is true.
func (t *tour) expect(truth bool, format string, args ...any) {
	if t.err == nil && !truth {
		t.err = fmt.Errorf("not true: "+format, args...)
	}
}

// call makes one call as a model would and shows both sides of it.
func (t *tour) call(name string, args map[string]any) (r reply) {
	if t.err != nil {
		return r
	}
	in, err := json.Marshal(args)
	if err != nil {
		t.err = err
		return r
	}
	t.say("model ▸", "%s %s", name, in)
	out, isError := t.tools.Call(t.ctx, name, in)
	t.say("host  ◂", "%s", out)
	t.chars += len(in) + len(out)
	t.err = json.Unmarshal(out, &r)
	t.expect(isError == (r.Status == "error"), "errors are marked as such")
	if t.err == nil {
		t.err = t.ctx.Err() // Ctrl-C ends a wait with an answer; it is the end of the tour
	}
	return r
}

func (t *tour) start(tool string, toolArgs map[string]string) (id string) {
	args := map[string]any{"tool": tool}
	if toolArgs != nil {
		text, _ := json.Marshal(toolArgs)
		args["arguments"] = string(text)
	}
	begun := time.Now()
	r := t.call("job__start", args)
	if t.err != nil {
		return ""
	}
	t.expect(r.Status == "ok" && time.Since(begun) < 5*time.Second, "%s was started without waiting for it", tool)
	t.ids = append(t.ids, r.JobID)
	if snap, err := t.s.Check(r.JobID); err == nil && snap.PID != 0 {
		t.pids = append(t.pids, snap.PID)
	}
	return r.JobID
}

func (t *tour) look(id string) {
	r := t.call("job__check", map[string]any{"id": id})
	t.expect(r.Status == "running" || r.Status == "completed", "%s runs or is done", id)
}

// collect takes a result, however many waits that needs.
func (t *tour) collect(id string) (r reply) {
	for t.err == nil {
		r = t.call("job__collect", map[string]any{"id": id})
		if r.Status != "running" {
			break
		}
	}
	return r
}

// passed expects a job to have succeeded.
func (t *tour) passed(r reply) {
	t.expect(r.Status == "completed" && r.ExitCode != nil && *r.ExitCode == 0, "%s succeeded", r.Tool)
	t.expect(!strings.Contains(r.OutputTail, "no tests to run"), "%s ran tests", r.Tool)
}

// sameNumbers compares the result of the counting job with what the host
// counted itself.
func (t *tour) sameNumbers(r reply, files, lines int) {
	if t.err != nil {
		return
	}
	var got struct{ Files, Lines int }
	t.err = json.Unmarshal(r.Result, &got)
	t.expect(got.Files == files && got.Lines == lines, "the job counted what the host did: %d files, %d lines", files, lines)
}

func (t *tour) collectedOnce(id string) {
	r := t.call("job__collect", map[string]any{"id": id})
	t.expect(r.Status == "error", "a result is handed out once")
}

func (t *tour) refused(tool string) {
	r := t.call("job__start", map[string]any{"tool": tool})
	t.expect(r.Status == "error" && strings.Contains(r.Message, tool), "%s is refused", tool)
	t.expect(t.err != nil || t.tools.Backgroundable(tool) != nil, "the policy says so too")
}

func (t *tour) countCode() (files, lines int) {
	if t.err != nil {
		return 0, 0
	}
	names, err := goFiles()
	for _, name := range names {
		data, readErr := os.ReadFile(name)
		err = errors.Join(err, readErr)
		lines += bytes.Count(data, []byte("\n"))
	}
	t.err = err
	t.say("       ", "%d files, %d lines, while %d jobs run", len(names), lines, t.s.List().Running)
	return len(names), lines
}

// awaitLine waits until the job prints a line that matches.
func (t *tour) awaitLine(id, pattern string) {
	r := t.call("job__wait", map[string]any{"ids": id, "pattern": pattern})
	t.expect(r.Match.Line == "listening on :8080", "the server said that it listens")
}

// stop cancels a job that obeys.
func (t *tour) stop(id string) {
	r := t.call("job__cancel", map[string]any{"id": id})
	t.expect(r.Status == "cancelled" && len(r.Survivors) == 0, "it was stopped")
}

// demoteAndWake makes a call that outlasts its grace, waits to be woken by its
// end, and collects what it printed before and after.
func (t *tour) demoteAndWake() {
	if t.err != nil {
		return
	}
	t.s.Drain() // told by now
	call := jobs.Spec{Tool: "index", Argv: []string{"sh", "-c", "echo half; sleep 1; echo whole"}}
	r, err := t.s.Run(t.ctx, call, 200*time.Millisecond)
	if err != nil {
		t.err = err
		return
	}
	t.ids = append(t.ids, r.ID)
	t.say("host  ◂", "%s", jobs.Texts{}.Demoted(r.Snapshot))
	t.expect(r.State == jobs.Running && string(r.Output.Bytes()) == "half\n", "the call goes on")
	select {
	case <-t.s.Ready():
	case <-t.ctx.Done():
		t.err = t.ctx.Err()
		return
	}
	notices := t.s.Drain()
	t.expect(len(notices) == 1 && notices[0].ID == r.ID, "its end was told, once")
	for _, n := range notices {
		t.say("host  ◂", "%s", strings.ReplaceAll(jobs.Texts{}.Turn(n, ""), "\n", "\n                "))
	}
	t.expect(t.collect(r.ID).OutputTail == "half\nwhole\n", "its output is in one piece")
}

// cancelRunaway learns the pids of the runaway and its child from its output,
// cancels it, and looks for both.
func (t *tour) cancelRunaway(id string) {
	if t.err != nil {
		return
	}
	chunk, err := t.s.Output(id, 0, 0)
	var leader, child int
	if err == nil {
		_, err = fmt.Sscan(string(chunk.Data), &leader, &child)
	}
	if err != nil {
		t.err = fmt.Errorf("the runaway did not tell its pids: %w", err)
		return
	}
	t.pids = append(t.pids, child)
	t.say("       ", "process %d, and %d in a session of its own; both alive: %v", leader, child, alive(leader) && alive(child))
	t.expect(alive(leader) && alive(child), "the runaway and its child are alive")

	begun := time.Now()
	r := t.call("job__cancel", map[string]any{"id": id})
	took := time.Since(begun)
	t.expect(r.Status == "cancelled" && r.Signal == "SIGKILL", "the runaway was killed")
	t.expect(took >= time.Second, "it had its second of grace")
	t.expect(len(r.Survivors) == 0 && !alive(leader) && !alive(child), "both are dead")
}

func (t *tour) listIsEmpty() {
	r := t.call("job__list", map[string]any{})
	t.expect(len(r.Jobs) == 0, "no job is left")
	if t.err == nil {
		t.say("       ", "the dialogue took %d characters", t.chars)
	}
}

// leave closes the supervisor and proves that no process is left of any job,
// however the tour went.
func (t *tour) leave(ctx context.Context) error {
	report, err := t.s.Close(ctx)
	for _, snap := range report.Stopped {
		t.say("close  ", "%s: %s", snap.Tool, snap.Outcome())
	}
	left := marked(t.ids)
	for _, pid := range t.pids {
		if alive(pid) {
			left = append(left, pid)
		}
	}
	if len(left) > 0 {
		return errors.Join(err, fmt.Errorf("not true: nothing is left; these processes are: %v", left))
	}
	t.say("proof  ", "of the processes of %d jobs none is alive", len(t.ids))
	return err
}
