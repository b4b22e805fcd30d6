package jobs_test

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// RW-020: TestKillZeroInAJobReachesOnlyTheJob
// RW-022: TestATerminalsCtrlCReachesTheHostAndNotItsJobs
// RW-134: TestAHostThatAdoptsOrphansIsLeftWithoutZombies
// RW-136: TestStartAndCancelAtOnceLeaveNothing
func TestNothingEscapesAStop(t *testing.T) {
	hasty := jobs.Config{KillGrace: 300 * time.Millisecond}
	requireFaults(t, []fault{
		{
			id: "RW-002", claim: "busy children go with the timeout",
			script: `for i in 1 2 3; do (while :; do :; done) & done; wait`,
			spec:   jobs.Spec{Timeout: time.Second}, within: 3*time.Second + slack,
			want: "failed, timeout, SIGTERM",
		},
		{
			id: "RW-004", claim: "a member that ignores TERM goes though the leader obeyed",
			script: `(trap '' TERM; exec sleep 300) & wait`,
			do:     cancelledAsleep(1), within: 2*time.Second + slack,
			want: "cancelled, SIGTERM",
		},
		{
			id: "RW-006", claim: "GNU timeout in a group of its own",
			script: `timeout 300 sleep 300; true`,
			do:     cancelledAsleep(1), within: 2*time.Second + slack,
			want: "cancelled, SIGTERM",
		},
		{
			id: "RW-008", claim: "job control gives each child a group",
			script: `set -m; sleep 300 & sleep 300 & wait`,
			do:     cancelledAsleep(2), within: 2*time.Second + slack,
			want: "cancelled, SIGTERM",
		},
		{
			id: "RW-010", claim: "a quiet daemon in a session of its own",
			script: `setsid -f sleep 300 >/dev/null 2>&1; sleep 300`,
			do:     cancelledAsleep(2), within: 2*time.Second + slack,
			want: "cancelled, SIGTERM",
		},
		{
			id: "RW-012", claim: "nohup and disown",
			script: `nohup sleep 300 >/dev/null 2>&1 & sleep 300 & disown; sleep 300`,
			do:     cancelledAsleep(3), within: 2*time.Second + slack,
			want: "cancelled, SIGTERM",
		},
		{
			id: "RW-014", claim: "behind a terminal of its own",
			script: `script -qc 'nohup sleep 300' /dev/null; true`,
			do:     cancelledAsleep(1), within: 2*time.Second + slack,
			want: "cancelled, SIGTERM",
			see:  func(*testing.T, jobs.Result, trial) {}, // what nohup and script say
		},
		{
			id: "RW-016", claim: "an escape that begins with the TERM",
			script: `trap 'setsid sleep 300 >/dev/null 2>&1 & exit 0' TERM; sleep 300 & wait`,
			do:     cancelledAsleep(1), within: 2*time.Second + slack,
			want: "cancelled, exit 0",
		},
		{
			id: "like RW-002", claim: "a child that forks all the time",
			script: `(while :; do sleep 0.001 & done) 2>/dev/null & echo up; wait`,
			config: hasty, do: cancelledAt("up"),
			want: "cancelled, SIGTERM", text: "up\n",
		},
		{
			id: "like RW-010", claim: "a daemon that is another process every moment",
			script: `export HOP='sleep 0.03; setsid bash -c "$HOP" >/dev/null 2>&1 & exit'
				bash -c "$HOP" & echo up; sleep 300`,
			config: hasty, do: cancelledAt("up"),
			want: "cancelled, SIGTERM", text: "up\n",
		},
		{
			id: "like RW-010", claim: "a daemon that never rests, for ten thousand generations",
			script: `export N=10000 HOP='N=$((N - 1)); [ $N -gt 0 ] || exit; export N; setsid bash -c "$HOP" >/dev/null 2>&1 & exit'
				bash -c "$HOP" & echo up; sleep 300`,
			config: hasty, do: cancelledAt("up"),
			want: "cancelled, SIGTERM", text: "up\n",
		},
		{
			id: "like RW-010", claim: "a daemon whose name looks like the fields of a dead process",
			script: `ln -s "$(command -v sleep)" "$D/x) Z 1 1 (y"; setsid -f "$D/x) Z 1 1 (y" 300; echo up; sleep 300`,
			do: func(t *testing.T, job trial) jobs.Result {
				require.True(t, eventually(func() bool {
					return slices.ContainsFunc(marked(job.mark), func(pid int) bool { return comm(pid) == "x) Z 1 1 (y" })
				}))
				return cancelled(t, job)
			},
			want: "cancelled, SIGTERM", text: "up\n",
		},
		{
			id: "like RW-010", claim: "a daemon under the id of no job",
			script: `AGENT_JOB_ID=job_00000000000000000000 setsid sleep 300 >/dev/null 2>&1 & sleep 300`,
			do:     cancelledAsleep(2),
			want:   "cancelled, SIGTERM",
		},
		{
			id: "like RW-014", claim: "a member that is stopped in a session of its own",
			script: `setsid bash -c 'kill -STOP $$; sleep 300' & wait`,
			do:     cancelledOnceStopped, within: 2*time.Second + slack,
			want: "cancelled, SIGTERM",
		},
		{
			id: "like RW-016", claim: "a trap that starts the job anew",
			script: `trap 'setsid bash "$D/again" & exit 0' TERM; echo "sleep 300" >"$D/again"; sleep 300 & wait`,
			config: hasty, do: cancelledAsleep(1),
			want: "cancelled, exit 0",
		},
		{
			id: "like RW-004", claim: "a leader that becomes a program without the job's environment",
			script: `trap '' TERM; echo up; exec env -i sleep 300`,
			config: hasty, do: cancelledAt("up"),
			want: "cancelled, SIGKILL", text: "up\n",
		},
		{
			id: "like RW-004", claim: "a scrubbed daemon that ignores TERM while its parent lives",
			script: `(trap '' TERM; exec env -i setsid sleep 300 >/dev/null 2>&1) & echo $!; wait`,
			config: hasty,
			do: func(t *testing.T, job trial) jobs.Result {
				daemon := pids(t, awaitOutput(t, job.s, job.id, "\n"))[0]
				endProcess(t, daemon)
				require.True(t, eventually(func() bool { return comm(daemon) == "sleep" }))
				r := cancelled(t, job)
				requireDead(t, daemon)
				return r
			},
			want: "cancelled, SIGTERM",
			see:  func(*testing.T, jobs.Result, trial) {},
		},
	})
}

// RW-095: TestAHostThatIgnoresSignalsStillEndsItsJobs
// RW-097: TestAMemberThatCannotBeKilledIsNamed
func TestAStopBeginsWithSignalsThatAreHeard(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	requireFaults(t, []fault{
		{
			id: "RW-089", claim: "a stopped job, at a cancel",
			script: `kill -STOP $$; echo resumed`,
			do:     cancelledOnceStopped, within: 2*time.Second + slack,
			want: "cancelled, SIGTERM",
		},
		{
			id: "RW-089", claim: "a stopped job, at its timeout",
			script: `kill -STOP $$; echo resumed`,
			spec:   jobs.Spec{Timeout: time.Second}, within: 3*time.Second + slack,
			want: "failed, timeout, SIGTERM",
		},
		{
			id: "RW-091", claim: "a trap may clean up and speak",
			script: `trap 'echo cleaned >>$D/f; echo bye; exit 0' TERM; sleep 300 & wait`,
			do:     cancelledAsleep(1),
			want:   "cancelled, exit 0",
			see: func(t *testing.T, r jobs.Result, job trial) {
				seeFile("f", "cleaned\n")(t, r, job)
				assert.Equal(t, "bye\n", r.Text(jobs.TextOptions{TailLines: 1}).Body)
			},
		},
		{
			id: "RW-093", claim: "a trap behind a foreground child",
			script: `trap 'echo t >>$D/f; exit 9' TERM; sleep 30; exit 0`,
			do:     cancelledAsleep(1), within: time.Second + slack,
			want: "cancelled, exit 9",
			see:  seeFile("f", "t\n"),
		},
		{
			id: "RW-100", claim: "an ordered stop is no failure",
			script: `sleep 300`,
			do:     cancelledAsleep(1),
			want:   "cancelled, SIGTERM",
		},
		{
			id: "RW-102", claim: "a finished job takes ten cancels and stays as it is",
			script: `exit 0`,
			do: func(t *testing.T, job trial) jobs.Result {
				end := awaitEnd(t, job.s, job.id)
				for range 10 {
					assert.Equal(t, end, cancelled(t, job).Snapshot)
				}
				return collected(t, job)
			},
			want: "completed, exit 0",
		},
		{
			id: "like RW-089", claim: "a job that stops itself again whenever it is continued",
			script: `trap 'kill -STOP $$' CONT TERM; echo up; kill -STOP $$; while :; do sleep 0.01; done`,
			config: jobs.Config{KillGrace: 300 * time.Millisecond}, do: cancelledOnceStopped,
			want: "cancelled, SIGKILL", text: "up\n",
		},
		{
			id: "like RW-093", claim: "a leader whose first thread has exited",
			spec: jobs.Spec{Argv: []string{self}, Env: []string{helperEnv + "=lose the first thread"}},
			do: func(t *testing.T, job trial) jobs.Result {
				awaitOutput(t, job.s, job.id, "\n")
				require.True(t, eventually(func() bool { return procState(job.pid) == "Z" }))
				assert.False(t, checkJob(t, job.s, job.id).LeaderExited)
				return cancelled(t, job)
			},
			config: jobs.Config{KillGrace: 300 * time.Millisecond},
			want:   "cancelled, SIGKILL",
			see: func(t *testing.T, r jobs.Result, job trial) {
				assert.Equal(t, fmt.Sprintln(job.pid), string(r.Output.Bytes()))
			},
		},
		{
			id: "like RW-093", claim: "a leader that goes on and exits without its first thread",
			spec: jobs.Spec{Argv: []string{self}, Env: []string{helperEnv + "=exit without the first thread"}},
			want: "failed, exit 3", text: "later\n",
		},
	})
}

func init() {
	const name = "exit without the first thread"
	helpers[name] = func() {
		go func() {
			for procState(os.Getpid()) != "Z" {
				runtime.Gosched()
			}
			fmt.Println("later")
			os.Exit(3)
		}()
		unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
	}
	if os.Getenv(helperEnv) == name {
		runtime.LockOSThread() // to the first thread, where init runs
	}
}

// RW-024: TestTheLeadersCodeSurvivesAForcedEndOfTheOutput
// RW-030: TestATimeoutEndsTheWholeTree
func TestNobodyWhoHoldsAPipeHoldsTheJob(t *testing.T) {
	requireFaults(t, []fault{
		{
			id: "RW-024", claim: "a code of its own survives",
			script: `sleep 60 & exit 3`,
			want:   "failed, exit 3",
		},
		{
			id: "RW-024", claim: "success stays success",
			script: `sleep 60 & true`,
			want:   "completed, exit 0",
		},
		{
			id: "RW-026", claim: "fresh output does not extend the drain",
			script: `(while :; do echo tick; sleep 0.2; done) & echo started; exit 0`,
			config: jobs.Config{DrainGrace: time.Second}, within: 1500*time.Millisecond + slack,
			want: "completed, exit 0",
			see: func(t *testing.T, r jobs.Result, _ trial) {
				assert.Regexp(t, `^(started\n)?(tick\n)*(started\n)?(tick\n)*$`, r.Text(jobs.TextOptions{}).String())
				assert.Contains(t, string(r.Output.Bytes()), "started\n")
				assert.NotEmpty(t, r.Leftovers)
			},
		},
		{
			id: "RW-028", claim: "words on their way are waited for",
			script: `exec > >(sleep 2; cat) 2>&1; echo hi`,
			config: jobs.Config{DrainGrace: patience}, within: 3*time.Second + slack,
			want: "completed, exit 0", text: "hi\n",
		},
		{
			id: "RW-028", claim: "words that came too late are not lost in silence",
			script: `exec > >(sleep 20; cat) 2>&1; echo hi`,
			config: jobs.Config{DrainGrace: 500 * time.Millisecond}, within: time.Second + slack,
			want: "completed, exit 0",
			see:  func(t *testing.T, r jobs.Result, _ trial) { assert.NotEmpty(t, r.Leftovers) },
		},
		{
			id: "RW-032", claim: "a holder of the result file",
			script: `exec 9>>"$LLM_OUTPUT"; echo early >&9; (sleep 60) </dev/null >/dev/null 2>&1 & exit 0`,
			want:   "completed, exit 0", text: "early\n",
		},
		{
			id: "like RW-024", claim: "a holder with the pipe at another number",
			script: `sleep 60 7>&1 >/dev/null 2>&1 & exit 4`,
			want:   "failed, exit 4",
		},
		{
			id: "like RW-026", claim: "a holder that is stopped",
			script: `sleep 60 & kill -STOP $!; exit 5`,
			want:   "failed, exit 5",
		},
		{
			id: "like RW-026", claim: "a flood from a session of its own",
			script: `setsid yes & exit 6`,
			config: jobs.Config{DrainGrace: 500 * time.Millisecond},
			want:   "failed, exit 6",
			see: func(t *testing.T, r jobs.Result, _ trial) {
				assert.NotEmpty(t, r.Leftovers)
				assert.Empty(t, strings.Trim(string(r.Output.Bytes()), "y\n"))
			},
		},
		{
			id: "like RW-028", claim: "a job that closed its streams before it was done",
			script: `echo early; exec >&- 2>&-; sleep 0.3; exit 7`,
			want:   "failed, exit 7", text: "early\n",
		},
	})
}

// RW-105: TestAnExitInTimeWinsOverATimeoutThatTheHostSlept
// RW-107: TestTheTimeoutOfASpecOverridesTheDefault
func TestTheLargestDurationsDoNotOverflow(t *testing.T) {
	s := newSupervisor(t, jobs.Config{DrainGrace: math.MaxInt64, KillGrace: math.MaxInt64, RetainFor: math.MaxInt64, Timeout: math.MaxInt64})
	spec := bash(`sleep 0.05; echo done`)
	spec.Timeout, spec.IdleTimeout = math.MaxInt64, math.MaxInt64
	r, err := s.Run(testContext(t), spec, math.MaxInt64)
	require.NoError(t, err)
	assert.Equal(t, "completed, exit 0", r.Outcome())

	id := start(t, s, bash(`sleep 300`)).ID
	waited, err := s.Wait(testContext(t), jobs.WaitSpec{IDs: []string{id}, Timeout: 1})
	require.NoError(t, err)
	assert.True(t, waited.TimedOut)
	assert.Equal(t, jobs.Running, waited.Jobs[0].State)
	assert.Equal(t, jobs.Cancelled, cancel(t, s, id).State)
	assert.Equal(t, jobs.Cancelled, collect(t, s, id).State, "it is remembered")
}
