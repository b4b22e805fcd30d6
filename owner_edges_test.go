package jobs_test

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAJobThatWasHandedUpIsForeignToItsFormerOwner(t *testing.T) {
	family := newFamily(t, jobs.Config{})
	a, top := family["a"], family[""]
	id := start(t, a, withEnd(gated(nil, ""), jobs.HandUp)).ID
	mustClose(t, a)
	for _, v := range idVerbs {
		_, err := v.call(testContext(t), a, id)
		requireJobError(t, err, jobs.ErrForeign, id)
	}
	require.Empty(t, a.List().Jobs)
	require.Empty(t, a.Reap(testContext(t), id))
	require.Equal(t, jobs.Running, checkJob(t, top, id).State)
}

func TestAResetOfTheFormerOwnerLeavesAJobThatWasHandedUpAlone(t *testing.T) {
	family := newFamily(t, jobs.Config{MaxRetained: 1})
	gate := make(chan struct{})
	id := start(t, family["a"], withEnd(gated(gate, ""), jobs.HandUp)).ID
	mustClose(t, family["a"])
	close(gate)
	awaitEnd(t, family[""], id)
	family["a"].Reset(testContext(t))
	finish(t, family[""]) // the one too many
	_, err := family[""].Check(id)
	require.Error(t, err, "retention has lost sight of it")
}

func TestAJobThatWasHandedUpExpiresAbove(t *testing.T) {
	for name, forget := range map[string]func(s *jobs.Supervisor, id string){
		"reaped":  func(s *jobs.Supervisor, id string) { s.Reap(testContext(t), id) },
		"evicted": func(s *jobs.Supervisor, id string) { cancel(t, s, id); finish(t, s) },
	} {
		t.Run(name, func(t *testing.T) {
			family := newFamily(t, jobs.Config{MaxRetained: 1})
			id := start(t, family["a/a"], withEnd(gated(nil, ""), jobs.HandUp)).ID
			mustClose(t, family["a"])
			forget(family[""], id)
			requireKnown(t, family[""], nil, []string{id})
			for _, name := range []string{"a", "a/a"} {
				_, err := family[name].Check(id)
				requireJobError(t, err, jobs.ErrForeign, id)
			}
		})
	}
}

func TestAJobThatIsHandedUpWhileItIsReapedIsForgottenAbove(t *testing.T) {
	family := newFamily(t, jobs.Config{KillGrace: patience})
	run, release := stubborn(t)
	id := start(t, family["a"], withEnd(jobs.Spec{Func: run}, jobs.HandUp)).ID
	reaped := make(chan []jobs.Snapshot)
	go func() { reaped <- family["a"].Reap(context.Background(), id) }()
	require.True(t, eventually(func() bool { return checkJob(t, family["a"], id).State == jobs.Cancelling }))
	mustClose(t, family["a"])
	release()
	require.Equal(t, []string{id}, ids(<-reaped))
	require.Empty(t, family[""].List().Jobs)
	require.Nil(t, family[""].Drain())
	requireKnown(t, family[""], nil, []string{id})
}

func TestAHandedUpJobKeepsItsPlaceInTheOrderOfStart(t *testing.T) {
	family := newFamily(t, jobs.Config{})
	first := start(t, family["a"], withEnd(gated(nil, ""), jobs.HandUp)).ID
	second := start(t, family[""], gated(nil, "")).ID
	mustClose(t, family["a"])
	require.Equal(t, []string{first, second}, ids(family[""].List().Jobs))
}

func TestAResetSaysOfNoJobThatEndedBeforeThatItWasStopped(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	cancel(t, s, start(t, s, gated(nil, "")).ID)
	running := start(t, s, gated(nil, "")).ID
	report := s.Reset(testContext(t))
	require.Equal(t, []string{running}, ids(report.Stopped))
	require.Empty(t, report.Uncollected, "whoever cancelled it has its result")
}

func TestADoneContextHurriesAJobThatWouldBeKeptWereItNotBeingStopped(t *testing.T) {
	s := newSupervisor(t, jobs.Config{KillGrace: patience})
	run, _ := stubborn(t)
	id := start(t, s, withEnd(jobs.Spec{Func: run}, jobs.KeepRunning)).ID
	_, err := s.Cancel(doneContext(), id)
	require.ErrorIs(t, err, context.Canceled)
	begun := time.Now()
	report, err := s.Close(doneContext())
	require.ErrorIs(t, err, context.Canceled)
	require.Less(t, time.Since(begun), patience/2)
	require.Empty(t, report.Kept)
}

func TestAJobThatEndsWhileItIsLetGoIsLostOrHasItsOwnEnd(t *testing.T) {
	for range 1000 {
		s, err := jobs.New(jobs.Config{MaxRunning: 10})
		require.NoError(t, err)
		gate := make(chan struct{})
		for range 10 {
			start(t, s, withEnd(gated(gate, ""), jobs.KeepRunning))
		}
		var end sync.WaitGroup
		end.Go(func() { runtime.Gosched(); close(gate) })
		report, err := s.Close(context.Background())
		end.Wait()
		require.NoError(t, err)
		for _, snap := range report.Kept {
			assert.Equal(t, jobs.Lost, snap.State)
		}
		for _, snap := range report.Uncollected {
			assert.Equal(t, jobs.Completed, snap.State)
		}
		require.Len(t, append(report.Kept, report.Uncollected...), 10)
		if t.Failed() {
			return
		}
	}
}

// sixtyKiB is what a log keeps all of, if it may.
var sixtyKiB = strings.Repeat("0123456789abcde\n", 60<<10/16)

func TestAClosedChildTakesNothingOfTheMemoryForOutput(t *testing.T) {
	s := newSupervisor(t, jobs.Config{OutputMemory: 256 << 10})
	for range 10 {
		c := newChild(t, s, jobs.ChildConfig{})
		endedFunc(t, c, prints(sixtyKiB))
		start(t, c, gated(nil, sixtyKiB))
		mustClose(t, c)
	}
	id := endedFunc(t, s, prints(sixtyKiB))
	require.Zero(t, checkJob(t, s, id).OutputDropped)
}

func TestWhatIsRememberedNoLongerTakesNothingOfTheMemoryForOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		family := newFamily(t, jobs.Config{OutputMemory: 256 << 10, RetainFor: time.Minute})
		for range 5 {
			endedFunc(t, family["a"], prints(sixtyKiB))
			family["a"].Drain()
		}
		time.Sleep(time.Hour) // in which nobody asks a for anything
		id := endedFunc(t, family["b"], prints(sixtyKiB))
		require.Zero(t, checkJob(t, family["b"], id).OutputDropped)
	})
}

func TestAWaitForACollectedJobSendsNobodyToCollectIt(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	id := finish(t, s)
	collect(t, s, id)
	r := ask(t, s.Toolset(jobs.ToolsetOptions{Optional: jobs.WaitTool}), "job__wait", `{"ids":"`+id+`"}`)
	require.Contains(t, r.Message, "1 of 1 have ended")
	require.NotContains(t, r.Message, "job__collect hands out")
}
