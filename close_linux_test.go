//go:build linux

package jobs_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// freshMark returns an environment entry that no process has, to find all that
// a test started.
func freshMark() string { return "JOBS_TEST_MARK=" + rand.Text() }

// warmPoller makes the runtime open the descriptors of its poller, so that they
// do not count as something a job left open.
func warmPoller() {
	if r, w, err := os.Pipe(); err == nil {
		r.Close()
		w.Close()
	}
}

// requireNothingOpen fails unless this process has as many descriptors as
// before and no child.
func requireNothingOpen(t testing.TB, before int) {
	t.Helper()
	require.Equal(t, before, descriptors(), "open descriptors")
	require.Empty(t, children(), "children, zombies included")
}

func TestStartReturnsWhileTheProcessRuns(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	snap := start(t, s, bash("exec sleep 300"))
	require.True(t, alive(snap.PID))
	require.Equal(t, jobs.Running, snap.State)
	require.False(t, snap.LeaderExited)
}

func TestAStartWithADoneContextStartsNoProcess(t *testing.T) {
	dir := t.TempDir()
	s := newSupervisor(t, jobs.Config{TempDir: dir})
	mark := freshMark()
	spec := bash("exec sleep 300")
	spec.Env = []string{mark}
	_, err := s.Start(doneContext(), spec)
	require.ErrorIs(t, err, context.Canceled)
	for range 10 { // the context ends while the start is under way
		ctx, cancel := context.WithCancel(testContext(t))
		_, err = s.Start(&hookedContext{Context: ctx, hook: cancel}, spec)
		require.ErrorIs(t, err, context.Canceled)
	}
	require.Empty(t, marked(mark))
	require.Empty(t, s.List().Jobs)
	require.Zero(t, s.List().Running)
	files, err := filepath.Glob(dir + "/*/*")
	require.NoError(t, err)
	require.LessOrEqual(t, len(files), 2, "their result files pile up")
}

func TestTheEndOfTheStartContextDoesNotEndTheProcess(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	ctx, cancel := context.WithCancel(testContext(t))
	release := t.TempDir() + "/release"
	snap, err := s.Start(ctx, bash("until [ -e '"+release+"' ]; do sleep 0.01; done; echo lived on"))
	require.NoError(t, err)
	cancel()
	require.NoError(t, os.WriteFile(release, nil, 0o600))
	r := collect(t, s, snap.ID)
	require.Equal(t, jobs.Completed, r.State)
	require.Equal(t, "lived on\n", string(r.Output.Bytes()))
}

func TestAStartAtTheLimitStartsNoProcessAndEndsNone(t *testing.T) {
	const limit, calls = 5, 40
	s := newSupervisor(t, jobs.Config{MaxRunning: limit})
	mark := freshMark()
	spec := bash("exec sleep 300")
	spec.Env = []string{mark}
	before := descriptors()
	begin := make(chan struct{})
	errs := make(chan error, calls)
	var starts sync.WaitGroup
	for range calls {
		starts.Go(func() {
			<-begin
			_, err := s.Start(context.Background(), spec)
			errs <- err
		})
	}
	close(begin)
	starts.Wait()
	close(errs)
	refused := 0
	for err := range errs {
		if err != nil {
			require.ErrorIs(t, err, jobs.ErrAtCapacity)
			refused++
		}
	}
	require.Equal(t, calls-limit, refused)
	require.Len(t, children(), limit)
	// While a process executes another program it shows no environment.
	require.True(t, eventually(func() bool { return len(marked(mark)) == limit }))
	require.ElementsMatch(t, children(), marked(mark))
	list := s.List().Jobs
	require.Len(t, list, limit)
	for _, snap := range list {
		require.Equal(t, jobs.Running, snap.State)
		require.Contains(t, children(), snap.PID)
	}
	require.LessOrEqual(t, descriptors(), before+2*limit+3)
}

func TestAJobKilledFromOutsideFreesItsSlot(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 1})
	for range 3 {
		snap := start(t, s, bash("exec sleep 300"))
		require.NoError(t, syscall.Kill(snap.PID, syscall.SIGKILL))
		r := collect(t, s, snap.ID)
		require.Equal(t, jobs.Failed, r.State)
		require.Equal(t, jobs.ReasonSignal, r.Reason)
		require.Equal(t, 137, r.ShellCode())
	}
}

func TestAnEndedJobHasNoProcess(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	for range 50 {
		snap := start(t, s, bash("exit 0"))
		end := awaitEnd(t, s, snap.ID)
		require.Equal(t, jobs.Completed, end.State)
		require.Zero(t, end.PID)
		require.Empty(t, children(), "reaped before the end is told")
		collect(t, s, snap.ID)
	}
}

// stages are the points of a job's life at which Close may find it. Each
// brings a job there and returns its id and how it must be found afterwards.
var stages = []struct {
	name  string
	reach func(t *testing.T, s *jobs.Supervisor, env []string) string
	state jobs.State
	why   jobs.Reason
}{
	{
		name: "just started",
		reach: func(t *testing.T, s *jobs.Supervisor, env []string) string {
			spec := bash("exec sleep 300")
			spec.Env = env
			return start(t, s, spec).ID
		},
		state: jobs.Cancelled, why: jobs.ReasonShutdown,
	},
	{
		name: "running with children",
		reach: func(t *testing.T, s *jobs.Supervisor, env []string) string {
			spec := bash("sleep 300 & setsid sleep 300 & sleep 300 | sleep 300 & echo ready; wait")
			spec.Env = env
			id := start(t, s, spec).ID
			awaitOutput(t, s, id, "ready")
			return id
		},
		state: jobs.Cancelled, why: jobs.ReasonShutdown,
	},
	{
		name: "stopped by a signal",
		reach: func(t *testing.T, s *jobs.Supervisor, env []string) string {
			spec := bash("kill -STOP $$; exec sleep 300")
			spec.Env = env
			snap := start(t, s, spec)
			require.True(t, eventually(func() bool { return procState(snap.PID) == "T" }))
			return snap.ID
		},
		state: jobs.Cancelled, why: jobs.ReasonShutdown,
	},
	{
		name: "draining a pipe that a chatty process holds",
		reach: func(t *testing.T, s *jobs.Supervisor, env []string) string {
			spec := bash("while :; do echo x; sleep 0.02; done & exit 7")
			spec.Env = env
			id := start(t, s, spec).ID
			require.True(t, eventually(func() bool {
				snap := checkJob(t, s, id)
				return snap.LeaderExited && snap.OutputTotal > 0
			}))
			require.Equal(t, jobs.Running, checkJob(t, s, id).State)
			return id
		},
		state: jobs.Failed, why: jobs.ReasonExit,
	},
	{
		name: "during a cancel",
		reach: func(t *testing.T, s *jobs.Supervisor, env []string) string {
			spec := bash("trap '' TERM; echo ready; sleep 300")
			spec.Env = env
			id := start(t, s, spec).ID
			awaitOutput(t, s, id, "ready")
			_, err := s.Cancel(doneContext(), id)
			require.ErrorIs(t, err, context.Canceled)
			require.Equal(t, jobs.Cancelling, checkJob(t, s, id).State)
			return id
		},
		state: jobs.Cancelled, why: jobs.ReasonCancelled,
	},
	{
		name: "with a collector that waits",
		reach: func(t *testing.T, s *jobs.Supervisor, env []string) string {
			spec := bash("exec sleep 300")
			spec.Env = env
			id := start(t, s, spec).ID
			go s.Collect(context.Background(), id)
			return id
		},
		state: jobs.Cancelled, why: jobs.ReasonShutdown,
	},
	{
		name: "ended, not collected",
		reach: func(t *testing.T, s *jobs.Supervisor, env []string) string {
			id := start(t, s, bash("exit 7")).ID
			awaitEnd(t, s, id)
			return id
		},
		state: jobs.Failed, why: jobs.ReasonExit,
	},
	{
		name: "collected",
		reach: func(t *testing.T, s *jobs.Supervisor, env []string) string {
			return runScript(t, s, "exit 7").ID
		},
		state: jobs.Failed, why: jobs.ReasonExit,
	},
}

func TestCloseLeavesNothingAtWhateverPointItFindsAJob(t *testing.T) {
	warmPoller()
	for _, stage := range stages {
		for _, hurried := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, hurried %v", stage.name, hurried), func(t *testing.T) {
				before := descriptors()
				dir := t.TempDir()
				grace := 100 * time.Millisecond
				ctx := testContext(t)
				if hurried {
					grace, ctx = 2*patience, doneContext()
				}
				s := newSupervisor(t, jobs.Config{TempDir: dir, KillGrace: grace, DrainGrace: 2 * patience})
				mark := freshMark()
				id := stage.reach(t, s, []string{mark})

				begun := time.Now()
				_, err := s.Close(ctx)
				if hurried {
					require.ErrorIs(t, err, context.Canceled)
				} else {
					require.NoError(t, err)
				}
				require.Less(t, time.Since(begun), patience, "it waited for a grace")
				require.Empty(t, marked(mark))
				requireNothingOpen(t, before)
				files, err := os.ReadDir(dir)
				require.NoError(t, err)
				require.Empty(t, files, "the private directory is gone")

				snap := checkJob(t, s, id)
				require.Equal(t, stage.state, snap.State)
				require.Equal(t, stage.why, snap.Reason)
				require.Nil(t, snap.Survivors)
				require.Zero(t, s.List().Running)
			})
		}
	}
}

// A job whose leader has exited before Close ended by itself: Close did not
// stop it, and its exit code is worth collecting.
func TestCloseDoesNotClaimAJobThatHadEndedByItself(t *testing.T) {
	s := newSupervisor(t, jobs.Config{DrainGrace: patience})
	id := start(t, s, bash("while :; do echo x; sleep 0.02; done & exit 7")).ID
	require.True(t, eventually(func() bool { return checkJob(t, s, id).LeaderExited }))
	report, err := s.Close(testContext(t))
	require.NoError(t, err)
	assert.Empty(t, report.Stopped)
	assert.Equal(t, []string{id}, ids(report.Uncollected))
}

func TestCloseWithADoneContextKillsAtOnce(t *testing.T) {
	s := newSupervisor(t, jobs.Config{KillGrace: 2 * patience})
	var started []string
	for range 3 {
		id := start(t, s, bash("trap '' TERM; echo ready; sleep 300 & sleep 300")).ID
		awaitOutput(t, s, id, "ready")
		started = append(started, id)
	}
	begun := time.Now()
	report, err := s.Close(doneContext())
	require.ErrorIs(t, err, context.Canceled)
	require.Less(t, time.Since(begun), patience)
	require.Equal(t, started, ids(report.Stopped))
	for _, snap := range report.Stopped {
		require.Equal(t, jobs.Cancelled, snap.State)
		require.Equal(t, jobs.Signal(syscall.SIGKILL), snap.Signal)
	}
}

func TestCloseWhoseContextEndsKillsWhatIsLeft(t *testing.T) {
	s := newSupervisor(t, jobs.Config{KillGrace: 2 * patience})
	id := start(t, s, bash("trap '' TERM; echo ready; sleep 300")).ID
	awaitOutput(t, s, id, "ready")
	ctx, cancel := context.WithCancel(context.Background())
	closed := make(chan error)
	go func() {
		_, err := s.Close(ctx)
		closed <- err
	}()
	require.True(t, eventually(func() bool { return checkJob(t, s, id).State == jobs.Cancelling }))
	begun := time.Now()
	cancel()
	require.ErrorIs(t, <-closed, context.Canceled)
	require.Less(t, time.Since(begun), patience)
	require.Equal(t, jobs.Signal(syscall.SIGKILL), checkJob(t, s, id).Signal)
}

// beginClose calls Close and returns once it refuses starts. It needs a
// supervisor without a free slot.
func beginClose(s *jobs.Supervisor, ctx context.Context) (closed chan jobs.Report) {
	closed = make(chan jobs.Report, 1)
	go func() {
		report, _ := s.Close(ctx)
		closed <- report
	}()
	eventually(func() bool {
		_, err := s.Start(context.Background(), returning(nil))
		return errors.Is(err, jobs.ErrClosed)
	})
	return closed
}

func TestAStartThatCloseOvertakesIsRefusedAndLeavesNothing(t *testing.T) {
	warmPoller()
	before := descriptors()
	dir := t.TempDir()
	s := newSupervisor(t, jobs.Config{MaxRunning: 1, TempDir: dir})
	mark := freshMark()
	spec := bash("exec sleep 300")
	spec.Env = []string{mark}
	var closed chan jobs.Report
	ctx := &hookedContext{Context: context.Background(), hook: func() {
		closed = beginClose(s, context.Background())
	}}
	snap, err := s.Start(ctx, spec)
	require.NotNil(t, closed, "Start did not look at its context")
	require.ErrorIs(t, err, jobs.ErrClosed)
	require.Zero(t, snap)
	report := <-closed
	requireNothingOpen(t, before)
	require.Empty(t, marked(mark))
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, files)
	// Nobody knows an id of it, so nothing may speak of it.
	assert.Empty(t, report.Stopped)
	assert.Empty(t, report.Uncollected)
	assert.Empty(t, s.List().Jobs)
}

// The helper ignores SIGTERM and so do its jobs, from their first instruction
// on: without a hurry they would take the whole grace.
func init() {
	helpers["start overtaken by a hurried close"] = func() {
		watchdog()
		signal.Ignore(syscall.SIGTERM)
		s, err := jobs.New(jobs.Config{MaxRunning: 1, KillGrace: 10 * time.Second})
		check(err == nil, "%v", err)
		var closed chan jobs.Report
		var begun time.Time
		ctx := &hookedContext{Context: context.Background(), hook: func() {
			closed = beginClose(s, doneContext())
			begun = time.Now()
		}}
		_, err = s.Start(ctx, bash("exec sleep 300"))
		check(errors.Is(err, jobs.ErrClosed), "start returned %v", err)
		<-closed
		check(len(children()) == 0, "children %v", children())
		if time.Since(begun) < 5*time.Second {
			fmt.Print("at once")
		} else {
			fmt.Print("after the grace")
		}
	}
}

func TestAHurriedCloseKillsAlsoWhatIsJustBeingStarted(t *testing.T) {
	require.Equal(t, "at once", runHelper(t, "start overtaken by a hurried close"))
}

func TestCloseAmidStartsLeavesNothing(t *testing.T) {
	warmPoller()
	rounds := 6
	if testing.Short() {
		rounds = 2
	}
	for round := range rounds {
		before := descriptors()
		dir := t.TempDir()
		s := newSupervisor(t, jobs.Config{MaxRunning: 50, KillGrace: time.Second, TempDir: dir})
		mark := freshMark()
		spec := bash("exec sleep 300")
		spec.Env = []string{mark}
		begin := make(chan struct{})
		started := make(chan string, 50)
		var calls sync.WaitGroup
		for range 50 {
			calls.Go(func() {
				<-begin
				snap, err := s.Start(context.Background(), spec)
				if err != nil {
					assert.ErrorIs(t, err, jobs.ErrClosed)
					return
				}
				started <- snap.ID
			})
		}
		var report jobs.Report
		calls.Go(func() {
			<-begin
			for len(started) < round*3 { // at another point each time
				runtime.Gosched()
			}
			var err error
			report, err = s.Close(context.Background())
			assert.NoError(t, err)
			assert.Empty(t, children(), "right after Close")
		})
		close(begin)
		calls.Wait()
		close(started)
		requireNothingOpen(t, before)
		require.Empty(t, marked(mark))
		files, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, files)
		var known []string
		for id := range started {
			known = append(known, id)
			require.True(t, checkJob(t, s, id).Ended())
		}
		require.ElementsMatch(t, known, ids(report.Stopped))
		require.ElementsMatch(t, known, ids(s.List().Jobs))
		require.Empty(t, report.Uncollected)
		_, err = s.Start(testContext(t), spec)
		require.ErrorIs(t, err, jobs.ErrClosed)
	}
}

func TestCloseClosesThePipesOfKeptLeftovers(t *testing.T) {
	warmPoller()
	before := descriptors()
	s := newSupervisor(t, jobs.Config{DrainGrace: 100 * time.Millisecond})
	spec := bash("while echo x; do sleep 0.02; done & echo $! >$LLM_OUTPUT")
	spec.Leftovers = jobs.KeepLeftovers
	r := collect(t, s, start(t, s, spec).ID)
	pid := pids(t, string(r.File.Data))[0]
	defer func() {
		if alive(pid) {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}()
	require.Equal(t, jobs.Completed, r.State)
	require.Contains(t, r.Leftovers, jobs.Process{PID: pid, Name: "bash"})
	require.Zero(t, s.List().Running, "it takes no slot")
	was := checkJob(t, s, r.ID).LateBytes
	require.True(t, eventually(func() bool { return checkJob(t, s, r.ID).LateBytes > was }), "it prints on")

	_, err := s.Close(testContext(t))
	require.NoError(t, err)
	requireNothingOpen(t, before)
	// It lived on because somebody read; now its next line kills it.
	require.True(t, eventually(func() bool { return !alive(pid) }))
}

func TestCloseLeavesAKeptLeftoverThatIsSilentAlone(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	spec := bash("sleep 300 & echo $!")
	spec.Leftovers = jobs.KeepLeftovers
	r := collect(t, s, start(t, s, spec).ID)
	pid := pids(t, string(r.Output.Bytes()))[0]
	_, err := s.Close(testContext(t))
	require.NoError(t, err)
	require.True(t, alive(pid))
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	require.True(t, eventually(func() bool { return !alive(pid) }))
}
