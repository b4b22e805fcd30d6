package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// demote runs a job that the grace does not wait for.
func demote(t testing.TB, s *jobs.Supervisor, spec jobs.Spec) jobs.Result {
	t.Helper()
	r := foreground(t, s, spec, 0)
	require.Equal(t, jobs.Running, r.State)
	return r
}

// requireNothingStays fails unless s is as if it had never had the job.
func requireNothingStays(t testing.TB, s *jobs.Supervisor, id string) {
	t.Helper()
	list := s.List()
	require.Empty(t, list.Jobs)
	require.Zero(t, list.Running)
	require.Empty(t, s.Ready())
	require.Nil(t, s.Drain())
	for name, call := range map[string]func() error{
		"Check":   func() error { _, err := s.Check(id); return err },
		"Collect": func() error { _, err := s.Collect(t.Context(), id); return err },
		"Cancel":  func() error { _, err := s.Cancel(t.Context(), id); return err },
		"Output":  func() error { _, err := s.Output(id, 0, 0); return err },
		"Wait":    func() error { _, err := s.Wait(t.Context(), jobs.WaitSpec{IDs: []string{id}}); return err },
	} {
		require.Nil(t, requireJobError(t, call(), jobs.ErrExpired, id).Job, name)
	}
}

func TestARunWithinItsGraceAnswersLikeAForegroundCallAndLeavesNothing(t *testing.T) {
	timed := bash("sleep 1000")
	timed.Timeout = 50 * time.Millisecond
	for _, tt := range []struct {
		name    string
		spec    jobs.Spec
		outcome string
		output  string
	}{
		{"success", bash("echo out; echo err >&2"), "completed, exit 0", "out\nerr\n"},
		{"exit code", bash("echo out; exit 3"), "failed, exit 3", "out\n"},
		{"signal", bash("echo out; kill -KILL $$"), "failed, signal, SIGKILL", "out\n"},
		{"timeout", timed, "failed, timeout, SIGTERM", ""},
		{"function", jobs.Spec{Func: prints("out")}, "completed", "out"},
		{"error", function(func(context.Context, io.Writer) (any, error) { return nil, errors.New("no") }), "failed", ""},
		{"panic", function(func(_ context.Context, out io.Writer) (any, error) {
			io.WriteString(out, "before")
			panic("out of cheese")
		}), "failed, internal", "before"},
	} {
		for name, grace := range map[string]time.Duration{"a grace": patience, "no end of the grace": jobs.NoDetach} {
			t.Run(tt.name+", "+name, func(t *testing.T) {
				s := newSupervisor(t, jobs.Config{})
				r := foreground(t, s, tt.spec, grace)
				assert.Equal(t, tt.outcome, r.Outcome())
				assert.Equal(t, tt.output, string(r.Output.Bytes()))
				assert.True(t, r.Ended())
				requireNothingStays(t, s, r.ID)
			})
		}
	}
}

func TestTheAnswerOfARunHoldsAllThatTheJobLeft(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	spec := bash(`echo out; echo err >&2; echo '{"n": 1}' >"$LLM_OUTPUT"`)
	spec.SplitStderr, spec.Tool, spec.Tag = true, "build", "request 7"
	r := foreground(t, s, spec, patience)
	assert.Equal(t, "out\n{\"n\": 1}\n", string(r.Output.Bytes()))
	assert.Equal(t, "err\n", string(r.Stderr.Bytes()))
	assert.JSONEq(t, `{"n": 1}`, string(r.File.JSON()))
	assert.Equal(t, "build", r.Tool)
	assert.Equal(t, "request 7", r.Tag)
	requireNothingStays(t, s, r.ID)
}

func TestManyRunsOneAfterTheOtherNeedOneSlotAndLeaveNoRecord(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 1})
	for i := range 200 {
		r := foreground(t, s, returning(i), patience)
		require.Equal(t, fmt.Sprint(i), string(r.File.JSON()))
		requireNothingStays(t, s, r.ID)
	}
	for range 20 {
		r := foreground(t, s, jobs.Spec{Argv: []string{"true"}}, patience)
		require.Equal(t, "completed, exit 0", r.Outcome())
		requireNothingStays(t, s, r.ID)
	}
}

func TestAGraceOfZeroSendsTheJobToTheBackgroundAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSupervisor(t, jobs.Config{})
		gate := make(chan struct{})
		begun := time.Now()
		r := demote(t, s, gated(gate, ""))
		assert.Equal(t, begun, time.Now())
		assert.Equal(t, -1, r.ExitCode)
		assert.Equal(t, []string{r.ID}, ids(s.List().Jobs))
		assert.Empty(t, s.Drain())
		close(gate)
		requireOneEnd(t, s, r.ID)
	})
}

func TestARunReturnsAtTheEndOfTheJobOrOfTheGraceWhicheverIsFirst(t *testing.T) {
	for _, tt := range []struct {
		name               string
		job, grace, answer time.Duration
		state              jobs.State
	}{
		{"job", 2 * time.Second, 3 * time.Second, 2 * time.Second, jobs.Completed},
		{"grace", 4 * time.Second, 3 * time.Second, 3 * time.Second, jobs.Running},
		{"no grace", 24 * time.Hour, jobs.NoDetach, 24 * time.Hour, jobs.Completed},
		{"any negative grace", 24 * time.Hour, -time.Hour, 24 * time.Hour, jobs.Completed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSupervisor(t, jobs.Config{})
				begun := time.Now()
				r, err := s.Run(context.Background(), function(func(_ context.Context, out io.Writer) (any, error) {
					io.WriteString(out, "begun")
					time.Sleep(tt.job)
					io.WriteString(out, ", done")
					return nil, nil
				}), tt.grace)
				require.NoError(t, err)
				assert.Equal(t, tt.answer, time.Since(begun))
				assert.Equal(t, tt.answer, r.Elapsed)
				assert.Equal(t, tt.state, r.State)
				if r.Ended() {
					assert.Equal(t, "begun, done", string(r.Output.Bytes()))
					requireNothingStays(t, s, r.ID)
					return
				}
				assert.Equal(t, "begun", string(r.Output.Bytes()))
				assert.Equal(t, tt.job, requireOneEnd(t, s, r.ID).Elapsed)
				assert.Equal(t, "begun, done", string(collect(t, s, r.ID).Output.Bytes()))
			})
		})
	}
}

func TestARunThatNeverDetachesStopsHardAtItsTimeout(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	spec, mark := markedScript("trap '' TERM; sleep 1000 & setsid sleep 1000 & echo started; wait")
	spec.Timeout = 500 * time.Millisecond
	r := foreground(t, s, spec, jobs.NoDetach)
	assert.Equal(t, jobs.Failed, r.State)
	assert.Equal(t, jobs.ReasonTimeout, r.Reason)
	require.Empty(t, marked(mark))
	requireNothingStays(t, s, r.ID)
}

func TestADemotedJobGoesOnUnderItsIDWithEveryVerb(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	g := newGate(t)
	spec := g.gated(`echo one; read -r _ <"$GATE"; echo two; read -r _ <"$GATE"`)
	spec.Tool = "build"
	r := demote(t, s, spec)
	require.Equal(t, "build", r.Tool)
	require.True(t, alive(r.PID))
	awaitOutput(t, s, r.ID, "one\n")
	require.Equal(t, jobs.Running, checkJob(t, s, r.ID).State)
	require.Equal(t, r.PID, checkJob(t, s, r.ID).PID)
	require.Equal(t, []string{r.ID}, ids(s.List().Jobs))
	g.open(t)
	awaitOutput(t, s, r.ID, "one\ntwo\n")
	require.Equal(t, jobs.Cancelled, cancel(t, s, r.ID).State)
	requireDead(t, r.PID)
	require.Equal(t, "one\ntwo\n", string(collect(t, s, r.ID).Output.Bytes()))
	require.Nil(t, s.Drain())
}

func TestTheOutputOfADemotedJobIsInOnePiece(t *testing.T) {
	s := newSupervisor(t, jobs.Config{TailBytes: 4 << 20})
	want := seq(1, 200_000)
	// Longer and longer, until the job has begun to print when it is demoted.
	for grace, sofar := time.Duration(0), ""; sofar == ""; grace = 2*grace + time.Millisecond {
		require.Less(t, grace, patience)
		g := newGate(t)
		r := foreground(t, s, g.gated(`seq 1 100000; read -r _ <"$GATE"; seq 100001 200000`), grace)
		require.Equal(t, jobs.Running, r.State)
		sofar = string(r.Output.Bytes())
		require.True(t, strings.HasPrefix(want, sofar), "%d bytes so far", len(sofar))
		g.open(t)
		all := collect(t, s, r.ID)
		require.Zero(t, all.Output.Dropped)
		require.True(t, want == string(all.Output.Bytes()), "%d bytes in all", all.Output.Total)
	}
}

func TestTheLimitsOfADemotedJobStayArmed(t *testing.T) {
	for _, tt := range []struct {
		script string
		set    func(*jobs.Spec)
		reason jobs.Reason
	}{
		{"sleep 1000 & wait", func(s *jobs.Spec) { s.Timeout = 300 * time.Millisecond }, jobs.ReasonTimeout},
		{"echo once; sleep 1000 & wait", func(s *jobs.Spec) { s.IdleTimeout = 300 * time.Millisecond }, jobs.ReasonIdle},
		{`read -r _ <"$GATE"; echo too much; sleep 1000 & wait`, func(s *jobs.Spec) { s.OutputLimit = 8 }, jobs.ReasonOutputLimit},
	} {
		t.Run(string(tt.reason), func(t *testing.T) {
			s := newSupervisor(t, jobs.Config{})
			g := newGate(t)
			spec, mark := markedScript(tt.script)
			spec.Env = append(spec.Env, g.env())
			tt.set(&spec)
			r := demote(t, s, spec)
			g.open(t)
			n := requireOneEnd(t, s, r.ID)
			assert.Equal(t, jobs.EventFailed, n.Event)
			assert.Equal(t, tt.reason, n.Reason)
			assert.Empty(t, marked(mark))
			assert.Equal(t, tt.reason, collect(t, s, r.ID).Reason)
		})
	}
}

func TestTheClocksOfADemotedJobBeganWithTheJob(t *testing.T) {
	for reason, set := range map[jobs.Reason]func(*jobs.Spec){
		jobs.ReasonTimeout: func(s *jobs.Spec) { s.Timeout = 5 * time.Second },
		jobs.ReasonIdle:    func(s *jobs.Spec) { s.IdleTimeout = 5 * time.Second },
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newSupervisor(t, jobs.Config{})
			spec := jobs.Spec{Func: waits}
			set(&spec)
			r := foreground(t, s, spec, 4*time.Second)
			require.Equal(t, jobs.Running, r.State)
			end := collect(t, s, r.ID)
			assert.Equal(t, reason, end.Reason)
			assert.Equal(t, 5*time.Second, end.Elapsed)
		})
	}
}

func TestADemotedJobKeepsItsSlotUntilItEnds(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 1})
	gate := make(chan struct{})
	r := demote(t, s, gated(gate, ""))
	require.Equal(t, 1, s.List().Running)
	never := function(func(context.Context, io.Writer) (any, error) {
		t.Error("the function ran")
		return nil, nil
	})
	_, err := s.Run(testContext(t), never, patience)
	require.ErrorIs(t, err, jobs.ErrAtCapacity)
	_, err = s.Start(testContext(t), never)
	require.ErrorIs(t, err, jobs.ErrAtCapacity)
	close(gate)
	requireOneEnd(t, s, r.ID)
	require.True(t, foreground(t, s, returning(nil), patience).Ended())
}

func TestADemotedFunctionThatPanicsHasOneNotice(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	gate := make(chan struct{})
	r := demote(t, s, function(func(context.Context, io.Writer) (any, error) {
		<-gate
		panic("out of cheese")
	}))
	close(gate)
	require.Equal(t, jobs.ReasonInternal, requireOneEnd(t, s, r.ID).Reason)
	require.ErrorContains(t, collect(t, s, r.ID).Err, "out of cheese")
	require.Nil(t, s.Drain())
}

func TestAnEndOfTheContextBeforeTheAnswerStopsTheJob(t *testing.T) {
	script, mark := markedScript("echo so far; sleep 1000 & setsid sleep 1000 & wait")
	for _, tt := range []struct {
		name  string
		spec  jobs.Spec
		grace time.Duration
	}{
		{"process", script, patience},
		{"process that never detaches", script, jobs.NoDetach},
		{"function", gated(nil, "so far\n"), patience},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSupervisor(t, jobs.Config{})
			ctx, cancel := context.WithCancel(testContext(t))
			type answer struct {
				r   jobs.Result
				err error
			}
			answers := make(chan answer, 1)
			go func() {
				r, err := s.Run(ctx, tt.spec, tt.grace)
				answers <- answer{r, err}
			}()
			require.True(t, eventually(func() bool { return len(s.List().Jobs) == 1 }))
			id := s.List().Jobs[0].ID
			awaitOutput(t, s, id, "so far\n")
			cancel()
			a := <-answers
			require.ErrorIs(t, a.err, context.Canceled)
			assert.Equal(t, id, a.r.ID)
			assert.Equal(t, jobs.Cancelled, a.r.State)
			assert.Equal(t, jobs.ReasonCancelled, a.r.Reason)
			assert.Equal(t, "so far\n", string(a.r.Output.Bytes()))
			assert.Empty(t, marked(mark))
			requireNothingStays(t, s, id)
		})
	}
}

func TestTheDeadlineOfTheContextBoundsARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSupervisor(t, jobs.Config{})
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		r, err := s.Run(ctx, gated(nil, "so far"), jobs.NoDetach)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Minute, r.Elapsed)
		assert.Equal(t, jobs.Cancelled, r.State)
		assert.Equal(t, "so far", string(r.Output.Bytes()))
		requireNothingStays(t, s, r.ID)
	})
}

func TestAFunctionThatIgnoresTheEndOfTheRunIsGivenUpAfterTheGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSupervisor(t, jobs.Config{KillGrace: 3 * time.Second})
		gate := make(chan struct{})
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		r, err := s.Run(ctx, deaf(gate), jobs.NoDetach)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, jobs.ReasonUnreaped, r.Reason)
		assert.Equal(t, 4*time.Second, r.Elapsed)
		assert.Equal(t, 1, s.List().Running, "the work goes on")
		close(gate)
		synctest.Wait()
		requireNothingStays(t, s, r.ID)
	})
}

func TestTheContextHasNoPowerOverADemotedJob(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	g := newGate(t)
	gate := make(chan struct{})
	inside := make(chan context.Context, 1)
	ctx, cancel := context.WithCancel(context.WithValue(testContext(t), contextKey{}, "value"))
	process, err := s.Run(ctx, g.gated(`read -r _ <"$GATE"; echo done`), 0)
	require.NoError(t, err)
	call, err := s.Run(ctx, function(func(ctx context.Context, _ io.Writer) (any, error) {
		inside <- ctx
		<-gate
		return ctx.Value(contextKey{}), ctx.Err()
	}), 0)
	require.NoError(t, err)
	cancel()
	require.NoError(t, (<-inside).Err())
	require.Equal(t, jobs.Running, checkJob(t, s, process.ID).State)
	close(gate)
	g.open(t)
	r := collect(t, s, call.ID)
	require.Equal(t, jobs.Completed, r.State)
	require.Equal(t, `"value"`, string(r.File.JSON()))
	r = collect(t, s, process.ID)
	require.Equal(t, "completed, exit 0", r.Outcome())
	require.Equal(t, "done\n", string(r.Output.Bytes()))
}

func TestAnEndOfTheJobThatMeetsTheEndOfTheContextLeavesNothing(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	for i := range 200 {
		p := newPuppet()
		ctx := newWatchedContext(testContext(t))
		answered := make(chan struct{})
		var r jobs.Result
		go func() {
			defer close(answered)
			r, _ = s.Run(ctx, jobs.Spec{Func: p.run}, patience)
		}()
		<-ctx.waiting
		id := s.List().Jobs[0].ID
		finishing := make(chan struct{})
		both := []func(){ctx.cancel, func() {
			defer close(finishing)
			select {
			case p.result <- nil:
			case <-answered:
			}
		}}
		go both[i%2]()
		both[1-i%2]()
		<-finishing
		<-answered
		require.Equal(t, id, r.ID)
		require.True(t, r.Ended())
		requireNothingStays(t, s, id)
	}
}

// Runs that find a live job by its key.

// runKeyed begins a Run for the job that has the key, and returns once it
// waits.
func runKeyed(t testing.TB, s *jobs.Supervisor, grace time.Duration) (ctx *watchedContext, answer func() (jobs.Result, error)) {
	ctx = newWatchedContext(testContext(t))
	spec := function(func(context.Context, io.Writer) (any, error) {
		t.Error("a second job was started")
		return nil, nil
	})
	spec.Key = "key"
	var r jobs.Result
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		r, err = s.Run(ctx, spec, grace)
	}()
	<-ctx.waiting
	return ctx, func() (jobs.Result, error) { <-done; return r, err }
}

// startKeyed starts a job that has the key.
func startKeyed(t testing.TB, s *jobs.Supervisor, gate <-chan struct{}) (id string) {
	spec := gated(gate, "printed")
	spec.Key = "key"
	id = start(t, s, spec).ID
	awaitOutput(t, s, id, "printed")
	return id
}

func TestARunThatFindsALiveJobByItsKeyAnswersWithItsEnd(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 1})
	gate := make(chan struct{})
	id := startKeyed(t, s, gate)
	_, answer := runKeyed(t, s, patience)
	close(gate)
	r, err := answer()
	require.NoError(t, err)
	assert.Equal(t, id, r.ID)
	assert.Equal(t, jobs.Completed, r.State)
	assert.Equal(t, "printed", string(r.Output.Bytes()))
	assert.Equal(t, `"released"`, string(r.File.JSON()))
	require.Nil(t, s.Drain(), "the answer has told it")
	assert.Equal(t, `"released"`, string(collect(t, s, id).File.JSON()), "the result is not the Run's")
}

func TestARunThatFindsALiveJobByItsKeyIsDemotedLikeAnyOther(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 1})
	gate := make(chan struct{})
	id := startKeyed(t, s, gate)
	_, answer := runKeyed(t, s, 0)
	r, err := answer()
	require.NoError(t, err)
	assert.Equal(t, id, r.ID)
	assert.Equal(t, jobs.Running, r.State)
	assert.Equal(t, "printed", string(r.Output.Bytes()))
	close(gate)
	requireOneEnd(t, s, id)
	assert.Equal(t, `"released"`, string(collect(t, s, id).File.JSON()))
}

func TestTheContextOfARunThatFoundItsJobEndsTheWaitOnly(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	gate := make(chan struct{})
	id := startKeyed(t, s, gate)
	ctx, answer := runKeyed(t, s, jobs.NoDetach)
	ctx.cancel()
	r, err := answer()
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, jobs.Running, r.State)
	assert.Equal(t, jobs.Running, checkJob(t, s, id).State)
	close(gate)
	requireOneEnd(t, s, id)
}

func TestManyRunsWithOneKeyRunOneJob(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 1})
	gate := make(chan struct{})
	spec := gated(gate, "printed")
	spec.Key = "key"
	results := make([]jobs.Result, 8)
	var runs sync.WaitGroup
	for i := range results {
		ctx := newWatchedContext(testContext(t))
		runs.Go(func() {
			var err error
			results[i], err = s.Run(ctx, spec, patience)
			assert.NoError(t, err)
		})
		<-ctx.waiting
	}
	close(gate)
	runs.Wait()
	for _, r := range results {
		assert.Equal(t, results[0].ID, r.ID)
		assert.Equal(t, jobs.Completed, r.State)
		assert.Equal(t, "printed", string(r.Output.Bytes()))
	}
	requireNothingStays(t, s, results[0].ID)
}

// Refusals.

func TestARunThatIsRefusedStartsNothing(t *testing.T) {
	closed := newSupervisor(t, jobs.Config{})
	_, err := closed.Close(testContext(t))
	require.NoError(t, err)
	full := newSupervisor(t, jobs.Config{MaxRunning: 1})
	start(t, full, jobs.Spec{Func: waits})
	for _, tt := range []struct {
		name string
		s    *jobs.Supervisor
		ctx  context.Context
		want error
	}{
		{"disabled", newSupervisor(t, jobs.Config{Disabled: true}), t.Context(), jobs.ErrDisabled},
		{"closed", closed, t.Context(), jobs.ErrClosed},
		{"full", full, t.Context(), jobs.ErrAtCapacity},
		{"cancelled", newSupervisor(t, jobs.Config{}), doneContext(), context.Canceled},
	} {
		for name, grace := range map[string]time.Duration{"at once": 0, "later": patience, "never": jobs.NoDetach} {
			t.Run(tt.name+", "+name, func(t *testing.T) {
				before := len(tt.s.List().Jobs)
				script, mark := markedScript("sleep 1000")
				for _, spec := range []jobs.Spec{script, function(func(context.Context, io.Writer) (any, error) {
					t.Error("the function ran")
					return nil, nil
				})} {
					r, err := tt.s.Run(tt.ctx, spec, grace)
					require.ErrorIs(t, err, tt.want)
					require.Zero(t, r)
				}
				require.Len(t, tt.s.List().Jobs, before)
				require.Nil(t, tt.s.Drain())
				require.Empty(t, marked(mark))
			})
		}
	}
}

func TestARunThatCannotStartSaysWhyAndLeavesNoRecord(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 1})
	for stage, spec := range map[jobs.Stage]jobs.Spec{
		jobs.StageSpec: {},
		jobs.StagePath: {Argv: []string{"no-such-program"}},
		jobs.StageDir:  {Argv: []string{"true"}, Dir: "/no/such/directory"},
	} {
		_, err := s.Run(testContext(t), spec, patience)
		var se *jobs.StartError
		require.ErrorAs(t, err, &se)
		require.Equal(t, stage, se.Stage)
		require.Equal(t, jobs.List{Jobs: []jobs.Snapshot{}, MaxRunning: 1}, s.List())
	}
	require.True(t, foreground(t, s, returning(nil), patience).Ended(), "a slot is lost")
}

func TestCloseEndsAJobThatARunWaitsFor(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	ctx := newWatchedContext(testContext(t))
	answers := make(chan jobs.Result, 1)
	go func() {
		r, err := s.Run(ctx, gated(nil, "printed"), patience)
		assert.NoError(t, err)
		answers <- r
	}()
	<-ctx.waiting
	awaitOutput(t, s, s.List().Jobs[0].ID, "printed")
	_, err := s.Close(testContext(t))
	require.NoError(t, err)
	r := <-answers
	require.Equal(t, jobs.ReasonShutdown, r.Reason)
	require.Equal(t, "printed", string(r.Output.Bytes()))
	require.Nil(t, s.Drain())
}

func TestRunsLeaveNoGoroutineHoweverTheyEnd(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	before := runtime.NumGoroutine()
	for range 50 {
		foreground(t, s, returning(nil), patience)
		cancel(t, s, demote(t, s, jobs.Spec{Func: waits}).ID)
		ctx, stop := context.WithTimeout(context.Background(), time.Millisecond)
		_, err := s.Run(ctx, jobs.Spec{Func: waits}, patience)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		stop()
	}
	after := 0
	require.True(t, eventually(func() bool {
		after = runtime.NumGoroutine()
		return after <= before
	}), "%d goroutines before, %d after", before, after)
}

func TestTheTextOfADemotionIsShortConstantAndNamesWhatToDo(t *testing.T) {
	s := newSupervisor(t, jobs.Config{TailBytes: 1 << 20})
	short := demote(t, s, jobs.Spec{Func: waits})
	long := demote(t, s, jobs.Spec{
		Tool: strings.Repeat("a long name ", 1000),
		Tag:  strings.Repeat("a long tag ", 1000),
		Func: func(ctx context.Context, out io.Writer) (any, error) {
			io.WriteString(out, strings.Repeat("a long text ", 10_000))
			return waits(ctx, out)
		},
	})
	awaitOutput(t, s, long.ID, "text")
	var lengths []int
	for _, snap := range []jobs.Snapshot{short.Snapshot, long.Snapshot, checkJob(t, s, long.ID)} {
		text := jobs.Texts{}.Demoted(snap)
		assert.Less(t, len(text), 400)
		for _, part := range []string{snap.ID, "job__check", "job__collect", "job__cancel"} {
			assert.Contains(t, text, part)
		}
		lengths = append(lengths, len(text))
	}
	assert.Equal(t, slices.Min(lengths), slices.Max(lengths))

	renamed := jobs.Texts{Rename: func(name string) string { return strings.Replace(name, "job__", "background-", 1) }}
	text := renamed.Demoted(short.Snapshot)
	assert.Contains(t, text, "background-collect")
	assert.NotContains(t, text, "job__")
}
