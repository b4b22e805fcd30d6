package jobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// noticeIDs returns the ids that notices are about, in their order.
func noticeIDs(notices []jobs.Notice) []string {
	var list []string
	for _, n := range notices {
		list = append(list, n.ID)
	}
	return list
}

// endedFunc starts a function and waits until it has ended, untold.
func endedFunc(t testing.TB, s *jobs.Supervisor, run func(context.Context, io.Writer) (any, error)) string {
	t.Helper()
	id := start(t, s, jobs.Spec{Func: run}).ID
	endOf(t, s, id)
	return id
}

func TestAnEndThatNobodyWaitedForHasOneNotice(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	require.Nil(t, s.Drain())
	job := start(t, s, jobs.Spec{Tool: "build", Tag: "request 7", Func: returns(1)})
	snap := endOf(t, s, job.ID)
	notices := s.Drain()
	require.Equal(t, []jobs.Notice{{
		Event:    "job_completed",
		ID:       job.ID,
		Tool:     "build",
		Tag:      "request 7",
		State:    jobs.Completed,
		Reason:   jobs.ReasonExit,
		ExitCode: -1,
		Elapsed:  snap.Elapsed,
	}}, notices)
	require.Nil(t, s.Drain())

	collect(t, s, job.ID) // the result is still there
	require.Nil(t, s.Drain())
}

func TestTheEventOfANoticeIsHowTheJobEnded(t *testing.T) {
	run, release := stubborn(t)
	for _, c := range []struct {
		grace  time.Duration
		spec   jobs.Spec
		event  string
		reason jobs.Reason
	}{
		{patience, jobs.Spec{Func: returns(1)}, "job_completed", jobs.ReasonExit},
		{patience, jobs.Spec{Func: func(context.Context, io.Writer) (any, error) { return nil, errors.New("no") }}, "job_failed", jobs.ReasonExit},
		{patience, jobs.Spec{Func: func(context.Context, io.Writer) (any, error) { panic("no") }}, "job_failed", jobs.ReasonInternal},
		{patience, jobs.Spec{Func: waits, Timeout: 1}, "job_failed", jobs.ReasonTimeout},
		{1, jobs.Spec{Func: run, Timeout: 1}, "job_failed", jobs.ReasonUnreaped},
	} {
		s := newSupervisor(t, jobs.Config{KillGrace: c.grace})
		id := start(t, s, c.spec).ID
		snap := endOf(t, s, id)
		notices := s.Drain()
		require.Len(t, notices, 1)
		require.Equal(t, id, notices[0].ID)
		require.Equal(t, c.event, notices[0].Event)
		require.Equal(t, c.reason, notices[0].Reason)
		require.Equal(t, snap.State, notices[0].State)
	}
	release()
}

func TestACancelThatNobodyWaitsForIsToldByANotice(t *testing.T) {
	s := newSupervisor(t, jobs.Config{KillGrace: patience})
	run, release := stubborn(t)
	id := start(t, s, jobs.Spec{Func: run}).ID
	ctx, cancel := context.WithCancel(testContext(t))
	cancel()
	_, err := s.Cancel(ctx, id)
	require.ErrorIs(t, err, context.Canceled)
	require.Nil(t, s.Drain())
	release()
	endOf(t, s, id)
	notices := s.Drain()
	require.Equal(t, []string{id}, noticeIDs(notices))
	require.Equal(t, "job_cancelled", notices[0].Event)
	require.Equal(t, jobs.ReasonCancelled, notices[0].Reason)
}

func TestAHandedOverEndHasNoNotice(t *testing.T) {
	ctx := testContext(t)
	for _, c := range []struct {
		name string
		run  func(context.Context, io.Writer) (any, error)
		hand func(*jobs.Supervisor, string) error
	}{
		{"Collect", returns(1), func(s *jobs.Supervisor, id string) error { _, err := s.Collect(ctx, id); return err }},
		{"Cancel", waits, func(s *jobs.Supervisor, id string) error { _, err := s.Cancel(ctx, id); return err }},
		{"Cancel of a job that had ended", returns(1), func(s *jobs.Supervisor, id string) error { endOf(t, s, id); _, err := s.Cancel(ctx, id); return err }},
		{"Collect of a job that had ended", returns(1), func(s *jobs.Supervisor, id string) error { endOf(t, s, id); _, err := s.Collect(ctx, id); return err }},
		{"Close", waits, func(s *jobs.Supervisor, _ string) error { _, err := s.Close(ctx); return err }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSupervisor(t, jobs.Config{})
			id := start(t, s, jobs.Spec{Func: c.run}).ID
			require.NoError(t, c.hand(s, id))
			require.Empty(t, s.Ready())
			require.Nil(t, s.Drain())
		})
	}
}

// Close finds such a job ended and reports it, so its report tells the end.
func TestTheReportOfCloseTellsTheEndsItNames(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	id := endedFunc(t, s, returns(1))
	report, err := s.Close(testContext(t))
	require.NoError(t, err)
	require.Len(t, report.Uncollected, 1)
	require.Equal(t, id, report.Uncollected[0].ID)
	require.Nil(t, s.Drain(), "told by the report and by a notice")
}

func TestLooksDoNotCountAsTelling(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	id := endedFunc(t, s, prints("text\n"))
	_, err := s.Check(id)
	require.NoError(t, err)
	_, err = s.Output(id, 0, 0)
	require.NoError(t, err)
	_, err = s.Stderr(id, 0, 0)
	require.NoError(t, err)
	s.List()
	require.Len(t, s.Ready(), 1)
	require.Equal(t, []string{id}, noticeIDs(s.Drain()))
}

func TestReadyHoldsAValueExactlyWhileANoticeWaits(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	tools := funcs{}.toolset(s, jobs.ToolsetOptions{})
	require.Empty(t, s.Ready())

	running := start(t, s, jobs.Spec{Func: waits}).ID
	require.Empty(t, s.Ready(), "nothing has ended")

	endedFunc(t, s, returns(1))
	require.Len(t, s.Ready(), 1)
	s.Drain()
	require.Empty(t, s.Ready())

	id := endedFunc(t, s, returns(1))
	require.Len(t, s.Ready(), 1)
	collect(t, s, id)
	require.Empty(t, s.Ready(), "the end was told otherwise")

	endedFunc(t, s, returns(1))
	require.Len(t, s.Ready(), 1)
	require.Len(t, ask(t, tools, "job__list", "").Notices, 1)
	require.Empty(t, s.Ready(), "the notice went along with an answer")

	// One of two taken back: the other still waits.
	first, second := endedFunc(t, s, returns(1)), endedFunc(t, s, returns(1))
	collect(t, s, first)
	require.Len(t, s.Ready(), 1)
	<-s.Ready()
	require.Equal(t, []string{second}, noticeIDs(s.Drain()))
	require.Empty(t, s.Ready())

	cancel(t, s, running)
	require.Empty(t, s.Ready())
}

func TestManyEndsAreOneWakeUp(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 50})
	let := make(chan struct{})
	var want []string
	for range 50 {
		want = append(want, start(t, s, jobs.Spec{Func: func(context.Context, io.Writer) (any, error) {
			<-let
			return nil, nil
		}}).ID)
	}
	close(let)
	for _, id := range want {
		endOf(t, s, id)
	}
	<-s.Ready()
	require.Empty(t, s.Ready())
	require.ElementsMatch(t, want, noticeIDs(s.Drain()))
	require.Empty(t, s.Ready())
}

func TestNoticesComeInTheOrderOfTheEnds(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 20})
	var puppets []*puppet
	var started []string
	for range 20 {
		p := newPuppet()
		puppets = append(puppets, p)
		started = append(started, start(t, s, jobs.Spec{Func: p.run}).ID)
	}
	for i := range slices.Backward(puppets) {
		puppets[i].finish(nil)
		endOf(t, s, started[i])
	}
	slices.Reverse(started)
	require.Equal(t, started, noticeIDs(s.Drain()))
}

// A listener is a host that is woken by Ready and drains. It counts how often
// it was told each end.
type listener struct {
	s    *jobs.Supervisor
	quit chan struct{}
	over sync.WaitGroup
	mu   sync.Mutex // guards told
	told map[string]int
}

func listen(s *jobs.Supervisor) *listener {
	h := &listener{s: s, quit: make(chan struct{}), told: make(map[string]int)}
	h.over.Go(func() {
		for {
			select {
			case <-s.Ready():
				h.tell(noticeIDs(s.Drain())...)
			case <-h.quit:
				h.tell(noticeIDs(s.Drain())...)
				return
			}
		}
	})
	return h
}

func (h *listener) tell(ids ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range ids {
		h.told[id]++
	}
}

// stop ends the listener and returns how often it was told each end.
func (h *listener) stop() map[string]int {
	close(h.quit)
	h.over.Wait()
	return h.told
}

func TestEachEndIsToldExactlyOnceWhereACollectorWaitsAtThatMoment(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	h := listen(s)
	var all []string
	for range 500 {
		p := newPuppet()
		id := start(t, s, jobs.Spec{Func: p.run}).ID
		all = append(all, id)
		// The collector asks for the end of its context once it has announced
		// itself: from then on the end is its own.
		ctx := newWatchedContext(t.Context())
		collected := make(chan error)
		go func() {
			_, err := s.Collect(ctx, id)
			collected <- err
		}()
		<-ctx.waiting
		p.finish(nil)
		require.NoError(t, <-collected)
		ctx.cancel()
		h.tell(id)
	}
	told := h.stop()
	require.Len(t, told, len(all))
	for id, times := range told {
		require.Equal(t, 1, times, id)
	}
}

func TestEachEndIsToldExactlyOnceWhereTheCollectorGivesUpAtThatMoment(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 500})
	h := listen(s)
	var all []string
	gaveUp := 0
	for round := range 500 {
		p := newPuppet()
		id := start(t, s, jobs.Spec{Func: p.run}).ID
		all = append(all, id)
		ctx := newWatchedContext(t.Context())
		collected := make(chan error)
		go func() {
			_, err := s.Collect(ctx, id)
			collected <- err
		}()
		<-ctx.waiting
		// The end of the job and that of the wait, in either order.
		both := []func(){func() { p.finish(nil) }, ctx.cancel}
		go both[round%2]()
		both[1-round%2]()
		if err := <-collected; err == nil {
			h.tell(id)
		} else {
			require.ErrorIs(t, err, context.Canceled)
			gaveUp++
		}
	}
	require.True(t, eventually(func() bool { return s.List().Running == 0 }))
	told := h.stop()
	require.ElementsMatch(t, all, slices.Collect(maps.Keys(told)))
	for id, times := range told {
		require.Equal(t, 1, times, id)
	}
	require.Positive(t, gaveUp, "no collector gave up, so this has shown nothing")
}

// A collector that loses has been told as well, so two of them leave no notice.
func TestTwoCollectorsLeaveNoNotice(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	h := listen(s)
	for range 200 {
		p := newPuppet()
		id := start(t, s, jobs.Spec{Func: p.run}).ID
		errs := make(chan error)
		for range 2 {
			ctx := newWatchedContext(testContext(t))
			go func() {
				_, err := s.Collect(ctx, id)
				errs <- err
			}()
			<-ctx.waiting
		}
		p.finish(nil)
		first, second := <-errs, <-errs
		require.True(t, errors.Is(first, jobs.ErrCollected) != errors.Is(second, jobs.ErrCollected), "%v, %v", first, second)
	}
	require.Empty(t, h.stop())
}

// One that gives up while another waits leaves the end to the other.
func TestTheNoticeOfOneWhoGaveUpDoesNotComeWhileAnotherWaits(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	p := newPuppet()
	id := start(t, s, jobs.Spec{Func: p.run}).ID
	var contexts []*watchedContext
	errs := make(chan error)
	for range 2 {
		ctx := newWatchedContext(testContext(t))
		contexts = append(contexts, ctx)
		go func() {
			_, err := s.Collect(ctx, id)
			errs <- err
		}()
		<-ctx.waiting
	}
	contexts[0].cancel()
	require.ErrorIs(t, <-errs, context.Canceled)
	p.finish(nil)
	require.NoError(t, <-errs)
	require.Nil(t, s.Drain())
}

func TestANoticeIsOfConstantSizeAndHoldsNoOutput(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	text := strings.Repeat("a secret that was printed\n", 40_000)
	var sizes []int
	for _, run := range []func(context.Context, io.Writer) (any, error){
		prints(""),
		prints(text),
		returns(text),
		func(context.Context, io.Writer) (any, error) { return nil, errors.New(text) },
		func(context.Context, io.Writer) (any, error) { panic(text) },
	} {
		endedFunc(t, s, run)
		notices := s.Drain()
		require.Len(t, notices, 1)
		data, err := json.Marshal(notices[0])
		require.NoError(t, err)
		require.NotContains(t, string(data), "secret")
		sizes = append(sizes, len(data))
	}
	// They differ by the words for state and reason, and the digits of a time.
	require.InDelta(t, slices.Min(sizes), slices.Max(sizes), 60, "%v", sizes)
	require.Less(t, slices.Max(sizes), 300)
}

func TestTheJSONOfANoticeNamesTheFieldsAsTheToolsDo(t *testing.T) {
	n := jobs.Notice{
		Event: "job_failed", ID: "job_0123456789abcdef0123", Tool: "build", Tag: "request 7",
		State: jobs.Failed, Reason: jobs.ReasonExit, ExitCode: 3, Elapsed: 12_345_678_901,
	}
	data, err := json.Marshal(n)
	require.NoError(t, err)
	require.JSONEq(t, `{
		"event": "job_failed",
		"id": "job_0123456789abcdef0123",
		"tool": "build",
		"status": "failed",
		"reason": "exit",
		"exit_code": 3,
		"elapsed_secs": 12.3,
		"next_action": "job__collect {\"id\":\"job_0123456789abcdef0123\"}",
		"tag": "request 7"
	}`, string(data))

	// A killed job has no exit code, and success has one.
	data, err = json.Marshal(jobs.Notice{Event: "job_failed", ExitCode: -1, Signal: 9})
	require.NoError(t, err)
	require.Contains(t, string(data), `"signal":"SIGKILL"`)
	require.NotContains(t, string(data), "exit_code")
	data, err = json.Marshal(jobs.Notice{Event: "job_completed", ExitCode: 0})
	require.NoError(t, err)
	require.Contains(t, string(data), `"exit_code":0`)

	// What is named as the next action is a call that works.
	s := newSupervisor(t, jobs.Config{})
	tools := funcs{}.toolset(s, jobs.ToolsetOptions{})
	endedFunc(t, s, returns(42))
	data, err = json.Marshal(s.Drain()[0])
	require.NoError(t, err)
	var notice struct {
		NextAction string `json:"next_action"`
	}
	require.NoError(t, json.Unmarshal(data, &notice))
	name, args, _ := strings.Cut(notice.NextAction, " ")
	require.Equal(t, "42", string(ask(t, tools, name, args).Result))
}

// endInTurn runs n jobs, one after the other, and returns their ids.
func endInTurn(t testing.TB, s *jobs.Supervisor, n int) []string {
	var all []string
	for range n {
		all = append(all, start(t, s, jobs.Spec{Func: returns(1)}).ID)
		<-s.Ready()
	}
	return all
}

func TestTheQueueOfNoticesIsBoundedAndCountsWhatItDropped(t *testing.T) {
	const most, over = 1024, 76
	s := newSupervisor(t, jobs.Config{})
	started := endInTurn(t, s, most+over)
	notices := s.Drain()
	require.Equal(t, "notices_dropped", notices[0].Event)
	require.Equal(t, over, notices[0].Dropped)
	require.Equal(t, started[over:], noticeIDs(notices[1:]), "the newest stay")
	data, err := json.Marshal(notices[0])
	require.NoError(t, err)
	require.JSONEq(t, fmt.Sprintf(`{"event":"notices_dropped","dropped":%d,"next_action":"job__list {}"}`, over), string(data))
	require.Nil(t, s.Drain(), "the loss is told once")
	require.Empty(t, s.Ready())
}

func TestAPanickingFunctionHasOneNoticeAndFreesItsSlot(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 1})
	for _, run := range []func(context.Context, io.Writer) (any, error){
		func(context.Context, io.Writer) (any, error) { panic("out of cheese") },
		func(context.Context, io.Writer) (any, error) { panic(badString{}) },
		func(context.Context, io.Writer) (any, error) { return badJSON{}, nil },
		func(context.Context, io.Writer) (any, error) { return nil, badError{} },
	} {
		id := endedFunc(t, s, run)
		notices := s.Drain()
		require.Equal(t, []string{id}, noticeIDs(notices))
		require.Equal(t, "job_failed", notices[0].Event)
		require.Zero(t, s.List().Running)
		r := collect(t, s, id)
		require.NotEmpty(t, fmt.Sprint(r.Err))
	}
	collect(t, s, endedFunc(t, s, returns(1)))
}

// Values of a host whose methods panic.
type (
	badString struct{}
	badJSON   struct{}
	badError  struct{}
)

func (badString) String() string             { panic("in String") }
func (badJSON) MarshalJSON() ([]byte, error) { panic("in MarshalJSON") }
func (badError) Error() string               { panic("in Error") }

// Notices in answers.

func TestNoticesRideAlongInAnyAnswerAndAreToldOnce(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	tools := funcs{"serve": waits}.toolset(s, jobs.ToolsetOptions{Wait: 1})
	running := begin(t, tools, "serve")
	for _, call := range [][2]string{
		{"job__start", `{"tool":"serve"}`},
		{"job__check", idArgs(running)},
		{"job__collect", idArgs(running)},
		{"job__list", ``},
		{"job__cancel", idArgs(running)},
		{"job__check", `{}`}, // an error, too
		{"other", `{}`},
	} {
		id := endedFunc(t, s, returns(1))
		r := ask(t, tools, call[0], call[1])
		require.Len(t, r.Notices, 1, "%s: %s", call[0], r.text)
		require.Equal(t, id, r.Notices[0].ID)
		require.Equal(t, "job_completed", r.Notices[0].Event)
		require.Equal(t, "job__collect "+idArgs(id), r.Notices[0].NextAction)
		require.Nil(t, s.Drain())
		require.Empty(t, ask(t, tools, "job__list", "").Notices)
	}
}

func TestAnAnswerThatTellsTheEndBringsNoNoticeOfIt(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	tools := funcs{"build": returns(1)}.toolset(s, jobs.ToolsetOptions{})
	for _, verb := range []string{"job__collect", "job__cancel"} {
		id := begin(t, tools, "build")
		endOf(t, s, id)
		require.Empty(t, ask(t, tools, verb, idArgs(id)).Notices)
		require.Nil(t, s.Drain())
	}
}

func TestAtMostEightNoticesRideAlong(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	tools := funcs{}.toolset(s, jobs.ToolsetOptions{})
	var want, got []string
	for range 20 {
		want = append(want, endedFunc(t, s, returns(1)))
	}
	for _, n := range []int{8, 8, 4, 0} {
		r := ask(t, tools, "job__list", "")
		require.Len(t, r.Notices, n)
		for _, notice := range r.Notices {
			got = append(got, notice.ID)
		}
		require.Equal(t, len(got) < len(want), len(s.Ready()) == 1, "Ready must tell of those that still wait")
	}
	require.Equal(t, want, got)
}

func TestTheCountOfDroppedNoticesRidesAlongWithinTheEight(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	tools := funcs{}.toolset(s, jobs.ToolsetOptions{})
	endInTurn(t, s, 1100)
	r := ask(t, tools, "job__list", "")
	require.Equal(t, "notices_dropped", r.Notices[0].Event)
	require.Equal(t, 76, r.Notices[0].Dropped)
	require.Equal(t, "job__list {}", r.Notices[0].NextAction)
	assert.Len(t, r.Notices, 8)
}

func TestANoticeRidesAlongInOneOfManyAnswersAtOnce(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 200})
	tools := funcs{}.toolset(s, jobs.ToolsetOptions{})
	h := listen(s) // that drains besides
	var all []string
	var group sync.WaitGroup
	quit := make(chan struct{})
	for range 3 {
		group.Go(func() {
			for {
				select {
				case <-quit:
					return
				default:
				}
				out, isError := tools.Call(t.Context(), "job__list", nil)
				r, fault := readReply("", out, isError)
				assert.Empty(t, fault)
				for _, n := range r.Notices {
					h.tell(n.ID)
				}
			}
		})
	}
	for range 200 {
		all = append(all, start(t, s, jobs.Spec{Func: returns(1)}).ID)
	}
	require.True(t, eventually(func() bool { return s.List().Running == 0 }))
	close(quit)
	group.Wait()
	told := h.stop()
	require.ElementsMatch(t, all, slices.Collect(maps.Keys(told)))
	for id, times := range told {
		require.Equal(t, 1, times, id)
	}
}
