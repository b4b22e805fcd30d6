package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"golang.org/x/sys/unix"
)

// withoutDescriptors calls f while this helper can open no more files.
func withoutDescriptors(f func()) {
	var usual syscall.Rlimit
	check(syscall.Getrlimit(syscall.RLIMIT_NOFILE, &usual) == nil, "getrlimit")
	limitDescriptors(lowestFree(), usual.Max)
	defer limitDescriptors(usual.Cur, usual.Max)
	f()
}

// limitDescriptors sets the limit of open files. The descriptors below it that
// are free stay so.
func limitDescriptors(n, most uint64) {
	check(syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: n, Max: most}) == nil, "setrlimit")
}

func TestTheFirstStartOfASupervisorMeetsEveryLimitOnDescriptors(t *testing.T) {
	for _, kind := range []string{"plain", "input", "split"} {
		t.Run(kind, func(t *testing.T) {
			runHelper(t, "first start without descriptors", "KIND="+kind, "DIR="+t.TempDir())
		})
	}
}

func init() {
	hostHelper("first start without descriptors", func() {
		debug.SetGCPercent(-1)
		dir, kind := os.Getenv("DIR"), os.Getenv("KIND")
		ctx := context.Background()
		spec := bash("cat; echo hi; echo 1 >$LLM_OUTPUT; exit 3")
		spec.Input, spec.SplitStderr = kind == "input", kind == "split"
		var usual syscall.Rlimit
		check(syscall.Getrlimit(syscall.RLIMIT_NOFILE, &usual) == nil, "getrlimit")
		warm := orExit(jobs.New(jobs.Config{TempDir: dir})) // the poller of the runtime
		warmUp(warm)
		orExit(warm.Close(ctx))
		before, refusals := descriptors(), 0
		for limit := lowestFree(); ; limit++ {
			s := orExit(jobs.New(jobs.Config{TempDir: dir, MaxRunning: 1}))
			limitDescriptors(limit, usual.Max)
			snap, err := s.Start(ctx, spec)
			limitDescriptors(usual.Cur, usual.Max)
			if err != nil {
				var refusal *jobs.StartError
				check(errors.As(err, &refusal) && errors.Is(err, syscall.EMFILE), "at %d: %v", limit, err)
				check(s.List().Running == 0 && len(s.List().Jobs) == 0 && len(s.Drain()) == 0, "at %d: a record is left", limit)
				refusals++
				snap = orExit(s.Start(ctx, spec)) // the one slot is free
			}
			if kind == "input" {
				orExit(s.Input(snap.ID)).Close()
			}
			r := orExit(s.Collect(ctx, snap.ID))
			check(r.ExitCode == 3 && strings.HasPrefix(string(r.Output.Bytes()), "hi\n"), "at %d: %s %q", limit, r.Outcome(), r.Output.Bytes())
			check(string(r.File.Data) == "1\n", "at %d: result %q %s", limit, r.File.Data, r.File.Problem)
			orExit(s.Close(ctx))
			check(eventually(func() bool { return descriptors() <= before }), "at %d: %d descriptors, before %d", limit, descriptors(), before)
			check(len(children()) == 0 && len(orExit(os.ReadDir(dir))) == 0, "at %d: something is left", limit)
			if err == nil {
				break
			}
		}
		check(refusals >= 5, "only %d limits were too low", refusals)
	})
}

// A host without a free descriptor can still count, end and tell its jobs.
func TestAHostThatRunsOutOfDescriptorsStillEndsItsJobs(t *testing.T) {
	runHelper(t, "host out of descriptors", "DIR="+t.TempDir())
}

func init() {
	hostHelper("host out of descriptors", func() {
		dir := os.Getenv("DIR")
		ctx := context.Background()
		s := orExit(jobs.New(jobs.Config{TempDir: dir, MaxRunning: 20, KillGrace: 100 * time.Millisecond}))
		warmUp(s)
		go_ := filepath.Join(dir, "go")
		check(unix.Mkfifo(go_, 0o600) == nil, "mkfifo")
		gate := orExit(os.OpenFile(go_, os.O_RDWR, 0))
		gated := func(script string) jobs.Spec {
			spec := bash(`read -r _ <"$GO"; ` + script)
			spec.Env = []string{"GO=" + go_}
			return spec
		}
		before := descriptors()
		started := func(spec jobs.Spec) string { return orExit(s.Start(ctx, spec)).ID }
		exits := started(gated("head -c 300000 /dev/zero | tr '\\0' z; echo; echo tail; exit 3"))
		writes := started(gated(`echo 1 >"$LLM_OUTPUT"`))
		prints := started(gated("echo ready; sleep 300"))
		late := gated("sleep 300")
		late.Timeout = 300 * time.Millisecond
		times := started(late)
		limited := gated("yes")
		limited.OutputLimit = 100_000
		floods := started(limited)
		grouped, mark := markedScript("sleep 300 & sleep 300 & wait")
		cancelled := started(grouped)
		check(eventually(func() bool { return len(marked(mark)) == 3 }), "no children")

		withoutDescriptors(func() {
			_, err := s.Start(ctx, bash("true"))
			check(errors.Is(err, syscall.EMFILE), "%v", err)
			fmt.Fprint(gate, strings.Repeat("\n", 5))
			w := orExit(s.Wait(ctx, jobs.WaitSpec{IDs: []string{prints}, Pattern: regexp.MustCompile("^ready$")}))
			check(w.Match != nil, "%+v", w)
			r := orExit(s.Collect(ctx, exits))
			check(r.ExitCode == 3 && r.OutputTotal == 300_006, "%s, %d bytes", r.Outcome(), r.OutputTotal)
			check(strings.HasSuffix(string(r.Output.Bytes()), "z\ntail\n"), "the end of the output is missing")
			check(r.Output.Total == r.Output.Dropped+int64(len(r.Output.Bytes())), "lost bytes unannounced")
			r = orExit(s.Collect(ctx, writes))
			check(r.State == jobs.Completed, "%s", r.Outcome())
			check(string(r.File.Data) == "1\n" || r.File.Problem != "", "a result is lost, and nothing says so")
			r = orExit(s.Collect(ctx, times))
			check(r.Reason == jobs.ReasonTimeout, "%s", r.Outcome())
			r = orExit(s.Collect(ctx, floods))
			check(r.Reason == jobs.ReasonOutputLimit && r.OutputTotal > 100_000, "%s, %d bytes", r.Outcome(), r.OutputTotal)
			r = orExit(s.Cancel(ctx, cancelled))
			check(r.State == jobs.Cancelled, "%s", r.Outcome())
			r = orExit(s.Collect(ctx, started(jobs.Spec{Func: func(_ context.Context, out io.Writer) (any, error) {
				_, err := io.WriteString(out, "a function needs none")
				return nil, err
			}})))
			check(r.State == jobs.Completed, "%s", r.Outcome())
		})

		check(len(marked(mark)) == 0, "processes %v live", marked(mark))
		orExit(s.Cancel(ctx, prints))
		warmUp(s)
		check(len(s.Drain()) == 0, "an end was told twice")
		check(eventually(func() bool { return descriptors() <= before+onFirstNeed }), "%d descriptors, before %d", descriptors(), before)
		gate.Close()
		orExit(s.Close(ctx))
		check(len(children()) == 0, "children %v", children())
		check(len(orExit(os.ReadDir(dir))) == 1, "the directory is left")
	})
}

func init() {
	hostHelper("strays without descriptors", func() {
		ctx := context.Background()
		s := orExit(jobs.New(jobs.Config{KillGrace: 100 * time.Millisecond}))
		warmUp(s)
		script := `setsid sleep 300 >/dev/null 2>&1 & until [ "$(</proc/$!/comm)" = sleep ]; do :; done; echo ready; `
		if os.Getenv("HOW") == "cancel" {
			script += "wait"
		} else {
			script += "read -r _; exit 0"
		}
		spec, mark := markedScript(script)
		spec.Input = true
		job := orExit(s.Start(ctx, spec))
		check(eventually(func() bool { return orExit(s.Check(job.ID)).OutputTotal > 0 }), "no stray")
		input := orExit(s.Input(job.ID))
		var r jobs.Result
		withoutDescriptors(func() {
			if os.Getenv("HOW") == "cancel" {
				r = orExit(s.Cancel(ctx, job.ID))
				return
			}
			orExit(io.WriteString(input, "\n"))
			r = orExit(s.Collect(ctx, job.ID))
		})
		live := marked(mark)
		for _, pid := range live {
			unix.Kill(pid, unix.SIGKILL)
		}
		check(len(live) == 0 || len(r.Survivors) > 0 || r.Err != nil, "%s, and nothing says that %v live", r.Outcome(), live)
		orExit(s.Close(ctx))
	})
}

// What leaves its group is known from /proc alone, and whoever cannot look must
// not say that nothing is left.
func TestAStopWithoutDescriptorsDoesNotPretendThatStraysAreGone(t *testing.T) {
	for _, how := range []string{"cancel", "exit"} {
		t.Run(how, func(t *testing.T) { runHelper(t, "strays without descriptors", "HOW="+how) })
	}
}
