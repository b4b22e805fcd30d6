package jobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Field reports A1, A10 and F72: what becomes of a demoted job at the end of
// its owner is what its Spec says, and its notice goes where the job goes.
func TestADemotedJobEndsWithItsOwnerOnlyIfItShould(t *testing.T) {
	for _, c := range []struct {
		end    jobs.OwnerEnd
		lives  bool // beyond the child
		beyond bool // and beyond the top
	}{
		{jobs.KillWithOwner, false, false},
		{jobs.HandUp, true, false},
		{jobs.KeepRunning, true, true},
	} {
		t.Run(fmt.Sprint(c.end), func(t *testing.T) {
			s := newSupervisor(t, jobs.Config{})
			child, err := s.Child(jobs.ChildConfig{Name: "turn"})
			require.NoError(t, err)
			spec, mark := markedScript(`sleep 300; true`)
			spec.OnOwnerEnd = c.end
			r, err := child.Run(testContext(t), spec, 0)
			require.NoError(t, err)
			require.Equal(t, jobs.Running, r.State)
			sleepers := awaitSleepers(t, mark, 1)
			for _, pid := range sleepers {
				endProcess(t, pid)
			}
			endProcess(t, r.PID)

			report, err := child.Close(testContext(t))
			require.NoError(t, err)
			if !c.lives {
				assert.Equal(t, []string{r.ID}, ids(report.Stopped))
				assert.Equal(t, jobs.ReasonOwnerClosed, report.Stopped[0].Reason)
				assert.Empty(t, marked(mark))
				return
			}
			assert.Equal(t, []string{r.ID}, ids(report.HandedUp))
			assert.Equal(t, jobs.Running, checkJob(t, s, r.ID).State)
			assert.Len(t, marked(mark), 2)

			report, err = s.Close(testContext(t))
			require.NoError(t, err)
			if c.beyond {
				assert.Equal(t, []string{r.ID}, ids(report.Kept))
				assert.Equal(t, jobs.Lost, report.Kept[0].State)
				assert.Len(t, marked(mark), 2)
				return
			}
			assert.Equal(t, []string{r.ID}, ids(report.Stopped))
			assert.Empty(t, marked(mark))
		})
	}
}

// Field reports A5, A15, B23, D47 and D57, for the ways to stop a job that
// TestEveryStopTakesTheOneKillPath does not try: each kills the same stubborn
// processes, with its own reason.
func TestEveryFurtherStopTakesTheOneKillPath(t *testing.T) {
	const script = `(trap '' TERM; exec sleep 300) &
(trap '' TERM; exec setsid sleep 300 >/dev/null 2>&1) &
trap '' TERM
read -r _ <"$GATE"
head -c 3000000 /dev/zero | tee "$LLM_OUTPUT"
sleep 300`
	type stop func(t *testing.T, s, top *jobs.Supervisor, id string, g *gate)
	nothing := func(*testing.T, *jobs.Supervisor, *jobs.Supervisor, string, *gate) {}
	write := func(t *testing.T, _, _ *jobs.Supervisor, _ string, g *gate) { g.open(t) }
	for _, c := range []struct {
		claim  string
		config jobs.Config
		spec   jobs.Spec
		stop   stop
		want   string // in the notice; "" if there is none
	}{
		{"idle", jobs.Config{}, jobs.Spec{IdleTimeout: 3 * time.Second}, nothing, "failed idle"},
		{"timeout", jobs.Config{}, jobs.Spec{Timeout: 3 * time.Second}, nothing, "failed timeout"},
		{"output limit", jobs.Config{}, jobs.Spec{OutputLimit: 50_000}, write, "failed output_limit"},
		{"memory for output", jobs.Config{OutputMemory: 32 << 10, KillOverMemory: true}, jobs.Spec{}, write, "failed output_limit"},
		{"disk for the result", jobs.Config{ResultFileLimit: 1 << 20}, jobs.Spec{}, write, "failed output_limit"},
		{"end of the owner", jobs.Config{}, jobs.Spec{}, func(t *testing.T, s, _ *jobs.Supervisor, id string, _ *gate) {
			report, err := s.Close(testContext(t))
			require.NoError(t, err)
			assert.Equal(t, jobs.ReasonOwnerClosed, report.Stopped[0].Reason)
		}, ""},
		{"end of the tree", jobs.Config{}, jobs.Spec{}, func(t *testing.T, _, top *jobs.Supervisor, id string, _ *gate) {
			report, err := top.Close(testContext(t))
			require.NoError(t, err)
			assert.Equal(t, jobs.ReasonShutdown, report.Stopped[0].Reason)
		}, ""},
		{"reap", jobs.Config{}, jobs.Spec{}, func(t *testing.T, s, _ *jobs.Supervisor, id string, _ *gate) {
			assert.Equal(t, []string{id}, ids(s.Reap(testContext(t), id)))
		}, ""},
		{"reset", jobs.Config{}, jobs.Spec{}, func(t *testing.T, s, _ *jobs.Supervisor, id string, _ *gate) {
			assert.Equal(t, []string{id}, ids(s.Reset(testContext(t)).Stopped))
		}, ""},
		{"ends of turns", jobs.Config{}, jobs.Spec{}, func(t *testing.T, s, _ *jobs.Supervisor, id string, _ *gate) {
			for range 3 {
				assert.Equal(t, jobs.TurnInject, s.TurnEnd(testContext(t)).Action)
			}
			assert.Equal(t, []string{id}, ids(s.TurnEnd(testContext(t)).Discarded))
		}, ""},
	} {
		t.Run(c.claim, func(t *testing.T) {
			t.Parallel()
			c.config.KillGrace = 100 * time.Millisecond
			top := newSupervisor(t, c.config)
			s, err := top.Child(jobs.ChildConfig{})
			require.NoError(t, err)
			g := newGate(t)
			spec, mark := markedScript(script)
			spec.Env = append(spec.Env, g.env())
			spec.IdleTimeout, spec.Timeout, spec.OutputLimit = c.spec.IdleTimeout, c.spec.Timeout, c.spec.OutputLimit
			r, err := s.Run(testContext(t), spec, 0) // what bounds it stays armed after the demotion
			require.NoError(t, err)
			sleepers := awaitSleepers(t, mark, 2)
			c.stop(t, s, top, r.ID, g)
			var told []jobs.Notice
			if c.want != "" {
				require.True(t, eventually(func() bool { told = append(told, s.Drain()...); return len(told) > 0 }))
				assert.Equal(t, c.want, fmt.Sprint(told[0].State, " ", told[0].Reason))
				r = collect(t, s, r.ID)
				assert.Equal(t, "SIGKILL", r.Signal.String())
				assert.Nil(t, r.Survivors)
			}
			requireDead(t, sleepers...)
			requireNoneLeft(t, mark)
			assert.LessOrEqual(t, len(told), 1)
			assert.Empty(t, s.Drain(), "told twice, or after an answer")
		})
	}
}

// Field report A15: a foreground call that is interrupted takes its tree along.
func TestAnInterruptedForegroundCallLeavesNothing(t *testing.T) {
	s := newSupervisor(t, jobs.Config{KillGrace: 200 * time.Millisecond})
	spec, mark := markedScript(`echo up; (trap '' TERM; exec setsid sleep 300) & sleep 300; true`)
	ctx, stop := context.WithCancel(testContext(t))
	go func() {
		eventually(func() bool { return len(marked(mark)) == 3 })
		stop()
	}()
	r, err := s.Run(ctx, spec, jobs.NoDetach)
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, "cancelled, SIGTERM", r.Outcome())
	assert.Equal(t, "up\n", string(r.Output.Bytes()))
	requireNoneLeft(t, mark)
	assert.Empty(t, s.Drain())
}

// Field report A16: one key, one live job; and a look says that it is alive.
func TestAJobThatIsSilentIsNotStartedTwice(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	spec, mark := markedScript(`exec sleep 300`)
	spec.Key = "build"
	first := start(t, s, spec)
	var again sync.WaitGroup
	for range 8 {
		again.Go(func() {
			snap, err := s.Start(testContext(t), spec)
			assert.NoError(t, err)
			assert.Equal(t, first.ID, snap.ID)
		})
	}
	again.Wait()
	assert.Len(t, awaitSleepers(t, mark, 1), 1)
	snap := checkJob(t, s, first.ID)
	assert.Equal(t, jobs.Running, snap.State)
	assert.Zero(t, snap.OutputTotal)
	assert.Positive(t, snap.Idle)
	cancel(t, s, first.ID)
	assert.NotEqual(t, first.ID, start(t, s, spec).ID, "its end frees the key")
}

// Field report B20: a job that is wedged in its drain wedges no verb.
func TestNoVerbWaitsForAWedgedJob(t *testing.T) {
	s := newSupervisor(t, jobs.Config{DrainGrace: time.Hour, MaxRunning: 2})
	tools := s.Toolset(jobs.ToolsetOptions{Wait: time.Millisecond})
	spec, mark := markedScript(`(while echo tick; do sleep 0.02; done) & exit 4`)
	id := start(t, s, spec).ID
	require.True(t, eventually(func() bool { return checkJob(t, s, id).LeaderExited }))
	short := func() context.Context {
		ctx, stop := context.WithTimeout(context.Background(), time.Millisecond)
		t.Cleanup(stop)
		return ctx
	}
	begun := time.Now()
	_, err := s.Collect(short(), id)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	r, err := s.Wait(short(), jobs.WaitSpec{IDs: []string{id}, Timeout: time.Millisecond})
	assert.True(t, r.TimedOut || errors.Is(err, context.DeadlineExceeded))
	_, err = s.Output(id, 0, 0)
	assert.NoError(t, err)
	_, err = s.Input(id)
	assert.ErrorIs(t, err, jobs.ErrNoInput)
	assert.Len(t, s.List().Jobs, 1)
	for _, call := range []string{"job__check", "job__collect"} {
		assert.Equal(t, "running", ask(t, tools, call, idArgs(id)).Status, call)
	}
	stop, err := s.Watch(id, jobs.WatchSpec{Pattern: regexp.MustCompile("never")})
	require.NoError(t, err)
	stop()
	s.TurnEnd(short())
	child, err := s.Child(jobs.ChildConfig{})
	require.NoError(t, err)
	assert.Equal(t, "completed, exit 0", runScript(t, child, "true").Outcome())
	_, err = child.Close(testContext(t))
	assert.NoError(t, err)
	report, err := s.Close(testContext(t))
	assert.NoError(t, err)
	assert.Less(t, time.Since(begun), promptly)
	assert.Empty(t, report.Stopped, "it had ended by itself")
	assert.Equal(t, "failed, exit 4", checkJob(t, s, id).Outcome())
	requireNoneLeft(t, mark)
}

// Field reports B21 and G88: an input is open until it is closed, and after the
// end it says so.
func TestAnInputIsOpenUntilItIsClosed(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	spec := bash(`cat; echo over`)
	spec.Input = true
	id := start(t, s, spec).ID
	in, err := s.Input(id)
	require.NoError(t, err)
	fmt.Fprintln(in, "one")
	awaitOutput(t, s, id, "one\n")
	assert.Equal(t, jobs.Running, checkJob(t, s, id).State)
	fmt.Fprintln(in, "two")
	require.NoError(t, in.Close())
	awaitEnd(t, s, id)
	_, err = s.Input(id)
	assert.ErrorIs(t, err, jobs.ErrEnded)
	_, err = fmt.Fprintln(in, "three")
	assert.ErrorIs(t, err, jobs.ErrEnded)
	assert.Equal(t, "one\ntwo\nover\n", string(collect(t, s, id).Output.Bytes()))
}

// Field reports B24 to B26 and D51: a wait is over when it should be, whatever
// the jobs do, and leaves nothing.
func TestAWaitIsBoundedWhateverTheJobsDo(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	begun := time.Now()
	_, err := s.Wait(testContext(t), jobs.WaitSpec{IDs: []string{noJob}})
	require.ErrorIs(t, err, jobs.ErrNotFound)

	var live []string
	for _, script := range []string{`exec yes`, `echo y; exec sleep 300`, `while :; do printf '\ry%s' $RANDOM; done`} {
		id := start(t, s, bash(script)).ID
		awaitOutput(t, s, id, "y") // all its goroutines run
		live = append(live, id)
	}
	never := regexp.MustCompile("never")
	before := runtime.NumGoroutine()
	for _, all := range []bool{false, true} {
		r, err := s.Wait(testContext(t), jobs.WaitSpec{IDs: live, All: all, Pattern: never, Timeout: 200 * time.Millisecond})
		require.NoError(t, err)
		assert.True(t, r.TimedOut)
		assert.Nil(t, r.Match)
		ctx, stop := context.WithTimeout(context.Background(), 50*time.Millisecond)
		_, err = s.Wait(ctx, jobs.WaitSpec{IDs: live, All: all, Pattern: never})
		stop()
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	_, err = s.Wait(testContext(t), jobs.WaitSpec{IDs: append([]string{noJob}, live...)})
	require.ErrorIs(t, err, jobs.ErrNotFound)
	assert.Less(t, time.Since(begun), promptly)
	assert.True(t, eventually(func() bool { return runtime.NumGoroutine() <= before }))
	for _, id := range live {
		assert.Equal(t, jobs.Running, checkJob(t, s, id).State, "a wait does not touch a job")
	}
}

// Field reports C36 and C37: a demotion in the midst of the output neither
// loses nor repeats a line.
func TestADemotionInTheMidstOfOutputLosesNothing(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 10})
	want := seq(1, 300)
	for i := range 10 {
		r, err := s.Run(testContext(t), bash(`for i in {1..300}; do echo $i; [ $((i % 25)) != 0 ] || sleep 0.01; done`), time.Duration(i)*10*time.Millisecond)
		require.NoError(t, err)
		assert.True(t, strings.HasPrefix(want, string(r.Output.Bytes())))
		if !r.Ended() {
			r = collect(t, s, r.ID)
		}
		assert.Equal(t, want, string(r.Output.Bytes()))
		requireExact(t, r, int64(len(want)))
	}
}

// Field report C40: what was printed is there once, however the job ends and
// however often it is looked at.
func TestOutputIsThereOnceHoweverItsJobEnds(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	tools := s.Toolset(jobs.ToolsetOptions{})
	for _, end := range []string{`exit 0`, `exit 1`, `kill -9 $$`} {
		id := start(t, s, bash(`echo MARKER; echo MARKER >&2; `+end)).ID
		awaitEnd(t, s, id)
		for range 100 {
			c, err := s.Output(id, 0, 0)
			require.NoError(t, err)
			require.Equal(t, "MARKER\nMARKER\n", string(c.Data))
			ask(t, tools, "job__check", idArgs(id, `"tail_lines":5`))
		}
		r := ask(t, tools, "job__collect", idArgs(id))
		assert.Equal(t, "MARKER\nMARKER\n", r.tail(), end)
		assert.Equal(t, 2, strings.Count(r.text, "MARKER"), end)
	}
}

// Field reports C45, E63 and F67: a watch sees both streams, is held to its
// budget, and is silent once the end is told.
func TestAWatchSeesBothStreamsWithinItsBudget(t *testing.T) {
	for _, split := range []bool{false, true} {
		s := newSupervisor(t, jobs.Config{})
		g := newGate(t)
		spec := g.gated(`read -r _ <"$GATE"; for i in {1..5000}; do echo error $i; echo error $i >&2; done`)
		spec.SplitStderr = split
		id := start(t, s, spec).ID
		_, err := s.Watch(id, jobs.WatchSpec{Pattern: regexp.MustCompile(`^error`), Burst: 3, Every: time.Hour})
		require.NoError(t, err)
		g.open(t)
		end := awaitEnd(t, s, id)
		require.EqualValues(t, 10_000, (end.OutputTotal+end.StderrTotal-2*int64(len(seq(1, 5000))))/int64(len("error ")))
		told, matched, suppressed := s.Drain(), 0, 0
		for i, n := range told {
			require.Equal(t, i == len(told)-1, n.Event == jobs.EventCompleted, "the end comes last: %v", told)
			suppressed += n.Suppressed
			if n.Line != "" {
				matched++
			}
		}
		assert.Equal(t, 3, matched)
		assert.Equal(t, 10_000-3, suppressed)
		assert.Empty(t, s.Drain())

		// A job that prints nothing but errors is not silent.
		r, err := s.Wait(testContext(t), jobs.WaitSpec{IDs: []string{id}, Pattern: regexp.MustCompile(`^error 5000$`), Timeout: -1})
		require.NoError(t, err)
		assert.NotNil(t, r.Match)
	}
}

// Field reports C46 and J99: no answer names a file of ours.
func TestNoAnswerNamesAPrivatePath(t *testing.T) {
	temp := t.TempDir()
	s := newSupervisor(t, jobs.Config{TempDir: temp})
	tools := s.Toolset(jobs.ToolsetOptions{})
	for _, script := range []string{`true`, `exit 1`, `rm -f "$LLM_OUTPUT"`, `rm -f "$LLM_OUTPUT"; mkdir "$LLM_OUTPUT"`, `echo x >"$LLM_OUTPUT"; kill -9 $$`} {
		id := start(t, s, bash(script)).ID
		awaitEnd(t, s, id)
		for _, call := range []string{"job__check", "job__cancel", "job__collect", "job__collect"} {
			assert.NotContains(t, ask(t, tools, call, idArgs(id)).text, temp, script)
		}
	}
}

// Field report D48: all logs together keep within the budget.
func TestAllLogsTogetherKeepWithinTheBudget(t *testing.T) {
	const jobsAtOnce, budget, least = 8, 100 << 10, 4 << 10
	s := newSupervisor(t, jobs.Config{MaxRunning: jobsAtOnce, OutputMemory: budget})
	var all []string
	for range jobsAtOnce {
		all = append(all, start(t, s, bash(`head -c 1000000 /dev/zero; printf end`)).ID)
	}
	kept := int64(0)
	for _, id := range all {
		snap := awaitEnd(t, s, id)
		kept += snap.OutputTotal - snap.OutputDropped
		assert.EqualValues(t, 1_000_003, snap.OutputTotal)
		c, err := s.Output(id, -3, 0)
		require.NoError(t, err)
		assert.Equal(t, "end", string(c.Data))
	}
	assert.LessOrEqual(t, kept, int64(budget+jobsAtOnce*2*least))
	for _, id := range all {
		collect(t, s, id)
	}
	assert.Zero(t, runScript(t, s, `head -c 60000 /dev/zero`).OutputDropped, "collected jobs give it back")
}

// Field report D50: nobody who watches costs a copy of the output.
func TestObserversOfAFloodCostNoMemory(t *testing.T) {
	growth := pids(t, runHelper(t, "host of an observed flood"))[0]
	limit := 8 << 10
	if underRace() {
		limit *= 8 // the detector keeps a shadow of what is used
	}
	assert.LessOrEqual(t, growth, limit, "KiB of resident memory")
}

func init() {
	hostHelper("host of an observed flood", func() {
		s := orExit(jobs.New(jobs.Config{}))
		warmUp(s)
		ctx, stop := context.WithCancel(context.Background())
		debug.FreeOSMemory()
		os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // forget the peak
		before := memory("VmRSS")
		job := orExit(s.Start(ctx, bash(`head -c 50000000 /dev/zero | tr '\0' z`)))
		never := regexp.MustCompile("never")
		orExit(s.Watch(job.ID, jobs.WatchSpec{Pattern: never}))
		var observers sync.WaitGroup
		observers.Go(func() { s.Wait(ctx, jobs.WaitSpec{IDs: []string{job.ID}, Pattern: never}) })
		observers.Go(func() {
			buf := make([]byte, 4<<10)
			for from := int64(0); ; {
				c, err := s.ReadOutput(job.ID, from, buf)
				if err != nil || c.EOF {
					return
				}
				from = c.Next
				runtime.Gosched()
			}
		})
		check(eventually(func() bool { return orExit(s.Check(job.ID)).Ended() }), "no end")
		stop()
		observers.Wait()
		fmt.Println(memory("VmHWM") - before)
		r := orExit(s.Collect(context.Background(), job.ID))
		check(r.OutputTotal == 50_000_000, "%d bytes", r.OutputTotal)
		orExit(s.Close(context.Background()))
	})
}

// Field report D56: a kill reaches what runs behind a wrapper.
func TestAKillReachesBehindAWrapper(t *testing.T) {
	for _, wrapper := range [][]string{
		{"nice"},
		{"setsid", "--wait"},
		{"bash", "-c", `set -m; "$@" & wait $!`, "wrapper"},
		{"timeout", "300"},
		{"env", "-u", jobs.EnvJob},
	} {
		t.Run(wrapper[0], func(t *testing.T) {
			s := newSupervisor(t, jobs.Config{KillGrace: 200 * time.Millisecond, Wrap: func(argv []string) ([]string, error) {
				return append(wrapper[:len(wrapper):len(wrapper)], argv...), nil
			}})
			spec, mark := markedScript(`sleep 300 & (trap '' TERM; exec sleep 300) & wait`)
			id := start(t, s, spec).ID
			awaitSleepers(t, mark, 2)
			assert.Equal(t, jobs.Cancelled, cancel(t, s, id).State)
			requireNoneLeft(t, mark)
		})
	}
}

// Field reports F64, F65, F69 and F74: of a thousand ends each is delivered,
// though the consumer is slow and fails, and no job waits for it.
func TestAThousandEndsReachABusyConsumer(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 64, MaxRetained: 2000})
	ctx, stop := context.WithCancel(testContext(t))
	defer stop()
	busy, free := make(chan struct{}), make(chan struct{})
	got := make(map[string]int)
	calls := 0
	delivered := make(chan error, 1)
	go func() {
		delivered <- s.Deliver(ctx, func(_ context.Context, notices []jobs.Notice) error {
			switch calls++; calls {
			case 1:
				close(busy)
				<-free
				return errors.New("not now")
			case 2:
				panic("out of cheese")
			}
			for _, n := range notices {
				got[n.ID]++
			}
			if len(got) == 1000 {
				stop()
			}
			return nil
		})
	}()
	barrier := make(chan struct{})
	want := make(map[string]int)
	for range 64 { // all at one moment
		want[start(t, s, gated(barrier, "")).ID] = 1
	}
	close(barrier)
	<-busy
	for len(want) < 1000 {
		snap, err := s.Start(testContext(t), returning(nil))
		if errors.Is(err, jobs.ErrAtCapacity) {
			runtime.Gosched()
			continue
		}
		require.NoError(t, err)
		want[snap.ID] = 1
	}
	require.True(t, eventually(func() bool { return s.List().Running == 0 }), "a busy consumer holds up somebody")
	require.Equal(t, "completed, exit 0", runScript(t, s, "true").Outcome())
	close(free)
	require.ErrorIs(t, <-delivered, context.Canceled)
	assert.True(t, maps.Equal(want, got), "%d of %d", len(got), len(want))
	assert.Empty(t, s.Drain())
}

// Field reports F71 and J103: an end is told to its owner and to nobody else.
func TestEachOwnerHearsOfItsOwnJobsOnly(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 20})
	var owners [2]*jobs.Supervisor
	mine := make([][]string, len(owners))
	for i := range owners {
		var err error
		owners[i], err = s.Child(jobs.ChildConfig{})
		require.NoError(t, err)
	}
	for n := range 10 {
		i := n % 2
		mine[i] = append(mine[i], start(t, owners[i], bash(`exit `+fmt.Sprint(n))).ID)
	}
	require.True(t, eventually(func() bool { return s.List().Running == 0 }))
	for i, owner := range owners {
		for _, id := range mine[1-i] {
			_, err := owner.Check(id)
			assert.ErrorIs(t, err, jobs.ErrForeign)
			r := ask(t, owner.Toolset(jobs.ToolsetOptions{}), "job__list", `{}`)
			assert.NotContains(t, r.text, id)
		}
	}
	// The lists have brought the notices along, each owner its own.
	assert.Empty(t, s.Drain())
	for i, owner := range owners {
		for _, id := range mine[i] {
			collect(t, owner, id)
		}
		assert.Empty(t, owner.Drain())
	}
}

// Field reports I96 and I98: a demoted job takes a slot, and no way in passes
// the limit.
func TestNoWayInPassesTheLimit(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 1})
	r, err := s.Run(testContext(t), bash(`exec sleep 300`), 0)
	require.NoError(t, err)
	require.Equal(t, jobs.Running, r.State)
	child, err := s.Child(jobs.ChildConfig{MaxRunning: 10})
	require.NoError(t, err)
	for _, way := range []*jobs.Supervisor{s, child} {
		_, err = way.Start(testContext(t), bash("true"))
		assert.ErrorIs(t, err, jobs.ErrAtCapacity)
		_, err = way.Start(testContext(t), returning(nil))
		assert.ErrorIs(t, err, jobs.ErrAtCapacity)
		_, err = way.Run(testContext(t), bash("true"), jobs.NoDetach)
		assert.ErrorIs(t, err, jobs.ErrAtCapacity)
		tools := way.Toolset(jobs.ToolsetOptions{Declared: []string{"echo"}, Resolve: func(context.Context, string, json.RawMessage) (jobs.Spec, error) {
			return bash("true"), nil
		}})
		assert.True(t, ask(t, tools, "job__start", `{"tool":"echo"}`).failed())
	}
	assert.Equal(t, []string{r.ID}, ids(s.List().Jobs))
	cancel(t, s, r.ID)
	assert.Equal(t, "completed, exit 0", runScript(t, child, "true").Outcome())
}

// Field report J100.
func TestSecretsAndLoadersStayOutOfJobs(t *testing.T) {
	for name := range map[string]string{"GITHUB_TOKEN": "", "AWS_SECRET_ACCESS_KEY": "", "MY_API_KEY": "", "DB_PASSWORD": ""} {
		t.Setenv(name, secret)
	}
	t.Setenv("JOBS_TEST_PLAIN", "plain")
	for name, filter := range map[string]func(string) bool{"strip": jobs.StripSecrets, "allow": jobs.AllowEnv("JOBS_TEST_PLAIN")} {
		s := newSupervisor(t, jobs.Config{EnvFilter: filter})
		env := strings.Join(environ(t, s), "\n")
		assert.NotContains(t, env, secret, name)
		assert.Contains(t, env, "JOBS_TEST_PLAIN=plain", name)
		assert.Contains(t, env, "\nPATH=", name)
	}
	for _, name := range []string{"LD_PRELOAD", "ld_preload", "LD_LIBRARY_PATH", "LD_AUDIT", "BASH_ENV", "PATH", "PYTHONPATH", "NODE_OPTIONS",
		"GIT_SSH_COMMAND", jobs.EnvResult, jobs.EnvJob, "BASH_FUNC_ls%%", "", "A=B", "A\x00"} {
		_, err := jobs.ModelEnv(map[string]string{name: secret})
		require.Error(t, err, "%q", name)
		assert.NotContains(t, err.Error(), secret)
	}
}

// Field report J101: what may run is named, not parsed.
func TestChainedCommandsAreNoToolNames(t *testing.T) {
	dir := t.TempDir()
	script(t, dir, "git", `echo ran`)
	s := newSupervisor(t, jobs.Config{})
	tools := scripts(s, jobs.ScriptTools{Dirs: []string{dir}}, "git")
	for _, name := range []string{"git;id", "git $(id)", "git\nid", "gitx", "git ", " git", "GIT", "./git", "git\x00", "git|id", "git&&id", "../git", filepath.Join(dir, "git")} {
		args, err := json.Marshal(map[string]string{"tool": name})
		require.NoError(t, err)
		assert.True(t, ask(t, tools, "job__start", string(args)).failed(), "%q", name)
	}
	assert.Empty(t, s.List().Jobs)
	assert.Equal(t, "ran\n", runTool(t, tools, "git", "").tail())
}
