package jobs_test

import (
	"context"
	"testing"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/require"
)

func TestAJobDiscardedAtTheEndOfATurnLeavesNoProcess(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	mark := freshMark()
	spec := bash("sleep 300 & setsid sleep 300 & echo ready; wait")
	spec.Env = []string{mark}
	id := start(t, s, spec).ID
	awaitOutput(t, s, id, "ready")
	for range 3 {
		require.Equal(t, jobs.TurnInject, s.TurnEnd(testContext(t)).Action)
	}
	require.NotEmpty(t, marked(mark))
	rem := s.TurnEnd(testContext(t))
	require.Equal(t, []string{id}, ids(rem.Discarded))
	require.Empty(t, rem.Discarded[0].Survivors)
	require.Empty(t, marked(mark))
	_, err := s.Output(id, 0, 0)
	require.ErrorIs(t, err, jobs.ErrExpired)
}

func TestAtTheEndOfItsContextATurnEndKillsAtOnce(t *testing.T) {
	s := newSupervisor(t, jobs.Config{KillGrace: 4 * patience})
	mark := freshMark()
	spec := bash("trap '' TERM; echo ready; while :; do sleep 300; done")
	spec.Env = []string{mark}
	id := start(t, s, spec).ID
	awaitOutput(t, s, id, "ready")
	for range 3 {
		s.TurnEnd(testContext(t))
	}
	discarded := make(chan []jobs.Snapshot)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { discarded <- s.TurnEnd(ctx).Discarded }()
	require.True(t, eventually(func() bool {
		snap, err := s.Check(id)
		return err == nil && snap.State == jobs.Cancelling
	}))
	cancel()
	snaps := <-discarded
	require.Equal(t, []string{id}, ids(snaps))
	require.Equal(t, jobs.Cancelled, snaps[0].State)
	require.Less(t, snaps[0].Elapsed, 3*patience)
	require.Empty(t, marked(mark))
}
