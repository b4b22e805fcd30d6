package jobs_test

import (
	"context"
	"regexp"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// foreground runs a job for a grace.
func foreground(t testing.TB, s *jobs.Supervisor, spec jobs.Spec, grace time.Duration) jobs.Result {
	t.Helper()
	r, err := s.Run(testContext(t), spec, grace)
	require.NoError(t, err)
	return r
}

// requireOneEnd fails unless one notice waits, which tells the end of the job.
func requireOneEnd(t testing.TB, s *jobs.Supervisor, id string) jobs.Notice {
	t.Helper()
	endOf(t, s, id)
	notices := s.Drain()
	require.Equal(t, []string{id}, noticeIDs(notices))
	require.Equal(t, "job_"+string(notices[0].State), notices[0].Event)
	return notices[0]
}

func isDone(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// waitOn waits as spec says.
func waitOn(t testing.TB, s *jobs.Supervisor, spec jobs.WaitSpec) jobs.WaitResult {
	t.Helper()
	r, err := s.Wait(testContext(t), spec)
	require.NoError(t, err)
	return r
}

// A waiter is a Wait under way.
type waiter struct {
	cancel func()
	done   chan struct{}
	result jobs.WaitResult
	err    error
}

// beginWait begins a Wait and returns once it waits.
func beginWait(t testing.TB, s *jobs.Supervisor, spec jobs.WaitSpec) *waiter {
	t.Helper()
	ctx := newWatchedContext(testContext(t))
	w := &waiter{cancel: ctx.cancel, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.result, w.err = s.Wait(ctx, spec)
	}()
	select {
	case <-ctx.waiting:
	case <-w.done:
		require.Fail(t, "it does not wait", "%+v, %v", w.result, w.err)
	}
	return w
}

// answer waits for the answer.
func (w *waiter) answer(t testing.TB) jobs.WaitResult {
	t.Helper()
	<-w.done
	require.NoError(t, w.err)
	return w.result
}

// startPuppets starts n functions.
func startPuppets(t testing.TB, s *jobs.Supervisor, n int) (puppets []*puppet, started []string) {
	t.Helper()
	for range n {
		p := newPuppet()
		puppets = append(puppets, p)
		started = append(started, start(t, s, jobs.Spec{Func: p.run}).ID)
	}
	return puppets, started
}

// states returns the states of snapshots, in their order.
func states(snaps []jobs.Snapshot) []jobs.State {
	var list []jobs.State
	for _, snap := range snaps {
		list = append(list, snap.State)
	}
	return list
}

// line is a pattern for a whole line.
func line(text string) *regexp.Regexp { return regexp.MustCompile("^" + text + "$") }

// requirePending fails unless err says that summary is more urgent.
func requirePending(t testing.TB, err error, summary string) {
	t.Helper()
	require.ErrorIs(t, err, jobs.ErrPending)
	var pending *jobs.PendingError
	require.ErrorAs(t, err, &pending)
	require.Equal(t, summary, pending.Summary)
	require.ErrorContains(t, err, summary)
}

// patientCalls are those that wait for a job's end and give way to what is
// urgent. Each returns the Snapshot beside its error.
var patientCalls = map[string]func(context.Context, *jobs.Supervisor, string) (jobs.Snapshot, error){
	"Collect": func(ctx context.Context, s *jobs.Supervisor, id string) (jobs.Snapshot, error) {
		r, err := s.Collect(ctx, id)
		return r.Snapshot, err
	},
	"Wait": func(ctx context.Context, s *jobs.Supervisor, id string) (jobs.Snapshot, error) {
		r, err := s.Wait(ctx, jobs.WaitSpec{IDs: []string{id}, All: true})
		return firstOf(r), err
	},
	"Wait with a time": func(ctx context.Context, s *jobs.Supervisor, id string) (jobs.Snapshot, error) {
		r, err := s.Wait(ctx, jobs.WaitSpec{IDs: []string{id}, Timeout: time.Hour})
		return firstOf(r), err
	},
	"Wait for a line": func(ctx context.Context, s *jobs.Supervisor, id string) (jobs.Snapshot, error) {
		r, err := s.Wait(ctx, jobs.WaitSpec{IDs: []string{id}, Pattern: line("never")})
		return firstOf(r), err
	},
	"Wait for all that run": func(ctx context.Context, s *jobs.Supervisor, _ string) (jobs.Snapshot, error) {
		r, err := s.Wait(ctx, jobs.WaitSpec{})
		return firstOf(r), err
	},
}

func firstOf(r jobs.WaitResult) jobs.Snapshot {
	if len(r.Jobs) == 0 {
		return jobs.Snapshot{}
	}
	return r.Jobs[0]
}

func TestSomethingUrgentEndsWaitsAndLeavesTheirJobsUntouched(t *testing.T) {
	for name, call := range patientCalls {
		t.Run(name, func(t *testing.T) {
			s := newSupervisor(t, jobs.Config{})
			p := newPuppet()
			id := start(t, s, jobs.Spec{Func: p.run}).ID

			// One that waits already.
			ctx := newWatchedContext(testContext(t))
			var snap jobs.Snapshot
			var err error
			done := make(chan struct{})
			go func() {
				defer close(done)
				snap, err = call(ctx, s, id)
			}()
			<-ctx.waiting
			s.SetPending("a sub-agent asks")
			<-done
			requirePending(t, err, "a sub-agent asks")
			assert.Equal(t, id, snap.ID)
			assert.Equal(t, jobs.Running, snap.State)

			// One that would, which learns of what is urgent now.
			_, err = call(testContext(t), s, id)
			requirePending(t, err, "a sub-agent asks")
			s.SetPending("two sub-agents ask")
			_, err = call(testContext(t), s, id)
			requirePending(t, err, "two sub-agents ask")

			require.Equal(t, jobs.Running, checkJob(t, s, id).State)
			p.print("text")
			p.finish("value")
			requireOneEnd(t, s, id)
			r := collect(t, s, id)
			require.Equal(t, `"value"`, string(r.File.JSON()))
			require.Equal(t, "text", string(r.Output.Bytes()))
		})
	}
}

func TestSomethingUrgentDoesNotKeepBackWhatNeedsNoWait(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	p := newPuppet()
	running := start(t, s, jobs.Spec{Func: p.run}).ID
	p.print("ready\n")
	for _, call := range patientCalls {
		s.SetPending("")
		ended := finish(t, s)
		s.SetPending("urgent")
		r, err := call(t.Context(), s, ended)
		if err == nil {
			require.Equal(t, ended, r.ID)
			require.Equal(t, jobs.Completed, r.State)
		} else {
			require.NotEqual(t, ended, r.ID, "it was not asked for: only what runs was")
			requirePending(t, err, "urgent")
		}
	}
	r := waitOn(t, s, jobs.WaitSpec{IDs: []string{running}, Pattern: line("ready")})
	require.Equal(t, "ready", r.Match.Line)
	require.True(t, waitOn(t, s, jobs.WaitSpec{IDs: []string{running}, Timeout: -1}).TimedOut, "a look is no wait")
	s.SetPending("")
	cancel(t, s, running)
	s.SetPending("urgent")
	require.Empty(t, waitOn(t, s, jobs.WaitSpec{}).Jobs)
}

func TestAnEmptySummaryMakesWaitsPossibleAgain(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	ps, started := startPuppets(t, s, 1)
	s.SetPending("urgent")
	_, err := s.Collect(testContext(t), started[0])
	requirePending(t, err, "urgent")
	s.SetPending("")
	s.SetPending("")
	w := beginWait(t, s, jobs.WaitSpec{IDs: started})
	s.SetPending("")
	ps[0].finish(nil)
	require.Equal(t, jobs.Completed, w.answer(t).Jobs[0].State)
	collect(t, s, started[0])
}

func TestSomethingUrgentEndsEveryWait(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	_, started := startPuppets(t, s, 1)
	var waiters []*waiter
	for range 50 {
		waiters = append(waiters, beginWait(t, s, jobs.WaitSpec{IDs: started}))
	}
	s.SetPending("urgent")
	for _, w := range waiters {
		<-w.done
		requirePending(t, w.err, "urgent")
	}
}

// A wait that gives way has told nothing of what it saw.
func TestAWaitThatGivesWayTellsNoEnd(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	ps, started := startPuppets(t, s, 2)
	w := beginWait(t, s, jobs.WaitSpec{IDs: started, All: true})
	ps[0].finish(nil)
	endOf(t, s, started[0])
	require.Empty(t, s.Ready())
	s.SetPending("urgent")
	<-w.done
	requirePending(t, w.err, "urgent")
	require.Equal(t, []jobs.State{jobs.Completed, jobs.Running}, states(w.result.Jobs))
	requireOneEnd(t, s, started[0])
}

func TestWhatIsUrgentForOneOwnerIsNotForOthers(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	child, err := s.Child(jobs.ChildConfig{})
	require.NoError(t, err)
	above, aboveID := startPuppets(t, s, 1)
	below, belowID := startPuppets(t, child, 1)

	s.SetPending("for the parent")
	w := beginWait(t, child, jobs.WaitSpec{IDs: belowID})
	_, err = s.Collect(testContext(t), aboveID[0])
	requirePending(t, err, "for the parent")
	require.False(t, isDone(w.done))

	s.SetPending("")
	child.SetPending("for the child")
	<-w.done
	requirePending(t, w.err, "for the child")
	w = beginWait(t, s, jobs.WaitSpec{IDs: aboveID})
	above[0].finish(nil)
	w.answer(t)
	below[0].finish(nil)
	requireOneEnd(t, child, belowID[0])
}

func TestRunAndCancelDoNotGiveWay(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	s.SetPending("urgent")
	r := foreground(t, s, returning("value"), patience)
	require.Equal(t, `"value"`, string(r.File.JSON()))

	p := newPuppet()
	ctx := newWatchedContext(testContext(t))
	answers := make(chan jobs.Result, 1)
	go func() {
		r, err := s.Run(ctx, jobs.Spec{Func: p.run}, jobs.NoDetach)
		assert.NoError(t, err)
		answers <- r
	}()
	<-ctx.waiting
	s.SetPending("more urgent")
	p.finish(nil)
	require.Equal(t, jobs.Completed, (<-answers).State)

	id := start(t, s, jobs.Spec{Func: waits}).ID
	require.Equal(t, jobs.Cancelled, cancel(t, s, id).State)
	require.Equal(t, jobs.ReasonCancelled, collect(t, s, id).Reason)
}
