package jobs_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// requireOpen fails unless the reminder lists exactly these jobs.
func requireOpen(t testing.TB, rem jobs.Reminder, action jobs.TurnAction, strike int, running, uncollected []string) {
	t.Helper()
	require.Equal(t, action, rem.Action)
	require.Equal(t, strike, rem.Strike)
	require.Equal(t, append([]string{}, running...), ids(rem.Running))
	require.Equal(t, append([]string{}, uncollected...), ids(rem.Uncollected))
}

func TestATurnIsOverWhereNothingIsOpen(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, s *jobs.Supervisor){
		"nothing was started": func(*testing.T, *jobs.Supervisor) {},
		"collected":           func(t *testing.T, s *jobs.Supervisor) { collect(t, s, start(t, s, returning(1)).ID) },
		"cancelled":           func(t *testing.T, s *jobs.Supervisor) { cancel(t, s, start(t, s, gated(nil, "")).ID) },
		"reaped": func(t *testing.T, s *jobs.Supervisor) {
			s.Reap(testContext(t), start(t, s, gated(nil, "")).ID, endedFunc(t, s, returns(1)))
		},
		"run to its end": func(t *testing.T, s *jobs.Supervisor) {
			_, err := s.Run(testContext(t), returning(1), patience)
			require.NoError(t, err)
		},
		"of a child": func(t *testing.T, s *jobs.Supervisor) {
			child, err := s.Child(jobs.ChildConfig{})
			require.NoError(t, err)
			start(t, child, gated(nil, ""))
			endedFunc(t, child, returns(1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSupervisor(t, jobs.Config{})
			prepare(t, s)
			rem := s.TurnEnd(testContext(t))
			require.Equal(t, jobs.Reminder{}, rem)
			require.Equal(t, jobs.TurnOver, rem.Action)
			require.Empty(t, jobs.Texts{}.Reminder(rem))
		})
	}
}

func TestATurnIsOverWhereJobsAreDisabled(t *testing.T) {
	s := newSupervisor(t, jobs.Config{Disabled: true})
	rem := s.TurnEnd(testContext(t))
	require.Equal(t, jobs.Reminder{}, rem)
	require.Empty(t, jobs.Texts{}.Reminder(rem))
	require.Equal(t, jobs.Reminder{}, s.TurnEndOf(testContext(t), noJob))
}

func TestTheReminderListsRunningAndUncollectedJobsInOrderOfStart(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 20})
	var running, uncollected []string
	for range 10 {
		running = append(running, start(t, s, gated(nil, "")).ID)
		uncollected = append(uncollected, endedFunc(t, s, returns(1)))
	}
	rem := s.TurnEnd(testContext(t))
	requireOpen(t, rem, jobs.TurnInject, 1, running, uncollected)
	require.Empty(t, rem.Discarded)
	for _, snap := range rem.Running {
		require.Equal(t, jobs.Running, snap.State)
	}
	for _, snap := range rem.Uncollected {
		require.Equal(t, jobs.Completed, snap.State)
	}
	require.Equal(t, uncollected, noticeIDs(s.Drain()), "to remind is not to tell")
}

func TestAReminderLooksOnlyAtTheGivenJobsOfItsSupervisor(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 20})
	child, err := s.Child(jobs.ChildConfig{})
	require.NoError(t, err)
	foreign := start(t, child, gated(nil, "")).ID
	running, ended := start(t, s, gated(nil, "")).ID, endedFunc(t, s, returns(1))
	other := start(t, s, gated(nil, "")).ID
	for strike := range 3 {
		rem := s.TurnEndOf(testContext(t), ended, running, running, foreign, noJob, "no id")
		requireOpen(t, rem, jobs.TurnInject, strike+1, []string{running}, []string{ended})
	}
	requireOpen(t, s.TurnEndOf(testContext(t), foreign, noJob), jobs.TurnOver, 0, nil, nil)

	rem := s.TurnEndOf(testContext(t), running, ended, foreign)
	require.Equal(t, jobs.TurnDiscard, rem.Action)
	require.Equal(t, []string{running, ended}, ids(rem.Discarded))
	requireOpen(t, s.TurnEnd(testContext(t)), jobs.TurnInject, 1, []string{other}, nil)
	require.Equal(t, jobs.Running, checkJob(t, child, foreign).State)
}

func TestAfterThreeRemindersAJobIsStoppedAndForgotten(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	running, ended := start(t, s, gated(nil, "")).ID, endedFunc(t, s, returns(1))
	texts := jobs.Texts{}
	for strike := range 3 {
		rem := s.TurnEnd(testContext(t))
		requireOpen(t, rem, jobs.TurnInject, strike+1, []string{running}, []string{ended})
		text := texts.Reminder(rem)
		assert.Contains(t, text, running)
		assert.Contains(t, text, ended)
		assert.Contains(t, text, fmt.Sprintf("reminder %d.", strike+1))
	}
	rem := s.TurnEnd(testContext(t))
	requireOpen(t, rem, jobs.TurnDiscard, 0, nil, nil)
	require.Equal(t, []string{running, ended}, ids(rem.Discarded))
	require.Equal(t, jobs.Cancelled, rem.Discarded[0].State)
	require.Equal(t, jobs.Completed, rem.Discarded[1].State)
	text := texts.Reminder(rem)
	require.Contains(t, text, running+" (func) was stopped")
	require.Contains(t, text, ended+" (func) had ended")
	require.True(t, strings.HasPrefix(text, "Warning: "), text)

	for _, id := range []string{running, ended} {
		_, err := s.Check(id)
		require.ErrorIs(t, err, jobs.ErrExpired)
		_, err = s.Collect(testContext(t), id)
		require.ErrorIs(t, err, jobs.ErrExpired)
	}
	require.Nil(t, s.Drain(), "the reminder has told their ends")
	require.Empty(t, s.Ready())
	require.Zero(t, s.List().Running)
	require.Equal(t, jobs.Reminder{}, s.TurnEnd(testContext(t)))
}

func TestAJobCollectedOrStoppedInTimeIsCountedNoMore(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	collected, stopped, stays := endedFunc(t, s, returns(1)), start(t, s, gated(nil, "")).ID, start(t, s, gated(nil, "")).ID
	for range 3 {
		s.TurnEnd(testContext(t))
	}
	collect(t, s, collected)
	cancel(t, s, stopped)
	rem := s.TurnEnd(testContext(t))
	require.Equal(t, []string{stays}, ids(rem.Discarded))
	requireOpen(t, rem, jobs.TurnDiscard, 0, nil, nil)
	require.True(t, checkJob(t, s, collected).Collected)
	collect(t, s, stopped) // what it left is still there
}

func TestAJobStartedLaterHasRemindersOfItsOwn(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	var older, younger string
	older = start(t, s, gated(nil, "")).ID
	for range 2 {
		s.TurnEnd(testContext(t))
	}
	younger = start(t, s, gated(nil, "")).ID
	requireOpen(t, s.TurnEnd(testContext(t)), jobs.TurnInject, 3, []string{older, younger}, nil)

	rem := s.TurnEnd(testContext(t))
	requireOpen(t, rem, jobs.TurnDiscard, 2, []string{younger}, nil)
	require.Equal(t, []string{older}, ids(rem.Discarded))
	text := jobs.Texts{}.Reminder(rem)
	assert.Contains(t, text, older+" (func) was stopped")
	assert.Contains(t, text, younger+" (func) runs")

	requireOpen(t, s.TurnEnd(testContext(t)), jobs.TurnInject, 3, []string{younger}, nil)
	require.Equal(t, []string{younger}, ids(s.TurnEnd(testContext(t)).Discarded))
}

func TestAJobThatEndsBetweenTwoRemindersKeepsItsCount(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	gate := make(chan struct{})
	id := start(t, s, gated(gate, "")).ID
	requireOpen(t, s.TurnEnd(testContext(t)), jobs.TurnInject, 1, []string{id}, nil)
	close(gate)
	endOf(t, s, id)
	requireOpen(t, s.TurnEnd(testContext(t)), jobs.TurnInject, 2, nil, []string{id})
}

// It has a result that nobody has seen.
func TestAJobWhoseStopNobodyWaitedForIsOpen(t *testing.T) {
	s := newSupervisor(t, jobs.Config{KillGrace: patience})
	gate := make(chan struct{})
	id := start(t, s, deaf(gate)).ID
	_, err := s.Cancel(doneContext(), id)
	require.ErrorIs(t, err, context.Canceled)
	rem := s.TurnEnd(testContext(t))
	requireOpen(t, rem, jobs.TurnInject, 1, []string{id}, nil)
	require.Equal(t, jobs.Cancelling, rem.Running[0].State)
	close(gate)
	endOf(t, s, id)
	requireOpen(t, s.TurnEnd(testContext(t)), jobs.TurnInject, 2, nil, []string{id})
	cancel(t, s, id)
	requireOpen(t, s.TurnEnd(testContext(t)), jobs.TurnOver, 0, nil, nil)
}
