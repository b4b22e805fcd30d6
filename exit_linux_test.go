package jobs_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// asleep is a shell function that waits until a child has become a sleep.
const asleep = `asleep() { until [ "$(</proc/$1/comm)" = sleep ]; do :; done; }; `

func TestExitCodesAndSignalsAreToldApart(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	for _, tt := range []struct {
		script  string
		state   jobs.State
		reason  jobs.Reason
		code    int
		signal  unix.Signal
		shell   int
		outcome string
	}{
		{`exit 0`, jobs.Completed, jobs.ReasonExit, 0, 0, 0, "completed, exit 0"},
		{`exit 3`, jobs.Failed, jobs.ReasonExit, 3, 0, 3, "failed, exit 3"},
		{`exit 7`, jobs.Failed, jobs.ReasonExit, 7, 0, 7, "failed, exit 7"},
		{`/dev/null`, jobs.Failed, jobs.ReasonExit, 126, 0, 126, "failed, exit 126"},
		{`no-such-program`, jobs.Failed, jobs.ReasonExit, 127, 0, 127, "failed, exit 127"},
		// 137 as a code is not a signal.
		{`exit 137`, jobs.Failed, jobs.ReasonExit, 137, 0, 137, "failed, exit 137"},
		{`exit 255`, jobs.Failed, jobs.ReasonExit, 255, 0, 255, "failed, exit 255"},
		{`kill -KILL $$`, jobs.Failed, jobs.ReasonSignal, -1, unix.SIGKILL, 137, "failed, signal, SIGKILL"},
		{`ulimit -c 0; kill -SEGV $$`, jobs.Failed, jobs.ReasonSignal, -1, unix.SIGSEGV, 139, "failed, signal, SIGSEGV"},
		{`kill -TERM $$`, jobs.Failed, jobs.ReasonSignal, -1, unix.SIGTERM, 143, "failed, signal, SIGTERM"},
		{`kill -40 $$`, jobs.Failed, jobs.ReasonSignal, -1, 40, 168, "failed, signal, signal 40"},
	} {
		t.Run(tt.script, func(t *testing.T) {
			job := start(t, s, bash(tt.script))
			r := collect(t, s, job.ID)
			assert.Equal(t, tt.state, r.State)
			assert.Equal(t, tt.reason, r.Reason)
			assert.Equal(t, tt.code, r.ExitCode)
			assert.EqualValues(t, tt.signal, r.Signal)
			assert.Equal(t, tt.shell, r.ShellCode())
			assert.Equal(t, tt.outcome, r.Outcome())
			assert.False(t, r.CoreDumped)
			assert.NoError(t, r.Err)
			assert.True(t, r.LeaderExited)
			assert.Zero(t, r.PID)
			assert.Empty(t, procState(job.PID), "not reaped when its end was told")
		})
	}
}

func TestEveryLeaderIsReapedBeforeItsEndIsTold(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	for range 500 {
		job := start(t, s, jobs.Spec{Argv: []string{"true"}})
		r := collect(t, s, job.ID)
		require.Equal(t, jobs.Completed, r.State)
		require.Empty(t, procState(job.PID), "a zombie")
	}
}

// A job may end before anything of the supervisor waits for it.
func TestShortJobsThatEndAllAtOnceAreAllSeenToEnd(t *testing.T) {
	const atOnce = 50
	s := newSupervisor(t, jobs.Config{MaxRunning: atOnce})
	spec := jobs.Spec{Argv: []string{"echo", "hi"}}
	for range 8 {
		var ids [atOnce]string
		for i := range ids {
			ids[i] = start(t, s, spec).ID
		}
		for _, id := range ids {
			r := collect(t, s, id)
			require.Equal(t, "completed, exit 0", r.Outcome())
			require.Equal(t, "hi\n", string(r.Output.Bytes()))
		}
	}
}

func TestTheLastByteIsThereWhenTheEndIsTold(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	const n = 4_000_000
	for range 20 {
		r := runScript(t, s, fmt.Sprintf(`head -c %d /dev/zero; echo end`, n))
		require.EqualValues(t, n+4, r.OutputTotal)
		require.True(t, strings.HasSuffix(string(r.Output.Bytes()), "\x00end\n"))
	}
}

// A leftover is killed and named wherever it went, whether the job is young,
// when only the newest processes are looked at, or older, when all are.
func TestLeftoversAreKilledAndNamed(t *testing.T) {
	places := []struct{ name, script string }{
		{"in the group", `sleep 300 >/dev/null 2>&1 & asleep $!`},
		{"ignoring TERM", `(trap '' TERM; exec sleep 300 >/dev/null 2>&1) & asleep $!`},
		{"ignoring HUP", `nohup sleep 300 >/dev/null 2>&1 & disown; asleep $!`},
		{"stopped", `sleep 300 >/dev/null 2>&1 & asleep $!; kill -STOP $!`},
		{"in a group of its own", `set -m; sleep 300 >/dev/null 2>&1 & asleep $!`},
		{"in a session of its own", `setsid sleep 300 >/dev/null 2>&1 & asleep $!`},
		{"an orphan", `p=$(sleep 300 >/dev/null 2>&1 & echo $!); asleep $p`},
		{"a daemon", `p=$( (trap '' HUP TERM; cd /; exec setsid sleep 300 >/dev/null 2>&1) & echo $!); asleep $p`},
		{"with another environment", `env -i sleep 300 >/dev/null 2>&1 & asleep $!`},
		{"holding the pipe", `sleep 300 & asleep $!`},
	}
	s := newSupervisor(t, jobs.Config{MaxRunning: len(places) + 1, KillGrace: patience})
	test := func(t *testing.T, id, mark string) {
		r := collect(t, s, id)
		assert.Empty(t, marked(mark))
		assert.Equal(t, "completed, exit 0", r.Outcome())
		if assert.Len(t, r.Leftovers, 1) {
			requireDead(t, r.Leftovers[0].PID)
			assert.Equal(t, "sleep", r.Leftovers[0].Name)
		}
		assert.Nil(t, r.Survivors)
		assert.NoError(t, r.Err)
	}
	ids, marks := make([]string, len(places)), make([]string, len(places))
	for i, tt := range places {
		var spec jobs.Spec
		spec, marks[i] = markedScript(`sleep 0.15; ` + asleep + tt.script)
		ids[i] = start(t, s, spec).ID
	}
	for i, tt := range places {
		t.Run(tt.name+" of an old job", func(t *testing.T) { test(t, ids[i], marks[i]) })
	}
	for _, tt := range places {
		t.Run(tt.name+" of a young job", func(t *testing.T) {
			spec, mark := markedScript(asleep + tt.script)
			test(t, start(t, s, spec).ID, mark)
		})
	}
}

// In the midst of an exec a process shows neither its old environment nor its
// new one.
func TestALeftoverIsFoundWhileItExecutesAProgram(t *testing.T) {
	const atOnce = 8
	s := newSupervisor(t, jobs.Config{MaxRunning: atOnce})
	spec, mark := markedScript(`setsid sleep 300 >/dev/null 2>&1 &`)
	var running sync.WaitGroup
	for range atOnce {
		running.Go(func() {
			for range 16 {
				job, err := s.Start(testContext(t), spec)
				if assert.NoError(t, err) {
					_, err = s.Collect(testContext(t), job.ID)
					assert.NoError(t, err)
				}
			}
		})
	}
	running.Wait()
	missed := marked(mark)
	for _, pid := range missed {
		endProcess(t, pid)
	}
	assert.Empty(t, missed)
}

func TestTheLeadersCodeSurvivesAForcedEndOfTheOutput(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	for _, tt := range []struct{ script, outcome, output string }{
		{`sleep 60 & echo hi`, "completed, exit 0", "hi\n"},
		{`sleep 60 & true`, "completed, exit 0", ""},
		{`sleep 60 & exit 3`, "failed, exit 3", ""},
		{`(sleep 60 &); exit 0`, "completed, exit 0", ""},
	} {
		r := runScript(t, s, tt.script)
		assert.Equal(t, tt.outcome, r.Outcome(), tt.script)
		assert.Equal(t, tt.output, string(r.Output.Bytes()), tt.script)
		assert.Less(t, r.Elapsed, 20*time.Second, "%s waited for the holder", tt.script)
		assert.NoError(t, r.Err, tt.script)
	}
}

// Whoever holds whichever pipe, and however much it says, the job ends.
func TestAHolderOfAPipeCannotHoldTheJob(t *testing.T) {
	const grace = 400 * time.Millisecond
	type run struct{ name, id, mark string }
	var all []run
	s := newSupervisor(t, jobs.Config{MaxRunning: 16, DrainGrace: grace})
	for _, voice := range []struct{ name, script string }{
		{"silent", `exec sleep 300`},
		{"chatty", `while echo tick; do sleep 0.02; done`},
	} {
		for _, place := range []struct{ name, command string }{
			{"same group", `bash -c`},
			{"own session", `setsid bash -c`},
		} {
			for _, stream := range []struct{ name, redirect string }{
				{"stdout", `2>/dev/null`},
				{"stderr", `>&2`},
			} {
				for _, split := range []bool{false, true} {
					spec, mark := markedScript(fmt.Sprintf(`%s '%s' %s & echo out; echo err >&2; exit 5`, place.command, voice.script, stream.redirect))
					spec.SplitStderr = split
					name := fmt.Sprintf("%s, %s, %s, split %v", voice.name, place.name, stream.name, split)
					all = append(all, run{name, start(t, s, spec).ID, mark})
				}
			}
		}
	}
	for _, job := range all {
		r := collect(t, s, job.id)
		assert.Empty(t, marked(job.mark), job.name)
		assert.Equal(t, "failed, exit 5", r.Outcome(), job.name)
		assert.NotEmpty(t, r.Leftovers, job.name)
		assert.Nil(t, r.Survivors, job.name)
		text := string(r.Output.Bytes()) + string(r.Stderr.Bytes())
		assert.Contains(t, text, "out\n", job.name)
		assert.Contains(t, text, "err\n", job.name)
		assert.Less(t, r.Elapsed, 20*time.Second, job.name)
	}
}

// The drain limit is absolute: fresh output does not extend it. Meanwhile the
// leader's exit shows, and no call waits for the holder.
func TestAChattyHolderDoesNotExtendTheDrain(t *testing.T) {
	const grace = 600 * time.Millisecond
	s := newSupervisor(t, jobs.Config{DrainGrace: grace})
	never, _ := fifo(t)
	spec, mark := markedScript(`(while echo tick; do read -rt 0.02 _ <>"$NEVER"; done) & echo started; exit 0`)
	spec.Env = append(spec.Env, "NEVER="+never)
	id := start(t, s, spec).ID
	require.True(t, eventually(func() bool {
		snap, err := s.Check(id)
		require.NoError(t, err)
		return snap.LeaderExited
	}))
	snap, err := s.Check(id)
	require.NoError(t, err)
	if assert.False(t, snap.Ended(), "the drain ended before its limit while output kept coming") {
		assert.Equal(t, -1, snap.ExitCode)
		assert.NotZero(t, snap.PID)
	}
	r := collect(t, s, id)
	require.Empty(t, marked(mark))
	assert.GreaterOrEqual(t, r.Elapsed, grace)
	assert.Less(t, r.Elapsed, 20*time.Second)
	assert.Equal(t, "completed, exit 0", r.Outcome())
	assert.Contains(t, string(r.Output.Bytes()), "tick\n")
}

func TestCancelAfterTheLeadersExitEndsTheDrainAndLeavesTheOutcome(t *testing.T) {
	s := newSupervisor(t, jobs.Config{DrainGrace: time.Hour, MaxRunning: 1})
	spec, mark := markedScript(`(while echo tick; do sleep 0.02; done) & echo started; exit 4`)
	id := start(t, s, spec).ID
	require.True(t, eventually(func() bool {
		snap, err := s.Check(id)
		require.NoError(t, err)
		return snap.LeaderExited
	}))
	// A wedged job must not wedge anything else.
	_, err := s.Output(id, 0, 0)
	require.NoError(t, err)
	assert.Len(t, s.List().Jobs, 1)
	_, err = s.Start(testContext(t), bash("true"))
	require.ErrorIs(t, err, jobs.ErrAtCapacity)
	ctx, stop := context.WithCancel(context.Background())
	stop()
	_, err = s.Collect(ctx, id)
	require.ErrorIs(t, err, context.Canceled)

	r := cancel(t, s, id)
	require.Empty(t, marked(mark))
	assert.Equal(t, "failed, exit 4", r.Outcome(), "it had ended by itself")
	assert.NotEmpty(t, r.Leftovers)
}

// A daemon that scrubbed its environment and was orphaned in a session of its
// own cannot be found. It must not hold the job all the same.
func TestAHolderThatCannotBeFoundCannotHoldTheJob(t *testing.T) {
	s := newSupervisor(t, jobs.Config{DrainGrace: 300 * time.Millisecond, KillGrace: 100 * time.Millisecond})
	for _, tt := range []struct {
		name, script string
		cancel       bool
	}{
		{"silent", `(env -i setsid sleep 300 & echo $!)`, false},
		{"chatty", `(env -i setsid bash -c 'while printf .; do sleep 0.02; done' & echo $!)`, false},
		{"silent beside a cancel", `(env -i setsid sleep 300 & echo $!); exec sleep 300`, true},
		{"chatty beside a cancel", `(env -i setsid bash -c 'while printf .; do sleep 0.02; done' & echo $!); exec sleep 300`, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			id := start(t, s, bash(tt.script)).ID
			daemon := pids(t, strings.ReplaceAll(awaitOutput(t, s, id, "\n"), ".", ""))[0]
			endProcess(t, daemon)
			var r jobs.Result
			if tt.cancel {
				r = cancel(t, s, id)
				assert.Equal(t, jobs.Cancelled, r.State)
			} else {
				r = collect(t, s, id)
				assert.Equal(t, jobs.Completed, r.State)
			}
			assert.Less(t, r.Elapsed, 20*time.Second)
			if strings.HasPrefix(tt.name, "chatty") {
				assert.True(t, eventually(func() bool { return !alive(daemon) }), "its pipe is still read")
			}
		})
	}
}

func TestAHolderOfTheResultFileHoldsNobody(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	r := runScript(t, s, `exec 9>>"$LLM_OUTPUT"; echo early >&9; (sleep 60) </dev/null >/dev/null 2>&1 & exit 0`)
	assert.Equal(t, "completed, exit 0", r.Outcome())
	assert.Equal(t, "early\n", string(r.File.Data))
	assert.Len(t, r.Leftovers, 1)
	assert.Less(t, r.Elapsed, 20*time.Second)
}

// The tee prints after the leader's exit, on a busy machine long after it.
func TestTheLastLineOfATeeArrivesEveryTime(t *testing.T) {
	const rounds = 50
	s := newSupervisor(t, jobs.Config{DrainGrace: patience})
	for _, script := range []string{
		`exec > >(tee f); echo hi`,
		`exec > >(tee -a f) 2>&1; echo hi >&2`,
	} {
		named := 0
		for range rounds {
			spec := bash(script)
			spec.Dir = t.TempDir()
			r := collect(t, s, start(t, s, spec).ID)
			require.Equal(t, "hi\n", string(r.Output.Bytes()), script)
			require.Equal(t, "completed, exit 0", r.Outcome())
			data, err := os.ReadFile(filepath.Join(spec.Dir, "f"))
			require.NoError(t, err)
			require.Equal(t, "hi\n", string(data))
			named += len(r.Leftovers)
		}
		assert.Less(t, named, rounds/2, "a tee that ends by itself is no leftover: %s", script)
	}
}

func TestOutputThatWasCutShortIsSeenByTheNamedHolder(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	r := runScript(t, s, `exec > >(sleep 60; cat) 2>&1; echo hi`)
	assert.Equal(t, "completed, exit 0", r.Outcome())
	assert.NotEmpty(t, r.Leftovers, "the words are lost in silence")
	assert.Less(t, r.Elapsed, 20*time.Second)
}

func TestStandardInputIsAtItsEnd(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	assert.Equal(t, "completed, exit 0", runScript(t, s, `cat`).Outcome())
	assert.Equal(t, "failed, exit 1", runScript(t, s, `read -r line`).Outcome())
}

func TestAKeptLeftoverLivesOnAndTakesNoSlot(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 1})
	for _, tt := range []struct{ name, script string }{
		{"in the group", `sleep 300 & asleep $!; echo $!`},
		{"in the group without pipes", `sleep 300 >/dev/null 2>&1 & asleep $!; echo $!`},
		{"in a session of its own", `setsid sleep 300 & asleep $!; echo $!`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			spec := bash(asleep + tt.script)
			spec.Leftovers = jobs.KeepLeftovers
			r := collect(t, s, start(t, s, spec).ID)
			leftover := pids(t, string(r.Output.Bytes()))[0]
			endProcess(t, leftover)
			assert.True(t, alive(leftover))
			assert.Equal(t, "completed, exit 0", r.Outcome())
			assert.Equal(t, []jobs.Process{{PID: leftover, Name: "sleep"}}, r.Leftovers)
			assert.Nil(t, r.Survivors)
			assert.Zero(t, s.List().Running)
			assert.Equal(t, jobs.Completed, runScript(t, s, "true").State)
			assert.True(t, alive(leftover), "another job's end killed it")
		})
	}
}

func TestAKeptLeftoverMayTalkUntilClose(t *testing.T) {
	s := newSupervisor(t, jobs.Config{DrainGrace: 100 * time.Millisecond})
	spec := bash(`(while echo tick; do sleep 0.002; done) & echo $!`)
	spec.Leftovers = jobs.KeepLeftovers
	id := start(t, s, spec).ID
	r := collect(t, s, id)
	text := string(r.Output.Bytes())
	leftover := pids(t, strings.ReplaceAll(text, "tick\n", ""))[0]
	endProcess(t, leftover)
	require.Contains(t, r.Leftovers, jobs.Process{PID: leftover, Name: "bash"})
	late := func() int64 {
		snap, err := s.Check(id)
		require.NoError(t, err)
		assert.Equal(t, r.OutputTotal, snap.OutputTotal, "the output has ended")
		return snap.LateBytes
	}
	require.True(t, eventually(func() bool { return late() > 100 }))
	seen := late()
	require.True(t, eventually(func() bool { return late() > seen }))
	assert.True(t, alive(leftover))

	_, err := s.Close(testContext(t))
	require.NoError(t, err)
	assert.True(t, eventually(func() bool { return !alive(leftover) }), "its pipe is still open")
}

func TestCloseSparesAKeptLeftoverThatIsQuiet(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	spec := bash(asleep + `sleep 300 & asleep $!; echo $!`)
	spec.Leftovers = jobs.KeepLeftovers
	r := collect(t, s, start(t, s, spec).ID)
	leftover := pids(t, string(r.Output.Bytes()))[0]
	endProcess(t, leftover)
	_, err := s.Close(testContext(t))
	require.NoError(t, err)
	assert.True(t, alive(leftover))
}

func TestAStoppedJobLosesTheLeftoversItMeantToKeep(t *testing.T) {
	s := newSupervisor(t, jobs.Config{KillGrace: 100 * time.Millisecond})
	spec, mark := markedScript(`(trap '' TERM; exec setsid sleep 300 >/dev/null 2>&1) & wait`)
	spec.Leftovers = jobs.KeepLeftovers
	id := start(t, s, spec).ID
	sleepers := awaitSleepers(t, mark, 1)
	cancel(t, s, id)
	requireDead(t, sleepers...)
	require.Empty(t, marked(mark))
}

func TestOfManyCollectorsOneWinsAndAllTellTheSameEnd(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	spec, mark := markedScript(`trap 'exit 6' TERM; echo ready; sleep 300`)
	id := start(t, s, spec).ID
	awaitSleepers(t, mark, 1)
	var mu sync.Mutex
	var ends []jobs.Snapshot
	won := 0
	tell := func(r jobs.Result, err error, collected bool) {
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			if collected {
				won++
				assert.Contains(t, string(r.Output.Bytes()), "ready\n")
			}
			ends = append(ends, r.Snapshot)
			return
		}
		assert.ErrorIs(t, err, jobs.ErrCollected)
		var je *jobs.JobError
		if assert.ErrorAs(t, err, &je) && assert.NotNil(t, je.Job) {
			ends = append(ends, *je.Job)
		}
	}
	ctx := testContext(t)
	var calls sync.WaitGroup
	for range 20 {
		calls.Go(func() { r, err := s.Collect(ctx, id); tell(r, err, true) })
	}
	for range 5 {
		calls.Go(func() { r, err := s.Cancel(ctx, id); tell(r, err, false) })
	}
	calls.Wait()
	assert.Equal(t, 1, won)
	require.Len(t, ends, 25)
	for _, end := range ends {
		end.Collected = ends[0].Collected // the one difference there may be
		assert.Equal(t, ends[0], end)
	}
	assert.Equal(t, "cancelled, exit 6", ends[0].Outcome())
}

// A host that was suspended past a timeout finds both the exit and the overdue
// timer when it goes on.
func TestAnExitInTimeWinsOverATimeoutThatTheHostSlept(t *testing.T) {
	const timeout = time.Second
	path, goOn := fifo(t)
	c := helper(t, "host that is suspended", "GO="+path, "JOBS_TEST_TIMEOUT="+timeout.String())
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	launch(t, c)
	begun := time.Now()
	job := pids(t, firstLine(t, out))[0]
	require.NoError(t, c.Process.Signal(unix.SIGSTOP))
	require.True(t, eventually(func() bool { return procState(c.Process.Pid) == "T" }))
	fmt.Fprintln(goOn)
	require.True(t, eventually(func() bool { return !alive(job) }))
	if time.Since(begun) > timeout {
		t.Log("too slow to exit in time") // then the timeout may win
	}
	<-time.After(timeout + 100*time.Millisecond)
	require.NoError(t, c.Process.Signal(unix.SIGCONT))
	assert.Equal(t, "completed, exit 0", firstLine(t, out))
	require.NoError(t, c.Wait())
}

func init() {
	hostHelper("host that is suspended", func() {
		s := orExit(jobs.New(jobs.Config{}))
		ctx := context.Background()
		spec := bash(`read -r _ <"$GO"`)
		spec.Timeout = orExit(time.ParseDuration(os.Getenv("JOBS_TEST_TIMEOUT")))
		job := orExit(s.Start(ctx, spec))
		fmt.Println(job.PID)
		r := orExit(s.Collect(ctx, job.ID))
		check(r.Elapsed > 0, "elapsed %v", r.Elapsed)
		fmt.Println(r.Outcome())
		orExit(s.Close(ctx))
	})
}

func TestAHostThatReapsAllItsChildrenStillLearnsTheExitCode(t *testing.T) {
	runHelper(t, "host that reaps all its children")
}

func init() {
	hostHelper("host that reaps all its children", func() {
		told := pidfdTellsExit() // before there is a thief
		go func() {
			for {
				unix.Wait4(-1, nil, unix.WNOHANG, nil)
				runtime.Gosched()
			}
		}()
		s := orExit(jobs.New(jobs.Config{KillGrace: 100 * time.Millisecond}))
		ctx := context.Background()
		for range 30 {
			checkCodeThree(orExit(s.Collect(ctx, orExit(s.Start(ctx, bash("exit 3"))).ID)), told)
		}
		r := orExit(s.Collect(ctx, orExit(s.Start(ctx, bash("exit 0"))).ID))
		check(r.State == jobs.Completed || r.Reason == jobs.ReasonInternal, "%s", r.Outcome())
		check(r.State == jobs.Completed || !(told && jobs.PidfdWorks()), "%s", r.Outcome())

		spec, mark := markedScript(`(trap '' TERM; exec sleep 300) & wait`)
		job := orExit(s.Start(ctx, spec))
		check(eventually(func() bool { return len(marked(mark)) == 2 }), "no children")
		r = orExit(s.Cancel(ctx, job.ID))
		check(r.State == jobs.Cancelled, "%s", r.Outcome())
		check(len(marked(mark)) == 0, "processes %v live", marked(mark))
		orExit(s.Close(ctx))
	})
}

// checkCodeThree checks the end of a job that did `exit 3` and whose status
// was taken away: the code where the kernel tells it twice, or else an honest
// failure.
func checkCodeThree(r jobs.Result, told bool) {
	check(r.State == jobs.Failed, "%s", r.Outcome())
	if r.ExitCode == -1 && !(told && jobs.PidfdWorks()) {
		check(r.Reason == jobs.ReasonInternal && r.Err != nil, "%s, error %v", r.Outcome(), r.Err)
		return
	}
	check(r.ExitCode == 3 && r.Reason == jobs.ReasonExit, "%s, error %v", r.Outcome(), r.Err)
}
