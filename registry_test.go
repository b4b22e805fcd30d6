package jobs_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// finish runs a function job to its end and returns its id.
func finish(t testing.TB, s *jobs.Supervisor) string {
	t.Helper()
	id := start(t, s, returning("value")).ID
	awaitEnd(t, s, id)
	return id
}

// requireKnown fails unless exactly the jobs in known can be asked about; those
// in expired must have been forgotten.
func requireKnown(t testing.TB, s *jobs.Supervisor, known, expired []string) {
	t.Helper()
	for _, id := range known {
		_, err := s.Check(id)
		require.NoError(t, err)
	}
	for _, id := range expired {
		_, err := s.Check(id)
		je := requireJobError(t, err, jobs.ErrExpired, id)
		require.Nil(t, je.Job)
		require.NotErrorIs(t, err, jobs.ErrNotFound)
	}
}

func TestIDsHaveOneFormAndNeverRepeat(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	seen := make(map[string]bool)
	for range 5_000 {
		snap, err := s.Start(context.Background(), returning(nil))
		require.NoError(t, err)
		id := snap.ID
		require.Regexp(t, `^job_[0-9a-f]{20}$`, id)
		require.False(t, seen[id], "%s was given out twice", id)
		seen[id] = true
		_, err = s.Collect(context.Background(), id)
		require.NoError(t, err)
	}
}

// What can be guessed from one id about the next would show as a byte that
// stays the same.
func TestIDsShareNothingButTheirPrefix(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	first := finish(t, s)
	differs := make([]bool, len(first))
	for range 200 {
		id := finish(t, s)
		for i := range differs {
			differs[i] = differs[i] || id[i] != first[i]
		}
	}
	for i, d := range differs[len("job_"):] {
		assert.True(t, d, "hex digit %d of 200 ids is the same", i)
	}
}

func init() {
	// Prints the ids of four jobs whose random bytes repeat themselves. Nothing
	// else may use the source meanwhile, so it is a process of its own.
	helpers["ids that collide"] = func() {
		rand.Reader = strings.NewReader("the trees secret" + // of the tags
			"1111111" +
			"1111111" + "2222222" + // as a running job
			"1111111" + "3333333") // as an ended one
		s, err := jobs.New(jobs.Config{MaxRetained: 1})
		check(err == nil, "%v", err)
		ctx := context.Background()
		run := func(spec jobs.Spec) string {
			snap, err := s.Start(ctx, spec)
			check(err == nil, "%v", err)
			return snap.ID
		}
		gate := make(chan struct{})
		first := run(gated(gate, ""))
		fmt.Println(first[:18])
		wait := func(id string) { eventually(func() bool { snap, _ := s.Check(id); return snap.Ended() }) }
		second := run(returning(nil))
		fmt.Println(second[:18])
		wait(second)
		close(gate)
		wait(first)
		_, err = s.Check(second)
		check(errors.Is(err, jobs.ErrExpired), "the second job is still known: %v", err)
		fmt.Println(run(returning(nil))[:18])
	}
}

func TestAnIDThatWasGivenOutIsNotGivenOutAgain(t *testing.T) {
	needProcesses(t)
	require.Equal(t, "job_31313131313131\njob_32323232323232\njob_33333333333333\n",
		runHelper(t, "ids that collide"))
}

func TestAnIDThatIsNoneIsNotFound(t *testing.T) {
	dir := t.TempDir()
	s := newSupervisor(t, jobs.Config{TempDir: dir})
	real := finish(t, s)
	for name, id := range map[string]string{
		"empty":               "",
		"wildcard":            "*",
		"path upwards":        "../../etc/passwd",
		"path":                "a/b",
		"real in a path":      "./" + real,
		"huge":                real + strings.Repeat("0", 10<<10),
		"huge and not UTF-8":  strings.Repeat("é\xff", 5<<10),
		"NUL":                 real[:19] + "\x00",
		"NUL behind":          real + "\x00",
		"upper case":          strings.ToUpper(real),
		"upper case digits":   "job_" + strings.ToUpper("abcdef0123456789"),
		"space behind":        real + " ",
		"space in front":      " " + real,
		"line end":            real + "\n",
		"prefix only":         "job_",
		"digits only":         strings.TrimPrefix(real, "job_"),
		"one digit short":     real[:len(real)-1],
		"not hexadecimal":     "job_ghijklmnopqrstuv",
		"other digits":        "job_١١١١١١١١",
		"escape sequence":     "\x1b[2J",
		"agent":               "agent_0123456789abcdef",
		"well-formed unknown": "job_0123456789abcdef0123",
	} {
		t.Run(name, func(t *testing.T) {
			// Nothing here may wait: no such job will ever end.
			ctx := context.Background()
			for verb, call := range map[string]func() error{
				"Check":      func() error { _, err := s.Check(id); return err },
				"Output":     func() error { _, err := s.Output(id, 0, 10); return err },
				"ReadOutput": func() error { _, err := s.ReadOutput(id, 0, make([]byte, 10)); return err },
				"Stderr":     func() error { _, err := s.Stderr(id, 0, 10); return err },
				"Collect":    func() error { _, err := s.Collect(ctx, id); return err },
				"Cancel":     func() error { _, err := s.Cancel(ctx, id); return err },
			} {
				je := requireJobError(t, call(), jobs.ErrNotFound, id)
				assert.Nil(t, je.Job, verb)
				assert.Less(t, len(je.Error()), 300, "%s quotes too much of it", verb)
				assert.NotContains(t, je.Error(), "\x1b", verb)
				assert.NotContains(t, je.Error(), "\x00", verb)
			}
		})
	}
	checkJob(t, s, real) // still there
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries, "an id became a file")
}

func TestAJobOfAnotherSupervisorIsNotFound(t *testing.T) {
	s, other := newSupervisor(t, jobs.Config{}), newSupervisor(t, jobs.Config{})
	gate := make(chan struct{})
	id := start(t, s, gated(gate, "")).ID
	_, err := other.Cancel(testContext(t), id)
	requireJobError(t, err, jobs.ErrNotFound, id)
	require.Empty(t, other.List().Jobs)
	close(gate)
	require.Equal(t, jobs.Completed, collect(t, s, id).State)
}

func TestParallelStartsNeverPassTheLimit(t *testing.T) {
	const limit, calls = 10, 100
	s := newSupervisor(t, jobs.Config{MaxRunning: limit})
	gate := make(chan struct{})
	var ran atomic.Int32
	errs := make(chan error, calls)
	begin := make(chan struct{})
	var starts sync.WaitGroup
	for range calls {
		starts.Go(func() {
			<-begin
			_, err := s.Start(context.Background(), function(func(context.Context, io.Writer) (any, error) {
				ran.Add(1)
				<-gate
				return nil, nil
			}))
			errs <- err
		})
	}
	close(begin)
	starts.Wait()
	close(errs)
	refused := 0
	for err := range errs {
		if err != nil {
			require.ErrorIs(t, err, jobs.ErrAtCapacity)
			require.ErrorContains(t, err, "10 of 10")
			refused++
		}
	}
	assert.Equal(t, calls-limit, refused)
	list := s.List()
	assert.Len(t, list.Jobs, limit)
	assert.Equal(t, limit, list.Running)
	for _, snap := range list.Jobs {
		assert.Equal(t, jobs.Running, snap.State, "the limit must not end a job")
	}
	close(gate)
	for _, snap := range list.Jobs {
		collect(t, s, snap.ID)
	}
	assert.Equal(t, int32(limit), ran.Load())
}

func TestASlotIsFreeAsSoonAsTheEndIsCollected(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 1})
	ctx := testContext(t)
	for range 20_000 {
		snap, err := s.Start(ctx, returning(nil))
		require.NoError(t, err)
		_, err = s.Collect(ctx, snap.ID)
		require.NoError(t, err)
	}
}

func TestASlotIsFreeAsSoonAsTheEndIsSeen(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 1})
	for range 2000 {
		snap, err := s.Start(context.Background(), returning(nil))
		require.NoError(t, err)
		for !snap.Ended() {
			runtime.Gosched()
			snap, err = s.Check(snap.ID)
			require.NoError(t, err)
		}
	}
}

func TestFinishedJobsThatNobodyCollectedTakeNoSlot(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 2})
	for range 20 {
		finish(t, s)
	}
	list := s.List()
	require.Len(t, list.Jobs, 20)
	require.Zero(t, list.Running)
}

func TestListHoldsWhatRunsAndWhatWaitsInOrderOfStart(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 20})
	gate := make(chan struct{})
	var want []string
	for range 5 {
		want = append(want, start(t, s, gated(gate, "")).ID, finish(t, s))
		collect(t, s, finish(t, s)) // leaves the list
	}
	for range 10 { // a map would show another order now and then
		list := s.List()
		require.Equal(t, want, ids(list.Jobs))
		require.Equal(t, 5, list.Running)
		require.Equal(t, 20, list.MaxRunning)
	}
	for _, snap := range s.List().Jobs {
		now := checkJob(t, s, snap.ID)
		now.Elapsed, now.Idle, snap.Elapsed, snap.Idle = 0, 0, 0, 0
		require.Equal(t, now, snap)
	}
	close(gate)
	for _, id := range want {
		collect(t, s, id)
	}
	require.Equal(t, jobs.List{Jobs: []jobs.Snapshot{}, MaxRunning: 20}, s.List())
}

func TestTheOldestFinishedJobIsForgottenFirst(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRetained: 3})
	a, b, c := finish(t, s), finish(t, s), finish(t, s)
	requireKnown(t, s, []string{a, b, c}, nil)
	d := finish(t, s)
	requireKnown(t, s, []string{b, c, d}, []string{a})
	e := finish(t, s)
	requireKnown(t, s, []string{c, d, e}, []string{a, b})
	require.Equal(t, []string{c, d, e}, ids(s.List().Jobs))

	for name, call := range map[string]func() error{
		"Collect": func() error { _, err := s.Collect(context.Background(), a); return err },
		"Cancel":  func() error { _, err := s.Cancel(context.Background(), a); return err },
		"Output":  func() error { _, err := s.Output(a, 0, 0); return err },
		"Stderr":  func() error { _, err := s.Stderr(a, 0, 0); return err },
	} {
		require.ErrorIs(t, call(), jobs.ErrExpired, name)
	}
	_, err := s.Check("job_00000000000000000000")
	require.ErrorIs(t, err, jobs.ErrNotFound, "expired is not unknown")
	require.NotErrorIs(t, err, jobs.ErrExpired)
}

func TestCollectedJobsAreForgottenBeforeThoseThatWait(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRetained: 3})
	waits := finish(t, s)
	first, second := finish(t, s), finish(t, s)
	collect(t, s, first)
	collect(t, s, second)
	newer := finish(t, s)
	requireKnown(t, s, []string{waits, second, newer}, []string{first})
	newest := finish(t, s)
	requireKnown(t, s, []string{waits, newer, newest}, []string{first, second})
	require.Equal(t, `"value"`, string(collect(t, s, waits).File.JSON()))
}

func TestRunningJobsAreNeverForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSupervisor(t, jobs.Config{MaxRetained: 1, RetainFor: time.Minute})
		gate := make(chan struct{})
		id := start(t, s, gated(gate, "")).ID
		for range 5 {
			finish(t, s)
		}
		time.Sleep(time.Hour)
		require.Equal(t, jobs.Running, checkJob(t, s, id).State)
		require.Equal(t, 1, s.List().Running)
		close(gate)
		collect(t, s, id)
	})
}

func TestAFinishedJobIsRememberedFromTheTellingOfItsEndOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSupervisor(t, jobs.Config{RetainFor: time.Minute})
		id := finish(t, s)
		time.Sleep(time.Hour)
		requireKnown(t, s, []string{id}, nil) // nobody knows its end yet
		require.Len(t, s.Drain(), 1)
		time.Sleep(time.Minute - time.Nanosecond)
		requireKnown(t, s, []string{id}, nil)
		require.Len(t, s.List().Jobs, 1)
		time.Sleep(time.Nanosecond)
		require.Empty(t, s.List().Jobs)
		requireKnown(t, s, nil, []string{id})
	})
}

func TestCollectingDoesNotChangeHowLongAToldJobIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSupervisor(t, jobs.Config{RetainFor: time.Minute})
		early := finish(t, s)
		s.Drain()
		time.Sleep(30 * time.Second)
		late := finish(t, s)
		collect(t, s, late)
		collect(t, s, early)
		time.Sleep(30 * time.Second)
		requireKnown(t, s, []string{late}, []string{early})
		time.Sleep(30 * time.Second)
		requireKnown(t, s, nil, []string{early, late})
	})
}

func TestOfTheCollectedJobsTheOneToldFirstIsForgottenFirst(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRetained: 2})
	older, newer := finish(t, s), finish(t, s)
	collect(t, s, newer)
	collect(t, s, older)
	last := finish(t, s)
	requireKnown(t, s, []string{older, last}, []string{newer})
}

func TestAnEndThatNobodyKnowsIsForgottenLast(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRetained: 3})
	told := finish(t, s)
	s.Drain()
	first, second := finish(t, s), finish(t, s)
	third := finish(t, s)
	requireKnown(t, s, []string{first, second, third}, []string{told})
	fourth := finish(t, s) // nothing else is left to forget
	requireKnown(t, s, []string{second, third, fourth}, []string{first})
	require.Equal(t, []string{first, second, third, fourth}, noticeIDs(s.Drain()), "it is told all the same")
}

func TestWhoWaitsForAJobGetsItsEndThoughItIsForgotten(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRetained: 1})
	for name, verb := range map[string]func(context.Context, string) (jobs.Result, error){
		"Collect": s.Collect,
		"Cancel":  s.Cancel,
	} {
		t.Run(name, func(t *testing.T) {
			gate := make(chan struct{})
			id := start(t, s, gated(gate, "last words")).ID
			awaitOutput(t, s, id, "last words")
			r, err := verb(&hookedContext{Context: testContext(t), hook: func() {
				close(gate)
				awaitEnd(t, s, id)
				finish(t, s)
				requireKnown(t, s, nil, []string{id})
			}}, id)
			require.NoError(t, err)
			require.Equal(t, "last words", string(r.Output.Bytes()))
		})
	}
}

func TestAJobErrorNamesTheJobAndItsEnd(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	id := finish(t, s)
	collect(t, s, id)
	_, err := s.Collect(testContext(t), id)
	require.EqualError(t, err, fmt.Sprintf("jobs: result already collected: %s (completed)", id))
	require.Equal(t, jobs.ErrCollected, errors.Unwrap(err))
	_, err = s.Check("nonsense")
	require.EqualError(t, err, `jobs: no such job: "nonsense"`)
}
