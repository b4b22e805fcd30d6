package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/agentjobs/jobs"
)

// A tour is one walk through the package. Its steps do nothing once err is
// set.
type tour struct {
	ctx   context.Context
	s     *jobs.Supervisor
	begun time.Time
	tools map[string]string // tool names by job id
	pids  []int             // every process that must be gone in the end
	err   error
}

func newTour(ctx context.Context, s *jobs.Supervisor) *tour {
	return &tour{ctx: ctx, s: s, begun: time.Now(), tools: make(map[string]string)}
}

func (t *tour) title(text string) {
	if t.err == nil {
		fmt.Printf("\n%s\n", text)
	}
}

// say prints one line of the transcript.
func (t *tour) say(verb, format string, args ...any) {
	fmt.Printf("  %5.1fs  %-8s %s\n", time.Since(t.begun).Seconds(), verb, fmt.Sprintf(format, args...))
}

// expect makes the tour fail unless what it has just shown is true.
func (t *tour) expect(truth bool, format string, args ...any) {
	if t.err == nil && !truth {
		t.err = fmt.Errorf("not true: "+format, args...)
	}
}

func (t *tour) start(tool string, argv ...string) (id string) {
	if t.err != nil {
		return ""
	}
	begun := time.Now()
	snap, err := t.s.Start(t.ctx, jobs.Spec{Tool: tool, Argv: argv})
	if err != nil {
		t.err = err
		return ""
	}
	t.tools[snap.ID] = tool
	t.pids = append(t.pids, snap.PID)
	t.say("start", "%-8s %s (pid %d, %v)", tool, snap.ID, snap.PID, time.Since(begun).Round(100*time.Microsecond))
	t.expect(snap.State == jobs.Running, "%s runs", tool)
	return snap.ID
}

func (t *tour) check(id string) {
	if t.err != nil {
		return
	}
	snap, err := t.s.Check(id)
	if t.err = err; err != nil {
		return
	}
	t.say("check", "%-8s %s for %.1f s, %d bytes of output", snap.Tool, snap.State, snap.Elapsed.Seconds(), snap.OutputTotal)
	again, err := t.s.Check(id)
	t.expect(err == nil && !(snap.Ended() && !again.Ended()), "%s can be looked at again", snap.Tool)
}

func (t *tour) collect(id string) jobs.Result {
	if t.err != nil {
		return jobs.Result{}
	}
	r, err := t.s.Collect(t.ctx, id)
	if err != nil {
		t.err = fmt.Errorf("collecting %s: %w", t.tools[id], err)
		return jobs.Result{}
	}
	t.say("collect", "%-8s %s after %.1f s", r.Tool, r.Outcome(), r.Elapsed.Seconds())
	t.expect(r.OutputTotal == r.OutputDropped+int64(len(r.Output.Bytes())), "every byte of %s is accounted for", r.Tool)
	return r
}

// passed shows what a job printed last and expects it to have succeeded.
func (t *tour) passed(r jobs.Result) {
	if t.err != nil {
		return
	}
	out := bytes.TrimSpace(r.Output.Bytes())
	last := out[bytes.LastIndexByte(out, '\n')+1:]
	if len(last) == 0 {
		last = []byte("(printed nothing)")
	}
	t.say("", "%-8s %s", "", last)
	t.expect(r.State == jobs.Completed && r.ExitCode == 0, "%s succeeded:\n%s", r.Tool, out)
	t.expect(!bytes.Contains(out, []byte("no tests to run")), "%s ran tests", r.Tool)
}

// sameNumbers compares the result of the counting job with what the host
// counted itself.
func (t *tour) sameNumbers(r jobs.Result, files, lines int) {
	if t.err != nil {
		return
	}
	t.say("", "%-8s result %s", "", r.File.JSON())
	var got struct{ Files, Lines int }
	if t.err = json.Unmarshal(r.File.JSON(), &got); t.err != nil {
		return
	}
	t.expect(got.Files == files && got.Lines == lines, "the job counted what the host did: %d files, %d lines", files, lines)
}

func (t *tour) collectedOnce(id string) {
	if t.err != nil {
		return
	}
	_, err := t.s.Collect(t.ctx, id)
	t.say("collect", "%-8s again: %v", t.tools[id], err)
	t.expect(errors.Is(err, jobs.ErrCollected), "a result is handed out once")
}

func (t *tour) countCode() (files, lines int) {
	if t.err != nil {
		return 0, 0
	}
	names, err := filepath.Glob("*.go")
	if t.err = err; err == nil && len(names) == 0 {
		t.err = errors.New("no Go files here: run it in the root of the module")
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		t.err = errors.Join(t.err, err)
		lines += bytes.Count(data, []byte("\n"))
	}
	t.say("think", "%d files, %d lines, while %d jobs run", len(names), lines, t.s.List().Running)
	return len(names), lines
}

// cancelRunaway learns the pids of the runaway and its child from its output,
// cancels it, and looks for both.
func (t *tour) cancelRunaway(id string) {
	if t.err != nil {
		return
	}
	chunk, err := t.s.Output(id, 0, 0)
	if err != nil {
		t.err = err
		return
	}
	var leader, child int
	if _, err := fmt.Sscan(string(chunk.Data), &leader, &child); err != nil {
		t.err = fmt.Errorf("the runaway did not tell its pids: %q", chunk.Data)
		return
	}
	t.pids = append(t.pids, child)
	t.say("look", "%-8s process %d, and %d in a session of its own; both alive: %v", "", leader, child, alive(leader) && alive(child))
	t.expect(alive(leader) && alive(child), "the runaway and its child are alive")

	begun := time.Now()
	r, err := t.s.Cancel(t.ctx, id)
	if err != nil {
		t.err = fmt.Errorf("cancelling the runaway: %w", err)
		return
	}
	took := time.Since(begun)
	t.say("cancel", "%-8s %s, in %.1f s", r.Tool, r.Outcome(), took.Seconds())
	t.expect(r.State == jobs.Cancelled && r.Signal == 9, "the runaway was killed")
	t.expect(took >= time.Second, "it had its second of grace")
	t.expect(len(r.Survivors) == 0, "no survivor: %v", r.Survivors)
}

// listIsEmpty takes the last result and shows that no job is left.
func (t *tour) listIsEmpty(last string) {
	t.collect(last)
	if t.err != nil {
		return
	}
	l := t.s.List()
	t.say("list", "%d jobs, %d of %d slots taken", len(l.Jobs), l.Running, l.MaxRunning)
	t.expect(len(l.Jobs) == 0 && l.Running == 0, "no job is left")
}

// leave closes the supervisor and proves that no process is left of any job,
// however the tour went.
func (t *tour) leave(ctx context.Context) error {
	report, err := t.s.Close(ctx)
	for _, snap := range report.Stopped {
		t.say("close", "%-8s %s", snap.Tool, snap.Outcome())
	}
	left := marked(t.tools)
	for _, pid := range t.pids {
		if alive(pid) {
			left = append(left, pid)
		}
	}
	if len(left) > 0 {
		return errors.Join(err, fmt.Errorf("not true: nothing is left; these processes are: %v", left))
	}
	t.say("proof", "of %d processes of %d jobs none is alive", len(t.pids), len(t.tools))
	return err
}

// alive reports whether a process runs. A zombie does not: it waits for its
// parent to read its exit code.
func alive(pid int) bool {
	if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
		_, state, _ := strings.Cut(string(stat), ") ")
		return !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
	}
	p, err := os.FindProcess(pid)
	return err == nil && p.Signal(syscall.Signal(0)) == nil
}

// marked returns the live processes that carry the id of one of our jobs in
// their environment, where the system shows it.
func marked(ids map[string]string) []int {
	var pids []int
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		env, _ := os.ReadFile(file)
		for id := range ids {
			var pid int
			fmt.Sscanf(file, "/proc/%d/", &pid)
			if bytes.Contains(env, []byte(jobs.EnvJob+"=")) && bytes.Contains(env, []byte(id)) && alive(pid) {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}
