package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// RW-109: the foreground wait has a bound of its own, whatever the timeout.
func TestALargeTimeoutDoesNotLengthenTheForeground(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	spec := bash(`echo begun; sleep 1; echo over`)
	spec.Timeout = 600 * time.Second
	begun := time.Now()
	r, err := s.Run(testContext(t), spec, 300*time.Millisecond)
	require.NoError(t, err)
	assert.Less(t, time.Since(begun), slack)
	assert.Equal(t, jobs.Running, r.State)
	assert.True(t, alive(checkJob(t, s, r.ID).PID))
	r = collect(t, s, r.ID)
	assert.Equal(t, "completed, exit 0", r.Outcome())
	assert.Equal(t, "begun\nover\n", string(r.Output.Bytes()), "in one piece across the demotion")
}

// RW-111: an exit beside the end of the foreground wait is answered or told,
// never both and never neither.
func TestAnExitBesideTheDemotionIsToldOnce(t *testing.T) {
	const grace = 150 * time.Millisecond
	s := newSupervisor(t, jobs.Config{MaxRunning: 160, MaxRetained: 1000})
	var mu sync.Mutex // guards the fields below
	demoted, answered := make(map[string]bool), make(map[string]bool)
	inParallel(many(120), 4, func(i int) {
		length := grace - 50*time.Millisecond + time.Duration(i%20)*5*time.Millisecond
		r, err := s.Run(testContext(t), bash(fmt.Sprintf(`sleep %.3f; echo over`, length.Seconds())), grace)
		if !assert.NoError(t, err) {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if r.State == jobs.Running {
			demoted[r.ID] = true
			return
		}
		answered[r.ID] = true
		assert.Equal(t, "completed, exit 0", r.Outcome())
		assert.Equal(t, "over\n", string(r.Output.Bytes()))
		_, err = s.Check(r.ID)
		assert.ErrorIs(t, err, jobs.ErrExpired)
	})
	require.True(t, eventually(func() bool { return s.List().Running == 0 }))
	for _, n := range s.Drain() {
		assert.True(t, demoted[n.ID], "told, and answered: %v", answered[n.ID])
		delete(demoted, n.ID)
	}
	assert.Empty(t, demoted, "neither told nor answered")
	assert.Empty(t, s.Drain())
}

// Like RW-111, at exactly the same moment.
func TestAnEndAtTheVeryMomentOfTheDemotionIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSupervisor(t, jobs.Config{MaxRetained: 1000})
		sleeps := function(func(context.Context, io.Writer) (any, error) {
			time.Sleep(time.Second)
			return nil, nil
		})
		for range 200 {
			r, err := s.Run(context.Background(), sleeps, time.Second)
			require.NoError(t, err)
			synctest.Wait()
			told := noticeIDs(s.Drain())
			if r.Ended() {
				require.Empty(t, told)
			} else {
				require.Equal(t, []string{r.ID}, told)
			}
		}
	})
}

// Like RW-109: a context that ends as the wait does either stops the job or
// has lost its power over it.
func TestAContextThatEndsBesideTheDemotionLeavesNoOrphan(t *testing.T) {
	const grace = 30 * time.Millisecond
	s := newSupervisor(t, jobs.Config{MaxRunning: 4, MaxRetained: 1000})
	mark := freshMark()
	inParallel(many(80), 4, func(i int) {
		ctx, stop := context.WithTimeout(testContext(t), grace+time.Duration(i%11-5)*time.Millisecond)
		defer stop()
		spec := bash(`sleep 300`)
		spec.Env = []string{mark}
		r, err := s.Run(ctx, spec, grace)
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			assert.Contains(t, []jobs.State{jobs.Cancelled, ""}, r.State, "stopped, or never begun")
		case assert.NoError(t, err):
			assert.Equal(t, jobs.Running, r.State)
			assert.Equal(t, jobs.Cancelled, cancel(t, s, r.ID).State)
		}
	})
	assert.Empty(t, marked(mark))
	assert.Zero(t, s.List().Running)
	assert.Empty(t, s.Drain(), "each end was answered")
}

// RW-138: TestOfManyCollectorsOneWinsAndAllTellTheSameEnd
// RW-140: TestACollectWhoseContextEndsUsesNothingUp
// RW-142: TestABlockedCollectHoldsUpNobody
func TestAnAbortedCollectOfAProcessUsesNothingUp(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	id := start(t, s, bash(`echo a; sleep 1; echo b`)).ID
	ctx, stop := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer stop()
	_, err := s.Collect(ctx, id)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Equal(t, "a\nb\n", string(collect(t, s, id).Output.Bytes()))
	assert.Empty(t, s.Drain())
}

// A process job told once: RW-145, RW-147, RW-149, RW-151.
func TestTheEndOfAProcessIsToldOnce(t *testing.T) {
	for _, c := range []struct {
		id, claim, script string
		end               func(t *testing.T, s *jobs.Supervisor, id string)
		notices           int
	}{
		{
			"RW-145", "by the answer of a cancel that it obeyed", `trap 'exit 0' TERM; echo up; sleep 300 & wait`,
			func(t *testing.T, s *jobs.Supervisor, id string) {
				awaitOutput(t, s, id, "up\n")
				assert.Equal(t, "cancelled, exit 0", cancel(t, s, id).Outcome())
				assert.Equal(t, "cancelled, exit 0", checkJob(t, s, id).Outcome())
			}, 0,
		},
		{
			"RW-147", "to a listener who comes late", `sleep 0.1`,
			func(t *testing.T, s *jobs.Supervisor, id string) { awaitEnd(t, s, id) }, 1,
		},
		{
			"RW-151", "by the answer of a collect", `sleep 0.3`,
			func(t *testing.T, s *jobs.Supervisor, id string) { collect(t, s, id) }, 0,
		},
		{
			"like RW-145", "by a cancel that came after the end", `true`,
			func(t *testing.T, s *jobs.Supervisor, id string) {
				awaitEnd(t, s, id)
				assert.Equal(t, "completed, exit 0", cancel(t, s, id).Outcome())
			}, 0,
		},
		{
			"like RW-147", "though it was looked at a hundred times", `true`,
			func(t *testing.T, s *jobs.Supervisor, id string) {
				awaitEnd(t, s, id)
				for range 100 {
					checkJob(t, s, id)
					s.Output(id, 0, 0)
					s.List()
				}
			}, 1,
		},
		{
			"like RW-151", "by the answer of a wait for several", `true`,
			func(t *testing.T, s *jobs.Supervisor, id string) {
				awaitEnd(t, s, id)
				r, err := s.Wait(testContext(t), jobs.WaitSpec{IDs: []string{id, id}, All: true})
				require.NoError(t, err)
				require.Len(t, r.Jobs, 1)
			}, 0,
		},
	} {
		t.Run(c.claim, func(t *testing.T) {
			s := newSupervisor(t, jobs.Config{})
			id := start(t, s, bash(c.script)).ID
			c.end(t, s, id)
			var told []jobs.Notice
			for range 1000 {
				told = append(told, s.Drain()...)
			}
			if assert.Len(t, told, c.notices, c.id) && c.notices > 0 {
				assert.Equal(t, id, told[0].ID)
			}
		})
	}
}

// RW-149: when the end is told the job has ended, by every account, and for
// good.
func TestANoticeComesWhenNothingChangesAnyMore(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	spec, mark := markedScript(`sleep 3 & sleep 0.2; exit 0`)
	id := start(t, s, spec).ID
	ctx, stop := context.WithCancel(testContext(t))
	defer stop()
	var told jobs.Snapshot
	err := s.Deliver(ctx, func(_ context.Context, notices []jobs.Notice) error {
		assert.Equal(t, []string{id}, noticeIDs(notices))
		told = checkJob(t, s, id)
		assert.Empty(t, marked(mark))
		stop()
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, "completed, exit 0", told.Outcome())
	assert.Equal(t, told, checkJob(t, s, id))
	assert.Equal(t, told.Outcome(), collect(t, s, id).Outcome())
	assert.Empty(t, s.Drain())
}
