package jobs_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Ends.

func TestAWaitForAnyEndsWithTheFirstAndTellsNoOther(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	ps, started := startPuppets(t, s, 3)
	w := beginWait(t, s, jobs.WaitSpec{IDs: started})
	ps[1].finish(nil)
	r := w.answer(t)
	assert.Equal(t, started, ids(r.Jobs))
	assert.Equal(t, []jobs.State{jobs.Running, jobs.Completed, jobs.Running}, states(r.Jobs))
	assert.Equal(t, checkJob(t, s, started[1]), r.Jobs[1])
	assert.False(t, r.TimedOut)
	assert.Nil(t, r.Match)
	require.Empty(t, s.Ready(), "Wait has told it")
	ps[2].finish(nil)
	endOf(t, s, started[2])
	ps[0].finish(nil)
	endOf(t, s, started[0])
	require.Equal(t, []string{started[2], started[0]}, noticeIDs(s.Drain()))
	for _, id := range started {
		require.Equal(t, jobs.Completed, collect(t, s, id).State, "a Wait uses nothing up")
	}
}

func TestAWaitForAllEndsWithTheLast(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	ps, started := startPuppets(t, s, 3)
	w := beginWait(t, s, jobs.WaitSpec{IDs: started, All: true})
	for _, i := range []int{2, 0} {
		ps[i].finish(nil)
		endOf(t, s, started[i])
		require.False(t, isDone(w.done))
		require.Empty(t, s.Ready(), "Wait is going to tell it")
	}
	ps[1].finish(nil)
	r := w.answer(t)
	require.Equal(t, started, ids(r.Jobs))
	require.Equal(t, []jobs.State{jobs.Completed, jobs.Completed, jobs.Completed}, states(r.Jobs))
	require.Nil(t, s.Drain())
}

func TestAWaitForProcessesEndsWithThem(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	g := newGate(t)
	quick := start(t, s, bash("exit 3")).ID
	slow := start(t, s, g.gated(`read -r _ <"$GATE"; kill -KILL $$`)).ID
	r := waitOn(t, s, jobs.WaitSpec{IDs: []string{quick, slow}})
	require.Equal(t, "failed, exit 3", r.Jobs[0].Outcome())
	require.Equal(t, "running", r.Jobs[1].Outcome())
	w := beginWait(t, s, jobs.WaitSpec{IDs: []string{quick, slow}, All: true})
	g.open(t)
	r = w.answer(t)
	require.Equal(t, "failed, signal, SIGKILL", r.Jobs[1].Outcome())
	require.Nil(t, s.Drain())
}

func TestAWaitForWhatHasEndedNeedsNoTime(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	untold, told, collected := finish(t, s), finish(t, s), finish(t, s)
	waitOn(t, s, jobs.WaitSpec{IDs: []string{told}})
	collect(t, s, collected)
	running := start(t, s, jobs.Spec{Func: waits}).ID
	for _, tt := range []struct {
		ids []string
		all bool
	}{
		{[]string{untold}, false},
		{[]string{told}, true},
		{[]string{collected}, false},
		{[]string{running, told}, false},
		{[]string{collected, told, untold}, true},
	} {
		for _, timeout := range []time.Duration{-1, 0, time.Hour} {
			r, err := s.Wait(doneContext(), jobs.WaitSpec{IDs: tt.ids, All: tt.all, Timeout: timeout})
			require.NoError(t, err)
			require.Equal(t, tt.ids, ids(r.Jobs))
			require.False(t, r.TimedOut)
		}
	}
	require.Nil(t, s.Drain())
	require.Equal(t, jobs.Completed, collect(t, s, untold).State)
}

func TestAWaitWithoutIDsIsForAllThatRun(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	ended := finish(t, s)
	ps, started := startPuppets(t, s, 2)
	w := beginWait(t, s, jobs.WaitSpec{All: true})
	later := start(t, s, jobs.Spec{Func: waits}).ID
	ps[1].finish(nil)
	ps[0].finish(nil)
	require.Equal(t, started, ids(w.answer(t).Jobs))
	require.Equal(t, jobs.Running, checkJob(t, s, later).State)
	require.Equal(t, []string{ended}, noticeIDs(s.Drain()))
}

func TestAWaitWhereNothingRunsReturnsAtOnce(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	finish(t, s)
	for _, spec := range []jobs.WaitSpec{{}, {All: true}, {Pattern: line(".*")}, {Timeout: time.Hour}, {Timeout: -1}} {
		r, err := s.Wait(doneContext(), spec)
		require.NoError(t, err)
		require.Empty(t, r.Jobs)
		require.False(t, r.TimedOut)
		require.Nil(t, r.Match)
	}
	require.Len(t, s.Drain(), 1)
}

func TestRepeatedIDsAreWaitedForOnce(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	ps, started := startPuppets(t, s, 2)
	a, b := started[0], started[1]
	w := beginWait(t, s, jobs.WaitSpec{IDs: []string{b, a, b, b, a}, All: true})
	ps[0].finish(nil)
	ps[1].finish(nil)
	require.Equal(t, []string{b, a}, ids(w.answer(t).Jobs))

	// Whoever had waited twice for c would still be expected to tell its end.
	p := newPuppet()
	c := start(t, s, jobs.Spec{Func: p.run}).ID
	require.True(t, waitOn(t, s, jobs.WaitSpec{IDs: []string{c, c}, Timeout: -1}).TimedOut)
	p.finish(nil)
	requireOneEnd(t, s, c)
}

func TestAWrongIDAmongSeveralWaitsForNone(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRetained: 1, MaxRunning: 1})
	child, err := s.Child(jobs.ChildConfig{})
	require.NoError(t, err)
	expired := foreground(t, s, returning(nil), patience).ID
	foreign := foreground(t, child, returning(nil), patience).ID
	p := newPuppet()
	id := start(t, s, jobs.Spec{Func: p.run}).ID
	for _, tt := range []struct {
		id   string
		want error
	}{
		{foreign, jobs.ErrForeign},
		{expired, jobs.ErrExpired},
		{fmt.Sprintf("job_%020x", 1), jobs.ErrNotFound},
		{"", jobs.ErrNotFound},
		{"../../etc/passwd", jobs.ErrNotFound},
	} {
		for _, list := range [][]string{{tt.id}, {id, tt.id}, {tt.id, id}} {
			r, err := s.Wait(doneContext(), jobs.WaitSpec{IDs: list, Timeout: time.Hour, Pattern: line("x")})
			requireJobError(t, err, tt.want, tt.id)
			require.Zero(t, r)
		}
	}
	p.finish(nil)
	requireOneEnd(t, s, id)
}

func TestTheEndOfTheTimeIsAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSupervisor(t, jobs.Config{})
		ps, started := startPuppets(t, s, 2)
		begun := time.Now()
		r := waitOn(t, s, jobs.WaitSpec{IDs: started, Timeout: 10 * time.Second})
		assert.Equal(t, 10*time.Second, time.Since(begun))
		assert.True(t, r.TimedOut)
		assert.Equal(t, []jobs.State{jobs.Running, jobs.Running}, states(r.Jobs))
		assert.Equal(t, 10*time.Second, r.Jobs[0].Elapsed)

		ps[0].finish(nil)
		synctest.Wait()
		r = waitOn(t, s, jobs.WaitSpec{IDs: started, All: true, Timeout: 10 * time.Second})
		assert.Equal(t, 20*time.Second, time.Since(begun))
		assert.True(t, r.TimedOut)
		assert.Equal(t, []jobs.State{jobs.Completed, jobs.Running}, states(r.Jobs))
		assert.Nil(t, s.Drain(), "an answer that shows an end tells it, also when the time is over")

		ps[1].finish(nil)
		requireOneEnd(t, s, started[1])
	})
}

func TestANegativeTimeoutLooksOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSupervisor(t, jobs.Config{})
		ps, started := startPuppets(t, s, 2)
		begun := time.Now()
		r := waitOn(t, s, jobs.WaitSpec{Timeout: -1})
		assert.True(t, r.TimedOut)
		assert.Equal(t, started, ids(r.Jobs))
		ps[0].finish(nil)
		synctest.Wait()
		r = waitOn(t, s, jobs.WaitSpec{IDs: started, Timeout: -time.Hour})
		assert.False(t, r.TimedOut)
		assert.Equal(t, []jobs.State{jobs.Completed, jobs.Running}, states(r.Jobs))
		assert.Equal(t, begun, time.Now())
	})
}

func TestAWaitIsWokenByTheEndItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSupervisor(t, jobs.Config{})
		const length = time.Hour + time.Nanosecond
		start(t, s, function(func(context.Context, io.Writer) (any, error) {
			time.Sleep(length)
			return nil, nil
		}))
		begun := time.Now()
		r, err := s.Wait(context.Background(), jobs.WaitSpec{Timeout: 2 * time.Hour, Pattern: line("x")})
		require.NoError(t, err)
		require.False(t, r.TimedOut)
		require.Equal(t, length, time.Since(begun))
	})
}

func TestTheEndOfTheContextEndsTheWaitAndTellsNoEnd(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	ps, started := startPuppets(t, s, 2)
	w := beginWait(t, s, jobs.WaitSpec{IDs: started, All: true})
	ps[0].finish(nil)
	endOf(t, s, started[0])
	require.Empty(t, s.Ready())
	w.cancel()
	<-w.done
	require.ErrorIs(t, w.err, context.Canceled)
	require.Equal(t, started, ids(w.result.Jobs))
	require.Equal(t, []jobs.State{jobs.Completed, jobs.Running}, states(w.result.Jobs))
	require.False(t, w.result.TimedOut)
	requireOneEnd(t, s, started[0])
	require.Equal(t, jobs.Running, checkJob(t, s, started[1]).State)
	ps[1].finish(nil)
	requireOneEnd(t, s, started[1])

	running := start(t, s, jobs.Spec{Func: waits}).ID
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	_, err := s.Wait(ctx, jobs.WaitSpec{Timeout: time.Hour})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, jobs.Running, checkJob(t, s, running).State)
}

func TestEachEndIsToldOnceWhereAWaitGivesUpAtThatMoment(t *testing.T) {
	const rounds = 500
	s := newSupervisor(t, jobs.Config{MaxRunning: rounds, MaxRetained: rounds})
	h := listen(s)
	var all []string
	gaveUp := 0
	for i := range rounds {
		ps, started := startPuppets(t, s, 1)
		all = append(all, started[0])
		w := beginWait(t, s, jobs.WaitSpec{IDs: started})
		both := []func(){func() { ps[0].finish(nil) }, w.cancel}
		if i%10 == 0 { // once in a while the end comes first for sure
			both[0]()
			<-w.done
		}
		go both[i%2]()
		both[1-i%2]()
		<-w.done
		if w.err == nil {
			h.tell(started[0])
		} else {
			require.ErrorIs(t, w.err, context.Canceled)
			gaveUp++
		}
	}
	require.True(t, eventually(func() bool { return s.List().Running == 0 }))
	told := h.stop()
	require.ElementsMatch(t, all, slices.Collect(maps.Keys(told)))
	for id, times := range told {
		require.Equal(t, 1, times, id)
	}
	require.Positive(t, gaveUp, "no wait gave up, so this has shown nothing")
	require.Less(t, gaveUp, rounds, "every wait gave up, so this has shown nothing")
}

func TestOneEndWakesAllWhoWaitForIt(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	ps, started := startPuppets(t, s, 2)
	var waiters []*waiter
	for i := range 50 {
		spec := jobs.WaitSpec{IDs: started[:1+i%2]}
		if i%3 == 0 {
			spec.Pattern = line("never")
		}
		waiters = append(waiters, beginWait(t, s, spec))
	}
	ps[0].finish(nil)
	for _, w := range waiters {
		require.Equal(t, jobs.Completed, w.answer(t).Jobs[0].State)
	}
	require.Nil(t, s.Drain())
}

func TestOneLineWakesAllWhoWaitForIt(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	ps, started := startPuppets(t, s, 1)
	var waiters []*waiter
	for range 50 {
		waiters = append(waiters, beginWait(t, s, jobs.WaitSpec{IDs: started, Pattern: line("ready")}))
	}
	ps[0].print("ready\n")
	for _, w := range waiters {
		require.Equal(t, &jobs.Match{ID: started[0], Line: "ready", Next: 6}, w.answer(t).Match)
	}
	ps[0].finish(nil)
	requireOneEnd(t, s, started[0])
}

// One that gives up while another waits leaves the end to the other.
func TestAWaitThatGivesUpLeavesTheEndToAnother(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	ps, started := startPuppets(t, s, 1)
	stays, gives := beginWait(t, s, jobs.WaitSpec{IDs: started}), beginWait(t, s, jobs.WaitSpec{IDs: started})
	gives.cancel()
	<-gives.done
	ps[0].finish(nil)
	stays.answer(t)
	require.Nil(t, s.Drain())
}

func TestCancelAndCloseWakeAWait(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	_, started := startPuppets(t, s, 2)
	w := beginWait(t, s, jobs.WaitSpec{IDs: started})
	cancel(t, s, started[0])
	require.Equal(t, []jobs.State{jobs.Cancelled, jobs.Running}, states(w.answer(t).Jobs))
	w = beginWait(t, s, jobs.WaitSpec{IDs: started, All: true})
	_, err := s.Close(testContext(t))
	require.NoError(t, err)
	require.Equal(t, jobs.ReasonShutdown, w.answer(t).Jobs[1].Reason)
	require.Equal(t, started, ids(waitOn(t, s, jobs.WaitSpec{IDs: started, All: true}).Jobs), "it answers after Close")
}

// Lines.

func TestALineThatWasPrintedBeforeTheWaitCounts(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	ps, started := startPuppets(t, s, 1)
	ps[0].print("one\nlistening on port 8080\nthree\n")
	r, err := s.Wait(doneContext(), jobs.WaitSpec{Pattern: regexp.MustCompile(`port \d+`)})
	require.NoError(t, err)
	require.Equal(t, &jobs.Match{ID: started[0], Line: "listening on port 8080", Next: 27}, r.Match)
	require.Equal(t, []jobs.State{jobs.Running}, states(r.Jobs))
	require.False(t, r.TimedOut)
}

func TestALineThatComesEndsTheWait(t *testing.T) {
	for _, all := range []bool{false, true} {
		s := newSupervisor(t, jobs.Config{})
		ps, started := startPuppets(t, s, 3)
		w := beginWait(t, s, jobs.WaitSpec{IDs: started, Pattern: line("ready"), All: all})
		ps[0].print("not ready\n")
		ps[1].print("starting\nready\nserving\n")
		r := w.answer(t)
		require.Equal(t, &jobs.Match{ID: started[1], Line: "ready", Next: 15}, r.Match)
		require.Equal(t, started, ids(r.Jobs))
		require.Equal(t, []jobs.State{jobs.Running, jobs.Running, jobs.Running}, states(r.Jobs))
	}
}

func TestAnEndWithoutTheLineEndsTheWaitAsUsual(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	ps, started := startPuppets(t, s, 2)
	first := beginWait(t, s, jobs.WaitSpec{IDs: started, Pattern: line("ready")})
	last := beginWait(t, s, jobs.WaitSpec{IDs: started, Pattern: line("ready"), All: true})
	ps[0].print("not ready\n")
	ps[0].finish(nil)
	r := first.answer(t)
	require.Nil(t, r.Match)
	require.False(t, r.TimedOut)
	require.Equal(t, []jobs.State{jobs.Completed, jobs.Running}, states(r.Jobs))
	require.False(t, isDone(last.done))
	ps[1].finish(nil)
	r = last.answer(t)
	require.Nil(t, r.Match)
	require.Equal(t, []jobs.State{jobs.Completed, jobs.Completed}, states(r.Jobs))
}

func TestTheOutputOfAnEndedJobIsSearchedToItsLastByte(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	id := start(t, s, jobs.Spec{Func: prints("one\ntwo\nlast")}).ID
	endOf(t, s, id)
	for text, next := range map[string]int64{"one": 4, "two": 8, "last": 12} {
		r := waitOn(t, s, jobs.WaitSpec{IDs: []string{id}, Pattern: line(text)})
		require.Equal(t, &jobs.Match{ID: id, Line: text, Next: next}, r.Match)
	}
	require.Nil(t, waitOn(t, s, jobs.WaitSpec{IDs: []string{id}, Pattern: line("las")}).Match)
	collect(t, s, id)
	require.Nil(t, waitOn(t, s, jobs.WaitSpec{IDs: []string{id}, Pattern: line("one")}).Match, "its output is gone")
}

func TestAnUnfinishedLineIsTestedWhenTheJobEnds(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	g := newGate(t)
	id := start(t, s, g.gated(`read -r _ <"$GATE"; printf 'no newline'`)).ID
	w := beginWait(t, s, jobs.WaitSpec{IDs: []string{id}, Pattern: line("no newline")})
	g.open(t)
	require.Equal(t, &jobs.Match{ID: id, Line: "no newline", Next: 10}, w.answer(t).Match)
}

func TestAWaitGoesOnWhereTheLastMatchEnded(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	id := start(t, s, jobs.Spec{Func: func(ctx context.Context, out io.Writer) (any, error) {
		io.WriteString(out, "x\nerror 1\nerror 2\nx\nx\nerror 3\nerror 4")
		return waits(ctx, out)
	}}).ID
	awaitOutput(t, s, id, "error 4")
	var found []string
	spec := jobs.WaitSpec{Pattern: regexp.MustCompile("error"), Timeout: -1}
	for r := waitOn(t, s, spec); r.Match != nil; r = waitOn(t, s, spec) {
		found = append(found, r.Match.Line)
		spec.From = r.Match.Next
	}
	require.Equal(t, []string{"error 1", "error 2", "error 3", "error 4"}, found)
}

func TestFromSkipsWhatLiesBeforeIt(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	ps, started := startPuppets(t, s, 1)
	ps[0].print("aa 1\nbb 2\naa 3\nbb 4\n")
	for _, tt := range []struct {
		from int64
		want string
	}{
		{0, "aa 1"}, {5, "aa 3"}, {6, "aa 3"}, {15, ""}, {20, ""}, {1000, ""},
		{-1, ""}, {-5, ""}, {-10, "aa 3"}, {-15, "aa 3"}, {-20, "aa 1"}, {-1000, "aa 1"},
	} {
		r := waitOn(t, s, jobs.WaitSpec{Pattern: regexp.MustCompile("^aa"), From: tt.from, Timeout: -1})
		if tt.want == "" {
			require.Nil(t, r.Match, "from %d", tt.from)
			continue
		}
		require.NotNil(t, r.Match, "from %d", tt.from)
		require.Equal(t, tt.want, r.Match.Line, "from %d", tt.from)
	}
	// From the end on it is what comes that counts.
	w := beginWait(t, s, jobs.WaitSpec{Pattern: regexp.MustCompile("^aa"), From: 1000})
	ps[0].print("aa 5\n")
	require.Equal(t, &jobs.Match{ID: started[0], Line: "aa 5", Next: 25}, w.answer(t).Match)
}

func TestALineIsFoundHoweverItIsCutIntoWrites(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	ps, started := startPuppets(t, s, 1)
	text := "größe: 5 € ready\n"
	for cut := range len(text) {
		from := checkJob(t, s, started[0]).OutputTotal
		w := beginWait(t, s, jobs.WaitSpec{Pattern: line("größe: 5 € ready"), From: from})
		ps[0].print(text[:cut])
		ps[0].print(text[cut:])
		require.Equal(t, from+int64(len(text)), w.answer(t).Match.Next, "cut at %d", cut)
	}
}

func TestALineOfAProcessIsFoundAcrossTwoWrites(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	g := newGate(t)
	id := start(t, s, g.gated(`printf rea; read -r _ <"$GATE"; echo dy; sleep 1000`)).ID
	awaitOutput(t, s, id, "rea")
	w := beginWait(t, s, jobs.WaitSpec{Pattern: line("ready")})
	g.open(t)
	require.Equal(t, &jobs.Match{ID: id, Line: "ready", Next: 6}, w.answer(t).Match)
}

func TestALineIsFoundOnEitherStream(t *testing.T) {
	for _, split := range []bool{false, true} {
		for _, to := range []string{"1", "2"} {
			t.Run(fmt.Sprintf("split %v, descriptor %s", split, to), func(t *testing.T) {
				s := newSupervisor(t, jobs.Config{})
				g := newGate(t)
				spec := g.gated(`echo ready one >&` + to + `; read -r _ <"$GATE"; echo ready two >&` + to + `; sleep 1000`)
				spec.SplitStderr = split
				id := start(t, s, spec).ID
				apart := split && to == "2"
				require.Equal(t, &jobs.Match{ID: id, Line: "ready one", Next: 10, Stderr: apart},
					waitOn(t, s, jobs.WaitSpec{Pattern: regexp.MustCompile("ready")}).Match)
				w := beginWait(t, s, jobs.WaitSpec{Pattern: line("ready two")})
				g.open(t)
				require.Equal(t, &jobs.Match{ID: id, Line: "ready two", Next: 20, Stderr: apart}, w.answer(t).Match)
				require.Nil(t, waitOn(t, s, jobs.WaitSpec{Pattern: regexp.MustCompile("ready"), From: 20, StderrFrom: 20, Timeout: -1}).Match)
			})
		}
	}
}

func TestLinesAreTestedAsAModelSeesThem(t *testing.T) {
	for _, tt := range []struct{ name, raw, want string }{
		{"plain", "ready\n", "ready"},
		{"colours", "\x1b[1;32mre\x1b[0mady\x1b[K\n", "ready"},
		{"a title", "\x1b]0;building\aready\n", "ready"},
		{"CR LF", "ready\r\n", "ready"},
		{"a progress bar", " 10%\r 50%\rready\n", "ready"},
		{"a progress bar under way", " 10%\r 50%\rready", "ready"},
		{"a backspace", "readx\by\n", "ready"},
		{"control characters", "re\x01a\x7fdy\n", "ready"},
		{"not UTF-8", "re\xffady\n", "re\uFFFDady"},
		{"NUL", "re\x00ady\n", "re␀ady"},
		{"hidden characters", "re\u202eady\n", "ready"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSupervisor(t, jobs.Config{})
			ps, started := startPuppets(t, s, 1)
			w := beginWait(t, s, jobs.WaitSpec{Pattern: line(tt.want)})
			for _, b := range []byte(tt.raw) {
				ps[0].print(string([]byte{b}))
			}
			want := &jobs.Match{ID: started[0], Line: tt.want, Next: int64(len(tt.raw))}
			require.Equal(t, want, w.answer(t).Match, "as it comes")
			require.Equal(t, want, waitOn(t, s, jobs.WaitSpec{Pattern: line(tt.want)}).Match, "afterwards")
		})
	}
	s := newSupervisor(t, jobs.Config{})
	ps, _ := startPuppets(t, s, 1)
	ps[0].print("\x1b[32mgreen\x1b[0m 10%\rdone\n")
	for _, unseen := range []string{"32m", "green", "10%", "\x1b", "\r"} {
		r := waitOn(t, s, jobs.WaitSpec{Pattern: regexp.MustCompile(regexp.QuoteMeta(unseen)), Timeout: -1})
		require.Nil(t, r.Match, unseen)
	}
}

func TestAPromptWithoutANewlineIsFound(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	g := newGate(t)
	spec := g.gated(`echo hello; read -r _ <"$GATE"; printf 'Password: '; read -r word; echo "got $word"; sleep 1000`)
	spec.Input = true
	id := start(t, s, spec).ID
	w := beginWait(t, s, jobs.WaitSpec{Pattern: line("Password: ")})
	g.open(t)
	want := &jobs.Match{ID: id, Line: "Password: ", Next: 16}
	require.Equal(t, want, w.answer(t).Match)
	require.Equal(t, want, waitOn(t, s, jobs.WaitSpec{Pattern: line("Password: "), Timeout: -1}).Match)
	in, err := s.Input(id)
	require.NoError(t, err)
	_, err = io.WriteString(in, "secret\n")
	require.NoError(t, err)
	require.Equal(t, "got secret", waitOn(t, s, jobs.WaitSpec{Pattern: regexp.MustCompile("^got"), From: want.Next}).Match.Line)
}

// An unfinished line that does not match yet is tested again when it has grown.
func TestAnUnfinishedLineIsTestedAsItGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSupervisor(t, jobs.Config{})
		ps, started := startPuppets(t, s, 1)
		w := beginWait(t, s, jobs.WaitSpec{Pattern: line("a+b")})
		for range 5 {
			ps[0].print("a")
			time.Sleep(time.Second)
			require.False(t, isDone(w.done))
		}
		ps[0].print("b")
		begun := time.Now()
		require.Equal(t, &jobs.Match{ID: started[0], Line: "aaaaab", Next: 6}, w.answer(t).Match)
		require.Less(t, time.Since(begun), time.Second)
	})
}

func TestALineInTheResultFileIsFoundWhileTheJobRuns(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	g := newGate(t)
	id := start(t, s, g.gated(`echo early >"$LLM_OUTPUT"; read -r _ <"$GATE"; echo late >>"$LLM_OUTPUT"; sleep 1000`)).ID
	require.Equal(t, "early", waitOn(t, s, jobs.WaitSpec{Pattern: line("early")}).Match.Line)
	w := beginWait(t, s, jobs.WaitSpec{Pattern: line("late")})
	g.open(t)
	r := w.answer(t)
	require.Equal(t, &jobs.Match{ID: id, Line: "late", Next: 11}, r.Match)
	require.Equal(t, jobs.Running, r.Jobs[0].State)
}

func TestALongLineIsCutEvery64KiB(t *testing.T) {
	const limit = 64 << 10
	s := newSupervisor(t, jobs.Config{HeadBytes: -1, TailBytes: 1 << 20})
	ps, started := startPuppets(t, s, 1)
	w := beginWait(t, s, jobs.WaitSpec{Pattern: line("end")})
	whole := beginWait(t, s, jobs.WaitSpec{Pattern: regexp.MustCompile("xend")})
	for range 3 * limit / 1024 {
		ps[0].print(strings.Repeat("x", 1024))
	}
	ps[0].print("end\n")
	want := &jobs.Match{ID: started[0], Line: "end", Next: 3*limit + 4}
	require.Equal(t, want, w.answer(t).Match, "as it comes")
	require.Equal(t, want, waitOn(t, s, jobs.WaitSpec{Pattern: line("end")}).Match, "afterwards")
	require.False(t, isDone(whole.done))
	piece := waitOn(t, s, jobs.WaitSpec{Pattern: regexp.MustCompile("x")}).Match
	require.Len(t, piece.Line, limit)
	require.Equal(t, int64(limit), piece.Next)
	whole.cancel()
	<-whole.done
}

func TestALineThatIsNoLongerKeptIsNotFound(t *testing.T) {
	s := newSupervisor(t, jobs.Config{HeadBytes: 64, TailBytes: 64})
	ps, _ := startPuppets(t, s, 1)
	ps[0].print("first\n" + strings.Repeat("x\n", 1000) + "lost\n" + strings.Repeat("y\n", 1000) + "last\n")
	for text, kept := range map[string]bool{"first": true, "last": true, "lost": false} {
		r := waitOn(t, s, jobs.WaitSpec{Pattern: line(text), Timeout: -1})
		require.Equal(t, kept, r.Match != nil, text)
	}
}

// A job that runs is scanned as it prints, so that what its log cannot keep is
// seen all the same.
func TestALineInAFloodIsFoundThoughItIsNotKept(t *testing.T) {
	s := newSupervisor(t, jobs.Config{HeadBytes: -1, TailBytes: -1})
	g := newGate(t)
	id := start(t, s, g.gated(`read -r _ <"$GATE"; seq 1 300000; sleep 1000`)).ID
	w := beginWait(t, s, jobs.WaitSpec{Pattern: line("150000")})
	g.open(t)
	r := w.answer(t)
	require.Equal(t, &jobs.Match{ID: id, Line: "150000", Next: int64(len(seq(1, 150000)))}, r.Match)
}

// What lies on both sides of dropped bytes is no line.
func TestNoLineReachesOverDroppedBytes(t *testing.T) {
	s := newSupervisor(t, jobs.Config{HeadBytes: 4, TailBytes: 8})
	ps, _ := startPuppets(t, s, 1)
	ps[0].print("pass" + strings.Repeat(".", 100) + "word\nx\n")
	require.Nil(t, waitOn(t, s, jobs.WaitSpec{Pattern: regexp.MustCompile("pass.*word"), Timeout: -1}).Match)
}

func TestTheTimeCanBeOverWithoutALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSupervisor(t, jobs.Config{})
		ps, started := startPuppets(t, s, 1)
		ps[0].print("nearly\n")
		begun := time.Now()
		r := waitOn(t, s, jobs.WaitSpec{IDs: started, Pattern: line("ready"), Timeout: time.Second})
		require.Equal(t, time.Second, time.Since(begun))
		require.True(t, r.TimedOut)
		require.Nil(t, r.Match)
		ps[0].finish(nil)
		requireOneEnd(t, s, started[0])
	})
}

// Nothing stays.

func TestWaitsLeaveNoGoroutine(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	ps, started := startPuppets(t, s, 2)
	ps[0].print("ready\n")
	ps[1].print("steady\n") // all of both jobs is there from here on
	ctx := testContext(t)
	before := runtime.NumGoroutine()
	for i := range 200 {
		spec := jobs.WaitSpec{IDs: started, Timeout: time.Microsecond}
		if i%2 == 0 {
			spec.Pattern = line("never")
		}
		if i%4 == 0 {
			spec.Pattern = line("ready")
		}
		r, err := s.Wait(ctx, spec)
		require.NoError(t, err)
		require.Equal(t, i%4 == 0, r.Match != nil)
		short, stop := context.WithTimeout(ctx, time.Microsecond)
		_, err = s.Wait(short, jobs.WaitSpec{Pattern: line("never")})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		stop()
	}
	after := 0
	require.True(t, eventually(func() bool {
		after = runtime.NumGoroutine()
		return after <= before
	}), "%d goroutines before, %d after", before, after)
}

// Whatever scans a log holds the pattern. Once nobody does, nobody scans.
func TestAWaitLeavesNoScannerBehindHoweverItEnds(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	ps, started := startPuppets(t, s, 1)
	for name, end := range map[string]func(*waiter){
		"a line":          func(*waiter) { ps[0].print("ready\n") },
		"a cancelled one": func(w *waiter) { w.cancel() },
		"something urgent": func(w *waiter) {
			s.SetPending("urgent")
			<-w.done
			s.SetPending("")
		},
	} {
		t.Run(name, func(t *testing.T) {
			var pattern weak.Pointer[regexp.Regexp]
			w := func() *waiter {
				re := line("ready")
				pattern = weak.Make(re)
				return beginWait(t, s, jobs.WaitSpec{Pattern: re, From: 1 << 40})
			}()
			runtime.GC()
			require.NotNil(t, pattern.Value(), "the one who waits holds it")
			end(w)
			<-w.done
			require.True(t, eventually(func() bool {
				runtime.GC()
				return pattern.Value() == nil
			}), "a scanner is left")
			require.Equal(t, jobs.Running, checkJob(t, s, started[0]).State)
		})
	}
}
