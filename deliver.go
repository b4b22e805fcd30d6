package jobs

import (
	"context"
	"time"
)

const (
	// Ends come in groups: Deliver waits until none has come for gatherFor, but
	// no longer than gatherMost.
	gatherFor  = 20 * time.Millisecond
	gatherMost = 100 * time.Millisecond

	// A consumer that failed is tried again after retryFirst, then after twice
	// as long each time, up to retryMost.
	retryFirst = 100 * time.Millisecond
	retryMost  = 10 * time.Second
)

// Deliver hands notices to a consumer, such as one that starts a reply of an
// idle agent, for as long as ctx lasts; it returns ctx's error. The consumer
// gets all notices that wait, oldest first, as soon as there is one; what comes
// while it is at work waits for it to return. Ends that come together are
// handed over together.
//
// If the consumer returns nil the notices count as told. If it returns an
// error, panics or ends its goroutine, nothing of them is told: they are
// offered again, together with what has come since, after a pause that grows
// from a tenth of a second to ten seconds. Before that an answer may tell some
// of them; those are left out. A panic does not reach the caller.
//
// The consumer may call every method of the Supervisor but Deliver, which would
// wait for it: of several calls one is at work at a time. Its context is ctx.
// While a consumer holds notices, Drain and tool answers leave them out.
func (s *Supervisor) Deliver(ctx context.Context, consumer func(ctx context.Context, notices []Notice) error) error {
	select {
	case s.delivery <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-s.delivery }()
	for pause := retryFirst; ; {
		if err := s.awaitNotices(ctx); err != nil {
			return err
		}
		if s.deliver(ctx, consumer) {
			pause = retryFirst
			continue
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
		pause = min(2*pause, retryMost)
	}
}

// awaitNotices waits until there are notices and no more seem to come.
func (s *Supervisor) awaitNotices(ctx context.Context) error {
	select {
	case <-s.Ready():
	case <-ctx.Done():
		return ctx.Err()
	}
	for begun, count := time.Now(), -1; time.Since(begun) < gatherMost; {
		now := s.waitingNotices()
		if now == count {
			break
		}
		count = now
		if err := sleep(ctx, gatherFor); err != nil {
			s.wakeAgain()
			return err
		}
	}
	return nil
}

// waitingNotices counts the notices that wait.
func (s *Supervisor) waitingNotices() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.reg.notices.queue) + s.reg.notices.dropped
}

// wakeAgain gives back a value taken from Ready.
func (s *Supervisor) wakeAgain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reg.notices.settle()
}

// deliver hands over what waits, and reports false if that has to be done
// again.
func (s *Supervisor) deliver(ctx context.Context, consumer func(context.Context, []Notice) error) (done bool) {
	claimed := s.claimNotices()
	if len(claimed) == 0 {
		return true // told otherwise meanwhile
	}
	defer func() { s.settleClaim(done) }()
	return protect(func() error { return consumer(ctx, claimed) }) == nil
}

// protect calls the host's code and turns a panic into an error. If f ends its
// goroutine, so does protect.
func protect(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = newPanicError(v)
		}
	}()
	return f()
}

// protectApart calls f, code of the host, in a goroutine of its own, and turns a
// panic, or an exit of the goroutine, into an error. what names f.
func protectApart(what string, f func() error) (err error) {
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		err = &panicError{value: what + " ended its goroutine without returning"}
		err = protect(f)
	}()
	<-returned
	return err
}

// claimNotices takes all notices, to be told or given back by settleClaim.
func (s *Supervisor) claimNotices() []Notice {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := &s.reg.notices
	n.claimed = n.take(maxNotices + 1)
	return plain(n.claimed)
}

// settleClaim counts what was claimed as told, or puts it back.
func (s *Supervisor) settleClaim(done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := &s.reg.notices
	claimed := n.claimed
	n.claimed = nil
	if done {
		told(claimed)
		return
	}
	var back []queued
	for _, q := range claimed {
		if n.dropped += q.Dropped; q.Event != EventDropped {
			back = append(back, q)
		}
	}
	n.queue = append(back, n.queue...)
	n.bound()
	n.settle()
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
