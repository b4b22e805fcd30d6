package jobs_test

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A tally counts how the end of each job was told.
type tally struct {
	mu       sync.Mutex // guards the maps
	answered map[string]int
	demoted  map[string]int
}

// add counts the answer of a Run.
func (c *tally) add(r jobs.Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answered == nil {
		c.answered, c.demoted = make(map[string]int), make(map[string]int)
	}
	if r.Ended() {
		c.answered[r.ID]++
	} else {
		c.demoted[r.ID]++
	}
}

// requireEachToldOnce fails unless each of n jobs was told by its answer or by
// a notice, and both happened. Results of demoted jobs can be collected.
func (c *tally) requireEachToldOnce(t testing.TB, s *jobs.Supervisor, notices map[string]int, n int) {
	t.Helper()
	require.Len(t, c.answered, n-len(c.demoted))
	require.Len(t, notices, len(c.demoted))
	for _, counts := range []map[string]int{c.answered, c.demoted, notices} {
		for id, times := range counts {
			require.Equal(t, 1, times, id)
		}
	}
	for id := range c.demoted {
		require.Contains(t, notices, id)
	}
	for id := range c.answered {
		_, err := s.Check(id)
		requireJobError(t, err, jobs.ErrExpired, id)
	}
	require.Len(t, s.List().Jobs, len(c.demoted))
	for id := range c.demoted {
		require.Equal(t, jobs.Completed, collect(t, s, id).State)
	}
	require.Nil(t, s.Drain())
	require.NotEmpty(t, c.answered, "no job ended in its grace, so this has shown nothing")
	require.NotEmpty(t, c.demoted, "no job was demoted, so this has shown nothing")
}

func TestAnEndThatMeetsTheEndOfTheGraceIsToldOnce(t *testing.T) {
	const rounds = 500
	for _, tt := range []struct {
		name string
		// spec is a job of that length.
		spec  func(length time.Duration) jobs.Spec
		grace time.Duration
	}{
		{"function", func(length time.Duration) jobs.Spec {
			return function(func(context.Context, io.Writer) (any, error) {
				<-time.After(length)
				return nil, nil
			})
		}, 2 * time.Millisecond},
		{"process", func(length time.Duration) jobs.Spec {
			return jobs.Spec{Argv: []string{"sleep", fmt.Sprint(length.Seconds())}}
		}, 20 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSupervisor(t, jobs.Config{MaxRunning: rounds, MaxRetained: rounds})
			h := listen(s)
			var count tally
			ctx := testContext(t)
			inParallel(rounds, 4, func(i int) {
				r, err := s.Run(ctx, tt.spec(tt.grace*time.Duration(i%40)/20), tt.grace)
				if assert.NoError(t, err) {
					count.add(r)
				}
			})
			require.True(t, eventually(func() bool { return s.List().Running == 0 }))
			count.requireEachToldOnce(t, s, h.stop(), rounds)
		})
	}
}

// The records of earlier jobs are not pushed out by answers.
func TestRunsDoNotPushOutWhatWaitsToBeCollected(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 1, MaxRetained: 1})
	kept := finish(t, s)
	for range 10 {
		foreground(t, s, returning(nil), patience)
	}
	require.Equal(t, `"value"`, string(collect(t, s, kept).File.JSON()))
}

// Looks from all sides make whoever tells the end wait in the middle of it.
func TestAnEndThatMeetsADemotionUnderLoadIsToldOnce(t *testing.T) {
	const rounds = 500
	s := newSupervisor(t, jobs.Config{MaxRunning: rounds, MaxRetained: rounds})
	other, err := s.Child(jobs.ChildConfig{})
	require.NoError(t, err)
	for range 20 {
		start(t, other, jobs.Spec{Func: waits})
	}
	h := listen(s)
	quit := make(chan struct{})
	var lookers sync.WaitGroup
	for range 4 {
		lookers.Go(func() {
			for !isDone(quit) {
				other.List()
			}
		})
	}
	var count tally
	ctx := testContext(t)
	inParallel(rounds, 4, func(i int) {
		r, err := s.Run(ctx, function(func(context.Context, io.Writer) (any, error) {
			for range i % 32 {
				runtime.Gosched()
			}
			return nil, nil
		}), time.Duration(i%16)*50*time.Microsecond)
		if assert.NoError(t, err) {
			count.add(r)
		}
	})
	close(quit)
	lookers.Wait()
	require.True(t, eventually(func() bool { return s.List().Running == 20 }))
	count.requireEachToldOnce(t, s, h.stop(), rounds)
}

// The two are woken by the same end; the collector may be the first.
func TestARunBesideACollectorLosesNothingSilently(t *testing.T) {
	for range 500 {
		s := newSupervisor(t, jobs.Config{})
		gate := make(chan struct{})
		id := startKeyed(t, s, gate)
		_, answer := runKeyed(t, s, patience)
		collecting := newWatchedContext(testContext(t))
		collected := make(chan struct{})
		go func() {
			defer close(collected)
			r, err := s.Collect(collecting, id)
			assert.NoError(t, err)
			assert.Equal(t, "printed", string(r.Output.Bytes()))
		}()
		<-collecting.waiting
		close(gate)
		r, err := answer()
		<-collected
		if err != nil {
			requireJobError(t, err, jobs.ErrCollected, id)
			continue
		}
		require.Equal(t, "printed", string(r.Output.Bytes()))
		require.Equal(t, `"released"`, string(r.File.JSON()))
	}
}

// Whoever found the job of a Run by its key holds its id, which must go on
// working although the Run had the end as its answer.
func TestTheIDOfAJobThatOthersFoundOutlivesTheAnswerOfItsRun(t *testing.T) {
	for name, find := range map[string]func(*jobs.Supervisor, jobs.Spec) (string, error){
		"Start": func(s *jobs.Supervisor, spec jobs.Spec) (string, error) {
			snap, err := s.Start(t.Context(), spec)
			return snap.ID, err
		},
		"Run": func(s *jobs.Supervisor, spec jobs.Spec) (string, error) {
			r, err := s.Run(t.Context(), spec, 0)
			return r.ID, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSupervisor(t, jobs.Config{})
			p := newPuppet()
			spec := jobs.Spec{Func: p.run, Key: "key"}
			ctx := newWatchedContext(testContext(t))
			answers := make(chan jobs.Result, 1)
			go func() {
				r, err := s.Run(ctx, spec, patience)
				assert.NoError(t, err)
				answers <- r
			}()
			<-ctx.waiting
			id, err := find(s, spec)
			require.NoError(t, err)
			p.finish("value")
			r := <-answers
			require.Equal(t, id, r.ID)
			require.Equal(t, jobs.Completed, r.State)
			require.Equal(t, `"value"`, string(collect(t, s, id).File.JSON()))
		})
	}
}

func TestALineOfExactly64KiBIsOneLine(t *testing.T) {
	s := newSupervisor(t, jobs.Config{TailBytes: 1 << 20})
	ps, started := startPuppets(t, s, 1)
	text := strings.Repeat("x", 64<<10)
	ps[0].print(text)
	w := beginWait(t, s, jobs.WaitSpec{Pattern: line("(end)?")})
	ps[0].print("\n")
	ps[0].print("end\n")
	require.Equal(t, &jobs.Match{ID: started[0], Line: "end", Next: 64<<10 + 5}, w.answer(t).Match)
	whole := waitOn(t, s, jobs.WaitSpec{Pattern: line("x*")}).Match
	require.True(t, whole.Line == text && whole.Next == 64<<10+1, "%d bytes up to %d", len(whole.Line), whole.Next)
}

// Nothing of the middle is kept at the moment of the call, and nothing after it.
func TestNoLineReachesOverBytesThatWereDroppedLast(t *testing.T) {
	s := newSupervisor(t, jobs.Config{HeadBytes: 4, TailBytes: -1})
	ps, _ := startPuppets(t, s, 1)
	ps[0].print("pass" + strings.Repeat(".", 100))
	w := beginWait(t, s, jobs.WaitSpec{Pattern: line("pass.*word|end")})
	ps[0].print("word\n")
	ps[0].print("end\n")
	require.Equal(t, "end", w.answer(t).Match.Line)
}

// A look sees the unfinished line; so must one that has waited.
func TestAnUnfinishedLineIsTestedOnceMoreWhenTheTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSupervisor(t, jobs.Config{})
		ps, started := startPuppets(t, s, 1)
		w := beginWait(t, s, jobs.WaitSpec{Pattern: line("Password: "), Timeout: time.Second})
		time.Sleep(time.Second - time.Millisecond)
		ps[0].print("Password: ")
		r := w.answer(t)
		require.Equal(t, &jobs.Match{ID: started[0], Line: "Password: ", Next: 10}, r.Match)
		require.False(t, r.TimedOut)
	})
}

func TestTheReportOfAJobThatCloseLetsGoOfTakesItsNoticesBack(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	p := newPuppet()
	gone, leave := context.WithCancel(context.Background())
	id := start(t, s, jobs.Spec{OnOwnerEnd: jobs.KeepRunning, Func: func(_ context.Context, out io.Writer) (any, error) {
		return p.run(gone, out)
	}}).ID
	watch(t, s, id, "error", 1)
	p.print("error 1\nerror 2\n")
	report, err := s.Close(testContext(t))
	leave()
	require.NoError(t, err)
	require.Equal(t, []string{id}, ids(report.Kept))
	require.Nil(t, s.Drain())
}

func TestAWatchIsNoWayToLoseAnEnd(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	p, id, _ := watchPuppet(t, s, "error", 1)
	ps, started := startPuppets(t, s, 1)
	w := beginWait(t, s, jobs.WaitSpec{IDs: []string{id, started[0]}, All: true})
	p.print("error 1\nerror 2\n")
	p.finish(nil)
	endOf(t, s, id)
	notices := s.Drain()
	require.Equal(t, []string{id, id}, noticeIDs(notices))
	require.Equal(t, []string{"error 1", ""}, matchedLines(notices))
	w.cancel()
	<-w.done
	requireOneEnd(t, s, id) // Wait did not tell it, nor has a line
	ps[0].finish(nil)
	requireOneEnd(t, s, started[0])
	require.True(t, slices.Contains(ids(s.List().Jobs), id))
}
