package jobs_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// gone reports whether a process is gone, or a zombie that has nothing left: its
// end of a FIFO is closed. It needs no /proc.
func gone(fifo string) bool {
	end, err := os.OpenFile(fifo, os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err == nil {
		end.Close()
	}
	return err != nil // nobody reads
}

func TestWithoutProcJobsEndAndDieAllTheSame(t *testing.T) {
	runMounting(t, "host without proc", "DIR="+t.TempDir())
}

func TestWithTheProcOfAnotherNamespaceJobsEndAndDieAllTheSame(t *testing.T) {
	stranger := exec.Command("sleep", "300")
	launch(t, stranger)
	runInNamespace(t, "host with a foreign proc", "DIR="+t.TempDir())
	require.True(t, alive(stranger.Process.Pid))
}

func init() {
	hostHelper("host without proc", func() {
		check(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") == nil, "cannot make mounts private")
		check(unix.Mount("tmpfs", "/proc", "tmpfs", 0, "") == nil, "cannot hide /proc")
		runBlind()
	})
	hostHelper("host with a foreign proc", func() {
		check(os.Getpid() == 1, "not PID 1")
		runBlind()
	})
}

// runBlind runs jobs in a helper that has no /proc of use.
func runBlind() {
	fifo := os.Getenv("DIR") + "/fifo"
	check(unix.Mkfifo(fifo, 0o600) == nil, "mkfifo")
	ctx := context.Background()
	s := orExit(jobs.New(jobs.Config{KillGrace: 100 * time.Millisecond}))
	run := func(spec jobs.Spec) jobs.Result { return orExit(s.Collect(ctx, orExit(s.Start(ctx, spec)).ID)) }
	for range 20 {
		r := run(bash("echo hi; echo 1 >$LLM_OUTPUT; exit 3"))
		check(r.Outcome() == "failed, exit 3" && string(r.Output.Bytes()) == "hi\n1\n" && len(r.Leftovers) == 0, "%s %q", r.Outcome(), r.Output.Bytes())
	}
	// In the group, alive beyond the leader, and deaf.
	holder := fmt.Sprintf(`(trap '' TERM; exec 3<>%s; echo ready; exec sleep 300) & `, fifo)
	until := func(id string) {
		check(eventually(func() bool { return orExit(s.Check(id)).OutputTotal > 0 }), "not ready")
		check(!gone(fifo), "nobody reads the FIFO")
	}
	spec := bash(holder + "read -r _; exit 0")
	spec.Input = true
	left := orExit(s.Start(ctx, spec)).ID
	until(left)
	orExit(io.WriteString(orExit(s.Input(left)), "\n"))
	r := orExit(s.Collect(ctx, left))
	check(r.Outcome() == "completed, exit 0", "%s", r.Outcome())
	check(gone(fifo), "a leftover of the group lives")
	for _, why := range []jobs.Reason{jobs.ReasonCancelled, jobs.ReasonTimeout} {
		spec := bash(holder + "wait")
		if why == jobs.ReasonTimeout {
			spec.Timeout = 300 * time.Millisecond
		}
		id := orExit(s.Start(ctx, spec)).ID
		until(id)
		if why == jobs.ReasonCancelled {
			r = orExit(s.Cancel(ctx, id))
		} else {
			r = orExit(s.Collect(ctx, id))
		}
		check(r.Reason == why && len(r.Survivors) == 0, "%s, survivors %v", r.Outcome(), r.Survivors)
		check(gone(fifo), "%s: a process of the group lives", why)
	}
	check(len(s.Drain()) == 0, "told twice")
	orExit(s.Close(ctx))
}

// Where nobody reaps orphans what a job leaves stays as zombies. They hold up no
// stop and are not said to live.
func TestUnderAPID1ThatNeverReapsZombiesAreNoSurvivors(t *testing.T) {
	runInNamespace(t, "PID 1 that never reaps")
}

func init() {
	hostHelper("PID 1 that never reaps", func() {
		mountProc()
		host := exec.Command(orExit(os.Executable()))
		host.Env = append(os.Environ(), helperEnv+"=host under a careless PID 1")
		host.Stdout, host.Stderr = os.Stdout, os.Stderr
		check(host.Run() == nil, "the host failed") // waits for this child only
	})
	hostHelper("host under a careless PID 1", func() {
		ctx := context.Background()
		const grace = 5 * time.Second
		s := orExit(jobs.New(jobs.Config{KillGrace: grace}))
		zombies := func() (n int) {
			for _, pid := range orExit(os.ReadDir("/proc")) {
				if number, err := strconv.Atoi(pid.Name()); err == nil && procState(number) == "Z" {
					n++
				}
			}
			return n
		}
		begun := time.Now()
		for _, script := range []string{
			`(true &); (true &)`,
			`(sleep 300 >/dev/null 2>&1 &); (setsid sleep 300 >/dev/null 2>&1 &)`,
		} {
			r := orExit(s.Collect(ctx, orExit(s.Start(ctx, bash(script))).ID))
			check(r.Outcome() == "completed, exit 0" && len(r.Survivors) == 0, "%s, survivors %v", r.Outcome(), r.Survivors)
		}
		for range 3 {
			spec, mark := markedScript(`(true &); (sleep 300 &); (setsid sleep 300 &); sleep 300; true`)
			id := orExit(s.Start(ctx, spec)).ID
			check(eventually(func() bool { return len(marked(mark)) == 4 }), "no children")
			r := orExit(s.Cancel(ctx, id))
			check(r.Outcome() == "cancelled, SIGTERM" && len(r.Survivors) == 0, "%s, survivors %v", r.Outcome(), r.Survivors)
			check(len(marked(mark)) == 0, "processes %v live", marked(mark))
		}
		check(time.Since(begun) < grace, "zombies were waited for")
		check(zombies() >= 8, "somebody reaps: there are %d zombies", zombies())
		warmUp(s)
		orExit(s.Close(ctx))
		check(len(children()) == 0, "children %v", children())
	})
}

// While the host stands still its jobs end, time out, fill their pipes and are
// killed. When it goes on it must find out, and take no time that it slept for
// a time that a job did not die.
func TestAHostThatWasStoppedForSecondsTellsTheTruthOfItsJobs(t *testing.T) {
	requireTruthAfterStop(t, 0)
}

// killGraceOfStopped is the kill grace of the host that is stopped.
const killGraceOfStopped = 200 * time.Millisecond

// requireTruthAfterStop stops a host, some time after it has begun to cancel
// jobs, for longer than what a killed job has to die.
func requireTruthAfterStop(t *testing.T, after time.Duration) {
	const stop = 3 * time.Second
	c := helper(t, "host that is stopped for seconds")
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	in, err := c.StdinPipe()
	require.NoError(t, err)
	launch(t, c)
	lines := bufio.NewReader(out)
	require.Equal(t, "ready\n", lineOf(t, lines))
	fmt.Fprintln(in)
	require.Equal(t, "cancelling\n", lineOf(t, lines))
	<-time.After(after)
	require.NoError(t, c.Process.Signal(unix.SIGSTOP))
	require.True(t, eventually(func() bool { return procState(c.Process.Pid) == "T" }))
	<-time.After(stop)
	require.NoError(t, c.Process.Signal(unix.SIGCONT))
	told, err := io.ReadAll(lines)
	require.NoError(t, err)
	require.NoError(t, c.Wait(), "%s", told)
	assert.Equal(t, "done", strings.TrimSpace(string(told)))
}

func lineOf(t testing.TB, r *bufio.Reader) string {
	t.Helper()
	line, err := r.ReadString('\n')
	require.NoError(t, err)
	return line
}

func init() {
	hostHelper("host that is stopped for seconds", func() {
		ctx := context.Background()
		const deaf = 20
		s := orExit(jobs.New(jobs.Config{MaxRunning: deaf + 4, KillGrace: killGraceOfStopped}))
		started := func(spec jobs.Spec) string { return orExit(s.Start(ctx, spec)).ID }
		ends := started(bash("sleep 1; echo tail; exit 3"))
		late := bash("sleep 300")
		late.Timeout = 2 * time.Second
		times := started(late)
		floods := started(bash("sleep 1; head -c 1000000 /dev/zero | tr '\\0' z; echo end"))
		var ids []string
		for range deaf {
			ids = append(ids, started(bash("trap '' TERM; echo deaf; while :; do sleep 300; done")))
		}
		for _, id := range ids {
			check(eventually(func() bool { return orExit(s.Check(id)).OutputTotal > 0 }), "not deaf")
		}
		fmt.Println("ready")
		orExit(bufio.NewReader(os.Stdin).ReadString('\n'))
		results := make(chan jobs.Result)
		for _, id := range ids {
			go func() { results <- orExit(s.Cancel(ctx, id)) }()
		}
		check(eventually(func() bool { return orExit(s.Check(ids[0])).State == jobs.Cancelling }), "no cancel")
		fmt.Println("cancelling")
		for range ids {
			r := <-results
			check(r.State == jobs.Cancelled && len(r.Survivors) == 0, "%s, survivors %v", r.Outcome(), r.Survivors)
		}
		r := orExit(s.Collect(ctx, ends))
		check(r.Outcome() == "failed, exit 3" && string(r.Output.Bytes()) == "tail\n", "%s %q", r.Outcome(), r.Output.Bytes())
		r = orExit(s.Collect(ctx, times))
		check(r.Reason == jobs.ReasonTimeout, "%s", r.Outcome())
		r = orExit(s.Collect(ctx, floods))
		check(r.Outcome() == "completed, exit 0" && r.OutputTotal == 1_000_004, "%s, %d bytes", r.Outcome(), r.OutputTotal)
		check(strings.HasSuffix(string(r.Output.Bytes()), "zend\n"), "the end is missing")
		check(len(s.Drain()) == 0, "told twice")
		warmUp(s)
		orExit(s.Close(ctx))
		check(len(children()) == 0, "children %v", children())
		fmt.Println("done")
	})
}
