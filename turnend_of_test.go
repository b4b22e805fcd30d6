package jobs_test

import (
	"testing"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/require"
)

func TestATurnThatOwnsNoJobStrikesNone(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	gate := make(chan struct{})
	id := start(t, s, gated(gate, "")).ID
	for range 5 {
		require.Equal(t, jobs.Reminder{}, s.TurnEndOf(testContext(t)))
	}
	require.Equal(t, jobs.Running, checkJob(t, s, id).State)
	close(gate)
	collect(t, s, id)
}

func TestAWaitForNoJobAtAllReturnsAtOnce(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	gate := make(chan struct{})
	id := start(t, s, gated(gate, "")).ID
	r, err := s.Wait(testContext(t), jobs.WaitSpec{IDs: []string{}})
	require.NoError(t, err)
	require.Empty(t, r.Jobs)
	close(gate)
	collect(t, s, id)
}
