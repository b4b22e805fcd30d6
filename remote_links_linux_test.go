package jobs_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A delayed Shell is at the end of a slow link, and may be cut.
type delayed struct {
	jobs.Shell
	delay atomic.Int64 // before each script, as nanoseconds
	cut   atomic.Bool  // no answers come through
	runs  atomic.Int64
	now   atomic.Int64
	most  atomic.Int64 // scripts at once
}

func (d *delayed) Run(ctx context.Context, script string) ([]byte, error) {
	d.runs.Add(1)
	n := d.now.Add(1)
	defer d.now.Add(-1)
	for most := d.most.Load(); n > most && !d.most.CompareAndSwap(most, n); most = d.most.Load() {
	}
	timer := time.NewTimer(time.Duration(d.delay.Load()))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	out, err := d.Shell.Run(ctx, script)
	if d.cut.Load() {
		return out[:len(out)/2], errors.New("the connection was lost")
	}
	return out, err
}

func TestASlowLinkLosesNothing(t *testing.T) {
	f := fars[0].make(t)
	link := &delayed{Shell: f.shell}
	link.delay.Store(int64(300 * time.Millisecond))
	f.shell = link
	s := newSupervisor(t, jobs.Config{})
	r := collect(t, s, start(t, s, f.spec("for i in 1 2 3 4 5; do echo $i; sleep 0.1; done; exit 4")).ID)
	assert.Equal(t, 4, r.ExitCode)
	assert.Equal(t, "1\n2\n3\n4\n5\n", string(r.Output.Bytes()))
}

func TestAStartWhoseAnswerIsLostStartsOnce(t *testing.T) {
	f := fars[0].make(t)
	link := &delayed{Shell: f.shell}
	link.cut.Store(true)
	f.shell = link
	s := newSupervisor(t, jobs.Config{})
	counter := filepath.Join(t.TempDir(), "starts")
	_, err := s.Start(testContext(t), f.spec("echo start >>"+counter+"; sleep 1000"))
	var start *jobs.StartError
	require.ErrorAs(t, err, &start)
	assert.Equal(t, jobs.StageShell, start.Stage)
	assert.Contains(t, err.Error(), "the connection was lost")
	link.cut.Store(false)
	home := filepath.Join(f.home, ".agentjobs")
	assert.True(t, eventually(func() bool {
		dirs, _ := filepath.Glob(home + "/*/rc-*")
		return len(dirs) == 1
	}), "what runs on unknown is stopped")
	if data, err := os.ReadFile(counter); err == nil {
		assert.LessOrEqual(t, strings.Count(string(data), "start"), 1)
	}
	assert.Zero(t, s.List().Running)
}

func TestAConnectionLostInMidJobLeavesItRunning(t *testing.T) {
	f := fars[0].make(t)
	link := &delayed{Shell: f.shell}
	f.shell = link
	gate := farGate(t)
	s := newSupervisor(t, jobs.Config{})
	snap := start(t, s, f.spec("echo one; read x <"+gate+"; echo two"))
	awaitOutput(t, s, snap.ID, "one\n")
	link.cut.Store(true)
	before := link.runs.Load()
	require.True(t, eventually(func() bool { return link.runs.Load() > before+2 }))
	now, err := s.Check(snap.ID)
	require.NoError(t, err)
	assert.Equal(t, jobs.Running, now.State)
	require.NoError(t, os.WriteFile(gate, []byte("go\n"), 0))
	link.cut.Store(false)
	r := collect(t, s, snap.ID)
	assert.Equal(t, "one\ntwo\n", string(r.Output.Bytes()))
}

func TestAStopGoesOnUntilTheMachineIsBack(t *testing.T) {
	f := fars[0].make(t)
	link := &delayed{Shell: f.shell}
	f.shell = link
	s := newSupervisor(t, jobs.Config{})
	snap := start(t, s, f.spec("sleep 1000"))
	link.cut.Store(true)
	short, done := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer done()
	r, err := s.Cancel(short, snap.ID)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Equal(t, jobs.Cancelling, r.State)
	link.cut.Store(false)
	assert.Equal(t, jobs.Cancelled, cancel(t, s, snap.ID).State)
	assert.Empty(t, marked("AGENT_JOB_ID="+snap.ID))
}

func TestAStopThatNobodyMayWaitForIsGivenUp(t *testing.T) {
	f := fars[0].make(t)
	link := &delayed{Shell: f.shell}
	s := newSupervisor(t, jobs.Config{})
	spec := far{shell: link}.spec("sleep 1000")
	spec.OnOwnerEnd = jobs.KillWithOwner
	snap := start(t, s, spec)
	link.cut.Store(true)
	link.delay.Store(int64(patience))
	over, done := context.WithCancel(context.Background())
	done()
	report, err := s.Close(over)
	assert.ErrorIs(t, err, context.Canceled)
	require.Len(t, report.Stopped, 1)
	assert.Equal(t, jobs.ReasonUnreaped, report.Stopped[0].Reason)
	assert.ErrorContains(t, report.Stopped[0].Err, "may go on")
	next := newSupervisor(t, jobs.Config{})
	require.NoError(t, next.Resume(f.shell, snap.ID))
	cancel(t, next, snap.ID)
}

func TestAStartThatCannotReachItsMachineNamesTheCause(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	for _, c := range []struct {
		argv []string
		text string
	}{
		{[]string{"sh", "-c", "echo 'Could not resolve hostname' >&2; exit 255"}, "Could not resolve hostname"},
		{[]string{"sh", "-c", "echo Permission denied; exit 255"}, "255"},
		{[]string{"sh", "-c", "cat >/dev/null; echo welcome"}, "welcome"},
		{[]string{"/no/such/ssh"}, "no such file"},
	} {
		_, err := s.Start(testContext(t), jobs.Spec{Shell: jobs.ShellCommand(c.argv...), Argv: []string{"true"}})
		var start *jobs.StartError
		require.ErrorAs(t, err, &start)
		assert.Equal(t, jobs.StageShell, start.Stage)
		assert.Contains(t, err.Error(), c.text)
	}
	assert.Zero(t, s.List().Running)
}

func TestAMachineThatLacksToolsIsNamedWithThem(t *testing.T) {
	bin := t.TempDir()
	for _, tool := range []string{"sh", "mkfifo", "dd", "tee", "wc", "tail", "head", "grep", "tr", "ls", "mv", "rm", "cat", "id"} {
		path, err := exec.LookPath(tool)
		require.NoError(t, err)
		require.NoError(t, os.Symlink(path, filepath.Join(bin, tool)))
	}
	s := newSupervisor(t, jobs.Config{})
	_, err := s.Start(testContext(t), far{shell: inHome(t.TempDir(), bin, "sh")}.spec("true"))
	var start *jobs.StartError
	require.ErrorAs(t, err, &start)
	assert.Equal(t, jobs.StageShell, start.Stage)
	assert.Contains(t, err.Error(), "lacks setsid base64")
}

func TestAnUnsafeDirectoryIsRefused(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	home := t.TempDir()
	require.NoError(t, os.Symlink(t.TempDir(), filepath.Join(home, ".agentjobs")))
	_, err := s.Start(testContext(t), far{shell: inHome(home, os.Getenv("PATH"), "sh")}.spec("true"))
	assert.ErrorContains(t, err, "is no directory")

	if os.Geteuid() == 0 { // who alone can give a directory away
		home = t.TempDir()
		dir := filepath.Join(home, ".agentjobs")
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.NoError(t, os.Chown(dir, 12345, 0))
		_, err = s.Start(testContext(t), far{shell: inHome(home, os.Getenv("PATH"), "sh")}.spec("true"))
		assert.ErrorContains(t, err, "belongs to another user")
	}

	// Without a home TMPDIR does.
	temp := t.TempDir()
	noHome := jobs.ShellCommand("/usr/bin/env", "-u", "HOME", "TMPDIR="+temp, "sh")
	snap := start(t, s, far{shell: noHome}.spec(`echo "$LLM_OUTPUT"`))
	r := collect(t, s, snap.ID)
	assert.Equal(t, filepath.Join(temp, ".agentjobs-"+strconv.Itoa(os.Getuid()), snap.ID+".result", "result"), strings.TrimSpace(string(r.Output.Bytes())))
}

func TestAFullDiskThereLosesOnlyOutput(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a file system")
	}
	home := t.TempDir()
	require.NoError(t, exec.Command("mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", home).Run())
	t.Cleanup(func() { exec.Command("umount", "-l", home).Run() })
	f := far{inHome(home, os.Getenv("PATH"), "sh"), home}
	s := newSupervisor(t, jobs.Config{})
	r := collect(t, s, start(t, s, f.spec("yes | head -c 1000000; exit 9")).ID)
	assert.Equal(t, 9, r.ExitCode)
	assert.EqualValues(t, 1000000, r.OutputTotal)
	assert.EqualValues(t, r.OutputTotal, r.OutputDropped+int64(len(r.Output.Bytes())))
	require.True(t, eventually(func() bool { return removed(f.state(r.ID)) }))

	require.Error(t, os.WriteFile(filepath.Join(home, "fill"), make([]byte, 1<<20), 0o600))
	_, err := s.Start(testContext(t), f.spec("true"))
	var start *jobs.StartError
	require.ErrorAs(t, err, &start)
	assert.Equal(t, jobs.StageShell, start.Stage)
	left, _ := filepath.Glob(home + "/.agentjobs/*")
	assert.Empty(t, left)
}

func TestAMachineGetsFourScriptsAtOnce(t *testing.T) {
	f := fars[0].make(t)
	link := &delayed{Shell: f.shell}
	link.delay.Store(int64(20 * time.Millisecond))
	f.shell = link
	s := newSupervisor(t, jobs.Config{MaxRunning: 20})
	var all sync.WaitGroup
	for range 12 {
		all.Go(func() {
			r, err := s.Run(testContext(t), f.spec("echo x"), patience)
			assert.NoError(t, err)
			assert.Equal(t, "x\n", string(r.Output.Bytes()))
		})
	}
	all.Wait()
	assert.LessOrEqual(t, link.most.Load(), int64(4))
}

func TestAJobNobodyAsksAboutIsUnwatchedInTheEnd(t *testing.T) {
	f := fars[0].make(t)
	link := &delayed{Shell: f.shell}
	f.shell = link
	gate := farGate(t)
	s := newSupervisor(t, jobs.Config{WatchFor: 300 * time.Millisecond})
	snap := start(t, s, f.spec("read x <"+gate+"; echo done"))
	<-s.Ready()
	ns := s.Drain()
	require.Len(t, ns, 1)
	assert.Equal(t, jobs.EventUnwatched, ns[0].Event)
	assert.Equal(t, snap.ID, ns[0].ID)
	assert.Equal(t, jobs.Running, ns[0].State)
	require.NoError(t, os.WriteFile(gate, []byte("go\n"), 0))
	r := collect(t, s, snap.ID)
	assert.Equal(t, "done\n", string(r.Output.Bytes()))
	assert.Empty(t, s.Drain())
}

func TestASilentFarJobIsStopped(t *testing.T) {
	f := fars[0].make(t)
	s := newSupervisor(t, jobs.Config{})
	spec := f.spec("echo on; sleep 1000")
	spec.IdleTimeout = 500 * time.Millisecond
	r := collect(t, s, start(t, s, spec).ID)
	assert.Equal(t, jobs.ReasonIdle, r.Reason)

	spec = f.spec("yes")
	spec.OutputLimit = 100_000
	r = collect(t, s, start(t, s, spec).ID)
	assert.Equal(t, jobs.ReasonOutputLimit, r.Reason)
	assert.Empty(t, marked("AGENT_JOB_ID="+r.ID))
}

func TestOwnersDoNotSeeEachOthersFarJobs(t *testing.T) {
	f := fars[0].make(t)
	s := newSupervisor(t, jobs.Config{})
	one, err := s.Child(jobs.ChildConfig{})
	require.NoError(t, err)
	two, err := s.Child(jobs.ChildConfig{})
	require.NoError(t, err)
	snap := start(t, one, f.spec("sleep 1000"))
	_, err = two.Check(snap.ID)
	assert.ErrorIs(t, err, jobs.ErrForeign)
	_, err = two.Cancel(testContext(t), snap.ID)
	assert.ErrorIs(t, err, jobs.ErrForeign)
	cancel(t, one, snap.ID)
}

func TestAnIDNeverBecomesAPath(t *testing.T) {
	f := fars[0].make(t)
	s := newSupervisor(t, jobs.Config{})
	for _, id := range []string{"", "../../etc", "job_../../../etc/passwd", "job_$(touch x)", "job_0123456789abcdef012"} {
		_, err := s.Check(id)
		assert.ErrorIs(t, err, jobs.ErrNotFound)
		assert.Error(t, s.Resume(f.shell, id), id)
	}
}

func TestAFarJobThatIsNotThereIsLost(t *testing.T) {
	f := fars[0].make(t)
	s := newSupervisor(t, jobs.Config{})
	id := "job_0123456789abcdef0123"
	require.NoError(t, s.Resume(f.shell, id))
	assert.Equal(t, jobs.ReasonLost, awaitEnd(t, s, id).Reason)
}

func TestTwoLooksAtOnceSeeTheSame(t *testing.T) {
	f := fars[0].make(t)
	s := newSupervisor(t, jobs.Config{})
	snap := start(t, s, f.spec("seq 1000; exit 3"))
	other := newSupervisor(t, jobs.Config{})
	require.NoError(t, other.Resume(f.shell, snap.ID))
	end := awaitEnd(t, s, snap.ID)
	r := collect(t, other, snap.ID)
	assert.Equal(t, end.ExitCode, r.ExitCode)
	assert.Equal(t, end.OutputTotal, r.OutputTotal)
}

func TestContainersAreShellCommands(t *testing.T) {
	home, bin := t.TempDir(), t.TempDir()
	stub := "#!/bin/sh\necho \"$0 $*\" >>" + bin + "/calls\nexport HOME=" + home + "\nexec sh\n"
	for _, name := range []string{"docker", "kubectl"} {
		require.NoError(t, os.WriteFile(filepath.Join(bin, name), []byte(stub), 0o755))
	}
	s := newSupervisor(t, jobs.Config{})
	for _, argv := range [][]string{{"docker", "exec", "-i", "c", "sh"}, {"kubectl", "exec", "-i", "pod", "--", "sh"}} {
		argv[0] = filepath.Join(bin, argv[0])
		shell := jobs.ShellCommand(argv...)
		r := collect(t, s, start(t, s, far{shell: shell}.spec("echo in")).ID)
		assert.Equal(t, "in\n", string(r.Output.Bytes()))
		calls, err := os.ReadFile(bin + "/calls")
		require.NoError(t, err)
		assert.Contains(t, string(calls), strings.Join(argv, " "))
	}
	assert.Equal(t, `["ssh","it's","a\"b"]`, jobs.ShellCommand("ssh", "it's", `a"b`).String())
}

func TestASpecWithAShellRefusesWhatCannotWork(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	base := jobs.Spec{Shell: jobs.ShellCommand("sh"), Argv: []string{"true"}}
	for name, change := range map[string]func(*jobs.Spec){
		"Input":       func(sp *jobs.Spec) { sp.Input = true },
		"SplitStderr": func(sp *jobs.Spec) { sp.SplitStderr = true },
		"Limits":      func(sp *jobs.Spec) { sp.Limits.OpenFiles = 10 },
	} {
		spec := base
		change(&spec)
		_, err := s.Start(testContext(t), spec)
		var start *jobs.StartError
		require.ErrorAs(t, err, &start, name)
		assert.Equal(t, jobs.StageSpec, start.Stage)
		assert.Contains(t, err.Error(), name)
	}
}
