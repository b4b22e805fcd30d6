package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// function is a Spec that runs f.
func function(f func(ctx context.Context, out io.Writer) (any, error)) jobs.Spec {
	return jobs.Spec{Func: f}
}

// returning is a Spec of a function that returns v at once.
func returning(v any) jobs.Spec {
	return function(func(context.Context, io.Writer) (any, error) { return v, nil })
}

// gated is a Spec of a function that prints text and returns once gate is
// closed, or the error of its context when it is stopped.
func gated(gate <-chan struct{}, text string) jobs.Spec {
	return function(func(ctx context.Context, out io.Writer) (any, error) {
		io.WriteString(out, text)
		select {
		case <-gate:
			return "released", nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
}

// deaf is a Spec of a function that returns once gate is closed, whatever its
// context says.
func deaf(gate <-chan struct{}) jobs.Spec {
	return function(func(context.Context, io.Writer) (any, error) {
		<-gate
		return nil, nil
	})
}

// doneContext returns a context that is done.
func doneContext() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// A hookedContext runs hook when somebody first asks what ends it. Verbs do
// that between finding their job and waiting for it.
type hookedContext struct {
	context.Context
	once sync.Once
	hook func()
}

func (c *hookedContext) Done() <-chan struct{} {
	c.once.Do(c.hook)
	return c.Context.Done()
}

// checkJob returns the Snapshot of a job.
func checkJob(t testing.TB, s *jobs.Supervisor, id string) jobs.Snapshot {
	t.Helper()
	snap, err := s.Check(id)
	require.NoError(t, err)
	return snap
}

// requireJobError fails unless err concerns job id and is sentinel.
func requireJobError(t testing.TB, err, sentinel error, id string) *jobs.JobError {
	t.Helper()
	require.ErrorIs(t, err, sentinel)
	var je *jobs.JobError
	require.ErrorAs(t, err, &je)
	require.Equal(t, id, je.ID)
	return je
}

// ids returns the ids of snapshots, in their order.
func ids(snaps []jobs.Snapshot) []string {
	names := make([]string, len(snaps))
	for i, snap := range snaps {
		names[i] = snap.ID
	}
	return names
}

func TestStartReturnsWhileTheJobRuns(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	gate := make(chan struct{})
	spec := gated(gate, "")
	spec.Tool, spec.Tag = "wait_for_gate", "a note"
	snap := start(t, s, spec)
	assert.Equal(t, jobs.Running, snap.State)
	assert.Empty(t, snap.Reason)
	assert.Equal(t, -1, snap.ExitCode)
	assert.Equal(t, "wait_for_gate", snap.Tool)
	assert.Equal(t, "a note", snap.Tag)
	assert.Equal(t, "running", snap.Outcome(), "a start does not claim success")
	assert.False(t, snap.Ended() || snap.LeaderExited || snap.Collected)
	close(gate)
	r := collect(t, s, snap.ID)
	assert.Equal(t, jobs.Completed, r.State)
	assert.Equal(t, snap.Started, r.Started)
	assert.Equal(t, "a note", r.Tag)
}

func TestStartWithADoneContextLeavesNoRecord(t *testing.T) {
	expired, cancel := context.WithDeadline(context.Background(), time.Unix(1, 0))
	defer cancel()
	called := func(context.Context, io.Writer) (any, error) {
		t.Error("the function ran")
		return nil, nil
	}
	s := newSupervisor(t, jobs.Config{MaxRunning: 1})
	for _, tt := range []struct {
		name string
		ctx  context.Context
		spec jobs.Spec
		want error
	}{
		{"cancelled, function", doneContext(), function(called), context.Canceled},
		{"cancelled, process", doneContext(), jobs.Spec{Argv: []string{"true"}}, context.Canceled},
		{"past its deadline, function", expired, function(called), context.DeadlineExceeded},
	} {
		t.Run(tt.name, func(t *testing.T) {
			snap, err := s.Start(tt.ctx, tt.spec)
			require.ErrorIs(t, err, tt.want)
			require.Zero(t, snap)
			require.Equal(t, jobs.List{Jobs: []jobs.Snapshot{}, MaxRunning: 1}, s.List())
		})
	}
	collect(t, s, start(t, s, returning(nil)).ID) // the slot was never taken
}

func TestARefusedSpecLeavesNoRecord(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 1})
	_, err := s.Start(testContext(t), jobs.Spec{})
	var se *jobs.StartError
	require.ErrorAs(t, err, &se)
	require.Equal(t, jobs.StageSpec, se.Stage)
	require.Equal(t, jobs.List{Jobs: []jobs.Snapshot{}, MaxRunning: 1}, s.List())
}

func TestAnIDResolvesInAnotherGoroutineAtOnce(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 200, MaxRetained: 200})
	started := make(chan string)
	go func() {
		defer close(started)
		for range 200 {
			snap, err := s.Start(context.Background(), returning(nil))
			if assert.NoError(t, err) {
				started <- snap.ID
			}
		}
	}()
	n := 0
	for id := range started {
		_, err := s.Check(id)
		assert.NoError(t, err)
		n++
	}
	require.Equal(t, 200, n)
}

func TestCheckChangesNothing(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	gate := make(chan struct{})
	id := start(t, s, gated(gate, "hello")).ID
	awaitOutput(t, s, id, "hello")

	first, second := checkJob(t, s, id), checkJob(t, s, id)
	assert.Equal(t, int64(5), first.OutputTotal)
	assert.GreaterOrEqual(t, second.Elapsed, first.Elapsed)
	first.Elapsed, second.Elapsed, first.Idle, second.Idle = 0, 0, 0, 0
	assert.Equal(t, first, second)

	close(gate)
	ended := awaitEnd(t, s, id)
	for range 100 {
		require.Equal(t, ended, checkJob(t, s, id))
	}
	r := collect(t, s, id)
	assert.Equal(t, "hello", string(r.Output.Bytes()))
	assert.JSONEq(t, `"released"`, string(r.File.JSON()))
}

func TestElapsedStandsStillOnceTheJobEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSupervisor(t, jobs.Config{})
		id := start(t, s, function(func(_ context.Context, out io.Writer) (any, error) {
			time.Sleep(2 * time.Second)
			io.WriteString(out, "half way")
			time.Sleep(2 * time.Second)
			return nil, nil
		})).ID

		time.Sleep(3 * time.Second)
		synctest.Wait()
		snap := checkJob(t, s, id)
		assert.Equal(t, 3*time.Second, snap.Elapsed)
		assert.Equal(t, time.Second, snap.Idle)

		time.Sleep(time.Hour / 10)
		snap = checkJob(t, s, id)
		assert.Equal(t, 4*time.Second, snap.Elapsed)
		assert.Zero(t, snap.Idle)
		assert.Equal(t, 4*time.Second, s.List().Jobs[0].Elapsed)
		assert.Equal(t, 4*time.Second, collect(t, s, id).Elapsed)
		assert.Equal(t, 4*time.Second, checkJob(t, s, id).Elapsed)
	})
}

// On a clock that moves only when everybody waits, a collector that polls
// would come late by a part of its interval.
func TestCollectIsWokenByTheEndItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSupervisor(t, jobs.Config{})
		const length = time.Hour + time.Nanosecond
		begun := time.Now()
		id := start(t, s, function(func(context.Context, io.Writer) (any, error) {
			time.Sleep(length)
			return nil, nil
		})).ID
		_, err := s.Collect(context.Background(), id)
		require.NoError(t, err)
		require.Equal(t, length, time.Since(begun))
	})
}

func TestOneOfManyCollectorsGetsTheResult(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	gate := make(chan struct{})
	id := start(t, s, gated(gate, "printed")).ID
	results := make([]jobs.Result, 16)
	errs := make([]error, len(results))
	ctx := testContext(t)
	var entered, done sync.WaitGroup
	for i := range results {
		entered.Add(1)
		done.Go(func() {
			entered.Done()
			results[i], errs[i] = s.Collect(ctx, id)
		})
	}
	entered.Wait()
	close(gate)
	done.Wait()

	winners := 0
	for i, err := range errs {
		if err == nil {
			winners++
			assert.Equal(t, "printed", string(results[i].Output.Bytes()))
			assert.Equal(t, `"released"`, string(results[i].File.JSON()))
			assert.Equal(t, jobs.Completed, results[i].State)
			continue
		}
		assert.Zero(t, results[i])
		je := requireJobError(t, err, jobs.ErrCollected, id)
		require.NotNil(t, je.Job)
		assert.Equal(t, checkJob(t, s, id), *je.Job, "a loser learns the final Snapshot")
	}
	assert.Equal(t, 1, winners)
}

func TestACollectWhoseContextEndsUsesNothingUp(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	gate := make(chan struct{})
	id := start(t, s, gated(gate, "a")).ID
	awaitOutput(t, s, id, "a")

	ctx, cancel := context.WithCancel(testContext(t))
	type answer struct {
		r   jobs.Result
		err error
	}
	given := make(chan answer)
	go func() {
		r, err := s.Collect(ctx, id)
		given <- answer{r, err}
	}()
	cancel()
	got := <-given
	require.ErrorIs(t, got.err, context.Canceled)
	assert.Equal(t, jobs.Running, got.r.State)
	assert.Equal(t, id, got.r.ID)
	assert.Empty(t, got.r.Output.Pieces)
	assert.Equal(t, jobs.Running, checkJob(t, s, id).State, "the job goes on")

	expired, cancel := context.WithTimeout(context.Background(), time.Nanosecond)
	defer cancel()
	_, err := s.Collect(expired, id)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	close(gate)
	r := collect(t, s, id)
	assert.Equal(t, "a", string(r.Output.Bytes()))
	assert.Equal(t, `"released"`, string(r.File.JSON()))
}

func TestCollectOfAnEndedJobNeedsNoTime(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	id := start(t, s, returning(1)).ID
	awaitEnd(t, s, id)
	r, err := s.Collect(doneContext(), id)
	require.NoError(t, err)
	require.Equal(t, "1", string(r.File.JSON()))
}

func TestABlockedCollectHoldsUpNobody(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	gate := make(chan struct{})
	blocked := start(t, s, gated(gate, "x")).ID
	collected := make(chan jobs.Result)
	go func() {
		r, err := s.Collect(context.Background(), blocked)
		assert.NoError(t, err)
		collected <- r
	}()

	// None of these would return if the collector held a lock.
	other := start(t, s, returning("other")).ID
	collect(t, s, other)
	assert.Len(t, s.List().Jobs, 1)
	checkJob(t, s, blocked)
	awaitOutput(t, s, blocked, "x")
	_, err := s.Collect(doneContext(), blocked)
	assert.ErrorIs(t, err, context.Canceled)

	_, err = s.Cancel(testContext(t), blocked)
	if err != nil {
		requireJobError(t, err, jobs.ErrCollected, blocked) // the collector was quicker
	}
	r := <-collected
	assert.Equal(t, jobs.Cancelled, r.State)
	assert.Equal(t, jobs.ReasonCancelled, r.Reason)
	assert.Equal(t, "x", string(r.Output.Bytes()))
}

func TestParallelCollectsAndCancelsTellOneEnd(t *testing.T) {
	for range 50 {
		s := newSupervisor(t, jobs.Config{})
		gate := make(chan struct{})
		id := start(t, s, gated(gate, "r")).ID
		ctx := testContext(t)
		var mu sync.Mutex // guards the two below
		var won int
		var told []jobs.Snapshot
		tell := func(r jobs.Result, err error) bool {
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				told = append(told, r.Snapshot)
				return true
			}
			told = append(told, *requireJobError(t, err, jobs.ErrCollected, id).Job)
			return false
		}
		var calls sync.WaitGroup
		begin := make(chan struct{})
		for range 20 {
			calls.Go(func() {
				<-begin
				if tell(s.Collect(ctx, id)) {
					mu.Lock()
					won++
					mu.Unlock()
				}
			})
		}
		for range 5 {
			calls.Go(func() {
				<-begin
				tell(s.Cancel(ctx, id))
			})
		}
		calls.Go(func() {
			<-begin
			close(gate)
		})
		close(begin)
		calls.Wait()
		require.Equal(t, 1, won, "results handed out")
		end := checkJob(t, s, id)
		for _, snap := range told {
			snap.Collected = true // whoever answered before the collector says false
			require.Equal(t, end, snap)
		}
	}
}

func TestCancelReturnsThePartialOutputAndLeavesTheResult(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	id := start(t, s, gated(nil, "so far")).ID
	awaitOutput(t, s, id, "so far")
	r := cancel(t, s, id)
	assert.Equal(t, jobs.Cancelled, r.State)
	assert.Equal(t, jobs.ReasonCancelled, r.Reason)
	assert.Equal(t, "so far", string(r.Output.Bytes()))
	assert.False(t, r.Collected)
	assert.Empty(t, s.List().Jobs, "whoever cancelled it has the result")
	assert.Equal(t, "so far", string(collect(t, s, id).Output.Bytes()))
}

func TestCancelOfAFinishedJobChangesNothing(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	for _, tt := range []struct {
		name string
		err  error
		want jobs.State
	}{
		{"succeeded", nil, jobs.Completed},
		{"failed", errors.New("no"), jobs.Failed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			id := start(t, s, function(func(_ context.Context, out io.Writer) (any, error) {
				io.WriteString(out, "done")
				return nil, tt.err
			})).ID
			end := awaitEnd(t, s, id)
			require.Equal(t, tt.want, end.State)
			for range 2 {
				r := cancel(t, s, id)
				assert.Equal(t, end, r.Snapshot)
				assert.Equal(t, "done", string(r.Output.Bytes()))
			}
			assert.Equal(t, end, checkJob(t, s, id))
			r := collect(t, s, id)
			assert.Equal(t, tt.want, r.State)
			assert.Equal(t, "done", string(r.Output.Bytes()))
		})
	}
}

func TestACancelWhoseContextEndsGoesOnStopping(t *testing.T) {
	s := newSupervisor(t, jobs.Config{KillGrace: patience})
	gate := make(chan struct{})
	id := start(t, s, deaf(gate)).ID
	r, err := s.Cancel(doneContext(), id)
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, jobs.Cancelling, r.State)
	assert.Equal(t, jobs.ReasonCancelled, r.Reason)
	assert.Equal(t, "cancelling, cancelled", r.Outcome())
	assert.Equal(t, jobs.Cancelling, checkJob(t, s, id).State)
	close(gate)
	assert.Equal(t, jobs.Cancelled, collect(t, s, id).State)
}

func TestSeveralCancelsReturnTheOneEnd(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	id := start(t, s, gated(nil, "")).ID
	ends := make([]jobs.Result, 8)
	var calls sync.WaitGroup
	ctx := testContext(t)
	for i := range ends {
		calls.Go(func() {
			var err error
			ends[i], err = s.Cancel(ctx, id)
			assert.NoError(t, err)
		})
	}
	calls.Wait()
	for _, r := range ends {
		assert.Equal(t, ends[0], r)
	}
	assert.Equal(t, jobs.Cancelled, ends[0].State)
}

func TestACollectedJobStillSaysHowItEnded(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	spec := function(func(_ context.Context, out io.Writer) (any, error) {
		io.WriteString(out, "text")
		return nil, errors.New("went wrong")
	})
	spec.Tool = "build"
	id := start(t, s, spec).ID
	r := collect(t, s, id)
	require.True(t, r.Collected)

	snap := checkJob(t, s, id)
	assert.Equal(t, r.Snapshot, snap)
	assert.EqualError(t, snap.Err, "went wrong")
	assert.Empty(t, s.List().Jobs)

	ctx := testContext(t)
	for name, call := range map[string]func() error{
		"Collect":    func() error { _, err := s.Collect(ctx, id); return err },
		"Cancel":     func() error { _, err := s.Cancel(ctx, id); return err },
		"Output":     func() error { _, err := s.Output(id, 0, 0); return err },
		"ReadOutput": func() error { _, err := s.ReadOutput(id, 0, make([]byte, 8)); return err },
		"Stderr":     func() error { _, err := s.Stderr(id, 0, 0); return err },
	} {
		je := requireJobError(t, call(), jobs.ErrCollected, id)
		require.NotNil(t, je.Job, name)
		assert.Equal(t, snap, *je.Job, name)
		assert.Contains(t, je.Error(), id, name)
		assert.Contains(t, je.Error(), "failed", name)
	}
}

func TestEachByteIsToldOnceHoweverOftenItIsRead(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	for _, end := range []error{nil, errors.New("no")} {
		id := start(t, s, function(func(_ context.Context, out io.Writer) (any, error) {
			io.WriteString(out, "before MARKER after")
			return nil, end
		})).ID
		awaitEnd(t, s, id)
		for range 100 {
			c, err := s.Output(id, 0, 0)
			require.NoError(t, err)
			require.Equal(t, 1, strings.Count(string(c.Data), "MARKER"))
			require.True(t, c.EOF)
		}
		require.Equal(t, 1, strings.Count(string(collect(t, s, id).Output.Bytes()), "MARKER"))
	}
}

// Whoever reads beside a collector gets the whole output or is told that it
// was handed out; never that it was dropped.
func TestAReaderBesideACollectorLosesNothingSilently(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	ctx := testContext(t)
	for range 2000 {
		snap, err := s.Start(ctx, function(func(_ context.Context, out io.Writer) (any, error) {
			io.WriteString(out, "whole")
			return nil, nil
		}))
		require.NoError(t, err)
		id := snap.ID
		for !checkJob(t, s, id).Ended() {
			runtime.Gosched()
		}
		var calls sync.WaitGroup
		calls.Go(func() {
			r, err := s.Collect(ctx, id)
			assert.NoError(t, err)
			assert.Equal(t, "whole", string(r.Output.Bytes()))
		})
		calls.Go(func() {
			if r, err := s.Cancel(ctx, id); err == nil {
				assert.Equal(t, "whole", string(r.Output.Bytes()), "Cancel")
				assert.False(t, r.Collected, "Cancel")
			} else {
				assert.ErrorIs(t, err, jobs.ErrCollected)
			}
		})
		calls.Go(func() {
			if c, err := s.Output(id, 0, 0); err == nil {
				assert.Equal(t, "whole", string(c.Data), "Output")
				assert.Zero(t, c.Dropped, "Output")
			} else {
				assert.ErrorIs(t, err, jobs.ErrCollected)
			}
		})
		calls.Wait()
		if t.Failed() {
			return
		}
	}
}

func TestCheckAndReadOutputAllocateNothing(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	gate := make(chan struct{})
	running := start(t, s, gated(gate, strings.Repeat("x", 100<<10))).ID
	ended := start(t, s, returning(nil)).ID
	awaitEnd(t, s, ended)
	awaitOutput(t, s, running, "x")
	buf := make([]byte, 4<<10)
	for _, id := range []string{running, ended} {
		assert.Zero(t, testing.AllocsPerRun(1000, func() { s.Check(id) }), "Check")
		assert.Zero(t, testing.AllocsPerRun(1000, func() { s.ReadOutput(id, -4096, buf) }), "ReadOutput")
	}
	close(gate)
}

func TestCloseRefusesLaterStarts(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	_, err := s.Close(testContext(t))
	require.NoError(t, err)
	_, err = s.Start(testContext(t), function(func(context.Context, io.Writer) (any, error) {
		t.Error("the function ran")
		return nil, nil
	}))
	require.ErrorIs(t, err, jobs.ErrClosed)
	_, err = s.Start(testContext(t), jobs.Spec{Argv: []string{"true"}})
	require.ErrorIs(t, err, jobs.ErrClosed)
	require.Empty(t, s.List().Jobs)
}

func TestStartsAreRefusedAsSoonAsCloseIsCalled(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 1, KillGrace: patience})
	gate := make(chan struct{})
	id := start(t, s, deaf(gate)).ID
	closed := make(chan jobs.Report)
	go func() {
		report, err := s.Close(context.Background())
		assert.NoError(t, err)
		closed <- report
	}()
	require.True(t, eventually(func() bool {
		_, err := s.Start(context.Background(), returning(nil))
		return errors.Is(err, jobs.ErrClosed)
	}))
	select {
	case <-closed:
		t.Error("Close did not wait for the job")
	default:
	}
	close(gate)
	require.Equal(t, []string{id}, ids((<-closed).Stopped))
}

func TestCloseTellsWhatItStoppedAndWhatNobodyCollected(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	var want struct{ stopped, uncollected []string }
	for range 2 {
		want.stopped = append(want.stopped, start(t, s, gated(nil, "")).ID)
		id := start(t, s, returning(nil)).ID
		awaitEnd(t, s, id)
		want.uncollected = append(want.uncollected, id)
		collect(t, s, start(t, s, returning(nil)).ID)
	}
	report, err := s.Close(testContext(t))
	require.NoError(t, err)
	assert.Equal(t, want.stopped, ids(report.Stopped))
	assert.Equal(t, want.uncollected, ids(report.Uncollected))
	for _, snap := range report.Stopped {
		assert.Equal(t, jobs.Cancelled, snap.State)
		assert.Equal(t, jobs.ReasonShutdown, snap.Reason)
		assert.Equal(t, "cancelled, shutdown", snap.Outcome())
	}
	for _, snap := range report.Uncollected {
		assert.Equal(t, jobs.Completed, snap.State)
	}
}

func TestCloseOfAnIdleSupervisorReportsNothing(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	collect(t, s, start(t, s, returning(nil)).ID)
	report, err := s.Close(testContext(t))
	require.NoError(t, err)
	require.Empty(t, report.Stopped)
	require.Empty(t, report.Uncollected)
}

func TestCloseWithADoneContextReturnsItsErrorBesideTheReport(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	id := start(t, s, returning(nil)).ID
	awaitEnd(t, s, id)
	report, err := s.Close(doneContext())
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, []string{id}, ids(report.Uncollected))
}

func TestCloseTwiceReturnsTheSameReport(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	start(t, s, gated(nil, ""))
	first, err := s.Close(testContext(t))
	require.NoError(t, err)
	second, err := s.Close(doneContext())
	require.NoError(t, err)
	require.Equal(t, first, second)
}

func TestParallelClosesAllWaitForTheEnd(t *testing.T) {
	s := newSupervisor(t, jobs.Config{KillGrace: patience})
	gate := make(chan struct{})
	id := start(t, s, deaf(gate)).ID
	var released atomic.Bool
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() {
			report, err := s.Close(context.Background())
			assert.NoError(t, err)
			assert.True(t, released.Load(), "Close returned before the job had ended")
			assert.Equal(t, []string{id}, ids(report.Stopped))
		})
	}
	require.True(t, eventually(func() bool { return checkJob(t, s, id).State == jobs.Cancelling }))
	released.Store(true)
	close(gate)
	calls.Wait()
}

func TestTheVerbsAnswerAfterClose(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	ended := start(t, s, returning("value")).ID
	awaitEnd(t, s, ended)
	stopped := start(t, s, gated(nil, "printed")).ID
	awaitOutput(t, s, stopped, "printed")
	_, err := s.Close(testContext(t))
	require.NoError(t, err)

	list := s.List()
	assert.Equal(t, []string{ended, stopped}, ids(list.Jobs))
	assert.Zero(t, list.Running)
	assert.Equal(t, jobs.ReasonShutdown, checkJob(t, s, stopped).Reason)
	assert.Equal(t, jobs.ReasonShutdown, cancel(t, s, stopped).Reason)
	c, err := s.Output(stopped, 0, 0)
	require.NoError(t, err)
	assert.Equal(t, "printed", string(c.Data))
	assert.Equal(t, "printed", string(collect(t, s, stopped).Output.Bytes()))
	assert.Equal(t, `"value"`, string(collect(t, s, ended).File.JSON()))
	_, err = s.Check(fmt.Sprintf("job_%016x", 1))
	assert.ErrorIs(t, err, jobs.ErrNotFound)
}

func TestCloseWakesABlockedCollect(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	id := start(t, s, gated(nil, "x")).ID
	awaitOutput(t, s, id, "x")
	collected := make(chan jobs.Result)
	go func() {
		r, err := s.Collect(context.Background(), id)
		assert.NoError(t, err)
		collected <- r
	}()
	report, err := s.Close(testContext(t))
	require.NoError(t, err)
	require.Equal(t, []string{id}, ids(report.Stopped))
	r := <-collected
	assert.Equal(t, jobs.ReasonShutdown, r.Reason)
	assert.Equal(t, "x", string(r.Output.Bytes()))
}
