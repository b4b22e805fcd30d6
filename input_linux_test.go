package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// listening is a Spec that runs a script with a pipe as standard input.
func listening(script string) jobs.Spec {
	spec := bash(script)
	spec.Input = true
	return spec
}

// inputOf returns the input of a job.
func inputOf(t testing.TB, s *jobs.Supervisor, id string) io.WriteCloser {
	t.Helper()
	in, err := s.Input(id)
	require.NoError(t, err)
	return in
}

// typeInto writes a line to the input of a job.
func typeInto(t testing.TB, s *jobs.Supervisor, id, line string) {
	t.Helper()
	_, err := io.WriteString(inputOf(t, s, id), line+"\n")
	require.NoError(t, err)
}

// unread returns how many bytes the standard input of a process holds.
func unread(pid int) int {
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/fd/0", pid), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	n, _ := unix.IoctlGetInt(fd, unix.TIOCINQ)
	return n
}

// pipeSize is what a pipe holds.
const pipeSize = 64 << 10

// A blockedWrite is a write of more than the pipe holds, to a job that does not
// read.
type blockedWrite struct {
	n   int
	err error
}

// writeUntilBlocked writes until the pipe is full. What is returned gives a
// value when the write ends.
func writeUntilBlocked(t testing.TB, s *jobs.Supervisor, job jobs.Snapshot) <-chan blockedWrite {
	t.Helper()
	in := inputOf(t, s, job.ID)
	over := make(chan blockedWrite, 1)
	go func() {
		n, err := in.Write(make([]byte, 4*pipeSize))
		over <- blockedWrite{n, err}
	}()
	require.True(t, eventually(func() bool { return unread(job.PID) == pipeSize }))
	require.Empty(t, over, "the write did not wait")
	return over
}

func TestCatLivesUntilItsInputIsClosedAndEchoesEveryByte(t *testing.T) {
	s := newSupervisor(t, jobs.Config{TailBytes: 2 << 20})
	id := start(t, s, listening("exec cat")).ID
	text := random(1 << 20)
	n, err := io.WriteString(inputOf(t, s, id), text)
	require.NoError(t, err)
	require.Equal(t, len(text), n)
	require.True(t, eventually(func() bool { return checkJob(t, s, id).OutputTotal == int64(n) }))
	require.Equal(t, jobs.Running, checkJob(t, s, id).State)

	require.NoError(t, inputOf(t, s, id).Close())
	r := collect(t, s, id)
	require.Equal(t, jobs.Completed, r.State)
	require.True(t, text == string(r.Output.Bytes()), "the text was changed on its way")
}

func TestAnInputCanBeClosedTwice(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	id := start(t, s, listening("exec cat")).ID
	in := inputOf(t, s, id)
	require.NoError(t, in.Close())
	require.NoError(t, in.Close())
	collect(t, s, id)
	require.NoError(t, in.Close())
}

func TestAWriteAfterItsOwnCloseIsNoEndOfTheJob(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	id := start(t, s, listening("cat; echo read; exec sleep 300")).ID
	in := inputOf(t, s, id)
	require.NoError(t, in.Close())
	awaitOutput(t, s, id, "read")
	_, err := io.WriteString(in, "x")
	require.ErrorIs(t, err, os.ErrClosed)
	require.NotErrorIs(t, err, jobs.ErrEnded)
	_, err = io.WriteString(inputOf(t, s, id), "x")
	require.ErrorIs(t, err, os.ErrClosed, "all writers are one")
}

func TestAWriteAfterTheEndTellsHowTheJobEnded(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	for name, closed := range map[string]bool{"open until then": false, "closed before": true} {
		id := start(t, s, listening("read -r x; exit 7")).ID
		in := inputOf(t, s, id)
		if closed {
			require.NoError(t, in.Close())
		} else {
			typeInto(t, s, id, "x")
		}
		end := awaitEnd(t, s, id)
		n, err := io.WriteString(in, "x")
		assert.Zero(t, n, name)
		je := requireJobError(t, err, jobs.ErrEnded, id)
		require.NotNil(t, je.Job, name)
		assert.Equal(t, end, *je.Job, name)
		assert.Equal(t, 7, je.Job.ExitCode, name)
		_, err = s.Input(id)
		requireJobError(t, err, jobs.ErrEnded, id)
	}
}

func TestAJobThatWasStartedWithoutInputHasNone(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	ended := start(t, s, bash("true")).ID
	awaitEnd(t, s, ended)
	for _, id := range []string{ended, start(t, s, bash("exec sleep 300")).ID, start(t, s, gated(nil, "")).ID} {
		_, err := s.Input(id)
		je := requireJobError(t, err, jobs.ErrNoInput, id)
		require.NotNil(t, je.Job)
	}
	_, err := s.Input(noJob)
	requireJobError(t, err, jobs.ErrNotFound, noJob)
}

func TestAFunctionTakesNoInput(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	spec := returning(nil)
	spec.Input = true
	_, err := s.Start(testContext(t), spec)
	var se *jobs.StartError
	require.ErrorAs(t, err, &se)
	require.Equal(t, jobs.StageSpec, se.Stage)
	require.ErrorContains(t, err, "Input")
}

func TestTheEndOfAJobReleasesAWriteThatItNeverReads(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	for _, tt := range []struct {
		name, script string
		end          func(id string, g *gate)
	}{
		{"cancel", "exec sleep 300", func(id string, _ *gate) { cancel(t, s, id) }},
		{"exit", `read -ru 3 _ 3<"$GATE"`, func(_ string, g *gate) { g.open(t) }},
		{"exit, with the pipe held by another", `sleep 300 & read -ru 3 _ 3<"$GATE"`, func(_ string, g *gate) { g.open(t) }},
		{"standard input closed", `read -ru 3 _ 3<"$GATE"; exec sleep 300 <&-`, func(_ string, g *gate) { g.open(t) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newGate(t)
			spec := g.gated("echo up; " + tt.script)
			spec.Input = true
			job := start(t, s, spec)
			awaitOutput(t, s, job.ID, "up")
			over := writeUntilBlocked(t, s, job)
			tt.end(job.ID, g)
			w := <-over
			assert.Equal(t, pipeSize, w.n)
			je := requireJobError(t, w.err, jobs.ErrEnded, job.ID)
			assert.NotNil(t, je.Job)
			cancel(t, s, job.ID)
		})
	}
}

func TestClosingTheInputReleasesAWriteToIt(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	job := start(t, s, listening("exec sleep 300"))
	over := writeUntilBlocked(t, s, job)
	require.NoError(t, inputOf(t, s, job.ID).Close())
	require.ErrorIs(t, (<-over).err, os.ErrClosed)
	require.Equal(t, jobs.Running, checkJob(t, s, job.ID).State)
}

func TestAJobThatHasClosedItsStandardInputTakesNoMore(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	id := start(t, s, listening("exec 0<&-; echo up; exec sleep 300")).ID
	awaitOutput(t, s, id, "up")
	for range 2 {
		_, err := io.WriteString(inputOf(t, s, id), "x")
		je := requireJobError(t, err, jobs.ErrEnded, id)
		require.Equal(t, jobs.Running, je.Job.State)
	}
	require.NoError(t, inputOf(t, s, id).Close())
	require.Equal(t, jobs.Running, checkJob(t, s, id).State)
}

func TestWhatSeveralWritersWriteDoesNotMix(t *testing.T) {
	const writers, each, size = 8, 4, 150_000 // more than a pipe holds
	s := newSupervisor(t, jobs.Config{TailBytes: 2 * writers * each * size})
	id := start(t, s, listening("exec cat")).ID
	in := inputOf(t, s, id)
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for range each {
				_, err := io.WriteString(in, strings.Repeat(string(rune('a'+w)), size)+"\n")
				assert.NoError(t, err)
			}
		})
	}
	all.Wait()
	require.NoError(t, in.Close())
	lines := strings.Split(strings.TrimSuffix(string(collect(t, s, id).Output.Bytes()), "\n"), "\n")
	require.Len(t, lines, writers*each)
	count := map[string]int{}
	for _, line := range lines {
		require.Len(t, line, size)
		letter := line[:1]
		require.Equal(t, size, strings.Count(line, letter))
		count[letter]++
	}
	require.Len(t, count, writers)
	for letter, n := range count {
		require.Equal(t, each, n, letter)
	}
}

func TestJobsWithInputLeaveNoDescriptorOpen(t *testing.T) {
	s, tempDir := newWarmSupervisor(t, jobs.Config{MaxRunning: 8})
	before := settledFootprint(s, tempDir).descriptors
	inParallel(200, 8, func(i int) {
		snap, err := s.Start(context.Background(), listening([]string{"true", "read -r x", "exec cat", "exec sleep 300"}[i%4]))
		if !assert.NoError(t, err) {
			return
		}
		if in, err := s.Input(snap.ID); err == nil && i%4 != 3 {
			io.WriteString(in, "x\n") // to one that may be gone
			assert.NoError(t, in.Close())
		}
		if i%4 == 3 {
			_, err = s.Cancel(context.Background(), snap.ID)
			assert.NoError(t, err)
		}
		_, err = s.Collect(context.Background(), snap.ID)
		assert.NoError(t, err)
	})
	require.True(t, eventually(func() bool { return descriptors() <= before }), "%d descriptors, before %d", descriptors(), before)
}

func TestAFailedStartWithInputLeavesNoDescriptorOpen(t *testing.T) {
	s, tempDir := newWarmSupervisor(t, jobs.Config{})
	noProgram := writeFile(t, t.TempDir(), "text", 0o755, "no program")
	before := settledFootprint(s, tempDir)
	for _, spec := range []jobs.Spec{
		{Argv: []string{"/nowhere/program"}, Input: true},
		{Argv: []string{"no-such-program"}, Input: true},
		{Argv: []string{"true"}, Dir: "/nowhere", Input: true},
		{Argv: []string{noProgram}, Input: true, SplitStderr: true},
	} {
		for range 10 {
			_, err := s.Start(testContext(t), spec)
			var se *jobs.StartError
			require.ErrorAs(t, err, &se)
		}
	}
	require.True(t, staysWithin(before, s, tempDir))
}

func TestWithoutInputTheStandardInputIsTheNullDevice(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	start(t, s, listening("exec cat"))
	split := bash("readlink /proc/self/fd/0")
	split.SplitStderr = true
	for _, spec := range []jobs.Spec{bash("readlink /proc/self/fd/0"), split} {
		r := collect(t, s, start(t, s, spec).ID)
		require.Equal(t, "/dev/null\n", string(r.Output.Bytes()))
	}
}

// If another job had inherited the writing end, there would be no end of file.
func TestTheInputOfAJobReachesNoOther(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	id := start(t, s, listening("exec cat")).ID
	others := []string{start(t, s, bash("exec sleep 300")).ID, start(t, s, listening("exec sleep 300")).ID}
	require.NoError(t, inputOf(t, s, id).Close())
	require.Equal(t, jobs.Completed, collect(t, s, id).State)
	for _, other := range others {
		require.Equal(t, jobs.Running, checkJob(t, s, other).State)
	}
}

// awaitPrompt waits until a job is seen to wait for input, and returns the first
// Snapshot that says so.
func awaitPrompt(t testing.TB, s *jobs.Supervisor, id string) (snap jobs.Snapshot) {
	t.Helper()
	require.True(t, eventually(func() bool {
		snap = checkJob(t, s, id)
		require.False(t, snap.Ended(), "%s", snap.Outcome())
		return snap.WaitingForInput
	}), "nothing waits for input")
	return snap
}

// requireNoPrompt watches silent jobs until they could be known to wait for
// input, and fails if one seems to.
func requireNoPrompt(t testing.TB, s *jobs.Supervisor, ids ...string) {
	t.Helper()
	for _, id := range ids {
		require.True(t, eventually(func() bool {
			snap := checkJob(t, s, id)
			require.False(t, snap.WaitingForInput, "job %s, silent for %v", id, snap.Idle)
			return snap.Ended() || snap.Idle > 1500*time.Millisecond
		}))
	}
}

func TestAnUnansweredQuestionShowsAfterASecondOfSilence(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	id := start(t, s, listening(`printf 'name? '; read -r x; printf "hello $x, age? "; read -r x; echo; exec sleep 300`)).ID
	awaitOutput(t, s, id, "name? ")
	require.GreaterOrEqual(t, awaitPrompt(t, s, id).Idle, time.Second)

	typeInto(t, s, id, "bob")
	awaitOutput(t, s, id, "hello bob, age? ")
	require.False(t, checkJob(t, s, id).WaitingForInput, "it has just printed something")
	require.GreaterOrEqual(t, awaitPrompt(t, s, id).Idle, time.Second)

	typeInto(t, s, id, "7")
	awaitOutput(t, s, id, "age? \n")
	requireNoPrompt(t, s, id)
}

func TestAnEndedJobWaitsForNothing(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	id := start(t, s, listening(`printf 'name? '; read -r x`)).ID
	awaitPrompt(t, s, id)
	cancel(t, s, id)
	require.False(t, checkJob(t, s, id).WaitingForInput)
}

func TestWhoeverReadsStandardInputIsSeenToWait(t *testing.T) {
	readers := map[string]string{
		"read":                 `printf 'x? '; read -r x`,
		"read of dash":         `exec dash -c 'printf "x? "; read -r x'`,
		"a subshell":           `printf 'x? '; (read -r x); true`,
		"cat":                  `printf 'x? '; exec cat`,
		"head":                 `printf 'x? '; exec head -n 1`,
		"dd":                   `printf 'x? '; exec dd bs=1 count=1 status=none`,
		"python3":              `exec python3 -c 'input("x? ")'`,
		"perl":                 `exec perl -e '$| = 1; print "x? "; <STDIN>'`,
		"poll":                 `exec python3 -c 'import select, sys; print("x? ", end="", flush=True); select.select([sys.stdin], [], [])'`,
		"a child in a pipe":    `printf 'x? '; cat | cat`,
		"a child in a session": `printf 'x? '; setsid -w cat`,
		"question on stderr":   `printf 'x? ' >&2; read -r x`,
	}
	s := newSupervisor(t, jobs.Config{MaxRunning: 2 * len(readers)})
	asked := map[string]string{}
	for name, script := range readers {
		spec := listening(script)
		asked[name] = start(t, s, spec).ID
		spec.SplitStderr = true
		asked[name+", stderr apart"] = start(t, s, spec).ID
	}
	for name, id := range asked {
		t.Run(name, func(t *testing.T) { awaitPrompt(t, s, id) })
	}
	for name, id := range asked {
		typeInto(t, s, id, "y")
		require.NoError(t, inputOf(t, s, id).Close())
		require.Equal(t, jobs.Completed, collect(t, s, id).State, name)
	}
}

func TestASilentJobThatReadsNothingDoesNotSeemToWait(t *testing.T) {
	g := newGate(t)
	scripts := []string{
		`echo 'name?'; read -r x`,                    // a finished line
		`read -r x`,                                  // no question
		`printf working; exec sleep 300`,             // nobody reads
		`printf working; sleep 300 | cat`,            // that is another input
		`printf working; read -r x <"$GATE"`,         // and that
		`printf working; exec cat <&- 3<"$GATE" <&3`, // and that
		`printf 'name? '; read -r x; true`,           // its end comes
	}
	s := newSupervisor(t, jobs.Config{MaxRunning: len(scripts) + 1})
	var silent []string
	for _, script := range scripts {
		spec := g.gated(script)
		spec.Input = true
		silent = append(silent, start(t, s, spec).ID)
	}
	require.NoError(t, inputOf(t, s, silent[len(silent)-1]).Close())
	silent = append(silent, start(t, s, bash("printf 'name? '; exec sleep 300")).ID)
	requireNoPrompt(t, s, silent...)
}

// A stopped process has its system call under way like one that waits, so that
// only what the pipe holds tells the two apart.
func TestAJobThatHasNotReadAllItsInputDoesNotSeemToWait(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	job := start(t, s, listening(`printf 'name? '; read -r x; read -r y`))
	awaitOutput(t, s, job.ID, "name? ")
	require.NoError(t, unix.Kill(job.PID, unix.SIGSTOP))
	require.True(t, eventually(func() bool { return procState(job.PID) == "T" }))
	typeInto(t, s, job.ID, "bob")
	require.Equal(t, 4, unread(job.PID))
	requireNoPrompt(t, s, job.ID)
	require.NoError(t, unix.Kill(job.PID, unix.SIGCONT))
	awaitPrompt(t, s, job.ID)
}

func init() {
	hostHelper("prompts of an outsider", func() {
		s := orExit(jobs.New(jobs.Config{TempDir: "/tmp"}))
		for _, script := range []string{`printf 'x? '; read -r x`, `printf 'x? '; cat | cat`} {
			job := orExit(s.Start(context.Background(), listening(script)))
			check(eventually(func() bool { return orExit(s.Check(job.ID)).WaitingForInput }), "%s: nothing waits for input", script)
			orExit(s.Input(job.ID)).Close()
			r := orExit(s.Collect(context.Background(), job.ID))
			check(r.Ended() && !r.WaitingForInput, "%s", r.Outcome())
		}
		orExit(s.Close(context.Background()))
	})
}

func TestAnOrdinaryUserSeesWhatWaitsForInput(t *testing.T) {
	out, err := asOutsider(t, helper(t, "prompts of an outsider")).Output()
	require.NoError(t, err, "%s", out)
}

func TestCheckOfAJobWithoutInputAllocatesNothing(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	id := start(t, s, bash("printf 'name? '; exec sleep 300")).ID
	awaitOutput(t, s, id, "name? ")
	require.True(t, eventually(func() bool { return checkJob(t, s, id).Idle > time.Second }))
	require.Zero(t, testing.AllocsPerRun(1000, func() { s.Check(id) }))
}

// Looking at processes costs more than anything else about a Check, so it is
// done once a second at most, however many ask.
func TestManyLooksAtAJobThatWaitsCostLittle(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	id := start(t, s, listening(`printf 'name? '; read -r x`)).ID
	awaitPrompt(t, s, id)
	allocations := testing.AllocsPerRun(100, func() { s.Check(id) })
	require.Less(t, allocations, 20.0)
}

func TestAWriteWaitsForTheOneBefore(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	g := newGate(t)
	spec := g.gated(`read -ru 3 _ 3<"$GATE"; exec wc -c`)
	spec.Input = true
	job := start(t, s, spec)
	over := writeUntilBlocked(t, s, job)
	second := make(chan error, 1)
	go func() {
		_, err := io.WriteString(inputOf(t, s, job.ID), "after")
		second <- errors.Join(err, inputOf(t, s, job.ID).Close())
	}()
	g.open(t)
	require.NoError(t, (<-over).err)
	require.NoError(t, <-second)
	require.Equal(t, fmt.Sprintln(4*pipeSize+5), string(collect(t, s, job.ID).Output.Bytes()))
}
