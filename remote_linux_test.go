package jobs_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A far is a machine that tests run jobs on, with a home directory of its own
// that the test can see.
type far struct {
	shell jobs.Shell
	home  string
}

// farSpec is a Spec that runs a script there.
func (f far) spec(script string) jobs.Spec {
	return jobs.Spec{Tool: "far", Shell: f.shell, Argv: []string{"sh", "-c", script}}
}

// state returns the directory of a job.
func (f far) state(id string) string { return filepath.Join(f.home, ".agentjobs", id) }

// signers returns the processes that stay with a job: W and J.
func (f far) signers(t *testing.T, id string) []int {
	t.Helper()
	var ps []int
	for _, name := range []string{"w", "j"} {
		data, err := os.ReadFile(filepath.Join(f.state(id), name))
		require.NoError(t, err)
		pid, _, _ := strings.Cut(string(data), " ")
		ps = append(ps, pids(t, pid)...)
	}
	return ps
}

// inHome returns argv with a home directory and a PATH.
func inHome(home, path string, argv ...string) jobs.Shell {
	return jobs.ShellCommand(append([]string{"/usr/bin/env", "HOME=" + home, "PATH=" + path}, argv...)...)
}

// localFar returns a machine that is this one, where sh is the named shell.
// With busybox all other tools are those of busybox too.
func localFar(t *testing.T, name string) far {
	t.Helper()
	home, bin, path := t.TempDir(), t.TempDir(), os.Getenv("PATH")
	program, err := exec.LookPath(name)
	require.NoError(t, err, "install it: apt-get install busybox dash")
	require.NoError(t, os.Symlink(program, filepath.Join(bin, "sh")))
	if name == "busybox" {
		out, err := exec.Command(program, "--list").Output()
		require.NoError(t, err)
		for applet := range strings.FieldsSeq(string(out)) {
			os.Symlink(program, filepath.Join(bin, applet))
		}
		path = ""
	}
	return far{shell: inHome(home, strings.TrimSuffix(bin+":"+path, ":"), "sh"), home: home}
}

// fars are the machines that the suite runs on, each with the first of the
// behaviours.
var fars = []struct {
	name  string
	make  func(t *testing.T) far
	first int
}{
	{"sh", func(t *testing.T) far { home := t.TempDir(); return far{inHome(home, os.Getenv("PATH"), "sh"), home} }, 99},
	{"dash", func(t *testing.T) far { return localFar(t, "dash") }, 99},
	{"bash", func(t *testing.T) far { return localFar(t, "bash") }, 99},
	{"busybox", func(t *testing.T) far { return localFar(t, "busybox") }, 99},
	{"ssh", sshFar, 99},
	{"ssh with bash as login shell", sshBashFar, 4}, // the way there alone differs
}

// behaviours are what a job does whatever it runs on.
var behaviours = []struct {
	name string
	test func(t *testing.T, f far)
}{
	{"a command that succeeds looks like a foreground one", farSucceeds},
	{"the exit code is that of the command", farExitCodes},
	{"nothing of argv, environment and directory is read by a shell", farQuotes},
	{"every byte arrives as it was written", farBinary},
	{"output over the cap keeps head and tail and counts the rest", farLargeOutput},
	{"the result file is the result", farResult},
	{"a start returns at once", farStartsFast},
	{"a call that takes long goes on in the background", farDemotes},
	{"a wait finds a line", farPattern},
	{"a stop reaches all processes", farCancels},
	{"a process that ignores TERM is killed after the grace", farIgnoresTerm},
	{"a timeout stops the job", farTimeout},
	{"a collected job leaves nothing", farRemoves},
	{"output forges nothing", farForges},
	{"a job whose supervisor was closed runs on", farOutlives},
	{"leftovers are killed and named, or kept", farLeftovers},
	{"a vanished job is lost, told once", farVanishes},
	{"a directory that is missing fails the start", farNoDirectory},
	{"SIGINT has its default effect", farInterrupts},
}

func TestJobsThroughShells(t *testing.T) {
	for _, f := range fars {
		t.Run(f.name, func(t *testing.T) {
			machine := f.make(t)
			for i, b := range behaviours {
				if i >= f.first {
					break
				}
				t.Run(b.name, func(t *testing.T) {
					t.Parallel()
					b.test(t, machine)
				})
			}
		})
	}
}

func farSucceeds(t *testing.T, f far) {
	s := newSupervisor(t, jobs.Config{})
	r, err := s.Run(testContext(t), f.spec(`echo it"'"s out; echo err >&2`), patience)
	require.NoError(t, err)
	assert.Equal(t, jobs.Completed, r.State, "%v", r.Err)
	assert.Equal(t, 0, r.ExitCode)
	assert.Equal(t, "it's out\nerr\n", string(r.Output.Bytes()))
	assert.Empty(t, s.List().Jobs, "it leaves no job")
	_, err = s.Check(r.ID)
	assert.ErrorIs(t, err, jobs.ErrExpired)
	assert.True(t, eventually(func() bool { return removed(f.state(r.ID)) }))
}

func removed(path string) bool {
	_, err := os.Lstat(path)
	return os.IsNotExist(err)
}

func farExitCodes(t *testing.T, f far) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 8})
	codes := map[string]int{"exit 1": 1, "exit 7": 7, "kill -KILL $$": 137, "exec /no/such/program 2>/dev/null": 127}
	ids := map[string]string{}
	for script := range codes {
		ids[script] = start(t, s, f.spec(script)).ID
	}
	missing := start(t, s, jobs.Spec{Shell: f.shell, Argv: []string{"no-such-program"}})
	for script, code := range codes {
		r := collect(t, s, ids[script])
		assert.Equal(t, jobs.Failed, r.State, script)
		assert.Equal(t, jobs.ReasonExit, r.Reason, script)
		assert.Equal(t, code, r.ExitCode, script)
	}
	r := collect(t, s, missing.ID)
	assert.Equal(t, 127, r.ExitCode)
	assert.Contains(t, string(r.Output.Bytes()), "no-such-program")
}

func farQuotes(t *testing.T, f far) {
	nasty := "a'b\"c $HOME `id` $(id) \\ * ü日本 \n\n!x -- ; & | <EOF\t'"
	dir := filepath.Join(t.TempDir(), "it's a $dir `x` ü")
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	s := newSupervisor(t, jobs.Config{})
	snap := start(t, s, jobs.Spec{
		Shell: f.shell, Dir: dir, Env: []string{"NASTY=" + nasty, "ODD.NAME=" + nasty, "UID=fake", "PAGER=mine"},
		Argv: []string{"sh", "-c", `printf '%s|' "$@" "$NASTY" "$PAGER" "$GIT_PAGER"; pwd; echo "$AGENT_JOB_ID"`, "sh", nasty, ""},
	})
	r := collect(t, s, snap.ID)
	require.Equal(t, 0, r.ExitCode, "%s", r.Output.Bytes())
	assert.Equal(t, nasty+"||"+nasty+"|mine|cat|"+dir+"\n"+snap.ID+"\n", string(r.Output.Bytes()))

	// A shell drops a variable whose name it cannot have.
	snap = start(t, s, jobs.Spec{Shell: f.shell, Env: []string{"ODD.NAME=" + nasty}, Argv: []string{"env"}})
	assert.Contains(t, string(collect(t, s, snap.ID).Output.Bytes()), "ODD.NAME="+nasty+"\n")
}

func farBinary(t *testing.T, f far) {
	data := bytes.Repeat([]byte("\x00\xff\x80\r\n\\n\x1b"), 3000)
	file := filepath.Join(t.TempDir(), "data")
	require.NoError(t, os.WriteFile(file, data, 0o644))
	s := newSupervisor(t, jobs.Config{})
	r := collect(t, s, start(t, s, f.spec("cat "+file)).ID)
	assert.True(t, bytes.Equal(data, r.Output.Bytes()), "%d of %d bytes", len(r.Output.Bytes()), len(data))
	assert.EqualValues(t, len(data), r.OutputTotal)
}

func farLargeOutput(t *testing.T, f far) {
	const size = 40<<20 + 12345
	s := newSupervisor(t, jobs.Config{})
	r := collect(t, s, start(t, s, f.spec(fmt.Sprintf("echo first; yes 0123456789abcde | head -c %d; echo last", size))).ID)
	assert.Equal(t, jobs.Completed, r.State)
	assert.EqualValues(t, size+len("first\nlast\n"), r.OutputTotal)
	all := r.Output.Bytes()
	assert.EqualValues(t, r.OutputTotal, r.OutputDropped+int64(len(all)))
	assert.True(t, bytes.HasPrefix(all, []byte("first\n0123")), "%.20q", all)
	assert.True(t, bytes.HasSuffix(all, []byte("last\n")))
}

func farResult(t *testing.T, f far) {
	s := newSupervisor(t, jobs.Config{ResultBytes: 1000, MaxRunning: 8})
	results := map[string]jobs.ResultFile{
		`echo '{"n": 12345678901234567890}' >"$LLM_OUTPUT"`:  {Data: []byte("{\"n\": 12345678901234567890}\n"), Size: 28},
		`head -c 5000 /dev/zero | tr '\0' x >"$LLM_OUTPUT"`:  {Data: bytes.Repeat([]byte("x"), 1000), Size: 5000, Truncated: true},
		`rm -rf "${LLM_OUTPUT%/*}"`:                          {Problem: "the job removed its result file"},
		`true`:                                               {},
		`rm "$LLM_OUTPUT"; mkdir "$LLM_OUTPUT"`:              {},
		`rm "$LLM_OUTPUT"; ln -s /etc/passwd "$LLM_OUTPUT"`:  {},
		`rm "$LLM_OUTPUT"; mkfifo "$LLM_OUTPUT"; echo plain`: {},
	}
	ids := map[string]string{}
	for script := range results {
		ids[script] = start(t, s, f.spec(script)).ID
	}
	for script, want := range results {
		r := collect(t, s, ids[script])
		assert.Equal(t, jobs.Completed, r.State, script)
		if strings.HasPrefix(script, "rm \"") {
			assert.Contains(t, r.File.Problem, "no longer a regular file", script)
			continue
		}
		assert.Equal(t, want.Size, r.File.Size, script)
		assert.Equal(t, string(want.Data), string(r.File.Data), script)
		assert.Equal(t, want.Truncated, r.File.Truncated, script)
		assert.Equal(t, want.Problem, r.File.Problem, script)
	}
}

func farStartsFast(t *testing.T, f far) {
	s := newSupervisor(t, jobs.Config{})
	snap := start(t, s, f.spec("echo on; while [ ! -e "+f.home+"/go ]; do sleep 0.1; done"))
	assert.Equal(t, jobs.Running, snap.State)
	awaitOutput(t, s, snap.ID, "on\n")
	require.NoError(t, os.WriteFile(filepath.Join(f.home, "go"), nil, 0o644))
	assert.Equal(t, jobs.Completed, collect(t, s, snap.ID).State)
}

func farDemotes(t *testing.T, f far) {
	s := newSupervisor(t, jobs.Config{})
	r, err := s.Run(testContext(t), f.spec("echo one; read x <"+farGate(t)+"; echo two"), 0)
	require.NoError(t, err)
	assert.Equal(t, jobs.Running, r.State, "the call is not killed")
	awaitOutput(t, s, r.ID, "one\n")
	cancel(t, s, r.ID)
}

func farPattern(t *testing.T, f far) {
	s := newSupervisor(t, jobs.Config{})
	snap := start(t, s, f.spec("sleep 0.3; echo listening on port 80; sleep 100"))
	w, err := s.Wait(testContext(t), jobs.WaitSpec{IDs: []string{snap.ID}, Pattern: regexp.MustCompile(`port \d+`)})
	require.NoError(t, err)
	require.NotNil(t, w.Match)
	assert.Equal(t, "listening on port 80", w.Match.Line)
	cancel(t, s, snap.ID)
}

func farCancels(t *testing.T, f far) {
	s := newSupervisor(t, jobs.Config{KillGrace: 2 * patience})
	snap := start(t, s, f.spec("sleep 1000 & setsid sleep 1000 & echo $$; wait"))
	leader := pids(t, strings.TrimSpace(awaitOutput(t, s, snap.ID, "\n")))
	require.True(t, eventually(func() bool { return len(marked("AGENT_JOB_ID="+snap.ID)) >= 3 }))
	all := append(marked("AGENT_JOB_ID="+snap.ID), leader...)
	begun := time.Now()
	r := cancel(t, s, snap.ID)
	assert.Less(t, time.Since(begun), patience, "those that obey are not waited for")
	assert.Equal(t, jobs.Cancelled, r.State, "%v", r.Err)
	assert.Equal(t, 143, r.ExitCode, "it died of the TERM")
	assert.Empty(t, r.Survivors)
	requireDead(t, all...)
	assert.Empty(t, marked("AGENT_JOB_ID="+snap.ID))
	again := cancel(t, s, snap.ID)
	assert.Equal(t, jobs.Cancelled, again.State)
}

func farIgnoresTerm(t *testing.T, f far) {
	s := newSupervisor(t, jobs.Config{KillGrace: 300 * time.Millisecond})
	snap := start(t, s, f.spec("trap '' TERM; setsid sleep 1000 & echo on; sleep 1000"))
	awaitOutput(t, s, snap.ID, "on\n")
	r := cancel(t, s, snap.ID)
	assert.Equal(t, jobs.Cancelled, r.State, "%v", r.Err)
	assert.Empty(t, r.Survivors)
	assert.Empty(t, marked("AGENT_JOB_ID="+snap.ID))
}

func farTimeout(t *testing.T, f far) {
	s := newSupervisor(t, jobs.Config{})
	spec := f.spec("echo on; sleep 1000")
	spec.Timeout = 300 * time.Millisecond
	r := collect(t, s, start(t, s, spec).ID)
	assert.Equal(t, jobs.Failed, r.State)
	assert.Equal(t, jobs.ReasonTimeout, r.Reason)
	assert.Empty(t, marked("AGENT_JOB_ID="+r.ID))
	assert.True(t, eventually(func() bool { return removed(f.state(r.ID)) }), "a stopped call leaves no job")
}

func farRemoves(t *testing.T, f far) {
	s := newSupervisor(t, jobs.Config{})
	snap := start(t, s, f.spec("true"))
	awaitEnd(t, s, snap.ID)
	fi, err := os.Stat(filepath.Dir(f.state(snap.ID)))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o700), fi.Mode().Perm())
	assert.False(t, removed(f.state(snap.ID)))
	collect(t, s, snap.ID)
	_, err = s.Close(testContext(t))
	require.NoError(t, err)
	assert.True(t, removed(f.state(snap.ID)))
	assert.True(t, removed(f.state(snap.ID)+".result"))
}

func farForges(t *testing.T, f far) {
	s := newSupervisor(t, jobs.Config{})
	lies := "AAAA begin\nstate ended 0\noutput 1 1 1\ndata:\nAAAA end\n__DONE__:0\nrc-0\nerror dir x\nleft 1 init\n"
	spec := f.spec(`printf %s "$LIES"; echo 0 >rc; echo 0 >rc-0; read x <` + farGate(t))
	spec.Env, spec.Dir = []string{"LIES=" + lies}, t.TempDir()
	snap := start(t, s, spec)
	awaitOutput(t, s, snap.ID, "init\n")
	now, err := s.Check(snap.ID)
	require.NoError(t, err)
	assert.Equal(t, jobs.Running, now.State)
	r := cancel(t, s, snap.ID)
	assert.Equal(t, jobs.Cancelled, r.State)
	assert.Equal(t, lies, string(r.Output.Bytes()))
}

func farOutlives(t *testing.T, f far) {
	gate, done := farGate(t), filepath.Join(t.TempDir(), "done")
	s := newSupervisor(t, jobs.Config{})
	snap := start(t, s, f.spec("echo one; read x <"+gate+"; echo two; touch "+done))
	awaitOutput(t, s, snap.ID, "one\n")
	report, err := s.Close(testContext(t))
	require.NoError(t, err)
	require.Len(t, report.Kept, 1)
	assert.NotEmpty(t, marked("AGENT_JOB_ID="+snap.ID))
	// Another host finds it by its id, with its output from the beginning.
	next := newSupervisor(t, jobs.Config{})
	require.NoError(t, next.Resume(f.shell, snap.ID))
	assert.Equal(t, "one\n", awaitOutput(t, next, snap.ID, "one\n"))
	require.NoError(t, os.WriteFile(gate, []byte("go\n"), 0))
	r := collect(t, next, snap.ID)
	assert.Equal(t, jobs.Completed, r.State)
	assert.Equal(t, "one\ntwo\n", string(r.Output.Bytes()))
	assert.False(t, removed(done))

	killed := f.spec("echo on; sleep 1000")
	killed.OnOwnerEnd = jobs.KillWithOwner
	last := newSupervisor(t, jobs.Config{})
	snap = start(t, last, killed)
	report, err = last.Close(testContext(t))
	require.NoError(t, err)
	require.Len(t, report.Stopped, 1)
	assert.Empty(t, marked("AGENT_JOB_ID="+snap.ID))
}

// farGate returns the path of a FIFO that stops a job which reads it until the
// test writes to it.
func farGate(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "gate")
	require.NoError(t, exec.Command("mkfifo", path).Run())
	return path
}

func farLeftovers(t *testing.T, f far) {
	s := newSupervisor(t, jobs.Config{})
	r := collect(t, s, start(t, s, f.spec("sleep 1000 & setsid sleep 1000 & echo on")).ID)
	assert.Equal(t, jobs.Completed, r.State)
	assert.Len(t, r.Leftovers, 2, "%v", r.Leftovers)
	assert.Empty(t, marked("AGENT_JOB_ID="+r.ID))
	assert.Equal(t, "on\n", string(r.Output.Bytes()))

	spec := f.spec("sh -c 'while sleep 0.1; do echo more; done' & echo $!")
	spec.Leftovers = jobs.KeepLeftovers
	r = collect(t, s, start(t, s, spec).ID)
	assert.Equal(t, jobs.Completed, r.State)
	first, _, _ := strings.Cut(string(r.Output.Bytes()), "\n")
	kept := pids(t, first)[0]
	assert.True(t, alive(kept), "it does not die of SIGPIPE")
	for _, pid := range marked("AGENT_JOB_ID=" + r.ID) {
		killPID(pid)
	}
	assert.True(t, eventually(func() bool { return !alive(kept) }))
}

func killPID(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		p.Kill()
	}
}

func farVanishes(t *testing.T, f far) {
	s := newSupervisor(t, jobs.Config{})
	snap := start(t, s, f.spec("echo on; sleep 1000"))
	awaitOutput(t, s, snap.ID, "on\n")
	command := marked("AGENT_JOB_ID=" + snap.ID)
	for _, pid := range append(f.signers(t, snap.ID), command...) {
		killPID(pid)
	}
	end := awaitEnd(t, s, snap.ID)
	assert.Equal(t, jobs.Lost, end.State)
	assert.Equal(t, jobs.ReasonLost, end.Reason)
	ns := s.Drain()
	require.Len(t, ns, 1)
	assert.Equal(t, jobs.EventLost, ns[0].Event)
	assert.Empty(t, s.Drain())
	r := collect(t, s, snap.ID)
	assert.Equal(t, "on\n", string(r.Output.Bytes()))
	assert.Zero(t, s.List().Running)
}

func farNoDirectory(t *testing.T, f far) {
	s := newSupervisor(t, jobs.Config{})
	spec := f.spec("true")
	spec.Dir = "/no/such/dir"
	_, err := s.Start(testContext(t), spec)
	var start *jobs.StartError
	require.ErrorAs(t, err, &start)
	assert.Equal(t, jobs.StageDir, start.Stage)
	assert.Contains(t, err.Error(), "/no/such/dir")
	assert.Zero(t, s.List().Running)
}

func farInterrupts(t *testing.T, f far) {
	s := newSupervisor(t, jobs.Config{})
	r := collect(t, s, start(t, s, f.spec("sh -c 'kill -INT $$; echo still here'; echo $?")).ID)
	assert.Equal(t, "130\n", string(r.Output.Bytes()))
}
