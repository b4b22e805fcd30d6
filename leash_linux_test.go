package jobs_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// leashes returns the processes that are leashes of a host.
func leashes(host int) []int {
	var found []int
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", host))
	for _, file := range files {
		data, _ := os.ReadFile(file)
		for field := range strings.FieldsSeq(string(data)) {
			cmdline, _ := os.ReadFile("/proc/" + field + "/cmdline")
			if pid, err := strconv.Atoi(field); err == nil && strings.Contains(string(cmdline), "\x00jobs-leash\x00") {
				found = append(found, pid)
			}
		}
	}
	return found
}

// leashOf waits for a host to have exactly one leash, which is not old, and
// returns it.
func leashOf(host, old int) (pid int) {
	check(eventually(func() bool {
		found := leashes(host)
		if len(found) == 1 {
			pid = found[0]
		}
		return len(found) == 1 && pid != old
	}), "no leash, or too many: %v", leashes(host))
	return pid
}

// shells returns the shells that are here: the system's own, and others.
func shells() [][]string {
	found := [][]string{{"/bin/sh"}}
	for _, command := range [][]string{{"dash"}, {"bash"}, {"bash", "--posix"}, {"busybox", "sh"}} {
		if path, err := exec.LookPath(command[0]); err == nil {
			found = append(found, append([]string{path}, command[1:]...))
		}
	}
	return found
}

// A leashedJob is a script that prints the pids of its processes, then "ready".
type leashedJob struct {
	Script     string
	Leftovers  jobs.Leftovers `json:",omitempty"`
	OnOwnerEnd jobs.OwnerEnd  `json:",omitempty"`
	Nested     []leashedJob   `json:",omitempty"` // the job is a host that runs these
}

// A leashedHost is a host in a process of its own, with jobs on the leash.
type leashedHost struct {
	cmd   *exec.Cmd
	pids  []int // of the jobs
	leash int
}

// startLeashed starts a host with jobs, in an environment with some variables
// more, and waits until the jobs are ready.
func startLeashed(t testing.TB, list []leashedJob, env ...string) leashedHost {
	t.Helper()
	c := helper(t, "leashed host", append(env, leashedJobs(list))...)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	launch(t, c)
	words := strings.Fields(firstLine(t, out))
	require.Equal(t, "ready", words[len(words)-1])
	all := pids(t, strings.Join(words[:len(words)-1], " "))
	return leashedHost{cmd: c, pids: all[1:], leash: all[0]}
}

func leashedJobs(list []leashedJob) string {
	text, _ := json.Marshal(list)
	return "LEASHED_JOBS=" + string(text)
}

// kill kills the host and waits until its jobs are dead. It returns how long
// that took.
func (h leashedHost) kill(t testing.TB) time.Duration {
	t.Helper()
	require.Greater(t, len(h.pids), 0)
	for _, pid := range h.pids {
		require.True(t, alive(pid), "process %d has not lived until the kill", pid)
	}
	killed := time.Now()
	require.NoError(t, h.cmd.Process.Kill())
	gone := eventually(func() bool { return !slices.ContainsFunc(h.pids, alive) })
	took := time.Since(killed)
	require.True(t, gone, "of %v some live", h.pids)
	h.awaitLeash(t)
	return took
}

// awaitLeash waits until the leash has done its work.
func (h leashedHost) awaitLeash(t testing.TB) {
	t.Helper()
	require.True(t, eventually(func() bool { return !alive(h.leash) }), "the leash %d lives", h.leash)
}

func init() {
	hostHelper("leashed host", func() {
		if shell := os.Getenv("LEASH_SHELL"); shell != "" {
			jobs.SetLeashShell(strings.Fields(shell)...)
		}
		var list []leashedJob
		check(json.Unmarshal([]byte(os.Getenv("LEASHED_JOBS")), &list) == nil, "no jobs")
		s := orExit(jobs.New(jobs.Config{Leash: true, MaxRunning: len(list) + 1, KillGrace: time.Second}))
		if os.Getenv("LEASH_END") != "" {
			loseLeash(s, os.Getenv("LEASH_END"))
		}
		started := runLeashed(s, list)
		fmt.Println(leashOf(os.Getpid(), 0), started, "ready")
		select {}
	})
}

// loseLeash loses the leash of a host that holds a job.
func loseLeash(s *jobs.Supervisor, how string) {
	runLeashed(s, []leashedJob{{Script: `echo $$ ready; exec sleep 300`}})
	leash := leashOf(os.Getpid(), 0)
	check(unix.Kill(leash, syscall.SIGKILL) == nil, "cannot kill the leash")
	<-s.Ready()
	notices := s.Drain()
	check(len(notices) == 1 && notices[0].Event == jobs.EventLeashLost, "%v", notices)
	leashOf(os.Getpid(), leash)
}

// runLeashed starts jobs and returns the pids that they print.
func runLeashed(s *jobs.Supervisor, list []leashedJob) string {
	ctx := context.Background()
	var pids []string
	for _, lj := range list {
		spec := bash(lj.Script)
		if lj.Nested != nil {
			spec.Argv = []string{orExit(os.Executable())}
			spec.Env = []string{helperEnv + "=leashed host", leashedJobs(lj.Nested)}
		}
		spec.Leftovers, spec.OnOwnerEnd = lj.Leftovers, lj.OnOwnerEnd
		id := orExit(s.Start(ctx, spec)).ID
		var text string
		check(eventually(func() bool {
			text = string(orExit(s.Output(id, 0, 0)).Data)
			return strings.Contains(text, "ready\n")
		}), "%q is not ready", lj.Script)
		check(lj.Leftovers == jobs.KillLeftovers || eventually(func() bool { return orExit(s.Check(id)).Ended() }), "no end")
		pids = append(pids, strings.Fields(strings.ReplaceAll(text, "ready", ""))...)
	}
	return strings.Join(pids, " ")
}

// wayward are jobs that spread in all ways that can be followed.
func wayward(t testing.TB) map[string]leashedJob {
	sleep, err := exec.LookPath("sleep")
	require.NoError(t, err)
	odd := filepath.Join(t.TempDir(), "a) S 1 (b * c")
	require.NoError(t, os.Symlink(sleep, odd))
	plain := leashedJob{Script: `sleep 300 & echo $! $$ ready; wait`}
	daemon := leashedJob{Script: `setsid bash -c 'sleep 300 >/dev/null 2>&1 & echo $!' & wait $!; echo $$ ready; sleep 300; :`}
	return map[string]leashedJob{
		"plain":         plain,
		"deaf":          {Script: `trap '' TERM; sleep 300 & echo $! $$ ready; while :; do sleep 300; done`},
		"stopped":       {Script: `sleep 300 & kill -STOP $!; echo $! $$ ready; wait`},
		"own session":   {Script: `setsid sleep 300 & echo $! $$ ready; wait`},
		"double fork":   daemon,
		"own group":     {Script: `set -m; sleep 300 & echo $! $$ ready; wait`},
		"odd name":      {Script: `'` + odd + `' 300 & echo $! $$ ready; wait`},
		"no env":        {Script: `env -i sleep 300 & echo $! $$ ready; wait`},
		"no env orphan": {Script: `env -i bash -c 'sleep 300 >/dev/null 2>&1 & echo $!'; echo $$ ready; sleep 300; :`},
		"no env, own session, but a living parent": {Script: `env -i setsid sleep 300 & echo $! $$ ready; wait`},
		"grandchild without env":                   {Script: `setsid bash -c 'env -i setsid sleep 300 & echo $! $$ ready; wait' & echo $$; wait`},
		"own heir on TERM":                         {Script: `trap 'sleep 300 & exit' TERM; echo $$ ready; while :; do sleep 0.05; done`},
		"nested":                                   {Nested: []leashedJob{plain, daemon}},
	}
}

func all(list map[string]leashedJob) []leashedJob {
	var jobs []leashedJob
	for _, lj := range list {
		jobs = append(jobs, lj)
	}
	return jobs
}

func TestWhateverAJobStartedDiesWithAKilledHost(t *testing.T) {
	for name, lj := range wayward(t) {
		t.Run(name, func(t *testing.T) {
			h := startLeashed(t, []leashedJob{lj})
			t.Logf("%d processes dead %v after the kill", len(h.pids), h.kill(t))
		})
	}
}

func TestAJobThatStartsOthersWhileItDiesIsPursued(t *testing.T) {
	mark := "JOBS_TEST_MARK=" + strconv.Itoa(os.Getpid())
	h := startLeashed(t, []leashedJob{{Script: `export ` + mark + `; trap 'setsid bash -c "trap \"\" TERM; while :; do sleep 300; done" & exit' TERM; echo $$ ready; while :; do sleep 0.05; done`}})
	h.kill(t)
	require.Empty(t, marked(mark))
}

func TestALeashWorksInEveryShell(t *testing.T) {
	for _, shell := range shells() {
		t.Run(strings.Join(shell, " "), func(t *testing.T) {
			h := startLeashed(t, all(wayward(t)), "LEASH_SHELL="+strings.Join(shell, " "))
			t.Logf("%d processes dead %v after the kill", len(h.pids), h.kill(t))
		})
	}
}

// Some greps do not know -z.
func TestALeashWorksWithASimpleGrep(t *testing.T) {
	dir := t.TempDir()
	grep, err := exec.LookPath("grep")
	require.NoError(t, err)
	script := "#!/bin/sh\ncase $1 in -*z*) exit 2 ;; esac\nexec " + grep + ` "$@"` + "\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "grep"), []byte(script), 0o700))
	h := startLeashed(t, all(wayward(t)), "PATH="+dir+":"+os.Getenv("PATH"))
	t.Logf("%d processes dead %v after the kill", len(h.pids), h.kill(t))
}

// awkwardNames are names that a process can give itself: they end a line, or pass
// for what the system says of another process, or for words of a shell.
func awkwardNames() []string {
	return []string{"a\nb", "\n", "\nx", "\n5 S 1 1 1 1 1\n", "\n-}$(exit 9) ", "\n==> x <==\n", "x) R 1 1 1 1", ") Z 1 1", "(", "a b) ", "\xff\xfe", "-n", "*"}
}

// Any user of the machine can have such processes.
func TestNoNameOfAStrangerTroublesALeash(t *testing.T) {
	var strangers []int
	for _, name := range awkwardNames() {
		c := exec.Command("bash", "-c", `printf %s "$1" >/proc/self/comm; echo up; read -r _`, "", name)
		_, err := c.StdinPipe()
		require.NoError(t, err)
		out, err := c.StdoutPipe()
		require.NoError(t, err)
		launch(t, c)
		require.Equal(t, "up", firstLine(t, out))
		require.NotEqual(t, "bash", comm(c.Process.Pid))
		strangers = append(strangers, c.Process.Pid)
	}
	for _, shell := range shells() {
		h := startLeashed(t, []leashedJob{{Script: `setsid sleep 300 & echo $! $$ ready; exec sleep 300`}}, "LEASH_SHELL="+strings.Join(shell, " "))
		h.kill(t)
	}
	for _, pid := range strangers {
		require.True(t, alive(pid))
	}
}

func TestNoNameOfAProcessHidesItFromTheLeash(t *testing.T) {
	var list []leashedJob
	var env []string
	for i, name := range awkwardNames() {
		env = append(env, fmt.Sprintf("NAME_%d=%s", i, name))
		list = append(list, leashedJob{Script: fmt.Sprintf(
			`setsid bash -c 'printf %%s "$NAME_%d" >/proc/self/comm; echo $$ ready; while :; do sleep 300; done' & wait`, i)})
	}
	for _, shell := range shells() {
		startLeashed(t, list, append(env, "LEASH_SHELL="+strings.Join(shell, " "))...).kill(t)
	}
}

// tellLeash runs a leash by itself: it is told some lines, then its pipe is
// closed.
func tellLeash(t testing.TB, shell []string, lines ...string) {
	t.Helper()
	c := exec.Command(shell[0], append(shell[1:], "-c", jobs.LeashScript(), "leash", jobs.EnvJob)...)
	c.Dir, c.Env = "/", []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}
	c.Stdin = strings.NewReader(strings.Join(lines, "\n"))
	launch(t, c)
	c.Wait()
}

// startTime returns when a process was started, as /proc has it.
func startTime(t testing.TB, pid int) int {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(t, err)
	n, err := strconv.Atoi(strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')'):]))[20])
	require.NoError(t, err)
	return n
}

func TestALeashKillsThoseItWasToldOfAndNobodyElse(t *testing.T) {
	const id = "job_0123456789abcdef0123"
	chain := func(ids string) stranger {
		c := exec.Command("bash", "-c", `sleep 300 & echo $!; wait`)
		c.Env = []string{"PATH=" + os.Getenv("PATH"), ids}
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		out, err := c.StdoutPipe()
		require.NoError(t, err)
		launch(t, c)
		t.Cleanup(func() { unix.Kill(-c.Process.Pid, unix.SIGKILL) }) // before it is reaped
		return stranger{c, pids(t, firstLine(t, out))[0]}
	}
	for _, shell := range shells() {
		t.Run(strings.Join(shell, " "), func(t *testing.T) {
			unknown := chain("X=1")
			born := startTime(t, unknown.cmd.Process.Pid)
			var known, strangers []stranger
			for _, ids := range []string{id, "outer:" + id, "outer:" + id + ":inner", ":x y*:" + id, id + ":"} {
				known = append(known, chain(jobs.EnvJob+"="+ids))
			}
			for _, kv := range []string{jobs.EnvJob + "=" + id + "0", jobs.EnvJob + "=x" + id, jobs.EnvJob + "=$(" + id + ")", jobs.EnvJob + "=",
				"X" + jobs.EnvJob + "=" + id, "X=\n" + jobs.EnvJob + "=" + id, jobs.EnvJob + "=job_ended", jobs.EnvJob + "=job_cut"} {
				strangers = append(strangers, chain(kv))
			}
			leader := chain("X=1")
			tellLeash(t, shell,
				fmt.Sprintf("+ 0 %d %s", born, id),
				fmt.Sprintf("+ %d %d job_reused", unknown.cmd.Process.Pid, born-1),
				fmt.Sprintf("+ 0 %d job_ended", born), "- job_ended", "- job_never",
				fmt.Sprintf("+ 0 %d job_leader", born),
				fmt.Sprintf("+ %d %d job_leader", leader.cmd.Process.Pid, startTime(t, leader.cmd.Process.Pid)),
				fmt.Sprintf("+ 0 %d job_other", born),
				"- job_other",
				fmt.Sprintf("+ 0 %d job_cut", born)) // a line that nobody has ended
			for _, k := range append(known, leader) {
				requireDead(t, k.cmd.Process.Pid, k.child)
			}
			for _, s := range append(strangers, unknown) {
				require.True(t, alive(s.cmd.Process.Pid) && alive(s.child), "%q is dead", s.cmd.Env)
			}
		})
	}
}

func TestTwoHundredJobsHaveOneLeash(t *testing.T) {
	list := make([]leashedJob, 200)
	for i := range list {
		list[i].Script = `echo $$ ready; exec sleep 300`
	}
	h := startLeashed(t, list)
	require.Equal(t, []int{h.leash}, leashes(h.cmd.Process.Pid))
	require.Len(t, h.pids, len(list))
	t.Logf("%d processes dead %v after the kill", len(h.pids), h.kill(t))
}

func TestAHostWithALeashCanItselfBeAJobThatIsStopped(t *testing.T) {
	s := newSupervisor(t, jobs.Config{KillGrace: 5 * time.Second})
	id := start(t, s, jobs.Spec{
		Argv: []string{helper(t, "").Path},
		Env:  []string{helperEnv + "=leashed host", leashedJobs(all(wayward(t)))},
	}).ID
	words := strings.Fields(awaitOutput(t, s, id, "ready\n"))
	inner := pids(t, strings.Join(words[:len(words)-1], " "))
	r := cancel(t, s, id)
	require.Equal(t, "cancelled, SIGTERM", r.Outcome())
	require.Empty(t, r.Survivors)
	requireDead(t, inner...)
}

func TestAStoppedHostIsNotADeadOne(t *testing.T) {
	h := startLeashed(t, []leashedJob{wayward(t)["own session"]})
	require.NoError(t, h.cmd.Process.Signal(unix.SIGSTOP))
	require.True(t, eventually(func() bool { return procState(h.cmd.Process.Pid) == "T" }))
	<-time.After(500 * time.Millisecond)
	require.True(t, alive(h.leash))
	h.kill(t)
}

func TestWhatMayOutliveItsHostIsNotOnTheLeash(t *testing.T) {
	kept := startLeashed(t, []leashedJob{
		{Script: `sleep 300 & echo $! $$ ready; wait`, OnOwnerEnd: jobs.KeepRunning},
		{Script: `setsid sleep 300 >/dev/null 2>&1 & echo $! ready`, Leftovers: jobs.KeepLeftovers},
	}, "LEASH_END=kill") // which starts a job that is on it
	t.Cleanup(func() {
		for _, pid := range kept.pids {
			if alive(pid) {
				unix.Kill(pid, unix.SIGKILL)
			}
		}
	})
	leftover, leader := kept.pids[2], kept.pids[1]
	require.True(t, eventually(func() bool { return comm(leftover) == "sleep" }))
	require.NoError(t, kept.cmd.Process.Kill())
	kept.awaitLeash(t)
	for _, pid := range []int{kept.pids[0], leader, leftover} {
		require.True(t, alive(pid), "process %d is dead", pid)
	}
}

func TestALeashThatReplacedAKilledOneHoldsTheJobs(t *testing.T) {
	h := startLeashed(t, all(wayward(t)), "LEASH_END=kill")
	h.kill(t)
}

// leashed returns a supervisor with a job that is on its leash.
func leashed(t testing.TB) (s *jobs.Supervisor, leash int) {
	t.Helper()
	s = newSupervisor(t, jobs.Config{Leash: true, MaxRunning: 100})
	start(t, s, bash("sleep 300"))
	return s, leashOf(os.Getpid(), 0)
}

// awaitLoss waits for the notice of a lost leash.
func awaitLoss(t testing.TB, s *jobs.Supervisor) jobs.Notice {
	t.Helper()
	select {
	case <-s.Ready():
	case <-testContext(t).Done():
		require.Fail(t, "no notice")
	}
	notices := s.Drain()
	require.Len(t, notices, 1)
	require.Equal(t, jobs.EventLeashLost, notices[0].Event)
	return notices[0]
}

func TestALostLeashIsToldAndReplaced(t *testing.T) {
	s, leash := leashed(t)
	child, err := s.Child(jobs.ChildConfig{})
	require.NoError(t, err)
	start(t, child, bash("sleep 300"))
	require.Equal(t, []int{leash}, leashes(os.Getpid()))
	require.NoError(t, unix.Kill(leash, unix.SIGKILL))
	notice := awaitLoss(t, s)
	leashOf(os.Getpid(), leash)
	require.Empty(t, child.Drain())
	text, err := json.Marshal(notice)
	require.NoError(t, err)
	require.JSONEq(t, `{"event":"leash_lost","line":"a new one holds the jobs","next_action":"job__list {}"}`, string(text))
	require.Equal(t, "The leash, which ends all jobs if their host is killed, was lost: a new one holds the jobs.", jobs.Texts{}.Plain(notice))
}

func TestALeashThatDiesWhileThereIsNoJobIsNoNews(t *testing.T) {
	s := newSupervisor(t, jobs.Config{Leash: true})
	runScript(t, s, "true")
	leash := leashOf(os.Getpid(), 0)
	require.NoError(t, unix.Kill(leash, unix.SIGKILL))
	require.True(t, eventually(func() bool { return procState(leash) == "" }))
	start(t, s, bash("sleep 300"))
	leashOf(os.Getpid(), leash)
	require.Empty(t, s.Drain())
}

func TestALeashIgnoresWhatEndsOthers(t *testing.T) {
	s, leash := leashed(t)
	// It has set its traps once it has read a line.
	require.True(t, eventually(func() bool { return ignored(leash, unix.SIGTERM) }))
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGPIPE, unix.SIGQUIT} {
		require.NoError(t, unix.Kill(leash, sig))
	}
	for range 10 {
		runScript(t, s, "true")
	}
	require.Equal(t, []int{leash}, leashes(os.Getpid()))
	require.Empty(t, s.Drain())
}

// ignored reports whether a process ignores a signal.
func ignored(pid int, sig unix.Signal) bool {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(status), "\nSigIgn:\t")
	set, _ := strconv.ParseUint(rest[:min(16, len(rest))], 16, 64)
	return set&(1<<(sig-1)) != 0
}

func TestALeashThatDoesNotListenIsReplaced(t *testing.T) {
	s, leash := leashed(t)
	require.NoError(t, unix.Kill(leash, unix.SIGSTOP))
	begun := time.Now()
	start(t, s, bash("sleep 300"))
	t.Logf("the start took %v", time.Since(begun))
	awaitLoss(t, s)
	leashOf(os.Getpid(), leash)
}

func TestALeashWhosePipeIsFullHoldsUpNoStart(t *testing.T) {
	s, leash := leashed(t)
	require.NoError(t, unix.Kill(leash, unix.SIGSTOP))
	pipe, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/0", leash), os.O_WRONLY|unix.O_NONBLOCK, 0)
	require.NoError(t, err)
	defer pipe.Close()
	require.NoError(t, pipe.SetWriteDeadline(time.Now().Add(10*time.Millisecond)))
	for err == nil {
		_, err = pipe.Write([]byte(strings.Repeat("\n", 4096)))
	}
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	begun := time.Now()
	const several = 5
	started := make(chan error, several)
	for range several {
		go func() {
			_, err := s.Start(testContext(t), bash("sleep 300"))
			started <- err
		}()
	}
	for range several {
		require.NoError(t, <-started)
	}
	took := time.Since(begun)
	t.Logf("the starts took %v", took)
	assert.Less(t, took, 10*time.Second)
	awaitLoss(t, s)
	leashOf(os.Getpid(), leash)
}

func TestALeashThatIsLostAgainAndAgainIsGivenUp(t *testing.T) {
	s, leash := leashed(t)
	for range 5 {
		require.NoError(t, unix.Kill(leash, unix.SIGKILL))
		require.Equal(t, "a new one holds the jobs", awaitLoss(t, s).Line)
		leash = leashOf(os.Getpid(), leash)
	}
	require.NoError(t, unix.Kill(leash, unix.SIGKILL))
	require.Equal(t, "it is given up, and no job has one any more", awaitLoss(t, s).Line)
	runScript(t, s, "true")
	require.True(t, eventually(func() bool { return len(leashes(os.Getpid())) == 0 }))
}

func TestCloseEndsTheLeash(t *testing.T) {
	fds, kids := descriptors(), len(children())
	s, err := jobs.New(jobs.Config{Leash: true, KillGrace: time.Second})
	require.NoError(t, err)
	require.Empty(t, leashes(os.Getpid()), "started too early")
	start(t, s, bash("sleep 300"))
	leash := leashOf(os.Getpid(), 0)
	_, err = s.Close(testContext(t))
	require.NoError(t, err)
	require.Equal(t, "", procState(leash))
	require.Len(t, children(), kids)
	require.LessOrEqual(t, descriptors(), fds+3, "the runtime's own poller may be new")
}

func TestCloseEndsALeashThatDoesNotListen(t *testing.T) {
	s, leash := leashed(t)
	require.NoError(t, unix.Kill(leash, unix.SIGSTOP))
	_, err := s.Close(testContext(t))
	require.NoError(t, err)
	require.Equal(t, "", procState(leash))
	require.Empty(t, s.Drain())
}

func TestALeashHasNothingOfItsHostButThePipeAndAJobNothingOfTheLeash(t *testing.T) {
	t.Setenv(jobs.EnvJob, "job_outer")
	s, leash := leashed(t)
	pipe, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/0", leash))
	require.NoError(t, err)
	require.Contains(t, pipe, "pipe:")
	require.True(t, eventually(func() bool { // what it has opened to be loaded is closed
		files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", leash))
		return err == nil && len(files) == 3
	}))
	cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", leash))
	require.NoError(t, err)
	require.Equal(t, "/", cwd)
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", leash))
	require.NoError(t, err)
	require.NotContains(t, "\x00"+string(environ), "\x00"+jobs.EnvJob+"=")
	sid, err := unix.Getsid(leash)
	require.NoError(t, err)
	require.Equal(t, leash, sid)

	out := string(runScript(t, s, "ls -l /proc/self/fd; env").Output.Bytes())
	require.Contains(t, out, "pipe:")
	require.NotContains(t, out, pipe)
	require.NotContains(t, out, "LEASH=")
}

func TestAFailedStartLeavesNothingOnTheLeash(t *testing.T) {
	s := newSupervisor(t, jobs.Config{Leash: true})
	spec := bash("true")
	spec.Dir = "/nonexistent"
	_, err := s.Start(testContext(t), spec)
	require.Error(t, err)
	leash := leashOf(os.Getpid(), 0)
	require.NoError(t, unix.Kill(leash, unix.SIGKILL))
	require.True(t, eventually(func() bool { return procState(leash) == "" }))
	require.Empty(t, s.Drain(), "a job was on it")
}

func TestAFunctionHasNoLeash(t *testing.T) {
	s := newSupervisor(t, jobs.Config{Leash: true})
	snap := start(t, s, jobs.Spec{Func: func(context.Context, io.Writer) (any, error) { return nil, nil }})
	collect(t, s, snap.ID)
	require.Empty(t, leashes(os.Getpid()))
}

func requireNoLeash(t testing.TB, s *jobs.Supervisor, missing string) {
	t.Helper()
	_, err := s.Start(testContext(t), jobs.Spec{Argv: []string{"/bin/true"}})
	var failed *jobs.StartError
	require.True(t, errors.As(err, &failed), "%v", err)
	require.Equal(t, jobs.StageLeash, failed.Stage)
	require.ErrorContains(t, err, missing)
	require.Empty(t, leashes(os.Getpid()))
}

func TestWithoutItsToolsALeashRefusesTheStart(t *testing.T) {
	for _, missing := range []string{"grep", "head", "sed", "sleep", "tr"} {
		dir := t.TempDir()
		for _, tool := range []string{"grep", "head", "sed", "sleep", "tr"} {
			if path, err := exec.LookPath(tool); tool != missing {
				require.NoError(t, err)
				require.NoError(t, os.Symlink(path, filepath.Join(dir, tool)))
			}
		}
		t.Run(missing, func(t *testing.T) {
			t.Setenv("PATH", dir)
			requireNoLeash(t, newSupervisor(t, jobs.Config{Leash: true}), missing)
		})
	}
	jobs.SetLeashShell("/nonexistent/sh")
	defer jobs.SetLeashShell("/bin/sh")
	requireNoLeash(t, newSupervisor(t, jobs.Config{Leash: true}), "/nonexistent/sh")
}

func TestWithoutProcALeashRefusesTheStart(t *testing.T) {
	runMounting(t, "leashed host without proc")
}

func TestALeashHurtsNoStrangerWithTheNumberOfAJob(t *testing.T) {
	runInNamespace(t, "host of a leashed host whose pids are used again")
}

func init() {
	hostHelper("leashed host without proc", func() {
		check(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") == nil, "cannot make mounts private")
		check(unix.Mount("tmpfs", "/proc", "tmpfs", 0, "") == nil, "cannot hide /proc")
		s := orExit(jobs.New(jobs.Config{Leash: true}))
		_, err := s.Start(context.Background(), bash("true"))
		var failed *jobs.StartError
		check(errors.As(err, &failed) && failed.Stage == jobs.StageLeash, "%v", err)
		orExit(s.Close(context.Background()))
	})

	// The numbers are given to others while the host is dead and its leash does
	// not know it yet; or while both live, for a job that has ended.
	hostHelper("host of a leashed host whose pids are used again", func() {
		mountProc()
		makeThreads()
		c := exec.Command(orExit(os.Executable()))
		c.Env = append(os.Environ(), helperEnv+"=leashed host", leashedJobs([]leashedJob{
			{Script: `echo $$ ready; exit 0`},
			{Script: `echo $$ ready; exec sleep 300`},
			{Script: `echo $$ ready; exec sleep 300`},
		}))
		c.Stderr = os.Stderr
		out := orExit(c.StdoutPipe())
		check(c.Start() == nil, "no host")
		line := orExit(bufio.NewReader(out).ReadString('\n'))
		var leash, ended, killed, other int
		orExit(fmt.Sscan(line, &leash, &ended, &killed, &other))
		check(eventually(func() bool { return procState(ended) == "" }), "the first job has not ended")
		strangers := []stranger{occupy(ended)}
		check(unix.Kill(leash, unix.SIGSTOP) == nil, "cannot stop the leash")
		check(eventually(func() bool { return procState(leash) == "T" }), "the leash is not stopped")
		check(c.Process.Kill() == nil, "cannot kill the host")
		c.Wait()
		check(unix.Kill(killed, unix.SIGKILL) == nil, "cannot kill the leader")
		orExit(unix.Wait4(killed, nil, 0, nil)) // an orphan of this, PID 1
		strangers = append(strangers, occupy(killed))
		check(unix.Kill(leash, unix.SIGCONT) == nil, "cannot let the leash go on")
		orExit(unix.Wait4(leash, nil, 0, nil))
		check(!alive(other), "the leash did nothing")
		orExit(unix.Wait4(other, nil, 0, nil))
		for _, s := range strangers {
			s.requireUnhurt()
		}
	})
}
