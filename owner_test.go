package jobs_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"regexp"
	"runtime"
	"slices"
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

// newChild returns a child of s, which is closed with it.
func newChild(t testing.TB, s *jobs.Supervisor, cc jobs.ChildConfig) *jobs.Supervisor {
	t.Helper()
	c, err := s.Child(cc)
	require.NoError(t, err)
	return c
}

// newFamily returns a supervisor with two children and a grandchild, by name.
func newFamily(t testing.TB, cfg jobs.Config) map[string]*jobs.Supervisor {
	t.Helper()
	top := newSupervisor(t, cfg)
	a := newChild(t, top, jobs.ChildConfig{Name: "a"})
	return map[string]*jobs.Supervisor{
		"":    top,
		"a":   a,
		"b":   newChild(t, top, jobs.ChildConfig{Name: "b"}),
		"a/a": newChild(t, a, jobs.ChildConfig{Name: "a/a"}),
	}
}

// startForeign starts a job of owner that is foreign to the others. One id in
// 4,096 has the tags of another owner too and would seem expired there.
func startForeign(t testing.TB, owner *jobs.Supervisor, spec jobs.Spec, others ...*jobs.Supervisor) string {
	t.Helper()
	for {
		id := start(t, owner, spec).ID
		if foreignTo(id, others) {
			return id
		}
		owner.Reap(testContext(t), id)
	}
}

func foreignTo(id string, others []*jobs.Supervisor) bool {
	for _, s := range others {
		if _, err := s.Check(id); !errors.Is(err, jobs.ErrForeign) {
			return false
		}
	}
	return true
}

// withEnd is a Spec with a policy for the end of its owner.
func withEnd(spec jobs.Spec, end jobs.OwnerEnd) jobs.Spec {
	spec.OnOwnerEnd = end
	return spec
}

// mustClose closes a supervisor.
func mustClose(t testing.TB, s *jobs.Supervisor) jobs.Report {
	t.Helper()
	report, err := s.Close(testContext(t))
	require.NoError(t, err)
	return report
}

// requireFree fails unless no slot is taken.
func requireFree(t testing.TB, owners ...*jobs.Supervisor) {
	t.Helper()
	for _, s := range owners {
		require.Zero(t, s.List().Running, "slots of %q", s.Name())
	}
}

func TestOwnersDoNotReachEachOthersJobsByAnyVerb(t *testing.T) {
	family := newFamily(t, jobs.Config{MaxRunning: 20})
	for owner, s := range family {
		var others []*jobs.Supervisor
		for name, other := range family {
			if name != owner {
				others = append(others, other)
			}
		}
		gate := make(chan struct{})
		id := startForeign(t, s, gated(gate, "mine"), others...)
		awaitOutput(t, s, id, "mine")
		for _, other := range others {
			for _, v := range idVerbs {
				_, err := v.call(testContext(t), other, id)
				je := requireJobError(t, err, jobs.ErrForeign, id)
				require.ErrorIs(t, err, jobs.ErrNotFound, v.name)
				require.Nil(t, je.Job, "%s tells how it stands", v.name)
			}
			for _, v := range toolVerbs {
				answer, err := v.call(testContext(t), other, id)
				require.NoError(t, err)
				if v.name != "job__start" && v.name != "job__list" {
					require.Contains(t, answer, "is no job of yours", v.name)
					require.NotContains(t, answer, "mine", v.name)
				}
			}
			require.Empty(t, other.Reap(testContext(t), id))
			require.Empty(t, other.TurnEndOf(testContext(t), id))
			other.SetPending("somebody asks")
			require.NotContains(t, ids(other.List().Jobs), id)
			other.SetPending("")
			other.Reset(testContext(t)) // what job__start has started too
		}
		require.Equal(t, jobs.Running, checkJob(t, s, id).State, "the job of %q", owner)
		close(gate)
		require.Equal(t, "mine", string(collect(t, s, id).Output.Bytes()))
	}
}

func TestAWaitForAllThatRunsKnowsOnlyOnesOwnJobs(t *testing.T) {
	family := newFamily(t, jobs.Config{})
	gate := make(chan struct{})
	for name, s := range family {
		if name != "a" {
			start(t, s, gated(gate, ""))
		}
	}
	r, err := family["a"].Wait(testContext(t), jobs.WaitSpec{All: true})
	require.NoError(t, err)
	require.Equal(t, jobs.WaitResult{Jobs: []jobs.Snapshot{}}, r)
	close(gate)
}

func TestAnUrgentThingOfOneOwnerEndsNoWaitOfAnother(t *testing.T) {
	family := newFamily(t, jobs.Config{})
	for name, s := range family {
		if name != "a" {
			s.SetPending("somebody asks")
		}
	}
	gate := make(chan struct{})
	id := start(t, family["a"], gated(gate, "")).ID
	ctx := &hookedContext{Context: testContext(t), hook: func() { close(gate) }} // once it waits
	_, err := family["a"].Collect(ctx, id)
	require.NoError(t, err)
}

func TestNoticesGoToTheOwnerAndNowhereElse(t *testing.T) {
	family := newFamily(t, jobs.Config{MaxRunning: 200})
	a, b := family["a"], family["a/a"]
	gates := make([]chan struct{}, 200)
	want := map[*jobs.Supervisor][]string{}
	for i := range gates {
		gates[i] = make(chan struct{})
		owner := []*jobs.Supervisor{a, b}[i%2]
		want[owner] = append(want[owner], start(t, owner, gated(gates[i], "")).ID)
	}
	got := map[*jobs.Supervisor]map[string]int{a: {}, b: {}}
	var takers sync.WaitGroup
	takers.Go(func() {
		for len(got[a]) < 100 {
			select {
			case <-a.Ready():
			case <-testContext(t).Done():
				return
			}
			for _, id := range noticeIDs(a.Drain()) {
				got[a][id]++
			}
		}
	})
	takers.Go(func() {
		ctx, enough := context.WithCancel(testContext(t))
		b.Deliver(ctx, func(_ context.Context, notices []jobs.Notice) error {
			for _, id := range noticeIDs(notices) {
				got[b][id]++
			}
			if len(got[b]) >= 100 {
				enough()
			}
			return nil
		})
	})
	rand.Shuffle(len(gates), func(i, k int) { gates[i], gates[k] = gates[k], gates[i] })
	for _, gate := range gates {
		close(gate)
	}
	takers.Wait()
	for owner, told := range got {
		require.Len(t, told, 100)
		for _, id := range want[owner] {
			require.Equal(t, 1, told[id], id)
		}
	}
	for name, s := range family {
		require.Empty(t, s.Ready(), "%q is woken", name)
		require.Nil(t, s.Drain(), "%q is told", name)
	}
}

func TestToolAnswersBringOnlyOnesOwnNotices(t *testing.T) {
	family := newFamily(t, jobs.Config{})
	id := endedFunc(t, family["a"], returns(1))
	for name, s := range family {
		r := ask(t, funcs{}.toolset(s, jobs.ToolsetOptions{}), "job__list", "{}")
		if name != "a" {
			require.Empty(t, r.Notices, name)
			continue
		}
		require.Len(t, r.Notices, 1)
		require.Equal(t, id, r.Notices[0].ID)
	}
}

func TestEveryOwnerHasItsOwnCapacity(t *testing.T) {
	family := newFamily(t, jobs.Config{MaxRunning: 4})
	small := newChild(t, family[""], jobs.ChildConfig{MaxRunning: 1})
	start(t, small, gated(nil, ""))
	_, err := small.Start(testContext(t), gated(nil, ""))
	var full *jobs.CapacityError
	require.ErrorAs(t, err, &full)
	require.Equal(t, jobs.CapacityError{Running: 1, MaxRunning: 1}, *full)
	require.ErrorIs(t, err, jobs.ErrAtCapacity)
	require.EqualError(t, err, "jobs: too many jobs are running: 1 of 1; wait for one to end, or cancel one")

	start(t, family["a"], gated(nil, "")) // has room
	require.Equal(t, 2, family[""].List().Running, "the jobs of all count above")
	require.Empty(t, family[""].List().Jobs)
	require.Equal(t, 1, small.List().MaxRunning)
	require.Equal(t, 4, family["a"].List().MaxRunning)
}

func TestAFullSupervisorAboveRefusesWithSharedSet(t *testing.T) {
	family := newFamily(t, jobs.Config{MaxRunning: 2})
	for _, name := range []string{"b", ""} {
		start(t, family[name], gated(nil, ""))
	}
	for _, name := range []string{"a", "b", "a/a"} {
		_, err := family[name].Start(testContext(t), gated(nil, ""))
		var full *jobs.CapacityError
		require.ErrorAs(t, err, &full)
		require.Equal(t, jobs.CapacityError{Running: 2, MaxRunning: 2, Shared: true}, *full, name)
		require.ErrorContains(t, err, "of all owners together")
	}
	_, err := family[""].Start(testContext(t), gated(nil, ""))
	var full *jobs.CapacityError
	require.ErrorAs(t, err, &full)
	require.False(t, full.Shared)
}

func TestParallelStartsOfManyOwnersNeverPassTheSharedLimit(t *testing.T) {
	const limit, calls = 10, 100
	top := newSupervisor(t, jobs.Config{MaxRunning: limit})
	var owners []*jobs.Supervisor
	for range 5 {
		owners = append(owners, newChild(t, top, jobs.ChildConfig{MaxRunning: calls}))
	}
	gate := make(chan struct{})
	var ran atomic.Int32
	errs := make([]error, calls)
	begin := make(chan struct{})
	var starts sync.WaitGroup
	for i := range calls {
		starts.Go(func() {
			<-begin
			_, errs[i] = owners[i%len(owners)].Start(context.Background(), function(func(context.Context, io.Writer) (any, error) {
				ran.Add(1)
				<-gate
				return nil, nil
			}))
		})
	}
	close(begin)
	starts.Wait()
	refused := 0
	for _, err := range errs {
		if err == nil {
			continue
		}
		var full *jobs.CapacityError
		require.ErrorAs(t, err, &full)
		require.Equal(t, jobs.CapacityError{Running: limit, MaxRunning: limit, Shared: true}, *full)
		refused++
	}
	require.Equal(t, calls-limit, refused)
	require.Equal(t, limit, top.List().Running)
	close(gate)
	for _, s := range owners {
		for _, snap := range s.List().Jobs {
			collect(t, s, snap.ID)
		}
	}
	require.Equal(t, int32(limit), ran.Load())
	requireFree(t, append(owners, top)...)
}

func TestASlotIsGivenBackToEveryLevelHoweverTheJobEnds(t *testing.T) {
	family := newFamily(t, jobs.Config{MaxRunning: 1})
	for name, spec := range map[string]jobs.Spec{
		"end":     returning(1),
		"error":   function(func(context.Context, io.Writer) (any, error) { return nil, errors.New("no") }),
		"panic":   function(func(context.Context, io.Writer) (any, error) { panic("no") }),
		"Goexit":  function(func(context.Context, io.Writer) (any, error) { runtime.Goexit(); return nil, nil }),
		"timeout": {Func: waits, Timeout: 1},
	} {
		t.Run(name, func(t *testing.T) {
			for range 3 {
				collect(t, family["a/a"], start(t, family["a/a"], spec).ID)
				requireFree(t, family["a/a"], family["a"], family[""])
			}
		})
	}
	t.Run("cancel", func(t *testing.T) {
		cancel(t, family["a/a"], start(t, family["a/a"], gated(nil, "")).ID)
		requireFree(t, family["a/a"], family["a"], family[""])
	})
	t.Run("refused", func(t *testing.T) {
		for _, spec := range []jobs.Spec{{}, {Argv: []string{"/no/such/program"}}} {
			_, err := family["a/a"].Start(testContext(t), spec)
			require.Error(t, err)
			requireFree(t, family["a/a"], family["a"], family[""])
		}
	})
}

func TestAJobThatCannotBeStoppedKeepsItsSlotOnEveryLevelUntilItReturns(t *testing.T) {
	family := newFamily(t, jobs.Config{MaxRunning: 1, KillGrace: time.Millisecond})
	run, release := stubborn(t)
	require.Equal(t, jobs.ReasonUnreaped, cancel(t, family["a/a"], start(t, family["a/a"], jobs.Spec{Func: run}).ID).Reason)
	for _, name := range []string{"a/a", "a", ""} {
		require.Equal(t, 1, family[name].List().Running)
	}
	mustClose(t, family["a/a"])
	require.Equal(t, 1, family[""].List().Running, "it goes on though its owner is closed")
	release()
	require.True(t, eventually(func() bool { return family[""].List().Running == 0 }))
	requireFree(t, family["a/a"], family["a"], family[""])
}

func TestAChildConfigWithANegativeValueIsRefused(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	for _, cc := range []jobs.ChildConfig{{MaxRunning: -1}, {MaxRetained: -1}, {RetainFor: -1}} {
		c, err := s.Child(cc)
		require.ErrorContains(t, err, "negative", "%+v", cc)
		require.Nil(t, c)
	}
	require.Empty(t, s.Children())
}

func TestAClosedSupervisorHasNoNewChildren(t *testing.T) {
	family := newFamily(t, jobs.Config{})
	mustClose(t, family["a"])
	c, err := family["a"].Child(jobs.ChildConfig{})
	require.ErrorIs(t, err, jobs.ErrClosed)
	require.Nil(t, c)
	_, err = family["a/a"].Child(jobs.ChildConfig{})
	require.ErrorIs(t, err, jobs.ErrClosed, "it is closed with its parent")
	newChild(t, family[""], jobs.ChildConfig{})
}

func TestADisabledChildStartsNothingAndNeitherDoItsChildren(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	off := newChild(t, s, jobs.ChildConfig{Disabled: true})
	for _, c := range []*jobs.Supervisor{off, newChild(t, off, jobs.ChildConfig{})} {
		_, err := c.Start(testContext(t), returning(1))
		require.ErrorIs(t, err, jobs.ErrDisabled)
		_, err = c.Run(testContext(t), returning(1), 0)
		require.ErrorIs(t, err, jobs.ErrDisabled)
		require.Empty(t, funcs{}.toolset(c, jobs.ToolsetOptions{}).Declarations())
	}
	collect(t, s, start(t, s, returning(1)).ID)
}

func TestAChildHasTheSettingsOfItsParentWhereItHasNoneOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSupervisor(t, jobs.Config{MaxRunning: 3, MaxRetained: 2, RetainFor: time.Minute, HeadBytes: -1, TailBytes: 4})
		own := newChild(t, s, jobs.ChildConfig{MaxRunning: 2, MaxRetained: 1, RetainFor: time.Hour})
		for c, want := range map[*jobs.Supervisor]struct {
			running, retained int
			retainFor         time.Duration
		}{
			newChild(t, s, jobs.ChildConfig{}):   {3, 2, time.Minute},
			own:                                  {2, 1, time.Hour},
			newChild(t, own, jobs.ChildConfig{}): {2, 1, time.Hour},
		} {
			require.Equal(t, want.running, c.List().MaxRunning)
			var all []string
			for range 3 {
				all = append(all, finish(t, c))
			}
			requireKnown(t, c, all[3-want.retained:], all[:3-want.retained])
			c.Drain()
			time.Sleep(want.retainFor - 1)
			requireKnown(t, c, all[3-want.retained:], nil)
			time.Sleep(time.Nanosecond)
			requireKnown(t, c, nil, all)
			id := endedFunc(t, c, prints("a long line"))
			require.Equal(t, "line", string(collect(t, c, id).Output.Bytes()))
		}
	})
}

func TestEveryOwnerRetainsItsOwnJobsOnly(t *testing.T) {
	family := newFamily(t, jobs.Config{MaxRetained: 1})
	kept := map[string]string{}
	for name, s := range family {
		kept[name] = finish(t, s)
	}
	for name, s := range family {
		requireKnown(t, s, []string{kept[name]}, nil)
	}
}

func TestSnapshotsCarryTheNameOfTheOwner(t *testing.T) {
	for name, s := range newFamily(t, jobs.Config{}) {
		require.Equal(t, name, s.Name())
		require.Equal(t, name, collect(t, s, start(t, s, returning(1)).ID).Owner)
	}
}

func TestChildrenAreListedInOrderUntilTheyAreClosed(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	require.Empty(t, s.Children())
	var made []*jobs.Supervisor
	for range 20 {
		made = append(made, newChild(t, s, jobs.ChildConfig{}))
	}
	require.Equal(t, made, s.Children())
	mustClose(t, made[7])
	require.Equal(t, slices.Delete(slices.Clone(made), 7, 8), s.Children())
	newChild(t, made[0], jobs.ChildConfig{})
	require.Len(t, s.Children(), 19, "grandchildren are none")
	mustClose(t, s)
	require.Empty(t, s.Children())
}

// Ends of owners.

func TestClosingAChildStopsItsJobsAndNoOthers(t *testing.T) {
	family := newFamily(t, jobs.Config{MaxRunning: 20})
	running := map[string]string{}
	for name, s := range family {
		running[name] = start(t, s, gated(nil, "")).ID
	}
	report := mustClose(t, family["a"])
	require.ElementsMatch(t, []string{running["a/a"], running["a"]}, ids(report.Stopped))
	require.Empty(t, report.Uncollected)
	require.Empty(t, report.HandedUp)
	require.Empty(t, report.Kept)
	for name, s := range family {
		snap := checkJob(t, s, running[name])
		if strings.HasPrefix(name, "a") {
			require.Equal(t, jobs.Cancelled, snap.State)
			require.Equal(t, jobs.ReasonOwnerClosed, snap.Reason)
			require.Contains(t, report.Stopped, snap)
			_, err := s.Start(testContext(t), returning(1))
			require.ErrorIs(t, err, jobs.ErrClosed)
			require.Equal(t, running[name], collect(t, s, running[name]).ID)
		} else {
			require.Equal(t, jobs.Running, snap.State)
		}
		require.Nil(t, s.Drain(), "what the report tells has no notice")
		require.Empty(t, s.Ready())
	}
	require.Equal(t, 2, family[""].List().Running)
	require.Equal(t, []*jobs.Supervisor{family["b"]}, family[""].Children())
	require.Equal(t, report, mustClose(t, family["a"]))
}

func TestClosingTheTopClosesTheChildrenFirstAndReportsAll(t *testing.T) {
	family := newFamily(t, jobs.Config{MaxRunning: 20})
	var stopped, uncollected []string
	for _, name := range []string{"a/a", "a", "b", ""} {
		uncollected = append(uncollected, finish(t, family[name]))
		stopped = append(stopped, start(t, family[name], gated(nil, "")).ID)
		collect(t, family[name], finish(t, family[name]))
		cancel(t, family[name], start(t, family[name], gated(nil, "")).ID)
	}
	report := mustClose(t, family[""])
	require.Equal(t, stopped, ids(report.Stopped))
	require.Equal(t, uncollected, ids(report.Uncollected))
	for i, name := range []string{"a/a", "a", "b", ""} {
		require.Equal(t, jobs.ReasonShutdown, report.Stopped[i].Reason)
		require.Equal(t, name, report.Stopped[i].Owner)
		require.Nil(t, family[name].Drain())
		requireFree(t, family[name])
		// Each has its own part of the report.
		own := mustClose(t, family[name])
		require.Contains(t, ids(own.Stopped), stopped[i])
		require.Contains(t, ids(own.Uncollected), uncollected[i])
	}
	require.Len(t, mustClose(t, family["b"]).Stopped, 1)
	require.Len(t, mustClose(t, family["a"]).Stopped, 2)
}

func TestAWaitThatRunsWhenItsOwnerIsClosedGetsTheEnd(t *testing.T) {
	family := newFamily(t, jobs.Config{})
	id := start(t, family["a"], gated(nil, "so far")).ID
	awaitOutput(t, family["a"], id, "so far")
	closed := make(chan jobs.Report, 1)
	ctx := &hookedContext{Context: testContext(t), hook: func() {
		go func() {
			report, _ := family["a"].Close(context.Background())
			closed <- report
		}()
	}}
	r, err := family["a"].Collect(ctx, id)
	require.NoError(t, err)
	require.Equal(t, jobs.ReasonOwnerClosed, r.Reason)
	require.Equal(t, "so far", string(r.Output.Bytes()))
	<-closed
	require.Nil(t, family["a"].Drain())
}

// upwards is the Spec of a job that is handed up and ends when gate is closed.
func upwards(gate <-chan struct{}) jobs.Spec {
	spec := withEnd(gated(gate, "so far"), jobs.HandUp)
	spec.Tool, spec.Tag, spec.Trust, spec.Key = "serve", "a note", "the owner", "one"
	return spec
}

func TestAJobThatIsHandedUpIsTheParents(t *testing.T) {
	family := newFamily(t, jobs.Config{})
	a, top := family["a"], family[""]
	gate := make(chan struct{})
	id := start(t, a, upwards(gate)).ID
	awaitOutput(t, a, id, "so far")
	report := mustClose(t, a)
	require.Equal(t, []string{id}, ids(report.HandedUp))
	require.Equal(t, jobs.Running, report.HandedUp[0].State)
	require.Empty(t, report.Stopped)
	require.Empty(t, report.Kept)

	snap := checkJob(t, top, id)
	require.Equal(t, jobs.Running, snap.State)
	require.Equal(t, top.Name(), snap.Owner)
	require.Equal(t, []string{id}, ids(top.List().Jobs))
	require.Equal(t, 1, top.List().Running)
	requireFree(t, a)
	awaitOutput(t, top, id, "so far")

	close(gate)
	awaitEnd(t, top, id)
	notices := top.Drain()
	require.Equal(t, []string{id}, noticeIDs(notices))
	require.Equal(t, "serve", notices[0].Tool)
	require.Equal(t, "a note", notices[0].Tag)
	require.Equal(t, "the owner", notices[0].Trust)
	require.Nil(t, a.Drain())
	requireFree(t, top)
	r := collect(t, top, id)
	require.Equal(t, jobs.Completed, r.State)
	require.Equal(t, "so far", string(r.Output.Bytes()))
}

func TestAJobThatIsHandedUpCanBeCancelledAndReapedAbove(t *testing.T) {
	family := newFamily(t, jobs.Config{})
	var up []string
	for range 2 {
		up = append(up, start(t, family["a"], withEnd(gated(nil, ""), jobs.HandUp)).ID)
	}
	mustClose(t, family["a"])
	require.Equal(t, jobs.ReasonCancelled, cancel(t, family[""], up[0]).Reason)
	require.Equal(t, up[1:], ids(family[""].Reap(testContext(t), up[1])))
	requireFree(t, family[""])
	require.Empty(t, family[""].List().Jobs)
}

func TestAJobIsHandedUpThroughEveryLevelThatCloses(t *testing.T) {
	family := newFamily(t, jobs.Config{})
	gate := make(chan struct{})
	id := start(t, family["a/a"], upwards(gate)).ID
	require.Equal(t, []string{id}, ids(mustClose(t, family["a/a"]).HandedUp))
	require.Equal(t, "a", checkJob(t, family["a"], id).Owner)
	require.Equal(t, []string{id}, ids(mustClose(t, family["a"]).HandedUp))
	require.Equal(t, jobs.Running, checkJob(t, family[""], id).State)
	require.Equal(t, 1, family[""].List().Running)
	close(gate)
	awaitEnd(t, family[""], id)
	require.Equal(t, []string{id}, noticeIDs(family[""].Drain()))
	requireFree(t, family["a/a"], family["a"], family[""])
}

func TestOneCloseHandsUpFromEveryLevelBelow(t *testing.T) {
	family := newFamily(t, jobs.Config{})
	var up []string
	for _, name := range []string{"a/a", "a"} {
		up = append(up, start(t, family[name], withEnd(gated(nil, ""), jobs.HandUp)).ID)
	}
	report := mustClose(t, family["a"])
	require.ElementsMatch(t, up, ids(report.HandedUp))
	require.ElementsMatch(t, up, ids(family[""].List().Jobs))
	require.Equal(t, 2, family[""].List().Running)
	require.Equal(t, []string{up[0]}, ids(mustClose(t, family["a/a"]).HandedUp))
}

func TestTheTopStopsWhatWasHandedUpToIt(t *testing.T) {
	family := newFamily(t, jobs.Config{})
	var up []string
	for _, name := range []string{"a/a", "b", ""} {
		up = append(up, start(t, family[name], withEnd(gated(nil, ""), jobs.HandUp)).ID)
	}
	mustClose(t, family["a/a"]) // one before, the others with the top
	report := mustClose(t, family[""])
	require.ElementsMatch(t, up, ids(report.Stopped))
	require.Empty(t, report.HandedUp)
	for _, snap := range report.Stopped {
		require.Equal(t, jobs.ReasonShutdown, snap.Reason)
		require.Equal(t, "", snap.Owner)
	}
	requireFree(t, family["a/a"], family["a"], family["b"], family[""])
}

func TestAWaitGoesOnWhileItsJobIsHandedUp(t *testing.T) {
	family := newFamily(t, jobs.Config{})
	gate := make(chan struct{})
	id := start(t, family["a"], upwards(gate)).ID
	ctx := &hookedContext{Context: testContext(t), hook: func() {
		mustClose(t, family["a"])
		close(gate)
	}}
	r, err := family["a"].Collect(ctx, id)
	require.NoError(t, err)
	require.Equal(t, jobs.Completed, r.State)
	require.Nil(t, family["a"].Drain())
	require.Nil(t, family[""].Drain(), "told by the answer and by a notice")
	require.True(t, checkJob(t, family[""], id).Collected)
}

func TestAWatchGoesOnForTheNewOwner(t *testing.T) {
	family := newFamily(t, jobs.Config{})
	p := newPuppet()
	id := start(t, family["a"], withEnd(jobs.Spec{Func: p.run}, jobs.HandUp)).ID
	_, err := family["a"].Watch(id, jobs.WatchSpec{Pattern: regexp.MustCompile("listening")})
	require.NoError(t, err)
	mustClose(t, family["a"])
	p.print("listening\n")
	notices := family[""].Drain()
	require.Len(t, notices, 1)
	require.Equal(t, jobs.EventMatched, notices[0].Event)
	require.Equal(t, "listening", notices[0].Line)
	require.Nil(t, family["a"].Drain())
	p.finish(nil)
	awaitEnd(t, family[""], id)
}

func TestAFunctionThatIsKeptIsLostAndGoesOn(t *testing.T) {
	family := newFamily(t, jobs.Config{})
	gate, returned := make(chan struct{}), make(chan struct{})
	id := start(t, family["a"], withEnd(function(func(ctx context.Context, _ io.Writer) (any, error) {
		defer close(returned)
		select {
		case <-gate:
			return nil, nil
		case <-ctx.Done():
			t.Error("it was stopped")
			return nil, ctx.Err()
		}
	}), jobs.KeepRunning)).ID
	report := mustClose(t, family[""])
	require.Equal(t, []string{id}, ids(report.Kept))
	require.Equal(t, jobs.Lost, report.Kept[0].State)
	require.Equal(t, jobs.ReasonOwnerClosed, report.Kept[0].Reason)
	require.Empty(t, report.Kept[0].Survivors)
	require.Empty(t, report.Stopped)
	require.Empty(t, report.Uncollected)
	require.Empty(t, report.HandedUp)
	require.Nil(t, family[""].Drain())
	close(gate)
	<-returned
	require.True(t, eventually(func() bool { return family[""].List().Running == 0 }))
	require.Equal(t, jobs.Lost, checkJob(t, family[""], id).State, "an end is told once")
}

func TestAChildAndItsParentCanBeClosedAtOnce(t *testing.T) {
	for i := range 200 {
		s, err := jobs.New(jobs.Config{MaxRunning: 10})
		require.NoError(t, err)
		c := newChild(t, s, jobs.ChildConfig{})
		g := newChild(t, c, jobs.ChildConfig{})
		all := []string{
			start(t, g, withEnd(gated(nil, ""), jobs.HandUp)).ID,
			start(t, c, withEnd(gated(nil, ""), jobs.HandUp)).ID,
			start(t, c, gated(nil, "")).ID,
			start(t, s, gated(nil, "")).ID,
		}
		owners := []*jobs.Supervisor{g, c, s}
		reports := make([]jobs.Report, 3)
		var closes sync.WaitGroup
		for k := range owners {
			k := (i + k) % 3
			closes.Go(func() { reports[k], _ = owners[k].Close(context.Background()) })
		}
		closes.Wait()
		requireFree(t, owners...)
		// Each job is stopped once, and said to be by who stopped it.
		var stopped []string
		for _, r := range reports {
			stopped = append(stopped, ids(r.Stopped)...)
		}
		slices.Sort(stopped)
		slices.Sort(all)
		require.Equal(t, all, slices.Compact(stopped))
		require.Nil(t, s.Drain())
		require.Nil(t, c.Drain())
		require.Nil(t, g.Drain())
	}
}

func TestAJobThatEndsWhileItsOwnerIsClosedIsReportedOnce(t *testing.T) {
	for range 200 {
		s := newSupervisor(t, jobs.Config{MaxRunning: 10})
		c := newChild(t, s, jobs.ChildConfig{})
		gate := make(chan struct{})
		var all []string
		for i := range 6 {
			all = append(all, start(t, c, withEnd(gated(gate, ""), jobs.OwnerEnd(i%2))).ID)
		}
		go close(gate)
		report := mustClose(t, c)
		for _, id := range ids(report.HandedUp) {
			awaitEnd(t, s, id)
		}
		told := slices.Concat(ids(report.Stopped), ids(report.Uncollected), ids(report.HandedUp))
		require.ElementsMatch(t, all, told)
		require.ElementsMatch(t, ids(report.HandedUp), noticeIDs(s.Drain()))
		require.Nil(t, c.Drain())
		for _, snap := range report.Stopped {
			require.Equal(t, jobs.ReasonOwnerClosed, snap.Reason)
		}
		for _, snap := range report.Uncollected {
			require.Equal(t, jobs.Completed, snap.State)
		}
		requireFree(t, c, s)
	}
}

func TestAStartWhileTheOwnerIsClosedIsRefusedOrReported(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 100})
	for range 100 {
		c := newChild(t, s, jobs.ChildConfig{})
		var mu sync.Mutex // guards started
		var started []string
		var starts sync.WaitGroup
		for range 4 {
			starts.Go(func() {
				for {
					snap, err := c.Start(context.Background(), gated(nil, ""))
					if errors.Is(err, jobs.ErrClosed) {
						return
					}
					if assert.NoError(t, err) {
						mu.Lock()
						started = append(started, snap.ID)
						mu.Unlock()
					}
					runtime.Gosched()
					if len(c.List().Jobs) > 20 {
						return
					}
				}
			})
		}
		report := mustClose(t, c)
		starts.Wait()
		require.ElementsMatch(t, started, ids(report.Stopped))
		requireFree(t, c, s)
	}
}

func TestChildrenThatAreClosedLeaveNothing(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	warm := newChild(t, s, jobs.ChildConfig{})
	collect(t, warm, start(t, warm, returning(1)).ID)
	mustClose(t, warm)
	before := runtime.NumGoroutine()
	for range 200 {
		c := newChild(t, s, jobs.ChildConfig{})
		g := newChild(t, c, jobs.ChildConfig{})
		start(t, g, gated(nil, ""))
		start(t, c, gated(nil, ""))
		mustClose(t, c)
	}
	require.Empty(t, s.Children())
	requireFree(t, s)
	require.Empty(t, s.List().Jobs)
	require.True(t, eventually(func() bool { return runtime.NumGoroutine() <= before+2 }), "%d goroutines, before %d", runtime.NumGoroutine(), before)
}

func TestASecondCloseWithADoneContextHurriesTheFirst(t *testing.T) {
	family := newFamily(t, jobs.Config{KillGrace: patience})
	run, _ := stubborn(t)
	id := start(t, family["a/a"], jobs.Spec{Func: run}).ID
	begun := time.Now()
	closed := make(chan jobs.Report, 1)
	go func() {
		report, err := family["a"].Close(context.Background())
		assert.NoError(t, err)
		closed <- report
	}()
	require.True(t, eventually(func() bool { return checkJob(t, family["a/a"], id).State == jobs.Cancelling }))
	report, err := family["a"].Close(doneContext())
	require.NoError(t, err, "a second call returns the report and nil")
	require.Less(t, time.Since(begun), patience/2)
	require.Equal(t, []string{id}, ids(report.Stopped))
	require.Equal(t, report, <-closed)
	require.Equal(t, jobs.ReasonUnreaped, report.Stopped[0].Reason)
}

// Reap and Reset.

func TestReapStopsAndForgetsTheGivenJobsOnly(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 10})
	c := newChild(t, s, jobs.ChildConfig{})
	foreign := start(t, c, gated(nil, "")).ID
	collected := finish(t, s)
	collect(t, s, collected)
	first := start(t, s, gated(nil, "")).ID
	second := finish(t, s)
	other := start(t, s, gated(nil, "")).ID
	third := start(t, s, gated(nil, "")).ID

	reaped := s.Reap(testContext(t), third, "nonsense", noJob, foreign, collected, second, first, first, "")
	require.Equal(t, []string{first, second, third}, ids(reaped), "in order of start, each once")
	require.Equal(t, "cancelled; completed; cancelled", outcomes(reaped))
	require.Equal(t, jobs.ReasonCancelled, reaped[0].Reason)
	requireKnown(t, s, []string{other, collected}, []string{first, second, third})
	require.Equal(t, []string{other}, ids(s.List().Jobs))
	require.Equal(t, 2, s.List().Running, "the slots are free")
	require.Nil(t, s.Drain())
	require.Empty(t, s.Ready())
	require.Equal(t, jobs.Running, checkJob(t, c, foreign).State)
	for _, v := range idVerbs {
		_, err := v.call(testContext(t), s, first)
		requireJobError(t, err, jobs.ErrExpired, first)
	}
	require.Empty(t, s.Reap(testContext(t), first, second, third))
	require.Empty(t, s.Reap(testContext(t)), "without ids there is nothing to reap")
	require.Equal(t, jobs.Running, checkJob(t, s, other).State)
}

func TestReapTakesBackTheNoticeOfAnEnd(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	id, stays := finish(t, s), finish(t, s)
	s.Reap(testContext(t), id)
	require.Len(t, s.Ready(), 1)
	require.Equal(t, []string{stays}, noticeIDs(s.Drain()))
	s.Reap(testContext(t), stays)
	require.Empty(t, s.Ready())
}

func TestWhoWaitsForAReapedJobGetsItsEnd(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	id := start(t, s, gated(nil, "")).ID
	ctx := &hookedContext{Context: testContext(t), hook: func() {
		require.Len(t, s.Reap(testContext(t), id), 1)
	}}
	r, err := s.Collect(ctx, id)
	require.NoError(t, err)
	require.Equal(t, jobs.Cancelled, r.State)
	requireKnown(t, s, nil, []string{id})
	require.Nil(t, s.Drain())
}

func TestReapsOfTheSameJobsAtOnceAllEnd(t *testing.T) {
	for range 50 {
		s := newSupervisor(t, jobs.Config{})
		all := []string{start(t, s, gated(nil, "")).ID, finish(t, s), start(t, s, gated(nil, "")).ID}
		var reaps sync.WaitGroup
		for range 4 {
			reaps.Go(func() { s.Reap(context.Background(), all...) })
		}
		reaps.Go(func() { s.Reset(context.Background()) })
		reaps.Wait()
		requireKnown(t, s, nil, all)
		require.Empty(t, s.List().Jobs)
		requireFree(t, s)
		require.Nil(t, s.Drain())
	}
}

func TestAReapWithADoneContextGivesUpWhatDoesNotReturn(t *testing.T) {
	s := newSupervisor(t, jobs.Config{KillGrace: patience, MaxRunning: 1})
	run, release := stubborn(t)
	id := start(t, s, jobs.Spec{Func: run}).ID
	begun := time.Now()
	reaped := s.Reap(doneContext(), id)
	require.Less(t, time.Since(begun), patience/2)
	require.Equal(t, "failed, unreaped", outcomes(reaped))
	requireKnown(t, s, nil, []string{id})
	require.Equal(t, 1, s.List().Running, "it still takes its slot")
	release()
	require.True(t, eventually(func() bool { return s.List().Running == 0 }))
}

func TestResetForgetsAllOfOneOwnerAndGoesOn(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 10})
	c := newChild(t, s, jobs.ChildConfig{})
	theirs := []string{start(t, c, gated(nil, "")).ID, finish(t, c)}
	var running, uncollected, tombstones []string
	for range 3 {
		uncollected = append(uncollected, finish(t, s))
		running = append(running, start(t, s, gated(nil, "")).ID)
		tombstones = append(tombstones, finish(t, s))
		collect(t, s, tombstones[len(tombstones)-1])
	}
	report := s.Reset(testContext(t))
	require.Equal(t, running, ids(report.Stopped))
	require.Equal(t, uncollected, ids(report.Uncollected))
	require.Empty(t, report.HandedUp)
	require.Empty(t, report.Kept)
	for _, snap := range report.Stopped {
		require.Equal(t, jobs.Cancelled, snap.State)
		require.Equal(t, jobs.ReasonCancelled, snap.Reason)
	}
	requireKnown(t, s, nil, slices.Concat(running, uncollected, tombstones))
	require.Nil(t, s.Drain())
	require.Empty(t, s.List().Jobs)
	require.Equal(t, jobs.Report{}, s.Reset(testContext(t)))

	requireKnown(t, c, theirs, nil)
	require.Equal(t, []string{theirs[1]}, noticeIDs(c.Drain()))
	require.Equal(t, []*jobs.Supervisor{c}, s.Children())
	collect(t, s, start(t, s, returning(1)).ID)
}

func TestResetOfAChildLeavesItsParentAndSiblingsAlone(t *testing.T) {
	family := newFamily(t, jobs.Config{})
	running := map[string]string{}
	for name, s := range family {
		running[name] = start(t, s, gated(nil, "")).ID
	}
	require.Equal(t, []string{running["a"]}, ids(family["a"].Reset(testContext(t)).Stopped))
	for name, s := range family {
		if name != "a" {
			require.Equal(t, jobs.Running, checkJob(t, s, running[name]).State, name)
		}
	}
	require.Equal(t, 3, family[""].List().Running)
}

// Retention.

func TestEveryTellingOfAnEndStartsTheTimeItIsRemembered(t *testing.T) {
	for name, tell := range map[string]func(t *testing.T, s *jobs.Supervisor, id string){
		"Collect": func(t *testing.T, s *jobs.Supervisor, id string) { collect(t, s, id) },
		"Cancel":  func(t *testing.T, s *jobs.Supervisor, id string) { cancel(t, s, id) },
		"Wait": func(t *testing.T, s *jobs.Supervisor, id string) {
			_, err := s.Wait(testContext(t), jobs.WaitSpec{IDs: []string{id}})
			require.NoError(t, err)
		},
		"Drain": func(t *testing.T, s *jobs.Supervisor, _ string) { require.Len(t, s.Drain(), 1) },
		"Deliver": func(t *testing.T, s *jobs.Supervisor, _ string) {
			ctx, cancel := context.WithCancel(testContext(t))
			s.Deliver(ctx, func(context.Context, []jobs.Notice) error { cancel(); return nil })
		},
		"a tool answer": func(t *testing.T, s *jobs.Supervisor, _ string) {
			require.Len(t, ask(t, funcs{}.toolset(s, jobs.ToolsetOptions{}), "job__list", "{}").Notices, 1)
		},
		"the report of Close": func(t *testing.T, s *jobs.Supervisor, _ string) { mustClose(t, s) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSupervisor(t, jobs.Config{RetainFor: time.Minute})
				id := finish(t, s)
				time.Sleep(time.Hour)
				checkJob(t, s, id) // looks tell nothing
				s.List()
				tell(t, s, id)
				time.Sleep(time.Minute - 1)
				requireKnown(t, s, []string{id}, nil)
				time.Sleep(time.Second)
				requireKnown(t, s, nil, []string{id})
			})
		})
	}
}

func TestOfTooManyTheCollectedGoFirstTheToldNextTheUntoldLast(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRetained: 4})
	told := finish(t, s)
	s.Drain()
	untold := finish(t, s)
	var collected []string
	for range 2 { // the youngest, and yet
		collected = append(collected, finish(t, s))
		collect(t, s, collected[len(collected)-1])
	}
	order := append(collected, told, untold)
	requireKnown(t, s, order, nil)
	for i := range order {
		finish(t, s)
		requireKnown(t, s, order[i+1:], order[:i+1])
	}
}
