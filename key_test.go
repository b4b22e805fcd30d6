package jobs_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAKeyFindsTheLiveJobWhateverElseTheSpecSays(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 1})
	gate := make(chan struct{})
	spec := keyed(gated(gate, ""), "deploy")
	spec.Tool, spec.Tag = "deploy", "first"
	first := start(t, s, spec)
	other := keyed(function(func(context.Context, io.Writer) (any, error) {
		t.Error("a second job was started")
		return nil, nil
	}), "deploy")
	other.Tool, other.Tag = "other", "second"
	again := start(t, s, other)
	require.Equal(t, first.ID, again.ID)
	require.Equal(t, "deploy", again.Tool)
	require.Equal(t, "first", again.Tag)
	require.Equal(t, 1, s.List().Running)
	close(gate)
	collect(t, s, first.ID)
}

func TestAKeyFindsAJobThatIsBeingCancelled(t *testing.T) {
	s := newSupervisor(t, jobs.Config{KillGrace: patience})
	run, release := stubborn(t)
	spec := keyed(jobs.Spec{Func: run}, "one")
	id := start(t, s, spec).ID
	_, err := s.Cancel(doneContext(), id)
	require.ErrorIs(t, err, context.Canceled)
	again := start(t, s, spec)
	require.Equal(t, id, again.ID)
	require.Equal(t, jobs.Cancelling, again.State)
	release()
	awaitEnd(t, s, id)
	require.NotEqual(t, id, start(t, s, spec).ID)
}

func TestAKeyIsFreeOnceItsJobHasEnded(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, s *jobs.Supervisor, id string, release func()){
		"by itself": func(t *testing.T, s *jobs.Supervisor, id string, release func()) {
			release()
			awaitEnd(t, s, id)
		},
		"by itself, collected": func(t *testing.T, s *jobs.Supervisor, id string, release func()) { release(); collect(t, s, id) },
		"by Cancel":            func(t *testing.T, s *jobs.Supervisor, id string, _ func()) { cancel(t, s, id) },
		"by Reap":              func(t *testing.T, s *jobs.Supervisor, id string, _ func()) { s.Reap(testContext(t), id) },
		"by Reset":             func(t *testing.T, s *jobs.Supervisor, id string, _ func()) { s.Reset(testContext(t)) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSupervisor(t, jobs.Config{})
			gate := make(chan struct{})
			release := sync.OnceFunc(func() { close(gate) })
			id := start(t, s, keyed(gated(gate, ""), "one")).ID
			end(t, s, id, release)
			require.NotEqual(t, id, start(t, s, keyed(gated(gate, ""), "one")).ID)
		})
	}
}

func TestDifferentKeysAndNoKeyMeanDifferentJobs(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 10})
	seen := map[string]bool{}
	for _, key := range []string{"one", "two", "One", " ", "", "", "one\x00"} {
		seen[start(t, s, keyed(gated(nil, ""), key)).ID] = true
	}
	require.Len(t, seen, 7)
}

func TestParallelStartsWithOneKeyStartOneJob(t *testing.T) {
	const calls = 50
	for range 20 {
		s := newSupervisor(t, jobs.Config{MaxRunning: 1})
		gate := make(chan struct{})
		var ran atomic.Int32
		spec := keyed(function(func(context.Context, io.Writer) (any, error) {
			ran.Add(1)
			<-gate
			return nil, nil
		}), "one")
		var seen [calls]string
		begin := make(chan struct{})
		var starts sync.WaitGroup
		for i := range calls {
			starts.Go(func() {
				<-begin
				snap, err := s.Start(context.Background(), spec)
				assert.NoError(t, err)
				seen[i] = snap.ID
			})
		}
		close(begin)
		starts.Wait()
		for _, id := range seen {
			require.Equal(t, seen[0], id)
		}
		close(gate)
		collect(t, s, seen[0])
		require.Equal(t, int32(1), ran.Load())
	}
}

func TestAKeyUnderChurnNeverHasTwoLiveJobs(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 10})
	var live, most atomic.Int32
	spec := keyed(function(func(context.Context, io.Writer) (any, error) {
		if live.Add(1) > 1 {
			most.Store(2)
		}
		live.Add(-1)
		return nil, nil
	}), "one")
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for range 300 {
				snap, err := s.Start(context.Background(), spec)
				if !assert.NoError(t, err) {
					return
				}
				_, err = s.Collect(context.Background(), snap.ID)
				if !errors.Is(err, jobs.ErrCollected) && !errors.Is(err, jobs.ErrExpired) {
					assert.NoError(t, err)
				}
			}
		})
	}
	workers.Wait()
	require.Zero(t, most.Load(), "two jobs with one key ran at once")
	requireFree(t, s)
}

func TestARefusedStartFreesItsKey(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 1})
	holder := start(t, s, gated(nil, "")).ID
	_, err := s.Start(testContext(t), keyed(gated(nil, ""), "one"))
	require.ErrorIs(t, err, jobs.ErrAtCapacity)
	_, err = s.Start(testContext(t), keyed(jobs.Spec{}, "one"))
	require.Error(t, err)
	_, err = s.Start(doneContext(), keyed(gated(nil, ""), "one"))
	require.ErrorIs(t, err, context.Canceled)
	_, err = s.Start(testContext(t), keyed(jobs.Spec{Argv: []string{"/no/such/program"}}, "one"))
	require.Error(t, err)
	cancel(t, s, holder)
	start(t, s, keyed(gated(nil, ""), "one"))
}

func TestAKeyIsFoundThoughNoSlotIsFree(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 1})
	id := start(t, s, keyed(gated(nil, ""), "one")).ID
	require.Equal(t, id, start(t, s, keyed(gated(nil, ""), "one")).ID)
	_, err := s.Start(testContext(t), keyed(gated(nil, ""), "two"))
	require.ErrorIs(t, err, jobs.ErrAtCapacity)
}

func TestEveryOwnerHasItsOwnKeys(t *testing.T) {
	seen := map[string]string{}
	for name, s := range newFamily(t, jobs.Config{}) {
		id := start(t, s, keyed(gated(nil, ""), "one")).ID
		require.NotContains(t, seen, id)
		seen[id] = name
		require.Equal(t, id, start(t, s, keyed(gated(nil, ""), "one")).ID)
	}
	require.Len(t, seen, 4)
}

func TestTheKeyOfAJobThatIsHandedUpIsFreeForANewChildAndForTheParent(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	old := newChild(t, s, jobs.ChildConfig{Name: "chat"})
	gate := make(chan struct{})
	up := start(t, old, upwards(gate)).ID
	mustClose(t, old)
	child := newChild(t, s, jobs.ChildConfig{Name: "chat"})
	theirs := start(t, child, upwards(gate)).ID
	ours := start(t, s, upwards(gate)).ID
	require.NotEqual(t, up, theirs)
	require.NotEqual(t, up, ours)
	require.Equal(t, 3, s.List().Running)
	close(gate)
}

// The end of a job that was handed up must not free the key of a job of its new
// owner.
func TestTheEndOfAHandedUpJobLeavesTheKeyOfAnotherAlone(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	c := newChild(t, s, jobs.ChildConfig{})
	gate := make(chan struct{})
	ours := start(t, s, keyed(gated(nil, ""), "one")).ID
	up := start(t, c, upwards(gate)).ID
	mustClose(t, c)
	close(gate)
	awaitEnd(t, s, up)
	require.Equal(t, ours, start(t, s, keyed(gated(nil, ""), "one")).ID)
}

func TestARunThatFindsItsKeyWaitsForThatJobAndLeavesItsResult(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	gate := make(chan struct{})
	id := start(t, s, keyed(gated(gate, "printed"), "one")).ID
	ctx := &hookedContext{Context: testContext(t), hook: func() { close(gate) }}
	r, err := s.Run(ctx, keyed(gated(nil, ""), "one"), jobs.NoDetach)
	require.NoError(t, err)
	require.Equal(t, id, r.ID)
	require.Equal(t, jobs.Completed, r.State)
	require.Equal(t, "printed", string(r.Output.Bytes()))
	require.Nil(t, s.Drain(), "its end is told by the answer")
	require.Equal(t, "printed", string(collect(t, s, id).Output.Bytes()))
}

func TestTheContextOfARunThatFindsItsKeyHasNoPowerOverTheJob(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	gate := make(chan struct{})
	id := start(t, s, keyed(gated(gate, ""), "one")).ID
	ctx, stop := context.WithCancel(testContext(t))
	hooked := &hookedContext{Context: ctx, hook: stop}
	r, err := s.Run(hooked, keyed(gated(nil, ""), "one"), jobs.NoDetach)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, id, r.ID)
	require.Equal(t, jobs.Running, r.State)
	close(gate)
	awaitEnd(t, s, id)
	require.Equal(t, []string{id}, noticeIDs(s.Drain()))
}
