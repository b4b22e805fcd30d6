//go:build linux

package jobs_test

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// ignoring is a script that ignores SIGTERM, and so does what it starts. It
// prints "ready" once it does.
const ignoring = "trap '' TERM; sleep 300 & echo ready; wait; sleep 300"

// startIgnoring starts a job that ignores SIGTERM.
func startIgnoring(t testing.TB, s *jobs.Supervisor, mark string) string {
	t.Helper()
	spec := bash(ignoring)
	spec.Env = []string{mark}
	id := start(t, s, spec).ID
	awaitOutput(t, s, id, "ready")
	return id
}

func TestClosingAChildKillsItsProcessesAndNoOthers(t *testing.T) {
	family := newFamily(t, jobs.Config{MaxRunning: 20})
	marks := map[string]string{}
	for name, s := range family {
		var spec jobs.Spec
		spec, marks[name] = markedScript("sleep 300 & setsid sleep 300 & wait")
		start(t, s, spec)
		awaitSleepers(t, marks[name], 2)
	}
	report := mustClose(t, family["a"])
	require.Len(t, report.Stopped, 2)
	for _, snap := range report.Stopped {
		require.Equal(t, jobs.Cancelled, snap.State)
		require.Equal(t, jobs.ReasonOwnerClosed, snap.Reason)
		require.Nil(t, snap.Survivors)
	}
	for name, mark := range marks {
		if strings.HasPrefix(name, "a") {
			require.Empty(t, marked(mark), name)
		} else {
			require.Len(t, marked(mark), 3, name)
		}
	}
}

func TestAProcessThatIsHandedUpGoesOnAndLeavesItsResultAbove(t *testing.T) {
	family := newFamily(t, jobs.Config{MaxRunning: 1})
	path, end := fifo(t)
	spec := withEnd(bash("echo before; read x <'"+path+"'; echo after; echo 42 >$LLM_OUTPUT"), jobs.HandUp)
	snap := start(t, family["a/a"], spec)
	awaitOutput(t, family["a/a"], snap.ID, "before")
	mustClose(t, family["a"])
	require.Equal(t, snap.PID, checkJob(t, family[""], snap.ID).PID)
	require.True(t, alive(snap.PID))
	_, err := family[""].Start(testContext(t), bash("true"))
	require.ErrorIs(t, err, jobs.ErrAtCapacity, "it has kept its slot")

	_, err = end.WriteString("\n")
	require.NoError(t, err)
	r := collect(t, family[""], snap.ID)
	require.Equal(t, "completed, exit 0", r.Outcome())
	require.Equal(t, "before\nafter\n42\n", string(r.Output.Bytes()))
	require.Equal(t, "42", string(r.File.JSON()))
	requireFree(t, family[""])
}

func TestTheTopKillsTheProcessesThatWereHandedUpToIt(t *testing.T) {
	family := newFamily(t, jobs.Config{})
	spec, mark := markedScript("sleep 300 & wait")
	id := start(t, family["a/a"], withEnd(spec, jobs.HandUp)).ID
	awaitSleepers(t, mark, 1)
	mustClose(t, family["a/a"])
	mustClose(t, family["a"])
	require.Len(t, marked(mark), 2)
	report := mustClose(t, family[""])
	require.Equal(t, []string{id}, ids(report.Stopped))
	require.Empty(t, marked(mark))
}

func TestATopThatIsClosedLetsGoOfAKeptJobAndNothingOfItStays(t *testing.T) {
	for name, change := range map[string]func(*jobs.Spec){
		"plain":              func(*jobs.Spec) {},
		"with an input":      func(spec *jobs.Spec) { spec.Input = true },
		"with two logs":      func(spec *jobs.Spec) { spec.SplitStderr = true },
		"with a key":         func(spec *jobs.Spec) { spec.Key = "one" },
		"with time limits":   func(spec *jobs.Spec) { spec.Timeout, spec.IdleTimeout = time.Hour, time.Hour },
		"that keeps others":  func(spec *jobs.Spec) { spec.Leftovers = jobs.KeepLeftovers },
		"with little output": func(spec *jobs.Spec) { spec.OutputLimit = 100 },
	} {
		t.Run(name, func(t *testing.T) {
			warmPoller()
			before, goroutines := descriptors(), runtime.NumGoroutine()
			dir := t.TempDir()
			done := t.TempDir() + "/done"
			path, end := fifo(t)
			family := newFamily(t, jobs.Config{TempDir: dir})
			spec := withEnd(bash("read x <'"+path+"'; seq 20000; seq 20000 >&2; echo $? >'"+done+"'; exec sleep 300"), jobs.KeepRunning)
			change(&spec)
			snap := start(t, family["a/a"], spec)
			endProcess(t, snap.PID) // whatever becomes of the test
			report := mustClose(t, family[""])

			require.Equal(t, []string{snap.ID}, ids(report.Kept))
			kept := report.Kept[0]
			require.Equal(t, jobs.Lost, kept.State)
			require.Equal(t, jobs.ReasonOwnerClosed, kept.Reason)
			require.Equal(t, "", kept.Owner)
			require.Len(t, kept.Survivors, 1)
			require.Equal(t, snap.PID, kept.Survivors[0].PID)
			require.Empty(t, report.Stopped)
			require.Empty(t, report.HandedUp)
			require.Empty(t, report.Uncollected)
			require.True(t, alive(snap.PID))
			require.Nil(t, family[""].Drain())
			files, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Empty(t, files)

			// Somebody reads what it prints, more than a pipe holds.
			_, err = end.WriteString("\n")
			require.NoError(t, err)
			require.True(t, eventually(func() bool { text, _ := os.ReadFile(done); return string(text) == "0\n" }))
			require.Equal(t, jobs.Lost, checkJob(t, family[""], snap.ID).State)

			require.NoError(t, unix.Kill(snap.PID, unix.SIGKILL))
			end.Close()
			require.True(t, eventually(func() bool {
				return descriptors() == before && len(children()) == 0 && runtime.NumGoroutine() <= goroutines+1
			}), "%d descriptors, before %d; %d goroutines, before %d; children %v",
				descriptors(), before, runtime.NumGoroutine(), goroutines, children())
			require.Equal(t, kept.Outcome(), checkJob(t, family[""], snap.ID).Outcome())
			requireFree(t, family[""])
		})
	}
}

func TestOneJobIsKeptWhileTheOthersAreStopped(t *testing.T) {
	family := newFamily(t, jobs.Config{})
	spec, mark := markedScript("sleep 300 & wait")
	kept := start(t, family["b"], withEnd(bash("exec sleep 300"), jobs.KeepRunning))
	endProcess(t, kept.PID)
	start(t, family["b"], spec)
	start(t, family[""], withEnd(spec, jobs.HandUp))
	awaitSleepers(t, mark, 2)
	report := mustClose(t, family[""])
	require.Len(t, report.Stopped, 2)
	require.Len(t, report.Kept, 1)
	require.Empty(t, marked(mark))
	require.True(t, alive(kept.PID))
	require.NoError(t, unix.Kill(kept.PID, unix.SIGKILL))
	require.True(t, eventually(func() bool { return len(children()) == 0 }))
}

func TestClosingAChildWhileJobsStartLeavesNoProcess(t *testing.T) {
	warmPoller()
	before := descriptors()
	s := newSupervisor(t, jobs.Config{MaxRunning: 50})
	mark := freshMark()
	spec := bash("exec sleep 300")
	spec.Env = []string{mark}
	for i := range 20 {
		c := newChild(t, s, jobs.ChildConfig{})
		g := newChild(t, c, jobs.ChildConfig{})
		first := start(t, g, spec).ID
		var mu sync.Mutex // guards started
		started := []string{first}
		begun := make(chan struct{}, 4)
		var starts sync.WaitGroup
		for k := range 4 {
			owner := []*jobs.Supervisor{c, g}[k%2]
			starts.Go(func() {
				for range 10 {
					snap, err := owner.Start(context.Background(), spec)
					if errors.Is(err, jobs.ErrClosed) {
						break
					}
					assert.NoError(t, err)
					mu.Lock()
					started = append(started, snap.ID)
					mu.Unlock()
					select {
					case begun <- struct{}{}:
					default:
					}
				}
			})
		}
		<-begun
		closing := c
		if i%2 == 1 {
			closing = g
		}
		mustClose(t, closing)
		report := mustClose(t, c)
		starts.Wait()
		require.Subset(t, started, ids(report.Stopped))
		require.Empty(t, marked(mark))
		requireFree(t, g, c, s)
		if closing == c {
			require.ElementsMatch(t, started, ids(report.Stopped))
		}
	}
	mustClose(t, s)
	requireNothingOpen(t, before)
}

func TestChildrenWithProcessesLeaveNothingWhenTheyAreClosed(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 50})
	runScript(t, s, "true") // what all share
	warmPoller()
	before, goroutines := descriptors(), runtime.NumGoroutine()
	inParallel(many(200), 20, func(int) {
		c, err := s.Child(jobs.ChildConfig{})
		if !assert.NoError(t, err) {
			return
		}
		_, err = c.Start(context.Background(), bash("exec sleep 300"))
		assert.NoError(t, err)
		_, err = c.Start(context.Background(), bash("true"))
		assert.NoError(t, err)
		_, err = c.Close(context.Background())
		assert.NoError(t, err)
	})
	require.Empty(t, s.Children())
	require.Empty(t, children())
	requireFree(t, s)
	require.True(t, eventually(func() bool { return descriptors() <= before && runtime.NumGoroutine() <= goroutines+2 }),
		"%d descriptors, before %d; %d goroutines, before %d", descriptors(), before, runtime.NumGoroutine(), goroutines)
}

func TestCloseWithADoneContextKillsWhatIgnoresSIGTERMOnEveryLevel(t *testing.T) {
	family := newFamily(t, jobs.Config{KillGrace: patience, MaxRunning: 10})
	mark := freshMark()
	for _, s := range family {
		startIgnoring(t, s, mark)
	}
	begun := time.Now()
	report, err := family[""].Close(doneContext())
	require.ErrorIs(t, err, context.Canceled)
	require.Less(t, time.Since(begun), patience/2)
	require.Empty(t, marked(mark))
	require.Len(t, report.Stopped, 4)
	for _, snap := range report.Stopped {
		require.Equal(t, "cancelled, shutdown, SIGKILL", snap.Outcome())
		require.Nil(t, snap.Survivors)
	}
}

func TestTheEndOfTheContextOfOneCloseHurriesTheOther(t *testing.T) {
	for _, c := range []struct{ first, second string }{
		{"a/a", "a/a"}, {"a", "a"}, {"", ""}, {"a", "a/a"}, {"a/a", "a"}, {"a/a", ""}, {"", "a/a"},
	} {
		t.Run(c.first+" and "+c.second, func(t *testing.T) {
			family := newFamily(t, jobs.Config{KillGrace: patience})
			mark := freshMark()
			id := startIgnoring(t, family["a/a"], mark)
			begun := time.Now()
			closed := make(chan jobs.Report, 1)
			go func() {
				report, err := family[c.first].Close(context.Background())
				assert.NoError(t, err)
				closed <- report
			}()
			require.True(t, eventually(func() bool { return checkJob(t, family["a/a"], id).State == jobs.Cancelling }))
			report, _ := family[c.second].Close(doneContext())
			require.Less(t, time.Since(begun), patience/2)
			require.Equal(t, []string{id}, ids(report.Stopped))
			require.Equal(t, []string{id}, ids((<-closed).Stopped))
			require.Equal(t, jobs.Signal(unix.SIGKILL), report.Stopped[0].Signal)
			require.Empty(t, marked(mark))
		})
	}
}

func TestReapAndResetWithADoneContextKillWhatIgnoresSIGTERM(t *testing.T) {
	for name, end := range map[string]func(s *jobs.Supervisor, id string) []jobs.Snapshot{
		"Reap":  func(s *jobs.Supervisor, id string) []jobs.Snapshot { return s.Reap(doneContext(), id) },
		"Reset": func(s *jobs.Supervisor, _ string) []jobs.Snapshot { return s.Reset(doneContext()).Stopped },
	} {
		t.Run(name, func(t *testing.T) {
			family := newFamily(t, jobs.Config{KillGrace: patience, MaxRunning: 1})
			mark := freshMark()
			id := startIgnoring(t, family["a"], mark)
			begun := time.Now()
			ended := end(family["a"], id)
			require.Less(t, time.Since(begun), patience/2)
			require.Empty(t, marked(mark))
			require.Equal(t, []string{id}, ids(ended))
			require.Equal(t, "cancelled, SIGKILL", ended[0].Outcome())
			requireFree(t, family["a"], family[""])
			requireKnown(t, family["a"], nil, []string{id})
			require.Nil(t, family["a"].Drain())
		})
	}
}

func TestReapLeavesTheResultFilesOfOthers(t *testing.T) {
	dir := t.TempDir()
	s := newSupervisor(t, jobs.Config{TempDir: dir})
	path, end := fifo(t)
	stays := start(t, s, bash("read x <'"+path+"'; echo 1 >$LLM_OUTPUT")).ID
	goes := start(t, s, bash("exec sleep 300")).ID
	s.Reap(testContext(t), goes)
	_, err := end.WriteString("\n")
	require.NoError(t, err)
	require.Equal(t, "1", string(collect(t, s, stays).File.JSON()))
}

// A heldWrap is a Config.Wrap that holds starts until it is told what to do.
type heldWrap struct {
	entered chan struct{}
	answer  chan error
}

func newHeldWrap() heldWrap { return heldWrap{make(chan struct{}), make(chan error)} }

func (w heldWrap) wrap(argv []string) ([]string, error) {
	w.entered <- struct{}{}
	return argv, <-w.answer
}

// startLater starts a job and sends what comes of it.
func startLater(ctx context.Context, s *jobs.Supervisor, spec jobs.Spec) <-chan started {
	ch := make(chan started, 1)
	go func() {
		snap, err := s.Start(ctx, spec)
		ch <- started{snap.ID, err}
	}()
	return ch
}

type started struct {
	id  string
	err error
}

func TestASecondStartWithAKeyWaitsForTheFirstAndTriesItselfIfThatFails(t *testing.T) {
	w := newHeldWrap()
	s := newSupervisor(t, jobs.Config{MaxRunning: 1, Wrap: w.wrap})
	spec := keyed(bash("exec sleep 300"), "one")
	first := startLater(testContext(t), s, spec)
	<-w.entered
	waits := newWatchedContext(testContext(t))
	second := startLater(waits, s, spec)
	<-waits.waiting
	refused := errors.New("not this one")
	w.answer <- refused
	require.ErrorIs(t, (<-first).err, refused)
	<-w.entered // the second tries
	w.answer <- nil
	got := <-second
	require.NoError(t, got.err)
	require.Equal(t, []string{got.id}, ids(s.List().Jobs))
	require.Len(t, children(), 1)
}

func TestASecondStartWithAKeyGetsTheJobOfTheFirst(t *testing.T) {
	w := newHeldWrap()
	s := newSupervisor(t, jobs.Config{MaxRunning: 1, Wrap: w.wrap})
	spec := keyed(bash("exec sleep 300"), "one")
	first := startLater(testContext(t), s, spec)
	<-w.entered
	waits := newWatchedContext(testContext(t))
	second := startLater(waits, s, spec)
	<-waits.waiting
	w.answer <- nil
	a, b := <-first, <-second
	require.NoError(t, a.err)
	require.NoError(t, b.err)
	require.Equal(t, a.id, b.id)
	require.Len(t, children(), 1)
}

func TestTheContextOfAStartThatWaitsForAKeyEndsTheWaitOnly(t *testing.T) {
	w := newHeldWrap()
	s := newSupervisor(t, jobs.Config{MaxRunning: 1, Wrap: w.wrap})
	spec := keyed(bash("exec sleep 300"), "one")
	first := startLater(testContext(t), s, spec)
	<-w.entered
	waits := newWatchedContext(testContext(t))
	second := startLater(waits, s, spec)
	<-waits.waiting
	waits.cancel()
	require.ErrorIs(t, (<-second).err, context.Canceled)
	w.answer <- nil
	got := <-first
	require.NoError(t, got.err)
	require.Equal(t, jobs.Running, checkJob(t, s, got.id).State)
}

func TestAStartThatWaitsForAKeyIsRefusedWhenItsOwnerIsClosed(t *testing.T) {
	w := newHeldWrap()
	s := newSupervisor(t, jobs.Config{Wrap: w.wrap})
	c := newChild(t, s, jobs.ChildConfig{MaxRunning: 1})
	spec := keyed(bash("exec sleep 300"), "one")
	first := startLater(testContext(t), c, spec)
	<-w.entered
	waits := newWatchedContext(testContext(t))
	second := startLater(waits, c, spec)
	<-waits.waiting
	closed := beginClose(c, testContext(t))
	w.answer <- nil
	require.ErrorIs(t, (<-first).err, jobs.ErrClosed)
	require.ErrorIs(t, (<-second).err, jobs.ErrClosed)
	require.Empty(t, (<-closed).Stopped)
	require.Empty(t, children())
}

func TestAPanicOfTheHostInAStartFreesTheSlotsAndTheKey(t *testing.T) {
	for name, cfg := range map[string]jobs.Config{
		"Wrap":      {Wrap: func([]string) ([]string, error) { panic("no") }},
		"EnvFilter": {EnvFilter: func(string) bool { panic("no") }},
	} {
		t.Run(name, func(t *testing.T) {
			warmPoller()
			before := descriptors()
			cfg.MaxRunning, cfg.TempDir = 1, t.TempDir()
			family := newFamily(t, cfg)
			for range 3 {
				_, err := family["a/a"].Start(testContext(t), keyed(bash("true"), "one"))
				require.ErrorContains(t, err, "panic: no")
				requireFree(t, family["a/a"], family["a"], family[""])
			}
			collect(t, family["a/a"], start(t, family["a/a"], keyed(returning(1), "one")).ID)
			requireNothingOpen(t, before)
		})
	}
}
