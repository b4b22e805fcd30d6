package jobs

import (
	"context"
	"time"
)

// NoDetach is a grace for [Supervisor.Run] that never ends: the call is a
// foreground one to its end, which its timeout bounds.
const NoDetach time.Duration = -1

// Run starts a job and answers like a foreground call if the job ends within
// the grace: the Result is final, nothing of the job stays, and its id gives
// [ErrExpired] from then on. Otherwise the job goes on in the background under
// its id and Run returns its present Snapshot, whose State is [Running], with
// what it has printed so far. It keeps its slot, its output in one piece and
// its limits; its end will be told like that of any other job. Of the answer
// and the notice there is always exactly one.
//
// A grace of 0 sends the job to the background at once, unless it has ended by
// then. [NoDetach] never does.
//
// If ctx is done before Run has answered, the job is stopped, and Run returns
// how it ended beside the context's error. Once the job is in the background
// ctx has no power over it. Other errors are those of [Supervisor.Start].
//
// A Run that finds a live job by its [Spec.Key] waits for that one; its ctx
// then ends the wait only, and the job's result stays to be collected. If
// somebody who found the job, by List or its Key, collects it before Run has
// answered, Run returns its Snapshot and [ErrCollected].
func (s *Supervisor) Run(ctx context.Context, spec Spec, grace time.Duration) (Result, error) {
	j, mine, err := s.begin(ctx, spec, true)
	if err != nil {
		return Result{}, err
	}
	interrupted := s.awaitGrace(ctx, j, grace)
	if interrupted && mine {
		j.requestStop(ReasonCancelled)
		// One whose machine cannot be reached is not waited for without end.
		if _, ok := j.work.(*remote); ok {
			defer time.AfterFunc(j.cfg.KillGrace+stopBound, j.hurry).Stop()
		}
		<-j.done
	}
	return s.answerRun(ctx, j, mine, interrupted)
}

// awaitGrace waits for the end of the job or of the grace. It reports whether
// ctx was done before either.
func (s *Supervisor) awaitGrace(ctx context.Context, j *job, grace time.Duration) (interrupted bool) {
	var over <-chan time.Time
	if grace >= 0 {
		timer := time.NewTimer(grace)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-j.done:
	case <-over:
	case <-ctx.Done():
		return !isClosed(j.done)
	}
	return false
}

// answerRun decides between answer and notice, in one critical section.
func (s *Supervisor) answerRun(ctx context.Context, j *job, mine, interrupted bool) (Result, error) {
	s.mu.Lock()
	r := Result{Snapshot: j.snapshot(), File: j.end.resultFile}
	if mine {
		j.foreground = false
	} else if !j.ended {
		j.found = true
	}
	if j.ended && mine && !j.found {
		j.owner.reg.forget(j)
	}
	j.left(j.ended)
	s.mu.Unlock()
	j.addLogs(&r)
	// Looked at last: somebody may have collected it while it was being copied.
	if err := s.keptFromCollector(j, &r); err != nil && !interrupted {
		return r, err
	}
	if interrupted {
		return r, ctx.Err()
	}
	return r, nil
}

// keptFromCollector returns an error if a collector has taken what r should
// hold; r is its Snapshot then.
func (s *Supervisor) keptFromCollector(j *job, r *Result) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !j.collected {
		return nil
	}
	snap := j.snapshot()
	*r = Result{Snapshot: snap}
	return &JobError{ID: j.id, Job: &snap, Err: ErrCollected}
}
