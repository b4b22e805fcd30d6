package jobs_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// limited runs a script under limits.
func limited(t testing.TB, s *jobs.Supervisor, l jobs.Limits, script string) jobs.Result {
	t.Helper()
	spec := bash(script)
	spec.Limits = l
	return collect(t, s, start(t, s, spec).ID)
}

func TestAJobThatTakesTooMuchProcessorTimeIsEndedByTheSystem(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	r := limited(t, s, jobs.Limits{CPU: time.Second}, "while :; do :; done")
	require.Equal(t, jobs.Failed, r.State)
	require.Equal(t, jobs.ReasonResourceLimit, r.Reason)
	require.Equal(t, jobs.Signal(unix.SIGXCPU), r.Signal)
	require.Equal(t, -1, r.ExitCode)
	require.Equal(t, "failed, resource_limit, SIGXCPU", r.Outcome())
	require.GreaterOrEqual(t, r.CPUTime, 500*time.Millisecond) // the system counts by ticks
	require.Less(t, r.CPUTime, 5*time.Second)
}

func TestAJobThatIgnoresItsLimitOfProcessorTimeIsKilledAllTheSame(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	r := limited(t, s, jobs.Limits{CPU: time.Second}, "trap '' XCPU; while :; do :; done")
	require.Equal(t, jobs.Failed, r.State)
	require.Equal(t, jobs.ReasonSignal, r.Reason, "a SIGKILL may have come from anywhere")
	require.Equal(t, jobs.Signal(unix.SIGKILL), r.Signal)
}

func TestAFileThatGrowsTooLargeEndsItsWriter(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	dir := t.TempDir()
	spec := jobs.Spec{Argv: []string{"dd", "if=/dev/zero", "of=file", "bs=1000", "count=100"}, Dir: dir, Limits: jobs.Limits{FileSize: 10 * 512}}
	r := collect(t, s, start(t, s, spec).ID)
	require.Equal(t, jobs.Failed, r.State)
	require.Equal(t, jobs.ReasonResourceLimit, r.Reason)
	require.Equal(t, jobs.Signal(unix.SIGXFSZ), r.Signal)
	fi, err := os.Stat(filepath.Join(dir, "file"))
	require.NoError(t, err)
	require.Equal(t, int64(10*512), fi.Size())
}

func TestLimitsAreThoseThatAProcessSees(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	const show = `for h in S H; do ulimit -$h -t; ulimit -$h -n; ulimit -$h -v; ulimit -$h -f; done`
	for _, tt := range []struct {
		limits jobs.Limits
		want   string // "-" where the host's limit stays
	}{
		{jobs.Limits{}, "- - - - - - - -"},
		{jobs.Limits{CPU: 90 * time.Second, OpenFiles: 33, Memory: 4 << 30, FileSize: 4 << 20}, "90 33 4194304 4096 92 33 4194304 4096"},
		{jobs.Limits{OpenFiles: 33}, "- 33 - - - 33 - -"},
		{jobs.Limits{CPU: 1900 * time.Millisecond}, "1 - - - 3 - - -"},
		{jobs.Limits{Memory: 4<<30 + 1023}, "- - 4194304 - - - 4194304 -"},
	} {
		host := strings.Fields(string(runScript(t, s, show).Output.Bytes()))
		r := limited(t, s, tt.limits, show)
		got := strings.Fields(string(r.Output.Bytes()))
		want := strings.Fields(tt.want)
		require.Len(t, got, len(want), "%q", r.Output.Bytes())
		for i := range want {
			if want[i] == "-" {
				want[i] = host[i]
			}
		}
		assert.Equal(t, want, got, "%+v", tt.limits)
	}
}

func TestAProgramStartsWithTheFewestDescriptorsThereCanBe(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	r := collect(t, s, start(t, s, jobs.Spec{Argv: []string{"echo", "up"}, Limits: jobs.Limits{OpenFiles: 4}}).ID)
	require.Equal(t, jobs.Completed, r.State, "%s: %s", r.Outcome(), r.Output.Bytes())
	require.Equal(t, "up\n", string(r.Output.Bytes()))
}

func TestAJobThatWantsTooMuchMemoryDoesNotGetIt(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	const want = `my $x = "x" x (300 << 20); print "got it\n"`
	for _, tt := range []struct {
		limits jobs.Limits
		gets   bool
	}{{jobs.Limits{}, true}, {jobs.Limits{Memory: 1 << 30}, true}, {jobs.Limits{Memory: 200 << 20}, false}} {
		r := collect(t, s, start(t, s, jobs.Spec{Argv: []string{"perl", "-e", want}, Limits: tt.limits}).ID)
		require.Equal(t, tt.gets, r.State == jobs.Completed, "%+v: %s", tt.limits, r.Outcome())
		require.Equal(t, tt.gets, strings.Contains(string(r.Output.Bytes()), "got it"))
	}
}

func TestLimitsChangeNothingElseAboutAJob(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	dir := t.TempDir()
	args := []string{"-x", "--", "a b", "", "c\nd", `'"$HOME\`, "*", "~", "-", "é\xff"}
	writeFile(t, dir, "tool", 0o755, "#!/bin/bash\nprintf '<%s>' \"$@\"; pwd; printf '%s' \"$LLM_OUTPUT\" | wc -c; umask; readlink /proc/self/fd/0; exit 7\n")
	for _, program := range []string{"tool", "./tool", filepath.Join(dir, "tool")} {
		spec := jobs.Spec{Argv: append([]string{program}, args...), Dir: dir, Env: []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "sh=1", "script=2"}}
		plain := collect(t, s, start(t, s, spec).ID)
		spec.Limits = jobs.Limits{CPU: time.Hour, OpenFiles: 100, FileSize: 1 << 30, Memory: 8 << 30}
		r := collect(t, s, start(t, s, spec).ID)
		require.Equal(t, string(plain.Output.Bytes()), string(r.Output.Bytes()), program)
		require.Equal(t, 7, r.ExitCode)
		require.Equal(t, "tool", r.Tool)
		require.Equal(t, jobs.ReasonExit, r.Reason)
	}
}

// The shell that sets the limits knows the program by its path only.
func TestUnderLimitsAProgramIsCalledByItsPath(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	r := collect(t, s, start(t, s, jobs.Spec{Argv: []string{"bash", "-c", `tr '\0' ' ' </proc/$$/cmdline`}, Limits: jobs.Limits{OpenFiles: 100}}).ID)
	require.Regexp(t, `^/\S*/bash -c `, string(r.Output.Bytes()))
}

// The leader must be the program itself, not a shell in front of it.
func TestUnderLimitsTheLeaderIsTheProgram(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	job := start(t, s, jobs.Spec{Argv: []string{"sleep", "300"}, Limits: jobs.Limits{OpenFiles: 100}})
	require.True(t, eventually(func() bool { return comm(job.PID) == "sleep" }))
	r := cancel(t, s, job.ID)
	require.Equal(t, jobs.Signal(unix.SIGTERM), r.Signal)
	require.Equal(t, jobs.Cancelled, r.State)
}

func TestUnderLimitsAStartFailsAsWithoutThem(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "text", 0o644, "no program")
	s, tempDir := newWarmSupervisor(t, jobs.Config{MaxRunning: 1})
	before := settledFootprint(s, tempDir)
	for _, spec := range []jobs.Spec{
		{Argv: []string{"no-such-program"}},
		{Argv: []string{"/nowhere/program"}},
		{Argv: []string{"./nothing"}, Dir: dir},
		{Argv: []string{"./text"}, Dir: dir},
		{Argv: []string{filepath.Join(dir, "text")}},
		{Argv: []string{dir}},
		{Argv: []string{"true"}, Dir: "/nowhere"},
		{Argv: []string{"true"}, Dir: filepath.Join(dir, "text")},
		{Argv: []string{"/bin/true"}, Dir: "/nowhere"},
		{Argv: []string{"./true"}, Dir: "/nowhere"},
	} {
		spec.Input = true
		_, err := s.Start(testContext(t), spec)
		var without, with *jobs.StartError
		require.ErrorAs(t, err, &without, "%q in %q", spec.Argv, spec.Dir)
		spec.Limits = jobs.Limits{OpenFiles: 100}
		_, err = s.Start(testContext(t), spec)
		require.ErrorAs(t, err, &with, "%q in %q", spec.Argv, spec.Dir)
		assert.Equal(t, without.Stage, with.Stage, "%q in %q", spec.Argv, spec.Dir)
		assert.Equal(t, without.Tool, with.Tool)
		assert.Equal(t, without.Hint, with.Hint, "%q in %q", spec.Argv, spec.Dir)
	}
	require.True(t, staysWithin(before, s, tempDir))
}

func TestLimitsThatMakeNoSenseAreRefused(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	for name, l := range map[string]jobs.Limits{
		"CPU":        {CPU: -time.Second},
		"FileSize":   {FileSize: -1},
		"OpenFiles":  {OpenFiles: -1},
		"Memory":     {Memory: -1},
		"CPU ":       {CPU: time.Millisecond},
		"FileSize ":  {FileSize: 511},
		"OpenFiles ": {OpenFiles: 3},
	} {
		spec := bash("true")
		spec.Limits = l
		_, err := s.Start(testContext(t), spec)
		var se *jobs.StartError
		require.ErrorAs(t, err, &se, name)
		assert.Equal(t, jobs.StageSpec, se.Stage, name)
		assert.ErrorContains(t, err, "Limits."+strings.TrimSpace(name))
	}
	spec := returning(nil)
	spec.Limits = jobs.Limits{CPU: time.Second}
	_, err := s.Start(testContext(t), spec)
	require.ErrorContains(t, err, "Limits")
}

func init() {
	hostHelper("limits above the host's", func() {
		low := unix.Rlimit{Cur: 50, Max: 60}
		check(unix.Setrlimit(unix.RLIMIT_NOFILE, &low) == nil, "setrlimit")
		s := orExit(jobs.New(jobs.Config{TempDir: "/tmp"}))
		for _, limits := range []jobs.Limits{{OpenFiles: 1000}, {OpenFiles: 1000, CPU: 1000 * time.Hour, Memory: 1 << 60, FileSize: 1 << 60}} {
			spec := bash("ulimit -S -n; ulimit -H -n")
			spec.Limits = limits
			r := orExit(s.Collect(context.Background(), orExit(s.Start(context.Background(), spec)).ID))
			fmt.Printf("%s %q\n", r.Outcome(), r.Output.Bytes())
		}
		orExit(s.Close(context.Background()))
	})
}

func TestALimitAboveTheHostsIsHarmless(t *testing.T) {
	out, err := asOutsider(t, helper(t, "limits above the host's")).Output()
	require.NoError(t, err, "%s", out)
	for line := range strings.Lines(string(out)) {
		// Go raises its own soft limit to the hard one, for itself and not for its
		// children.
		require.Regexp(t, `^completed, exit 0 "(50|60)\\n60\\n"\n$`, line)
	}
	require.Equal(t, 2, strings.Count(string(out), "\n"))
}

func TestAStopIsNeverTakenForALimit(t *testing.T) {
	s := newSupervisor(t, jobs.Config{KillGrace: 100 * time.Millisecond})
	limits := jobs.Limits{CPU: time.Hour, FileSize: 1 << 30, OpenFiles: 100, Memory: 8 << 30}
	for _, tt := range []struct {
		script string
		signal unix.Signal
	}{
		{"echo up; exec sleep 300", unix.SIGTERM},
		{"trap '' TERM; echo up; while :; do sleep 1; done", unix.SIGKILL},
		// Its own doing, but only after it was told to stop.
		{"trap 'trap - XCPU; kill -XCPU $$' TERM; echo up; while :; do sleep 0.01; done", unix.SIGXCPU},
	} {
		spec := bash(tt.script)
		spec.Limits = limits
		id := start(t, s, spec).ID
		awaitOutput(t, s, id, "up")
		r := cancel(t, s, id)
		require.Equal(t, jobs.Cancelled, r.State)
		require.Equal(t, jobs.ReasonCancelled, r.Reason)
		require.Equal(t, jobs.Signal(tt.signal), r.Signal)
	}
}

func TestOtherSignalsAreNoLimit(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	for _, sig := range []unix.Signal{unix.SIGKILL, unix.SIGTERM, unix.SIGSEGV} {
		r := limited(t, s, jobs.Limits{OpenFiles: 100}, fmt.Sprintf("kill -%d $$", sig))
		require.Equal(t, jobs.ReasonSignal, r.Reason)
		require.Equal(t, jobs.Signal(sig), r.Signal)
	}
	// A shell that saw such a death in a child has exited by itself.
	r := limited(t, s, jobs.Limits{OpenFiles: 100}, "bash -c 'kill -XCPU $$'; exit $?")
	require.Equal(t, jobs.ReasonExit, r.Reason)
	require.Equal(t, 128+int(unix.SIGXCPU), r.ExitCode)
}

// Which of the two comes first is open, but the answer must fit.
func TestACancelBesideALimitTellsOneOfTheTwo(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	for range 20 {
		id := start(t, s, bash("echo up; kill -XCPU $$; exec sleep 300")).ID
		awaitOutput(t, s, id, "up")
		r := cancel(t, s, id)
		switch r.Reason {
		case jobs.ReasonCancelled:
			require.Equal(t, jobs.Cancelled, r.State)
		default:
			require.Equal(t, "failed, resource_limit, SIGXCPU", r.Outcome())
		}
	}
}

func TestProcessorTimeOfAJobIsThatOfAllItHasWaitedFor(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	const busy = `perl -e '1 while (times)[0] < 0.25'`
	own := runScript(t, s, "exec "+busy)
	child := runScript(t, s, "("+busy+"); true")
	idle := runScript(t, s, "true")
	require.GreaterOrEqual(t, own.CPUTime, 200*time.Millisecond)
	require.GreaterOrEqual(t, child.CPUTime, 200*time.Millisecond)
	require.Less(t, idle.CPUTime, 200*time.Millisecond)
	require.Zero(t, checkJob(t, s, start(t, s, bash("exec sleep 300")).ID).CPUTime, "not known before the end")
	require.Zero(t, collect(t, s, start(t, s, returning(nil)).ID).CPUTime)
}

func init() {
	// A host of its own, as what a host has had counts to its jobs.
	hostHelper("peak memory", func() {
		s := orExit(jobs.New(jobs.Config{}))
		for _, argv := range [][]string{{"python3", "-c", "x = bytearray(b'x') * (300 << 20)"}, {"bash", "-c", `perl -e '$x = "x" x (150 << 20)'; true`}, {"true"}} {
			r := orExit(s.Collect(context.Background(), orExit(s.Start(context.Background(), jobs.Spec{Argv: argv})).ID))
			check(r.State == jobs.Completed, "%s", r.Outcome())
			fmt.Println(r.PeakRSS >> 20)
		}
		orExit(s.Close(context.Background()))
	})
}

func TestPeakMemoryIsThatOfTheLargestProcess(t *testing.T) {
	// The shell in between has little memory, and so has what it forks.
	c := helper(t, "peak memory")
	c.Path, c.Args = "/bin/sh", []string{"sh", "-c", `"$0"; exit $?`, c.Path}
	out, err := c.Output()
	require.NoError(t, err, "%s", out)
	peaks := pids(t, string(out)) // numbers like any others
	require.Len(t, peaks, 3)
	assert.InDelta(t, 325, peaks[0], 75)
	assert.InDelta(t, 325, peaks[1], 175)
	assert.Less(t, peaks[2], 64)
	assert.GreaterOrEqual(t, peaks[2], 0)
}
