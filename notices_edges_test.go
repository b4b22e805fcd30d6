package jobs_test

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/require"
)

func TestAJobCollectedInTheMomentOfItsDiscardIsNotLost(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	ctx := testContext(t)
	for range 1000 {
		id := endedFunc(t, s, returns(1))
		for range 3 {
			s.TurnEnd(ctx)
		}
		collected := make(chan error)
		go func() {
			_, err := s.Collect(ctx, id)
			collected <- err
		}()
		rem := s.TurnEnd(ctx)
		if err := <-collected; err != nil {
			require.ErrorIs(t, err, jobs.ErrExpired)
			require.Equal(t, []string{id}, ids(rem.Discarded))
		}
		require.Equal(t, len(rem.Discarded) > 0, rem.Action == jobs.TurnDiscard, "%+v", rem)
	}
}

func TestANullResultStaysAResult(t *testing.T) {
	require.Equal(t, `{"result":null,"pending_summary":"look"}`, string(jobs.Texts{}.Merge(json.RawMessage(" null\n"), "look", nil)))
}

func TestNoticesAloneLeaveAPendingSummaryInTheResult(t *testing.T) {
	n := []jobs.Notice{sampleNotices()["completed"]}
	for _, in := range []string{`{"status":"pending","pending_summary":"a sub-agent asks"}`, `{"pending_summary":"a sub-agent asks","notices":[{"id":"x"}]}`} {
		members := merged(t, jobs.Texts{}.Merge(json.RawMessage(in), "", n))
		require.Equal(t, `"a sub-agent asks"`, string(members["pending_summary"]))
	}
}

func TestAMemberNoticesThatIsNoListIsNotLost(t *testing.T) {
	n := []jobs.Notice{sampleNotices()["completed"]}
	for _, value := range []string{`"pay by Friday"`, `{"legal":["a"]}`, `7`} {
		members := merged(t, jobs.Texts{}.Merge(json.RawMessage(`{"notices":`+value+`,"a":1}`), "", n))
		require.Contains(t, string(members["notices"]), value)
		require.Contains(t, string(members["notices"]), "job_completed")
	}
}

func TestALongResultThatIsNoJSONIsMergedWhole(t *testing.T) {
	n := []jobs.Notice{sampleNotices()["completed"]}
	text := strings.Repeat("0123456789", 10_000)
	members := merged(t, jobs.Texts{}.Merge(json.RawMessage("begin "+text), "", n))
	require.True(t, `"begin `+text+`"` == string(members["result"]), "%d characters", len(members["result"]))
}

func TestALongOutputStandsWholeInATurn(t *testing.T) {
	text := jobs.Texts{}.Turn(sampleNotices()["completed"], "begin "+strings.Repeat("0123456789", 10_000))
	require.True(t, strings.Contains(text, "\nbegin 0123"), "cut, and nothing says so")
}

func TestAResultNestedToTheLimitOfJSONStaysValid(t *testing.T) {
	n := []jobs.Notice{sampleNotices()["completed"]}
	deep := strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000)
	require.True(t, json.Valid([]byte(deep)))
	require.True(t, json.Valid(jobs.Texts{}.Merge(json.RawMessage(deep), "", n)))
}

func TestAJobWhoseErrorPanicsCanBeShown(t *testing.T) {
	require.NotPanics(t, func() {
		require.Contains(t, jobs.FormatJob(jobs.Snapshot{ID: noJob, State: jobs.Failed, Err: badError{}}, jobs.Log{}), noJob)
	})
}

func TestATaskAboutLostNoticesDoesNotSayThatAJobHasEnded(t *testing.T) {
	require.NotContains(t, firstLineOf(jobs.Texts{}.Task(sampleNotices()["dropped"])), "has ended")
}

func TestADiscardedJobThatCouldNotBeStoppedIsNotSaidToHaveEnded(t *testing.T) {
	s := newSupervisor(t, jobs.Config{KillGrace: 1})
	run, release := stubborn(t)
	start(t, s, jobs.Spec{Func: run})
	var rem jobs.Reminder
	for range 4 {
		rem = s.TurnEnd(testContext(t))
	}
	require.Len(t, rem.Discarded, 1)
	require.Equal(t, jobs.ReasonUnreaped, rem.Discarded[0].Reason)
	require.NotContains(t, jobs.Texts{}.Reminder(rem), "had ended")
	release()
}

func TestNoLineComesAfterTheReportThatTellsAJobsEnd(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	p := newPuppet()
	spec := jobs.Spec{Func: p.run, OnOwnerEnd: jobs.KeepRunning}
	id := start(t, s, spec).ID
	_, err := s.Watch(id, jobs.WatchSpec{Pattern: regexp.MustCompile("line"), Burst: 1})
	require.NoError(t, err)
	p.print("line 1\nline 2\n")
	report, err := s.Close(testContext(t))
	require.NoError(t, err)
	require.Equal(t, []string{id}, ids(report.Kept))
	notices := s.Drain()
	p.finish(nil)
	require.Empty(t, notices)
}

// What a watch has kept back is told as the job ends, with its final state. To
// take that notice is not to have been told the end.
func TestTheLastNoticeOfAWatchDoesNotTellTheEnd(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	p := newPuppet()
	id := start(t, s, jobs.Spec{Func: p.run}).ID
	other := start(t, s, gated(nil, "")).ID
	_, err := s.Watch(id, jobs.WatchSpec{Pattern: regexp.MustCompile("line"), Burst: 1})
	require.NoError(t, err)
	p.print("line 1\nline 2\n")

	ctx := newWatchedContext(testContext(t))
	gaveUp := make(chan error)
	go func() {
		_, err := s.Wait(ctx, jobs.WaitSpec{IDs: []string{id, other}, All: true})
		gaveUp <- err
	}()
	<-ctx.waiting
	p.finish(nil)
	endOf(t, s, id)
	for _, n := range s.Drain() {
		require.Equal(t, jobs.EventMatched, n.Event)
	}
	ctx.cancel()
	require.ErrorIs(t, <-gaveUp, context.Canceled)
	require.Equal(t, []string{id}, noticeIDs(s.Drain()), "the end was never told")
}

func TestTheLastNoticeOfAWatchIsDroppedBeforeEnds(t *testing.T) {
	const most = 1024
	s := newSupervisor(t, jobs.Config{})
	p := newPuppet()
	id := start(t, s, jobs.Spec{Func: p.run}).ID
	_, err := s.Watch(id, jobs.WatchSpec{Pattern: regexp.MustCompile("line"), Burst: 1})
	require.NoError(t, err)
	p.print("line 1\nline 2\n")
	s.Drain()
	want := append(endInTurn(t, s, most-1), id)
	p.finish(nil)
	endOf(t, s, id)
	notices := s.Drain()
	require.Equal(t, 1, notices[0].Dropped)
	require.Equal(t, want, noticeIDs(notices[1:]))
}

func TestAReapedJobThatAChildHandedUpIsExpired(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	child, err := s.Child(jobs.ChildConfig{})
	require.NoError(t, err)
	spec := gated(nil, "")
	spec.OnOwnerEnd = jobs.HandUp
	id := start(t, child, spec).ID
	_, err = child.Close(testContext(t))
	require.NoError(t, err)
	require.Equal(t, []string{id}, ids(s.Reap(testContext(t), id)))
	_, err = s.Check(id)
	require.ErrorIs(t, err, jobs.ErrExpired)
}

func TestAJobThatAChildHandedUpHasThreeRemindersOfItsNewOwner(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	child, err := s.Child(jobs.ChildConfig{})
	require.NoError(t, err)
	spec := gated(nil, "")
	spec.OnOwnerEnd = jobs.HandUp
	id := start(t, child, spec).ID
	for range 3 {
		child.TurnEnd(testContext(t))
	}
	_, err = child.Close(testContext(t))
	require.NoError(t, err)
	for strike := range 3 {
		requireOpen(t, s.TurnEnd(testContext(t)), jobs.TurnInject, strike+1, []string{id}, nil)
	}
}
