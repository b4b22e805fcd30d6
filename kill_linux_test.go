package jobs_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// markedScript is a Spec that runs a script whose processes all carry a mark
// in their environment, and the mark.
func markedScript(script string) (spec jobs.Spec, mark string) {
	mark = "JOBS_TEST_MARK=" + rand.Text()
	spec = bash(script)
	spec.Env = []string{mark}
	return spec, mark
}

// comm returns the name of a process, "" if it is gone.
func comm(pid int) string {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return strings.TrimSpace(string(data))
}

// awaitSleepers waits until n processes with the mark have become a sleep, and
// returns them. One that is still on its way there may not have left its group
// or its session yet.
func awaitSleepers(t testing.TB, mark string, n int) []int {
	t.Helper()
	var found []int
	ok := eventually(func() bool {
		found = slices.DeleteFunc(marked(mark), func(pid int) bool { return comm(pid) != "sleep" })
		return len(found) >= n
	})
	require.True(t, ok, "%d of %d sleepers: %v", len(found), n, found)
	return found
}

// fifo makes a named pipe and returns its path and its open end. A job that
// reads a line from it waits for the test.
func fifo(t testing.TB) (path string, end *os.File) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, unix.Mkfifo(path, 0o600))
	end, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	t.Cleanup(func() { end.Close() })
	return path, end
}

func init() {
	// A helper built with -race would take a second to exit.
	if os.Getenv("GORACE") == "" {
		os.Setenv("GORACE", "atexit_sleep_ms=0")
	}
}

// hostHelper registers a helper that is a host of its own. It gives up, loudly,
// before the test that waits for it would.
func hostHelper(name string, run func()) {
	helpers[name] = func() {
		time.AfterFunc(patience, func() { check(false, "%s hangs", name) })
		run()
	}
}

// orExit returns v, and ends a helper process if there was an error.
func orExit[T any](v T, err error) T {
	check(err == nil, "%v", err)
	return v
}

// launch starts the command of a helper. Whatever becomes of the test, the
// helper is gone after it.
func launch(t testing.TB, c *exec.Cmd) {
	t.Helper()
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait() // an error, if it has been waited for
	})
}

// endProcess kills a process that a test is responsible for.
func endProcess(t testing.TB, pid int) {
	t.Cleanup(func() { unix.Kill(pid, unix.SIGKILL) })
}

func TestALeaderHasItsOwnGroupAndSessionAndNoTerminal(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	job := start(t, s, bash("sleep 300"))
	pgid, err := unix.Getpgid(job.PID)
	require.NoError(t, err)
	assert.Equal(t, job.PID, pgid)
	sid, err := unix.Getsid(job.PID)
	require.NoError(t, err)
	assert.Equal(t, job.PID, sid)
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", job.PID))
	require.NoError(t, err)
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')'):]))
	assert.Equal(t, "0", fields[5], "controlling terminal")
	r := cancel(t, s, job.ID)
	requireDead(t, job.PID)
	assert.Zero(t, r.PID, "a reaped process has no number to show")
}

// Nothing in these jobs minds SIGTERM, wherever it went, so none of them may
// need the grace.
func TestCancelEndsTheWholeTreeByTERM(t *testing.T) {
	s := newSupervisor(t, jobs.Config{KillGrace: patience})
	for _, tt := range []struct {
		name   string
		script string
		sleeps int
	}{
		{"a child", `sleep 300 & wait`, 1},
		{"a child without pipes", `sleep 300 >/dev/null 2>&1 & wait`, 1},
		{"an orphan in the group", `(sleep 300 &); sleep 300`, 2},
		{"a pipeline", `sleep 300 | tee log`, 1},
		{"GNU timeout moves to a group of its own", `timeout 300 sleep 300; true`, 1},
		{"job control gives each child a group", `set -m; sleep 300 & sleep 300 & wait`, 2},
		{"a child in a session of its own", `setsid sleep 300 & wait`, 1},
		{"an orphan in a session of its own holds the pipe", `setsid -f sleep 300; sleep 300`, 2},
		{"an orphan in a session of its own is quiet", `setsid -f sleep 300 >/dev/null 2>&1; sleep 300`, 2},
		{"a double fork", `( (setsid sleep 300 >/dev/null 2>&1 &) & ); sleep 300`, 2},
		{"nohup and disown", `nohup sleep 300 >/dev/null 2>&1 & sleep 300 & disown; sleep 300`, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			spec, mark := markedScript(tt.script)
			spec.Dir = t.TempDir()
			id := start(t, s, spec).ID
			sleepers := awaitSleepers(t, mark, tt.sleeps)
			r := cancel(t, s, id)
			requireDead(t, sleepers...)
			require.Empty(t, marked(mark))
			assert.Equal(t, jobs.Cancelled, r.State)
			assert.Equal(t, jobs.ReasonCancelled, r.Reason)
			assert.Nil(t, r.Survivors)
			assert.NoError(t, r.Err)
		})
	}
}

func TestCancelKillsWhatIgnoresTERMAfterTheGrace(t *testing.T) {
	const grace = 400 * time.Millisecond
	s := newSupervisor(t, jobs.Config{KillGrace: grace})
	for _, tt := range []struct {
		name   string
		script string
		signal unix.Signal // of the leader
	}{
		{"the leader", `trap '' TERM; sleep 300; true`, unix.SIGKILL},
		{"a grandchild that holds the pipes", `(trap '' TERM; exec sleep 300) & wait`, unix.SIGTERM},
		{"a grandchild without pipes", `(trap '' TERM; exec sleep 300 >/dev/null 2>&1) & wait`, unix.SIGTERM},
		{"a grandchild whose parent exits at TERM", `trap 'exit 0' TERM; (trap '' TERM; exec sleep 300 >/dev/null 2>&1) & wait`, 0},
		{"a grandchild in a group of its own", `set -m; (trap '' TERM; exec sleep 300) & wait`, unix.SIGTERM},
		{"a grandchild in a session of its own", `(trap '' TERM; exec setsid sleep 300) & wait`, unix.SIGTERM},
		{"script, which takes its time to close a terminal", `script -qc 'nohup sleep 300' /dev/null; true`, unix.SIGTERM},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			spec, mark := markedScript(tt.script)
			id := start(t, s, spec).ID
			sleepers := awaitSleepers(t, mark, 1)
			begun := time.Now()
			r := cancel(t, s, id)
			took := time.Since(begun)
			requireDead(t, sleepers...)
			require.Empty(t, marked(mark))
			assert.Equal(t, jobs.Cancelled, r.State)
			assert.Equal(t, jobs.ReasonCancelled, r.Reason)
			assert.EqualValues(t, tt.signal, r.Signal)
			assert.Nil(t, r.Survivors)
			assert.GreaterOrEqual(t, took, grace, "killed before the grace was over")
		})
	}
}

// A shell that has just forked may lose a TERM while it still has the traps of
// its parent, so these may need the grace and may not.
func TestCancelEndsWhatATrapForks(t *testing.T) {
	s := newSupervisor(t, jobs.Config{KillGrace: 200 * time.Millisecond})
	for _, script := range []string{
		`trap 'sleep 300 & exit 0' TERM; sleep 300 & wait`,
		`trap 'setsid sleep 300 >/dev/null 2>&1 & exit 0' TERM; sleep 300 & wait`,
		`trap '(trap "" TERM; exec setsid sleep 300) & exit 0' TERM; sleep 300 & wait`,
		`trap 'while sleep 0.01; do setsid sleep 300 >/dev/null 2>&1 & done' TERM; sleep 300 & wait`,
	} {
		t.Run(script, func(t *testing.T) {
			spec, mark := markedScript(script)
			id := start(t, s, spec).ID
			sleepers := awaitSleepers(t, mark, 1)
			r := cancel(t, s, id)
			requireDead(t, sleepers...)
			require.Empty(t, marked(mark))
			assert.Equal(t, jobs.Cancelled, r.State)
			assert.Nil(t, r.Survivors)
		})
	}
}

func TestCancelFindsAScrubbedDaemonWhileItsParentLives(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	id := start(t, s, bash(`env -i setsid sleep 300 >/dev/null 2>&1 & echo $!; wait`)).ID
	daemon := pids(t, awaitOutput(t, s, id, "\n"))[0]
	endProcess(t, daemon)
	require.True(t, eventually(func() bool { return comm(daemon) == "sleep" }))
	cancel(t, s, id)
	requireDead(t, daemon)
}

func TestCancelLetsATrapSpeakAndExit(t *testing.T) {
	s := newSupervisor(t, jobs.Config{KillGrace: patience})
	for _, tt := range []struct {
		name   string
		script string
		code   int
	}{
		{"with success", `trap 'echo bye; exit 0' TERM; sleep 300 & wait`, 0},
		// The shell runs its trap only once its child has ended: TERM must
		// have reached both.
		{"behind a foreground child", `trap 'echo bye; exit 9' TERM; sleep 300; exit 1`, 9},
	} {
		t.Run(tt.name, func(t *testing.T) {
			spec, mark := markedScript(tt.script)
			id := start(t, s, spec).ID
			awaitSleepers(t, mark, 1)
			r := cancel(t, s, id)
			assert.Equal(t, jobs.Cancelled, r.State)
			assert.Equal(t, jobs.ReasonCancelled, r.Reason)
			assert.Equal(t, tt.code, r.ExitCode)
			assert.Zero(t, r.Signal)
			assert.Contains(t, string(r.Output.Bytes()), "bye\n")
		})
	}
}

func TestCancelSendsTERMAndCONTOnceToEachProcess(t *testing.T) {
	s := newSupervisor(t, jobs.Config{KillGrace: patience})
	dir := t.TempDir()
	spec := bash(`listen() {
	trap "echo $1 TERM >>told" TERM
	trap "echo $1 CONT >>told" CONT
	echo $1
	until [ -e enough ]; do sleep 0.01; done
}
listen child 2>/dev/null &
set -m
listen stray 2>/dev/null &
set +m
listen leader 2>/dev/null`)
	spec.Dir = dir
	var want []string
	id := start(t, s, spec).ID
	for _, name := range []string{"leader", "child", "stray"} {
		awaitOutput(t, s, id, name)
		want = append(want, name+" TERM", name+" CONT")
	}
	told := func() []string {
		data, _ := os.ReadFile(filepath.Join(dir, "told"))
		return strings.Split(strings.TrimSpace(string(data)), "\n")
	}
	done := make(chan error, 1)
	go func() {
		_, err := s.Cancel(testContext(t), id)
		done <- err
	}()
	assert.True(t, eventually(func() bool { return len(told()) >= len(want) }))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "enough"), nil, 0o600))
	require.NoError(t, <-done)
	assert.ElementsMatch(t, want, told())
}

func TestAStoppedJobGoesOnToTakeItsTERM(t *testing.T) {
	s := newSupervisor(t, jobs.Config{KillGrace: patience})
	for _, tt := range []struct {
		name   string
		end    func(t *testing.T, id string) jobs.Result
		state  jobs.State
		reason jobs.Reason
	}{
		{"at a cancel", func(t *testing.T, id string) jobs.Result { return cancel(t, s, id) }, jobs.Cancelled, jobs.ReasonCancelled},
		{"at its timeout", func(t *testing.T, id string) jobs.Result { return collect(t, s, id) }, jobs.Failed, jobs.ReasonTimeout},
	} {
		t.Run(tt.name, func(t *testing.T) {
			spec, mark := markedScript(`sleep 300 & kill -STOP $! $$; echo resumed`)
			if tt.reason == jobs.ReasonTimeout {
				spec.Timeout = time.Second
			}
			job := start(t, s, spec)
			require.True(t, eventually(func() bool { return procState(job.PID) == "T" }))
			r := tt.end(t, job.ID)
			require.Empty(t, marked(mark))
			assert.Equal(t, tt.state, r.State)
			assert.Equal(t, tt.reason, r.Reason)
			assert.EqualValues(t, unix.SIGTERM, r.Signal)
		})
	}
}

func TestATimeoutEndsTheWholeTree(t *testing.T) {
	const timeout = 500 * time.Millisecond
	scripts := []string{
		`sleep 300`,
		`sleep 300; true`,
		`(sleep 300)`,
		`sleep 300 | cat`,
		`sleep 300 & wait`,
		`sleep 300 & sleep 300 & wait`,
		`(echo slow; sleep 300) | tee log`,
		`yes | cat >/dev/null`,
		`for i in 1 2 3; do (while :; do :; done) & done; wait`,
	}
	shells := []string{"bash", "sh"}
	s := newSupervisor(t, jobs.Config{MaxRunning: len(scripts) * len(shells), KillGrace: patience, Timeout: timeout})
	type running struct{ name, id, mark string }
	var all []running
	for _, shell := range shells {
		for _, script := range scripts {
			spec, mark := markedScript(script)
			spec.Argv[0] = shell
			spec.Dir = t.TempDir()
			all = append(all, running{shell + ": " + script, start(t, s, spec).ID, mark})
		}
	}
	for _, job := range all {
		r := collect(t, s, job.id)
		assert.Empty(t, marked(job.mark), job.name)
		assert.Equal(t, "failed, timeout, SIGTERM", r.Outcome(), job.name)
		assert.Equal(t, jobs.ReasonTimeout, r.Reason, job.name)
		assert.GreaterOrEqual(t, r.Elapsed, timeout, job.name)
		assert.Nil(t, r.Survivors, job.name)
	}
}

func TestTheTimeoutOfASpecOverridesTheDefault(t *testing.T) {
	s := newSupervisor(t, jobs.Config{Timeout: 100 * time.Millisecond})
	for _, tt := range []struct {
		name    string
		timeout time.Duration
		want    jobs.Reason
	}{
		{"zero is the default", 0, jobs.ReasonTimeout},
		{"the smallest one passes at once", 1, jobs.ReasonTimeout},
		{"negative is none", -1, jobs.ReasonExit},
		{"the largest one does not overflow", 1<<63 - 1, jobs.ReasonExit},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path, end := fifo(t)
			spec := bash(`read -r _ <"$GO"`)
			spec.Env = []string{"GO=" + path}
			spec.Timeout = tt.timeout
			id := start(t, s, spec).ID
			if tt.want == jobs.ReasonExit {
				// Longer than the default: its timer would have fired.
				<-time.After(250 * time.Millisecond)
				snap, err := s.Check(id)
				require.NoError(t, err)
				require.Equal(t, jobs.Running, snap.State)
				fmt.Fprintln(end)
			}
			assert.Equal(t, tt.want, collect(t, s, id).Reason)
		})
	}
}

// However a job is stopped, the same stubborn processes die before the end is
// told, and the reason is that of the stop, never the signal it took.
func TestEveryStopTakesTheOneKillPath(t *testing.T) {
	const script = `(trap '' TERM; exec sleep 300) &
(trap '' TERM; exec setsid sleep 300 >/dev/null 2>&1) &
set -m; (trap '' TERM; exec sleep 300) & set +m
trap '' TERM
echo "$LLM_OUTPUT"
read -r _ <"$GO"
head -c 100000 /dev/zero
sleep 300`
	canceled, stop := context.WithCancel(context.Background())
	stop()
	closed := func(ctx context.Context, wantErr error) func(*testing.T, *jobs.Supervisor, string, *os.File) {
		return func(t *testing.T, s *jobs.Supervisor, id string, _ *os.File) {
			report, err := s.Close(ctx)
			require.ErrorIs(t, err, wantErr)
			require.Len(t, report.Stopped, 1)
			require.Equal(t, id, report.Stopped[0].ID)
		}
	}
	for _, tt := range []struct {
		name  string
		spec  jobs.Spec
		grace time.Duration
		stop  func(t *testing.T, s *jobs.Supervisor, id string, goOn *os.File)
		state jobs.State
		want  jobs.Reason
	}{
		{
			name:  "cancel",
			stop:  func(t *testing.T, s *jobs.Supervisor, id string, _ *os.File) { cancel(t, s, id) },
			state: jobs.Cancelled, want: jobs.ReasonCancelled,
		},
		{
			name:  "timeout",
			spec:  jobs.Spec{Timeout: 1500 * time.Millisecond},
			stop:  func(*testing.T, *jobs.Supervisor, string, *os.File) {},
			state: jobs.Failed, want: jobs.ReasonTimeout,
		},
		{
			name:  "output limit",
			spec:  jobs.Spec{OutputLimit: 50000},
			stop:  func(_ *testing.T, _ *jobs.Supervisor, _ string, goOn *os.File) { fmt.Fprintln(goOn) },
			state: jobs.Failed, want: jobs.ReasonOutputLimit,
		},
		{
			name:  "close",
			stop:  closed(context.Background(), nil),
			state: jobs.Cancelled, want: jobs.ReasonShutdown,
		},
		{
			name:  "close in a hurry",
			grace: time.Hour,
			stop:  closed(canceled, context.Canceled),
			state: jobs.Cancelled, want: jobs.ReasonShutdown,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.grace == 0 {
				tt.grace = 100 * time.Millisecond
			}
			s := newSupervisor(t, jobs.Config{KillGrace: tt.grace})
			path, goOn := fifo(t)
			spec, mark := markedScript(script)
			spec.Env = append(spec.Env, "GO="+path)
			spec.Timeout, spec.OutputLimit = tt.spec.Timeout, tt.spec.OutputLimit
			job := start(t, s, spec)
			sleepers := awaitSleepers(t, mark, 3)
			resultFile := strings.TrimSpace(awaitOutput(t, s, job.ID, "\n"))
			require.FileExists(t, resultFile)
			tt.stop(t, s, job.ID, goOn)
			r := collect(t, s, job.ID)
			requireDead(t, append(sleepers, job.PID)...)
			require.Empty(t, marked(mark))
			assert.Equal(t, tt.state, r.State)
			assert.Equal(t, tt.want, r.Reason)
			assert.Equal(t, -1, r.ExitCode)
			assert.EqualValues(t, unix.SIGKILL, r.Signal)
			assert.Nil(t, r.Survivors)
			assert.NoFileExists(t, resultFile)
			snap, err := s.Check(job.ID)
			require.NoError(t, err)
			assert.Equal(t, r.Outcome(), snap.Outcome(), "a later look tells another end")
		})
	}
}

func TestACancelThatIsNotAwaitedGoesOn(t *testing.T) {
	s := newSupervisor(t, jobs.Config{KillGrace: 100 * time.Millisecond})
	spec, mark := markedScript(`trap '' TERM; sleep 300; true`)
	id := start(t, s, spec).ID
	sleepers := awaitSleepers(t, mark, 1)
	ctx, stop := context.WithCancel(context.Background())
	stop()
	r, err := s.Cancel(ctx, id)
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, jobs.Cancelling, r.State)
	assert.Equal(t, jobs.ReasonCancelled, r.Reason)
	assert.False(t, r.Ended())
	assert.Equal(t, jobs.Cancelled, collect(t, s, id).State)
	requireDead(t, sleepers...)
}

// A kept leftover in the job's own group hears every signal that is sent to
// it. WINCH is taken after TERM and CONT, so once it has been heard nothing
// else is on its way.
func TestCancelOfAFinishedJobSignalsNobody(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	heard := filepath.Join(t.TempDir(), "heard")
	spec := bash(`(
	for sig in HUP INT TERM CONT WINCH; do trap "echo $sig >>$HEARD" $sig; done
	exec >/dev/null 2>&1
	echo ready >>"$HEARD"
	while :; do sleep 0.01; done
) & until [ -s "$HEARD" ]; do sleep 0.01; done; echo $!`)
	spec.Env = []string{"HEARD=" + heard}
	spec.Leftovers = jobs.KeepLeftovers
	job := start(t, s, spec)
	id := job.ID
	first := waitEnded(t, s, id)
	leftover := pids(t, awaitOutput(t, s, id, "\n"))[0]
	endProcess(t, leftover)
	pgid, err := unix.Getpgid(leftover)
	require.NoError(t, err)
	require.Equal(t, job.PID, pgid)
	for range 10 {
		r := cancel(t, s, id)
		assert.Equal(t, first, r.Snapshot)
		assert.Equal(t, jobs.Completed, r.State)
		assert.Equal(t, 0, r.ExitCode)
	}
	require.NoError(t, unix.Kill(leftover, unix.SIGWINCH))
	require.True(t, eventually(func() bool {
		data, err := os.ReadFile(heard)
		return err == nil && strings.Contains(string(data), "WINCH\n")
	}))
	data, err := os.ReadFile(heard)
	require.NoError(t, err)
	assert.Equal(t, "ready\nWINCH\n", string(data))
	assert.True(t, alive(leftover))
	assert.Equal(t, jobs.Completed, collect(t, s, id).State, "the result is still there to collect")
}

// waitEnded waits for a job's end without collecting it.
func waitEnded(t testing.TB, s *jobs.Supervisor, id string) jobs.Snapshot {
	t.Helper()
	var snap jobs.Snapshot
	require.True(t, eventually(func() bool {
		var err error
		snap, err = s.Check(id)
		require.NoError(t, err)
		return snap.Ended()
	}))
	return snap
}

func TestStartAndCancelAtOnceLeaveNothing(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	dir := t.TempDir()
	spec, mark := markedScript(`touch f; sleep 300`)
	spec.Dir = dir
	for range 300 {
		job := start(t, s, spec)
		r := cancel(t, s, job.ID)
		requireDead(t, job.PID)
		require.Equal(t, jobs.Cancelled, r.State)
		require.Nil(t, r.Survivors)
	}
	require.Empty(t, marked(mark))
	require.Empty(t, children())
}

func TestACancelBesideTheExitTellsOneEnd(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	for range 200 {
		job := start(t, s, jobs.Spec{Argv: []string{"true"}})
		r := cancel(t, s, job.ID)
		if r.State == jobs.Completed {
			require.Equal(t, "completed, exit 0", r.Outcome())
		} else {
			require.Equal(t, jobs.Cancelled, r.State)
		}
		require.Empty(t, procState(job.PID), "not reaped")
		require.Equal(t, r.Snapshot, waitEnded(t, s, job.ID))
		require.Equal(t, r.Outcome(), collect(t, s, job.ID).Outcome())
	}
}

func TestFollowersInPipelinesDoNotPileUp(t *testing.T) {
	s := newSupervisor(t, jobs.Config{KillGrace: patience})
	log := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.WriteFile(log, []byte("ready\n"), 0o600))
	spec, mark := markedScript(`tail -n 1 -F "$LOG" | grep --line-buffered ready`)
	spec.Env = append(spec.Env, "LOG="+log)
	for range 50 {
		id := start(t, s, spec).ID
		awaitOutput(t, s, id, "ready\n")
		cancel(t, s, id)
	}
	require.Empty(t, marked(mark))
}

func TestKillZeroInAJobReachesOnlyTheJob(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	sibling := start(t, s, bash("sleep 300"))
	for _, tt := range []struct {
		script string
		want   unix.Signal
	}{
		{`kill 0; sleep 300`, unix.SIGTERM},
		{`sleep 300 & kill -TERM 0; wait`, unix.SIGTERM},
		{`kill -INT 0; sleep 300`, unix.SIGINT},
		{`kill -KILL 0; sleep 300`, unix.SIGKILL},
	} {
		if signal.Ignored(tt.want) {
			continue // then the job ignores it too
		}
		r := runScript(t, s, tt.script)
		assert.Equal(t, jobs.Failed, r.State, tt.script)
		assert.Equal(t, jobs.ReasonSignal, r.Reason, tt.script)
		assert.EqualValues(t, tt.want, r.Signal, tt.script)
	}
	snap, err := s.Check(sibling.ID)
	require.NoError(t, err)
	assert.Equal(t, jobs.Running, snap.State)
	cancel(t, s, sibling.ID)
}

func TestAKillOfTheShownPIDFromOutsideEndsTheJobAndSweepsItsGroup(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 1})
	spec, mark := markedScript(`sleep 300 & setsid sleep 300 >/dev/null 2>&1 & wait`)
	id := start(t, s, spec).ID
	sleepers := awaitSleepers(t, mark, 2)
	snap, err := s.Check(id)
	require.NoError(t, err)
	require.NoError(t, unix.Kill(snap.PID, unix.SIGKILL))
	r := collect(t, s, id)
	requireDead(t, sleepers...)
	require.Empty(t, marked(mark))
	assert.Equal(t, "failed, signal, SIGKILL", r.Outcome())
	assert.Equal(t, 137, r.ShellCode())
	assert.Len(t, r.Leftovers, 2)
	assert.Equal(t, jobs.Completed, runScript(t, s, "true").State, "the slot is free again")
}

// A process is more than its first thread: with that one gone /proc shows a
// zombie that still runs.
func TestCancelKillsAStrayWhoseFirstThreadHasExited(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	s := newSupervisor(t, jobs.Config{KillGrace: 200 * time.Millisecond})
	spec, _ := markedScript(`set -m; "$SELF" & wait`)
	spec.Env = append(spec.Env, "SELF="+self, helperEnv+"=lose the first thread")
	id := start(t, s, spec).ID
	stray := pids(t, awaitOutput(t, s, id, "\n"))[0]
	endProcess(t, stray)
	running := func() bool {
		tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", stray))
		return len(tasks) > 1
	}
	require.True(t, eventually(func() bool { return procState(stray) == "Z" }))
	require.True(t, running())
	cancel(t, s, id)
	assert.False(t, running())
}

func init() {
	const name = "lose the first thread"
	helpers[name] = func() {
		signal.Ignore(unix.SIGTERM)
		fmt.Println(os.Getpid())
		unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
	}
	if os.Getenv(helperEnv) == name {
		runtime.LockOSThread() // to the first thread, where init runs
	}
}

func TestAStrayWhoseFirstThreadHasExitedIsFound(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	s := newSupervisor(t, jobs.Config{})
	path, gate := fifo(t)
	spec, _ := markedScript(`(setsid "$SELF" &); read -r _ <` + strconv.Quote(path))
	spec.Env = append(spec.Env, "SELF="+self, helperEnv+"=lose the first thread")
	id := start(t, s, spec).ID
	stray := pids(t, awaitOutput(t, s, id, "\n"))[0]
	endProcess(t, stray)
	require.True(t, eventually(func() bool { return procState(stray) == "Z" }))
	fmt.Fprintln(gate, "go")
	r := collect(t, s, id)
	require.Equal(t, "completed, exit 0", r.Outcome())
	require.Len(t, r.Leftovers, 1)
	require.Equal(t, stray, r.Leftovers[0].PID)
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", stray))
	require.LessOrEqual(t, len(tasks), 1)
}

func TestWithoutPidfdJobsEndAndDieAllTheSame(t *testing.T) {
	for _, how := range []string{"switch", "pidfd_open", "pidfd_send_signal"} {
		t.Run(how, func(t *testing.T) {
			runHelper(t, "host without pidfd", "JOBS_TEST_HIDE="+how)
		})
	}
}

func init() {
	hostHelper("host without pidfd", func() {
		switch os.Getenv("JOBS_TEST_HIDE") {
		case "switch":
			jobs.WithoutPidfd()
		case "pidfd_open":
			hideSyscall(unix.SYS_PIDFD_OPEN)
		case "pidfd_send_signal":
			hideSyscall(unix.SYS_PIDFD_SEND_SIGNAL)
		}
		check(!jobs.PidfdWorks(), "pidfds still work")
		ctx := context.Background()
		s := orExit(jobs.New(jobs.Config{KillGrace: 100 * time.Millisecond}))

		r := orExit(s.Collect(ctx, orExit(s.Start(ctx, bash("exit 3"))).ID))
		check(r.Outcome() == "failed, exit 3", "%s", r.Outcome())
		r = orExit(s.Collect(ctx, orExit(s.Start(ctx, bash("kill -SEGV $$"))).ID))
		check(r.Signal == jobs.Signal(unix.SIGSEGV), "%s", r.Outcome())

		spec, mark := markedScript(`set -m; (trap '' TERM; exec sleep 300) & set +m; setsid sleep 300 & wait`)
		job := orExit(s.Start(ctx, spec))
		check(eventually(func() bool { return len(marked(mark)) == 3 }), "no children")
		r = orExit(s.Cancel(ctx, job.ID))
		check(r.Outcome() == "cancelled, SIGTERM", "%s", r.Outcome())
		check(len(marked(mark)) == 0, "processes %v live", marked(mark))

		spec, mark = markedScript(`setsid sleep 300 >/dev/null 2>&1 & until [ "$(</proc/$!/comm)" = sleep ]; do :; done`)
		r = orExit(s.Collect(ctx, orExit(s.Start(ctx, spec)).ID))
		check(r.State == jobs.Completed && len(r.Leftovers) == 1, "%s, leftovers %v", r.Outcome(), r.Leftovers)
		check(len(marked(mark)) == 0, "leftovers %v live", marked(mark))
		orExit(s.Close(ctx))
		check(len(children()) == 0, "children %v", children())
	})
}

// hideSyscall makes a system call look unknown to this process and all its
// children, as sandboxes do.
func hideSyscall(nr uint32) {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the number
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: nr, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0x00050000 | uint32(unix.ENOSYS)}, // SECCOMP_RET_ERRNO
		{Code: unix.BPF_RET | unix.BPF_K, K: 0x7fff0000},                       // SECCOMP_RET_ALLOW
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread()
	check(unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == nil, "no_new_privs")
	const setModeFilter, tsync = 1, 1
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, setModeFilter, tsync, uintptr(unsafe.Pointer(&prog)))
	check(errno == 0, "seccomp: %v", errno)
}

// sharedDir returns a directory that processes of other users can work in.
func sharedDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	require.NoError(t, os.Chmod(dir, 0o777))
	return dir
}

// setuidSelf copies the test binary into dir, so that whoever runs it is root.
func setuidSelf(t testing.TB, dir string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make a program that becomes root")
	}
	var fs unix.Statfs_t
	require.NoError(t, unix.Statfs(dir, &fs))
	if fs.Flags&unix.ST_NOSUID != 0 {
		t.Skip("needs a temporary directory that is not mounted nosuid")
	}
	self, err := os.Executable()
	require.NoError(t, err)
	data, err := os.ReadFile(self)
	require.NoError(t, err)
	path := filepath.Join(dir, "setuid")
	// No fork may happen while the file is open for writing, or running it
	// fails with ETXTBSY (golang/go#22315).
	syscall.ForkLock.RLock()
	err = os.WriteFile(path, data, 0o755)
	syscall.ForkLock.RUnlock()
	require.NoError(t, err)
	require.NoError(t, os.Chmod(path, 0o755|os.ModeSetuid))
	return path
}

// unprivilegedHost starts a helper that gives up root and runs jobs that may
// become root again. It returns the lines the helper prints; wait is called
// when they have all been read.
func unprivilegedHost(t testing.TB, name string) (line func() string, wait func() error) {
	t.Helper()
	dir := sharedDir(t)
	c := helper(t, name, "JOBS_TEST_SETUID="+setuidSelf(t, dir), "TMPDIR="+dir)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	launch(t, c)
	r := bufio.NewReader(out)
	return func() string {
		t.Helper()
		text, err := r.ReadString('\n')
		require.NoError(t, err)
		return strings.TrimSpace(text)
	}, c.Wait
}

func TestALeaderThatCannotBeKilledIsToldAsUnreapedAndKeepsItsSlot(t *testing.T) {
	line, wait := unprivilegedHost(t, "host of a root leader")
	leader := pids(t, line())[0]
	endProcess(t, leader)
	require.Equal(t, "unreaped", line())
	require.True(t, alive(leader))
	require.NoError(t, unix.Kill(leader, unix.SIGKILL))
	require.Equal(t, "free", line())
	require.NoError(t, wait())
}

func TestAMemberThatCannotBeKilledIsNamed(t *testing.T) {
	line, wait := unprivilegedHost(t, "host of a root member")
	member := pids(t, line())[0]
	endProcess(t, member)
	require.Equal(t, "named", line())
	require.True(t, alive(member))
	require.NoError(t, wait())
}

func init() {
	helpers["become root"] = func() {
		check(syscall.Setresuid(0, 0, 0) == nil, "cannot become root")
		fmt.Println(os.Getpid())
		for {
			unix.Pause()
		}
	}
	hostHelper("host of a root leader", func() {
		s := giveUpRoot(jobs.Config{MaxRunning: 1, KillGrace: 50 * time.Millisecond})
		ctx := context.Background()
		job := startAsRoot(s, jobs.Spec{Argv: []string{os.Getenv("JOBS_TEST_SETUID")}})
		pid := job.PID
		fmt.Println(pid)
		r := orExit(s.Cancel(ctx, job.ID))
		check(r.State == jobs.Failed && r.Reason == jobs.ReasonUnreaped, "%s", r.Outcome())
		check(r.ExitCode == -1 && r.Signal == 0, "an outcome nobody knows: %s", r.Outcome())
		check(errors.Is(r.Err, unix.EPERM), "error %v", r.Err)
		check(len(r.Survivors) == 1 && r.Survivors[0].PID == pid, "survivors %v", r.Survivors)
		check(s.List().Running == 1, "the slot is free")
		_, err := s.Start(ctx, bash("true"))
		check(errors.Is(err, jobs.ErrAtCapacity), "a start gives %v", err)
		fmt.Println("unreaped")
		check(eventually(func() bool { return s.List().Running == 0 }), "the slot stays taken")
		again := orExit(s.Check(job.ID))
		check(again.Reason == jobs.ReasonUnreaped, "the end has changed to %s", again.Outcome())
		r = orExit(s.Collect(ctx, orExit(s.Start(ctx, bash("true"))).ID))
		check(r.State == jobs.Completed, "%s", r.Outcome())
		orExit(s.Close(ctx))
		fmt.Println("free")
	})
	hostHelper("host of a root member", func() {
		s := giveUpRoot(jobs.Config{KillGrace: 50 * time.Millisecond})
		ctx := context.Background()
		job := startAsRoot(s, bash(`"$JOBS_TEST_SETUID" & wait`))
		c := orExit(s.Output(job.ID, 0, 0))
		member := orExit(strconv.Atoi(strings.TrimSpace(string(c.Data))))
		fmt.Println(member)
		r := orExit(s.Cancel(ctx, job.ID))
		check(errors.Is(r.Err, unix.EPERM), "error %v", r.Err)
		check(len(r.Survivors) == 1 && r.Survivors[0].PID == member, "survivors %v", r.Survivors)
		check(r.Survivors[0].Name == "setuid", "survivors %v", r.Survivors)
		check(r.State != jobs.Completed, "%s", r.Outcome())
		check(s.List().Running == 0, "the leader is dead, its slot is taken")
		orExit(s.Close(ctx))
		fmt.Println("named")
	})
}

// giveUpRoot makes this helper an ordinary user.
func giveUpRoot(cfg jobs.Config) *jobs.Supervisor {
	const nobody = 65534
	check(syscall.Setgroups(nil) == nil, "setgroups")
	check(syscall.Setresgid(nobody, nobody, nobody) == nil, "setresgid")
	check(syscall.Setresuid(nobody, nobody, nobody) == nil, "setresuid")
	// A process that has changed its user may not look at itself otherwise.
	check(unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0) == nil, "dumpable")
	return orExit(jobs.New(cfg))
}

// startAsRoot starts a job and waits until some process of it is root.
func startAsRoot(s *jobs.Supervisor, spec jobs.Spec) jobs.Snapshot {
	spec.Env = []string{helperEnv + "=become root"}
	job := orExit(s.Start(context.Background(), spec))
	check(eventually(func() bool { return orExit(s.Check(job.ID)).OutputTotal > 0 }), "nobody became root")
	return job
}

func TestAHostThatIgnoresSignalsStillEndsItsJobs(t *testing.T) {
	runHelper(t, "host that ignores signals")
}

func init() {
	hostHelper("host that ignores signals", func() {
		// Ignored signals stay ignored through exec, and an ignored SIGCHLD
		// makes the kernel throw exit codes away.
		told := pidfdTellsExit()
		signal.Ignore(unix.SIGTERM, unix.SIGCHLD, unix.SIGINT, unix.SIGHUP, unix.SIGPIPE)
		const grace = 100 * time.Millisecond
		s := orExit(jobs.New(jobs.Config{KillGrace: grace}))
		ctx := context.Background()
		spec, mark := markedScript(`sleep 300 & sleep 300; true`)
		job := orExit(s.Start(ctx, spec))
		check(eventually(func() bool { return len(marked(mark)) == 3 }), "no children")
		begun := time.Now()
		r := orExit(s.Cancel(ctx, job.ID))
		check(time.Since(begun) >= grace, "something obeyed a signal that was ignored")
		check(r.State == jobs.Cancelled && r.Reason == jobs.ReasonCancelled, "%s", r.Outcome())
		check(r.Survivors == nil, "survivors %v", r.Survivors)
		check(len(marked(mark)) == 0, "processes %v live", marked(mark))
		r = orExit(s.Collect(ctx, orExit(s.Start(ctx, bash("exit 3"))).ID))
		checkCodeThree(r, told)
		orExit(s.Close(ctx))
	})
}

// pidfdTellsExit reports whether the kernel tells the exit status of a reaped
// process to who holds a pidfd (Linux 6.15).
func pidfdTellsExit() bool {
	fd := -1
	p := orExit(os.StartProcess("/bin/sh", []string{"sh", "-c", "exit 3"}, &os.ProcAttr{Sys: &syscall.SysProcAttr{PidFD: &fd}}))
	orExit(p.Wait())
	if fd < 0 {
		return false
	}
	defer unix.Close(fd)
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
	return unix.IoctlPidfdInfo(fd, &info) == nil && info.Mask&unix.PIDFD_INFO_EXIT != 0
}

// runInNamespace runs a helper as PID 1.
func runInNamespace(t testing.TB, name string, env ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make a pid namespace")
	}
	c := helper(t, name, env...)
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS}
	out, err := c.Output()
	if errors.Is(err, unix.EPERM) {
		t.Skip("needs the right to make a pid namespace")
	}
	require.NoError(t, err, "helper %s printed %q", name, out)
}

// mountProc gives a helper that is PID 1 a /proc of its namespace.
func mountProc() {
	check(os.Getpid() == 1, "not PID 1")
	check(unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") == nil, "cannot make mounts private")
	check(unix.Mount("proc", "/proc", "proc", 0, "") == nil, "cannot mount /proc")
}

func TestAStrangerWithTheNumberOfAnEndedJobIsNotHurt(t *testing.T) {
	runInNamespace(t, "host whose pids are used again")
}

func TestAStrangerWithTheNumberOfAStolenLeaderIsNotHurt(t *testing.T) {
	runInNamespace(t, "host that reaps a leader whose pid is used again")
}

func init() {
	hostHelper("host whose pids are used again", func() {
		mountProc()
		makeThreads()
		ctx := context.Background()
		s := orExit(jobs.New(jobs.Config{}))
		for _, leftovers := range []jobs.Leftovers{jobs.KillLeftovers, jobs.KeepLeftovers} {
			spec, mark := markedScript(`setsid sleep 300 >/dev/null 2>&1 & until [ "$(</proc/$!/comm)" = sleep ]; do :; done`)
			spec.Leftovers = leftovers
			job := orExit(s.Start(ctx, spec))
			check(eventually(func() bool { return orExit(s.Check(job.ID)).Ended() }), "no end")
			stranger := occupy(job.PID)
			for range 3 {
				r := orExit(s.Cancel(ctx, job.ID))
				check(r.State == jobs.Completed, "%s", r.Outcome())
			}
			if leftovers == jobs.KeepLeftovers {
				orExit(s.Close(ctx))
				check(len(marked(mark)) == 1, "the kept leftover is gone")
			}
			stranger.requireUnhurt()
		}
	})

	// The leader's number is free as soon as somebody else has reaped it, while
	// the job still waits for a talkative leftover.
	hostHelper("host that reaps a leader whose pid is used again", func() {
		mountProc()
		makeThreads()
		ctx := context.Background()
		s := orExit(jobs.New(jobs.Config{DrainGrace: 500 * time.Millisecond}))
		spec, mark := markedScript(`setsid bash -c 'while echo tick; do sleep 0.02; done' &`)
		job := orExit(s.Start(ctx, spec))
		check(eventually(func() bool { return orExit(s.Check(job.ID)).LeaderExited }), "no exit")
		orExit(unix.Wait4(job.PID, nil, 0, nil))
		stranger := occupy(job.PID)
		check(!orExit(s.Check(job.ID)).Ended(), "the drain was over too early for this test")
		r := orExit(s.Collect(ctx, job.ID))
		check(r.State == jobs.Completed || r.Reason == jobs.ReasonInternal, "%s", r.Outcome())
		check(len(marked(mark)) == 0, "leftovers %v live", marked(mark))
		for _, p := range r.Leftovers {
			check(p.PID != stranger.child, "the stranger's child is named as a leftover")
		}
		stranger.requireUnhurt()
		orExit(s.Close(ctx))
	})
}

// makeThreads makes the runtime create its threads now: one that came later could
// take the number that is meant for a stranger, and keep it.
func makeThreads() {
	const n = 32
	var running sync.WaitGroup
	running.Add(n)
	enough := make(chan struct{})
	for range n {
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			running.Done()
			<-enough
		}()
	}
	running.Wait()
	close(enough)
}

// A stranger is a process of the host that has nothing to do with any job, the
// leader of its own session, with a child.
type stranger struct {
	cmd   *exec.Cmd
	child int
}

// occupy starts a stranger with a given pid, by telling the kernel of this pid
// namespace which one it gave out last.
func occupy(pid int) stranger {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for range 1000 {
		check(os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(pid-1)), 0) == nil, "ns_last_pid")
		c := exec.Command("bash", "-c", `sleep 300 & echo $!; wait`)
		c.Env = []string{"PATH=" + os.Getenv("PATH")}
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		out := orExit(c.StdoutPipe())
		check(c.Start() == nil, "no stranger")
		if c.Process.Pid == pid {
			line := orExit(bufio.NewReader(out).ReadString('\n'))
			return stranger{c, orExit(strconv.Atoi(strings.TrimSpace(line)))}
		}
		unix.Kill(-c.Process.Pid, unix.SIGKILL)
		c.Wait()
	}
	check(false, "pid %d cannot be had again", pid)
	return stranger{}
}

func (s stranger) requireUnhurt() {
	check(alive(s.cmd.Process.Pid), "the stranger was killed")
	check(alive(s.child), "the stranger's child was killed")
	unix.Kill(-s.cmd.Process.Pid, unix.SIGKILL)
	s.cmd.Wait()
}

func TestAHostThatAdoptsOrphansIsLeftWithoutZombies(t *testing.T) {
	t.Run("as PID 1", func(t *testing.T) { runInNamespace(t, "host that adopts orphans", "JOBS_TEST_JOBS=500") })
	t.Run("as a subreaper", func(t *testing.T) { runHelper(t, "host that adopts orphans", "JOBS_TEST_JOBS=100") })
}

func init() {
	hostHelper("host that adopts orphans", func() {
		if os.Getpid() == 1 {
			mountProc()
		} else {
			check(unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == nil, "no subreaper")
		}
		// The host's own children: one that is a zombie all the while, and one
		// that lives.
		ended, living := exec.Command("sh", "-c", "exit 7"), exec.Command("sleep", "300")
		check(ended.Start() == nil && living.Start() == nil, "no children")
		check(eventually(func() bool { return procState(ended.Process.Pid) == "Z" }), "no zombie")

		ctx := context.Background()
		const atOnce = 16
		total := orExit(strconv.Atoi(os.Getenv("JOBS_TEST_JOBS")))
		s := orExit(jobs.New(jobs.Config{MaxRunning: atOnce}))
		scripts := []string{
			`(sleep 300 >/dev/null 2>&1 &)`,                  // to be killed
			`(true &)`,                                       // ends before anybody looks
			`(sleep 0.01 >/dev/null 2>&1 &)`,                 // ends while somebody looks
			`(sleep 0 & sleep 300 >/dev/null 2>&1 & exit) &`, // both
			`setsid sleep 300 >/dev/null 2>&1 &`,             // in a session of its own
		}
		var running sync.WaitGroup
		for n := range atOnce {
			running.Go(func() {
				for i := n; i < total; i += atOnce {
					spec := jobs.Spec{Argv: []string{"sh", "-c", scripts[i%len(scripts)]}}
					r := orExit(s.Collect(ctx, orExit(s.Start(ctx, spec)).ID))
					check(r.State == jobs.Completed, "%s", r.Outcome())
				}
			})
		}
		running.Wait()
		check(len(children()) == 2, "children %v besides %d and %d", children(), ended.Process.Pid, living.Process.Pid)

		// A kept leftover becomes a child of the host too, and is reaped
		// whenever it ends.
		spec, mark := markedScript(`(sleep 300 >/dev/null 2>&1 &)`)
		spec.Leftovers = jobs.KeepLeftovers
		r := orExit(s.Collect(ctx, orExit(s.Start(ctx, spec)).ID))
		check(len(r.Leftovers) == 1, "leftovers %v", r.Leftovers)
		kept := marked(mark)
		check(len(kept) == 1, "kept %v", kept)
		unix.Kill(kept[0], unix.SIGKILL)
		check(eventually(func() bool { return len(children()) == 2 }), "children %v after the kept one ended", children())
		orExit(s.Close(ctx))

		var exit *exec.ExitError
		check(errors.As(ended.Wait(), &exit) && exit.ExitCode() == 7, "the host's child was reaped by somebody else")
		check(alive(living.Process.Pid), "the host's child was killed")
		living.Process.Kill()
		living.Wait()
	})
}

func TestRunningJobsTakeNoThreads(t *testing.T) {
	if !jobs.PidfdWorks() {
		t.Skip("without pidfds each job has a thread that waits for it")
	}
	runHelper(t, "host with few threads")
}

func init() {
	hostHelper("host with few threads", func() {
		debug.SetMaxThreads(60)
		const n = 200
		ctx := context.Background()
		s := orExit(jobs.New(jobs.Config{MaxRunning: n}))
		for range n {
			orExit(s.Start(ctx, jobs.Spec{Argv: []string{"sleep", "300"}}))
		}
		check(s.List().Running == n, "%d jobs", s.List().Running)
		check(threads() < 30, "%d threads", threads())
		report := orExit(s.Close(ctx))
		check(len(report.Stopped) == n, "%d stopped", len(report.Stopped))
		check(len(children()) == 0, "children %v", children())
	})
}

func TestATerminalsCtrlCReachesTheHostAndNotItsJobs(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	// script gives the host a terminal; what it reads is typed there.
	c := exec.Command("script", "-qec", "exec "+self, "/dev/null")
	c.Env = append(os.Environ(), helperEnv+"=host at a terminal", "SHELL=/bin/sh")
	keys, err := c.StdinPipe()
	require.NoError(t, err)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	launch(t, c)
	screen := bufio.NewScanner(out)
	for screen.Scan() && strings.TrimSpace(screen.Text()) != "ready" {
	}
	_, err = keys.Write([]byte{'C' - '@'})
	require.NoError(t, err)
	var last string
	for screen.Scan() {
		last = strings.TrimSpace(screen.Text())
	}
	keys.Close()
	assert.Equal(t, "completed, exit 0", strings.TrimPrefix(last, "^C"), "the terminal echoes what is typed")
	require.NoError(t, c.Wait())
}

func init() {
	hostHelper("host at a terminal", func() {
		interrupt := make(chan os.Signal, 1)
		signal.Notify(interrupt, os.Interrupt)
		ctx := context.Background()
		s := orExit(jobs.New(jobs.Config{}))
		r := orExit(s.Collect(ctx, orExit(s.Start(ctx, bash(`cat </dev/tty`))).ID))
		check(r.Outcome() == "failed, exit 1", "a job can read the terminal: %s", r.Outcome())
		goOn, end, err := os.Pipe()
		check(err == nil, "%v", err)
		spec := bash(fmt.Sprintf(`trap 'exit 1' INT; echo ready; read -r _ </proc/%d/fd/%d`, os.Getpid(), goOn.Fd()))
		job := orExit(s.Start(ctx, spec))
		check(eventually(func() bool { return orExit(s.Check(job.ID)).OutputTotal > 0 }), "no job")
		fmt.Println("ready")
		<-interrupt
		fmt.Fprintln(end)
		r = orExit(s.Collect(ctx, job.ID))
		orExit(s.Close(ctx))
		fmt.Println(r.Outcome())
	})
}
