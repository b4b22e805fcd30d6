package jobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A consumer is what Deliver hands notices to.
type consumer func(ctx context.Context, notices []jobs.Notice) error

var errBusy = errors.New("the consumer is busy")

// A delivery is a Deliver at work in a goroutine of its own.
type delivery struct {
	ctx    context.Context
	cancel context.CancelFunc
	// returned gives what Deliver returned. It is closed without a value if the
	// consumer ended the goroutine.
	returned chan error
}

func newDelivery(t testing.TB) *delivery {
	d := &delivery{returned: make(chan error, 1)}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	t.Cleanup(d.cancel)
	return d
}

func (d *delivery) run(s *jobs.Supervisor, c consumer) {
	go func() {
		defer close(d.returned)
		d.returned <- s.Deliver(d.ctx, c)
	}()
}

// deliver runs a delivery that ends with the test, if not before.
func deliver(t testing.TB, s *jobs.Supervisor, c consumer) *delivery {
	d := newDelivery(t)
	d.run(s, c)
	t.Cleanup(d.stop)
	return d
}

// stop ends the delivery and waits for that.
func (d *delivery) stop() {
	d.cancel()
	for range d.returned {
	}
}

// A hand is what a consumer was given. It holds it until the test says what the
// consumer returns.
type hand struct {
	ids    []string
	settle chan<- error
}

// inHand returns a consumer that leaves everything to the test.
func inHand() (consumer, <-chan hand) {
	hands := make(chan hand)
	return func(ctx context.Context, notices []jobs.Notice) error {
		settle := make(chan error)
		for given := hands; ; {
			select {
			case given <- hand{noticeIDs(notices), settle}:
				given = nil
			case err := <-settle:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}, hands
}

// after is a function that returns when d has passed.
func after(d time.Duration) func(context.Context, io.Writer) (any, error) {
	return func(context.Context, io.Writer) (any, error) {
		time.Sleep(d)
		return nil, nil
	}
}

// endInBubble runs n jobs, one after the other, and returns their ids.
func endInBubble(t testing.TB, s *jobs.Supervisor, n int) []string {
	t.Helper()
	var all []string
	for range n {
		all = append(all, start(t, s, returning(1)).ID)
		synctest.Wait()
	}
	return all
}

func TestNoticesThatTheConsumerTookAreNeverOfferedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSupervisor(t, jobs.Config{})
		consume, hands := inHand()
		d := deliver(t, s, consume)
		for range 3 {
			id := start(t, s, returning(1)).ID
			h := <-hands
			require.Equal(t, []string{id}, h.ids)
			h.settle <- nil
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Nil(t, s.Drain())
		require.Empty(t, s.Ready())
		d.cancel()
		require.ErrorIs(t, <-d.returned, context.Canceled)
		require.Nil(t, s.Drain())
	})
}

func TestNoticesThatTheConsumerDidNotTakeAreOfferedAgainInOrderBesideNewerOnes(t *testing.T) {
	for name, fail := range map[string]func(stop func()) error{
		"error":                 func(func()) error { return errBusy },
		"panic":                 func(func()) error { panic("boom") },
		"panic with nil":        func(func()) error { panic(nil) },
		"exit of its goroutine": func(func()) error { runtime.Goexit(); return nil },
		"end of its context":    func(stop func()) error { stop(); return context.Canceled },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSupervisor(t, jobs.Config{})
				var want []string
				end := func() { want = append(want, endedFunc(t, s, returns(1))) }
				end()
				end()
				var offered []string
				d := newDelivery(t)
				d.run(s, func(_ context.Context, notices []jobs.Notice) error {
					if offered != nil {
						t.Error("asked again before the pause is over")
					}
					offered = noticeIDs(notices)
					end()
					return fail(d.cancel)
				})
				time.Sleep(100 * time.Millisecond)
				d.stop()
				require.Equal(t, want[:2], offered)

				consume, hands := inHand()
				deliver(t, s, consume)
				h := <-hands
				require.Equal(t, want, h.ids)
				h.settle <- nil
			})
		})
	}
}

func TestAConsumerThatTookItsNoticesAsItsContextEndedIsNotAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSupervisor(t, jobs.Config{})
		endedFunc(t, s, returns(1))
		d := newDelivery(t)
		d.run(s, func(context.Context, []jobs.Notice) error {
			d.cancel()
			return nil
		})
		require.ErrorIs(t, <-d.returned, context.Canceled)
		require.Nil(t, s.Drain())
	})
}

func TestTheConsumerHasTheContextOfDeliver(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	endedFunc(t, s, returns(1))
	ctx, cancel := context.WithCancel(context.WithValue(testContext(t), contextKey{}, "value"))
	defer cancel()
	err := s.Deliver(ctx, func(ctx context.Context, _ []jobs.Notice) error {
		assert.Equal(t, "value", ctx.Value(contextKey{}))
		cancel()
		assert.ErrorIs(t, ctx.Err(), context.Canceled)
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
}

func TestOneConsumerIsAtWorkAtATime(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 8})
	var atWork, told atomic.Int32
	for range 4 {
		deliver(t, s, func(_ context.Context, notices []jobs.Notice) error {
			assert.EqualValues(t, 1, atWork.Add(1))
			runtime.Gosched()
			told.Add(int32(len(notices)))
			atWork.Add(-1)
			if told.Load() > 20 {
				runtime.Goexit() // and another one takes over
			}
			return nil
		})
	}
	for range 40 {
		endedFunc(t, s, returns(1))
	}
	require.True(t, eventually(func() bool { return told.Load() >= 40 }))
}

func TestASecondDeliverWaitsForTheFirstOrItsOwnContext(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	consume, hands := inHand()
	first := deliver(t, s, consume)
	id := endedFunc(t, s, returns(1))
	h := <-hands
	require.Equal(t, []string{id}, h.ids)

	untouched := func(context.Context, []jobs.Notice) error {
		t.Error("a consumer was called beside another")
		return nil
	}
	require.ErrorIs(t, s.Deliver(doneContext(), untouched), context.Canceled)
	second := newWatchedContext(testContext(t))
	returned := make(chan error)
	go func() { returned <- s.Deliver(second, untouched) }()
	<-second.waiting
	second.cancel()
	require.ErrorIs(t, <-returned, context.Canceled)

	deliver(t, s, consume) // this one waits, and takes over
	first.stop()           // the consumer fails with its context
	h = <-hands
	require.Equal(t, []string{id}, h.ids)
	h.settle <- nil
}

func TestADeliverWhoseContextIsDoneCallsNobody(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	id := endedFunc(t, s, returns(1))
	for range 100 { // whatever a select prefers
		require.ErrorIs(t, s.Deliver(doneContext(), func(context.Context, []jobs.Notice) error {
			t.Error("the consumer was called")
			return nil
		}), context.Canceled)
		require.Len(t, s.Ready(), 1)
	}
	require.Equal(t, []string{id}, noticeIDs(s.Drain()))
}

func TestEndsThatComeTogetherAreHandedOverTogether(t *testing.T) {
	for _, tt := range []struct {
		name string
		ends []time.Duration
		most time.Duration // when the one call comes, at the latest
	}{
		{"one", []time.Duration{0}, 20},
		{"two at once", []time.Duration{0, 0}, 40},
		{"two soon after each other", []time.Duration{0, 10}, 40},
		{"a series", []time.Duration{0, 15, 30, 45}, 80},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSupervisor(t, jobs.Config{})
				consume, hands := inHand()
				deliver(t, s, consume)
				begun := time.Now()
				var want []string
				for _, d := range tt.ends {
					want = append(want, start(t, s, jobs.Spec{Func: after(d * time.Millisecond)}).ID)
				}
				h := <-hands
				require.ElementsMatch(t, want, h.ids)
				require.LessOrEqual(t, time.Since(begun), tt.most*time.Millisecond)
				h.settle <- nil
				time.Sleep(time.Hour)
				require.Nil(t, s.Drain(), "one call")
			})
		})
	}
}

func TestAStreamOfEndsDoesNotPutTheCallOffForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSupervisor(t, jobs.Config{MaxRunning: 100})
		consume, hands := inHand()
		deliver(t, s, consume)
		begun := time.Now()
		for i := range 100 {
			start(t, s, jobs.Spec{Func: after(time.Duration(i) * 10 * time.Millisecond)})
		}
		h := <-hands
		require.LessOrEqual(t, time.Since(begun), 150*time.Millisecond)
		told := len(h.ids)
		h.settle <- nil
		calls := 1
		for ; told < 100; calls++ {
			h := <-hands
			told += len(h.ids)
			h.settle <- nil
		}
		require.Equal(t, 100, told)
		require.LessOrEqual(t, calls, 12, "ends come in groups")
	})
}

func TestEndsDuringACallComeInTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSupervisor(t, jobs.Config{})
		consume, hands := inHand()
		deliver(t, s, consume)
		first := endedFunc(t, s, returns(1))
		h := <-hands
		require.Equal(t, []string{first}, h.ids)
		during := []string{endedFunc(t, s, returns(1)), endedFunc(t, s, returns(1))}
		time.Sleep(time.Hour)
		synctest.Wait()
		select {
		case <-hands:
			t.Fatal("called again while at work")
		default:
		}
		h.settle <- nil
		h = <-hands
		require.Equal(t, during, h.ids)
		h.settle <- nil
	})
}

func TestAnAnswerThatTellsAnEndInHandTakesItOutOfWhatIsOfferedAgain(t *testing.T) {
	for name, tell := range map[string]func(s *jobs.Supervisor, id string) error{
		"Collect": func(s *jobs.Supervisor, id string) error { _, err := s.Collect(context.Background(), id); return err },
		"Cancel":  func(s *jobs.Supervisor, id string) error { _, err := s.Cancel(context.Background(), id); return err },
		"Wait": func(s *jobs.Supervisor, id string) error {
			_, err := s.Wait(context.Background(), jobs.WaitSpec{IDs: []string{id}})
			return err
		},
		"Reap": func(s *jobs.Supervisor, id string) error { s.Reap(context.Background(), id); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSupervisor(t, jobs.Config{})
				consume, hands := inHand()
				deliver(t, s, consume)
				all := []string{endedFunc(t, s, returns(1)), endedFunc(t, s, returns(1)), endedFunc(t, s, returns(1))}
				h := <-hands
				require.Equal(t, all, h.ids)
				require.NoError(t, tell(s, all[1]))
				h.settle <- errBusy
				h = <-hands
				require.Equal(t, []string{all[0], all[2]}, h.ids)
				require.NoError(t, tell(s, all[0]))
				require.NoError(t, tell(s, all[2]))
				h.settle <- errBusy
				time.Sleep(time.Hour)
				synctest.Wait()
				require.Empty(t, s.Ready())
				newer := endedFunc(t, s, returns(1))
				h = <-hands
				require.Equal(t, []string{newer}, h.ids)
				h.settle <- nil
			})
		})
	}
}

func TestAnAnswerWhileAFailedConsumerPausesTellsTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSupervisor(t, jobs.Config{})
		consume, hands := inHand()
		deliver(t, s, consume)
		first, second := endedFunc(t, s, returns(1)), endedFunc(t, s, returns(1))
		h := <-hands
		h.settle <- errBusy
		synctest.Wait()
		require.Len(t, s.Ready(), 1, "they wait again")
		collect(t, s, first)
		h = <-hands
		require.Equal(t, []string{second}, h.ids)
		h.settle <- errBusy
		synctest.Wait()
		require.Equal(t, []string{second}, noticeIDs(s.Drain()), "and Drain has them again")
	})
}

func TestWhatAConsumerHoldsIsLeftOutOfDrainAndOfAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSupervisor(t, jobs.Config{})
		tools := funcs{}.toolset(s, jobs.ToolsetOptions{})
		consume, hands := inHand()
		deliver(t, s, consume)
		held := endedFunc(t, s, returns(1))
		h := <-hands
		require.Equal(t, []string{held}, h.ids)
		require.Nil(t, s.Drain())
		require.Empty(t, s.Ready())
		require.Empty(t, ask(t, tools, "job__list", "").Notices)

		drained := endedFunc(t, s, returns(1))
		require.Equal(t, []string{drained}, noticeIDs(s.Drain()))
		answered := endedFunc(t, s, returns(1))
		r := ask(t, tools, "job__list", "")
		require.Len(t, r.Notices, 1)
		require.Equal(t, answered, r.Notices[0].ID)
		h.settle <- errBusy
		h = <-hands
		require.Equal(t, []string{held}, h.ids)
		h.settle <- nil
	})
}

func TestThePauseAfterAFailureGrowsAndBeginsAnewAfterASuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const gathering = 20 * time.Millisecond
		s := newSupervisor(t, jobs.Config{})
		consume, hands := inHand()
		d := deliver(t, s, consume)
		for range 2 {
			id := start(t, s, returning(1)).ID
			h := <-hands
			for _, want := range []time.Duration{100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000, 10_000} {
				require.Equal(t, []string{id}, h.ids)
				h.settle <- errBusy
				failed := time.Now()
				h = <-hands
				require.Equal(t, want*time.Millisecond+gathering, time.Since(failed))
			}
			h.settle <- nil
		}

		endedFunc(t, s, returns(1))
		(<-hands).settle <- errBusy
		synctest.Wait()
		stopped := time.Now()
		d.stop()
		require.Zero(t, time.Since(stopped), "the end of the context does not wait for the pause")
	})
}

func TestDeliverOfAClosedSupervisorTellsNothingTwiceAndEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSupervisor(t, jobs.Config{})
		endedFunc(t, s, returns(1))
		start(t, s, gated(nil, ""))
		report, err := s.Close(testContext(t))
		require.NoError(t, err)
		require.Len(t, report.Uncollected, 1)
		require.Len(t, report.Stopped, 1)
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		require.ErrorIs(t, s.Deliver(ctx, func(context.Context, []jobs.Notice) error {
			t.Error("the report has told these ends")
			return nil
		}), context.DeadlineExceeded)
	})
}

func TestTheReportOfCloseTellsTheEndsThatAConsumerHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSupervisor(t, jobs.Config{})
		consume, hands := inHand()
		deliver(t, s, consume)
		id := endedFunc(t, s, returns(1))
		h := <-hands
		report, err := s.Close(testContext(t))
		require.NoError(t, err)
		require.Equal(t, []string{id}, ids(report.Uncollected))
		h.settle <- errBusy
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Nil(t, s.Drain())
		select {
		case h := <-hands:
			t.Fatalf("%v told again", h.ids)
		default:
		}
	})
}

func TestAConsumerMayCallTheOtherMethods(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	ended := endedFunc(t, s, returns("value"))
	ctx, cancelDelivery := context.WithCancel(testContext(t))
	defer cancelDelivery()
	called := false
	err := s.Deliver(ctx, func(ctx context.Context, notices []jobs.Notice) error {
		defer cancelDelivery()
		called = true
		assert.Equal(t, ended, notices[0].ID)
		checkJob(t, s, ended)
		s.TurnEnd(ctx)
		s.SetPending("")
		assert.Nil(t, s.Drain())
		assert.Equal(t, `"value"`, string(collect(t, s, ended).File.JSON()))
		collect(t, s, start(t, s, returning(1)).ID)
		cancel(t, s, start(t, s, gated(nil, "")).ID)
		assert.Len(t, s.Reap(ctx, start(t, s, gated(nil, "")).ID), 1)
		_, err := s.Close(ctx)
		return err
	})
	require.ErrorIs(t, err, context.Canceled)
	require.True(t, called)
}

// What is lost to the bound of the queue is counted, whether it is lost as it
// comes or as a consumer gives it back.
func TestWhatAFailingConsumerMakesTooMuchIsCountedExactly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ends, most = 2500, 1024
		s := newSupervisor(t, jobs.Config{})
		var taking atomic.Bool
		var told []jobs.Notice
		var calls atomic.Int32
		deliver(t, s, func(_ context.Context, notices []jobs.Notice) error {
			calls.Add(1)
			if !taking.Load() {
				return errBusy
			}
			told = append(told, notices...)
			return nil
		})
		var all []string
		for len(all) < ends {
			all = append(all, endInBubble(t, s, 100)...)
			time.Sleep(time.Second)
		}
		require.Greater(t, calls.Load(), int32(5), "the consumer was not tried")
		taking.Store(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, jobs.EventDropped, told[0].Event)
		require.Equal(t, ends-most, told[0].Dropped)
		require.Equal(t, all[ends-most:], noticeIDs(told[1:]))
		require.Nil(t, s.Drain())
	})
}

func TestDroppedNoticesGivenBackByAConsumerAreCountedOnceMoreWithNewOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 1024
		s := newSupervisor(t, jobs.Config{})
		endInBubble(t, s, most+10)
		consume, hands := inHand()
		deliver(t, s, consume)
		h := <-hands
		require.Len(t, h.ids, most+1)
		endInBubble(t, s, 5) // beside those in hand there is room for them
		h.settle <- errBusy
		h = <-hands
		require.Len(t, h.ids, most+1)
		h.settle <- errBusy
		synctest.Wait()
		require.Equal(t, 15, s.Drain()[0].Dropped)
	})
}

func TestLinesAreDroppedBeforeEnds(t *testing.T) {
	const most, ends, lines = 1024, 100, 1100
	s := newSupervisor(t, jobs.Config{})
	var want []string
	for range ends {
		want = append(want, endedFunc(t, s, returns(1)))
	}
	p := newPuppet()
	id := start(t, s, jobs.Spec{Func: p.run}).ID
	_, err := s.Watch(id, jobs.WatchSpec{Pattern: regexp.MustCompile("line"), Burst: lines})
	require.NoError(t, err)
	for i := range lines {
		p.print(fmt.Sprintf("line %d\n", i))
	}
	waiting := s.Drain()
	require.Equal(t, jobs.EventDropped, waiting[0].Event)
	require.Equal(t, ends+lines-most, waiting[0].Dropped)
	require.Equal(t, want, noticeIDs(waiting[1:1+ends]))
	kept := waiting[1+ends:]
	require.Len(t, kept, most-ends)
	require.Equal(t, fmt.Sprintf("line %d", lines-1), kept[len(kept)-1].Line, "the newest stay")
	require.Equal(t, fmt.Sprintf("line %d", lines-len(kept)), kept[0].Line)
	p.finish(nil)
}

func TestLinesComeBeforeTheEndAndAreWithdrawnWithIt(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	for _, collected := range []bool{false, true} {
		p := newPuppet()
		id := start(t, s, jobs.Spec{Func: p.run}).ID
		_, err := s.Watch(id, jobs.WatchSpec{Pattern: regexp.MustCompile("line"), Burst: 1})
		require.NoError(t, err)
		p.print("line 1\nline 2\nline 3\n")
		p.finish(nil)
		endOf(t, s, id)
		if collected {
			collect(t, s, id)
			require.Nil(t, s.Drain())
			continue
		}
		var events []string
		for _, n := range s.Drain() {
			events = append(events, fmt.Sprintf("%s %q %d", n.Event, n.Line, n.Suppressed))
		}
		require.Equal(t, []string{`job_matched "line 1" 0`, `job_matched "" 2`, `job_completed "" 0`}, events)
	}
}

func TestTagAndTrustAreCarriedToSnapshotsAndNoticesAndTrustIsNotShown(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	spec := returning(1)
	spec.Tag, spec.Trust = "request 7", "only a guest"
	snap := start(t, s, spec)
	endOf(t, s, snap.ID)
	for _, seen := range []jobs.Snapshot{snap, checkJob(t, s, snap.ID), s.List().Jobs[0]} {
		require.Equal(t, "request 7", seen.Tag)
		require.Equal(t, "only a guest", seen.Trust)
	}
	var told jobs.Notice
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	require.ErrorIs(t, s.Deliver(ctx, func(_ context.Context, notices []jobs.Notice) error {
		told = notices[0]
		cancel()
		return nil
	}), context.Canceled)
	require.Equal(t, "request 7", told.Tag)
	require.Equal(t, "only a guest", told.Trust)

	text, err := json.Marshal(told)
	require.NoError(t, err)
	require.Contains(t, string(text), "request 7")
	texts := jobs.Texts{}
	for _, shown := range []string{
		string(text), texts.Turn(told, "out"), texts.Task(told), texts.Plain(told),
		string(texts.Merge(json.RawMessage("{}"), "", []jobs.Notice{told})),
		texts.State(s.List()), texts.Reminder(s.TurnEnd(testContext(t))),
		ask(t, funcs{}.toolset(s, jobs.ToolsetOptions{}), "job__check", idArgs(snap.ID)).text,
		ask(t, funcs{}.toolset(s, jobs.ToolsetOptions{}), "job__list", "").text,
	} {
		require.NotContains(t, shown, "guest")
		require.NotContains(t, strings.ToLower(shown), "trust")
	}
}
