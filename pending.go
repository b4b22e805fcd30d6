package jobs

import (
	"context"
	"fmt"
)

// A PendingError ends a wait because the host has something more urgent. The
// job is untouched.
type PendingError struct {
	// Summary is what the host said in SetPending.
	Summary string
}

func (e *PendingError) Error() string {
	return fmt.Sprintf("%v: %s", ErrPending, e.Summary)
}

// Unwrap returns ErrPending.
func (e *PendingError) Unwrap() error { return ErrPending }

// An urgency is what waits must give way to. Supervisor.mu guards it.
type urgency struct {
	summary string
	changed chan struct{} // closed and replaced when summary changes
}

// SetPending says that something is more urgent than waiting for jobs, such as
// a sub-agent that needs an answer. From now on every Collect and Wait of this
// supervisor that would wait, or waits already, returns at once with a
// [*PendingError] that holds the summary, and leaves its jobs untouched; one
// whose jobs have ended is not affected. An empty summary makes waits possible
// again.
func (s *Supervisor) SetPending(summary string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.urgent.summary == summary {
		return
	}
	s.urgent.summary = summary
	close(s.urgent.changed)
	s.urgent.changed = make(chan struct{})
}

// urgency returns what waits must give way to now.
func (s *Supervisor) urgency() urgency {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.urgent
}

// awaitUnlessUrgent is job.await, given up with a [*PendingError] where the
// host has something more urgent.
func (s *Supervisor) awaitUnlessUrgent(ctx context.Context, j *job) error {
	j.expect()
	err := s.waitFor(ctx, j.done)
	j.leave(err == nil)
	return err
}

// waitFor waits until ch is closed, which wins over all that comes at the same
// time.
func (s *Supervisor) waitFor(ctx context.Context, ch <-chan struct{}) error {
	for {
		u := s.urgency()
		if isClosed(ch) {
			return nil
		}
		if u.summary != "" {
			return &PendingError{Summary: u.summary}
		}
		select {
		case <-ch:
		case <-u.changed:
		case <-ctx.Done():
			if isClosed(ch) {
				return nil
			}
			return ctx.Err()
		}
	}
}
