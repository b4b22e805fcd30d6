package jobs_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// RW-083: TestAJobCannotReachTheTerminalOfItsHost
// RW-085: TestAJobCannotReachTheTerminalOfItsHost
// RW-098: TestExitCodesAndSignalsAreToldApart
func TestAJobIsAloneWithWhatItWasGiven(t *testing.T) {
	const done = "completed, exit 0"
	requireFaults(t, []fault{
		{
			id: "RW-081", claim: "standard input is at its end",
			script: `read -r x; echo "rc=$? x=[$x]"; cat; echo done`,
			within: time.Second + slack,
			want:   done, text: "rc=1 x=[]\ndone\n",
		},
		{
			id: "RW-083", claim: "there is no terminal to wait for",
			script: `read -r x </dev/tty; echo rc=$?`,
			within: time.Second + slack,
			want:   done,
			see: func(t *testing.T, r jobs.Result, _ trial) {
				assert.Regexp(t, `^rc=[1-9]`, r.Text(jobs.TextOptions{TailLines: 1}).Body)
			},
		},
		{
			id: "RW-098", claim: "a violent death is no success",
			script: `kill -9 $$`,
			want:   "failed, signal, SIGKILL",
			see: func(t *testing.T, r jobs.Result, _ trial) {
				assert.Equal(t, 137, r.ShellCode())
				assert.Equal(t, -1, r.ExitCode)
			},
		},
		{
			id: "RW-190", claim: "words reach the shell byte for byte",
			script: `printf '%s|' "$A" 'x y' "a'b" '$HOME' '` + "`id`" + `' "$(printf 'n\nl')"`,
			spec:   jobs.Spec{Env: []string{"A=\"d\" 's' $HOME \\ \n-x"}},
			want:   done, text: "\"d\" 's' $HOME \\ \n-x|x y|a'b|$HOME|`id`|n\nl|",
		},
		{
			id: "RW-190", claim: "a leading dash is no option",
			spec: jobs.Spec{Argv: []string{"bash", "-c", "--", "-x"}},
			want: "failed, exit 127",
			see: func(t *testing.T, r jobs.Result, _ trial) {
				assert.NotContains(t, string(r.Output.Bytes()), "requires an argument")
			},
		},
		{
			id: "like RW-081", claim: "standard input cannot be written to",
			script: `echo x >&0 || echo refused`,
			want:   done,
			see: func(t *testing.T, r jobs.Result, _ trial) {
				assert.Equal(t, "refused\n", r.Text(jobs.TextOptions{TailLines: 1}).Body)
			},
		},
		{
			id: "like RW-098", claim: "a shell's 137 is a code",
			script: `bash -c 'kill -9 $$'; exit $?`,
			want:   "failed, exit 137",
			see:    func(*testing.T, jobs.Result, trial) {}, // bash says "Killed"
		},
		{
			id: "like RW-098", claim: "a signal without a name",
			script: `kill -63 $$`,
			want:   "failed, signal, signal 63",
		},
		{
			id: "like RW-190", claim: "an argument of every byte",
			spec: jobs.Spec{Argv: []string{"printf", "%s", everyByte()}},
			want: done,
			see: func(t *testing.T, r jobs.Result, _ trial) {
				assert.Equal(t, everyByte(), string(r.Output.Bytes()))
			},
		},
		{
			id: "like RW-190", claim: "a locale that does not exist",
			script: `printf '%s' 'é日'`,
			spec:   jobs.Spec{Env: []string{"LC_ALL=xx_XX.nothing", "LANG=\xff"}},
			want:   done,
			see: func(t *testing.T, r jobs.Result, _ trial) {
				assert.Equal(t, "é日", r.Text(jobs.TextOptions{TailLines: 1}).Body)
			},
		},
	})
}

// everyByte returns a string of all bytes an argument can have.
func everyByte() string {
	var all [255]byte
	for i := range all {
		all[i] = byte(i + 1)
	}
	return string(all[:])
}

// RW-087: a question for a person fails at once, also where the host has a
// terminal on which it could be asked.
func TestAQuestionForAPersonDoesNotWait(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	c := exec.Command("script", "-qec", "exec "+self, "/dev/null")
	c.Env = append(os.Environ(), helperEnv+"=host of a job that asks", "SHELL=/bin/sh")
	keys, err := c.StdinPipe() // nobody types
	require.NoError(t, err)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	launch(t, c)
	var screen []string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		screen = append(screen, strings.TrimSpace(lines.Text()))
	}
	keys.Close()
	require.NoError(t, c.Wait(), "%q", screen)
	assert.Equal(t, []string{"completed, exit 0"}, screen, "only the host has the terminal")
}

func init() {
	hostHelper("host of a job that asks", func() {
		tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
		check(err == nil, "the host has no terminal: %v", err)
		tty.Close()
		s := orExit(jobs.New(jobs.Config{}))
		begun := time.Now()
		r := runIn(s, bash(`git ls-remote http://127.0.0.1:9/x.git
			ssh -o StrictHostKeyChecking=ask -o ConnectTimeout=1 127.0.0.1 true
			git -c credential.helper= -c core.askPass= ls-remote https://user@127.0.0.1:9/x.git
			sudo -k -p password: true
			(stty -echo </dev/tty; printf 'Password: ' >/dev/tty; read -r x </dev/tty)
			man bash | head -c 1 >/dev/null
			echo end`))
		check(strings.HasSuffix(string(r.Output.Bytes()), "end\n"), "%s, %q", r.Outcome(), r.Output.Bytes())
		check(time.Since(begun) < 5*time.Second+slack, "it took %v: %q", time.Since(begun), r.Output.Bytes())
		orExit(s.Close(context.Background()))
		fmt.Println(r.Outcome())
	})
}

// RW-113: TestStartSaysWhyAProgramCannotBeExecuted, TestWhatAShellCannotExecuteIsAnExitCode
// RW-115: TestStartSaysWhyAProgramCannotBeExecuted, TestWhatAShellCannotExecuteIsAnExitCode
// RW-117: TestStartSaysWhatIsTooLargeButNotWhatIsInIt
// RW-120: TestStartRefusesASpecThatIsNotValid, TestEnvironmentReachesTheJobByteForByte, TestOddEntriesOfTheHostsEnvironmentAreLeftOut
// RW-123: TestStartBlamesTheWorkingDirectoryNotTheProgram, TestStartSaysWhatAnOrdinaryUserMayNotDo
// RW-125: TestAHostWhoseDirectoryIsDeletedStillStartsJobs
// RW-186: TestIDsAreUniqueAndNeverPartOfAnythingElse
// RW-188: TestNothingThatIsToldOfAJobShowsItsEnvironment, TestStartSaysWhatIsTooLargeButNotWhatIsInIt
func TestARefusedStartSaysWhatIsWrong(t *testing.T) {
	s, tempDir := newWarmSupervisor(t, jobs.Config{})
	dir := t.TempDir()
	self := filepath.Join(dir, "self")
	writeFile(t, dir, "self", 0o755, "#!"+self+"\n")
	pipe := filepath.Join(dir, "pipe")
	require.NoError(t, unix.Mkfifo(pipe, 0o755))
	loop := filepath.Join(dir, "loop")
	require.NoError(t, os.Symlink(loop, loop))
	for _, r := range []refusal{
		{
			name: "like RW-113: a script that is its own interpreter", spec: jobs.Spec{Argv: []string{self}},
			stage: jobs.StagePath, cause: syscall.ELOOP,
		},
		{
			name: "like RW-113: an interpreter that is a directory", stage: jobs.StagePath, cause: fs.ErrPermission,
			spec: jobs.Spec{Argv: []string{writeFile(t, dir, "folder", 0o755, "#!"+dir+"\n")}}, says: "interpreter",
		},
		{
			name: "like RW-115: a FIFO", spec: jobs.Spec{Argv: []string{pipe}},
			stage: jobs.StagePath, cause: fs.ErrPermission,
		},
		{
			name: "like RW-115: an empty program", spec: jobs.Spec{Argv: []string{writeFile(t, dir, "empty", 0o755, "")}},
			stage: jobs.StagePath, cause: syscall.ENOEXEC,
		},
		{
			name: "like RW-115: a loop of links", spec: jobs.Spec{Argv: []string{loop}},
			stage: jobs.StagePath, cause: syscall.ELOOP,
		},
		{
			name: "like RW-115: a program whose name is too long", spec: jobs.Spec{Argv: []string{"/" + strings.Repeat("p", 300)}},
			stage: jobs.StagePath, cause: syscall.ENAMETOOLONG,
		},
		{
			name: "RW-190: a program that begins with a dash", spec: jobs.Spec{Argv: []string{"-x"}},
			stage: jobs.StagePath, cause: exec.ErrNotFound, says: "-x",
		},
		{
			name: "like RW-123: a FIFO as the directory", spec: jobs.Spec{Argv: []string{"true"}, Dir: pipe},
			stage: jobs.StageDir, cause: syscall.ENOTDIR, says: pipe,
		},
		{
			name: "like RW-123: a directory of a process that is gone", spec: jobs.Spec{Argv: []string{"true"}, Dir: "/proc/4194305/cwd"},
			stage: jobs.StageDir, cause: fs.ErrNotExist, says: "/proc/4194305/cwd",
		},
	} {
		t.Run(r.name, func(t *testing.T) {
			begun := time.Now()
			got := r.require(t, s, tempDir)
			assert.Less(t, time.Since(begun), promptly)
			assert.Less(t, len(got.Error()), 10_000)
		})
	}
	require.Equal(t, "completed, exit 0", runScript(t, s, `true`).Outcome(), "the next start works")
}

// RW-126: TestFinishedJobsHoldNoDescriptor
// RW-128: TestNoDescriptorThatTheHostOpenedReachesAJob, TestADescriptorTheHostInheritedDoesNotReachAJob
// RW-130: TestIdleJobsCostNoThreadAndNoBuffer, TestRunningJobsTakeNoThreads
// RW-132: TestAJobHasTheLimitOnOpenFilesThatTheHostWasGiven

// Like RW-132: whatever has been done to the limits of the host or of another
// job, those of the next job are what the host was given.
func TestLimitsOfOneJobAreNotThoseOfTheNext(t *testing.T) {
	c := helper(t, "host that was given limits")
	c.Args = []string{"bash", "-c", `ulimit -Sn 1024; ulimit -Hn 4096; exec "$0"`, c.Path}
	c.Path = "/bin/bash"
	out, err := c.Output()
	require.NoError(t, err)
	assert.Equal(t, "1024\n4096\n"+"64\n64\n"+"1024\n4096\n", string(out))
}

func init() {
	hostHelper("host that was given limits", func() {
		s := orExit(jobs.New(jobs.Config{}))
		for _, limits := range []jobs.Limits{{}, {OpenFiles: 64}, {}} {
			spec := bash(`ulimit -Sn; ulimit -Hn`)
			spec.Limits = limits
			os.Stdout.Write(runIn(s, spec).Output.Bytes())
		}
		orExit(s.Close(context.Background()))
	})
}

// Like RW-128: a daemon has closed its standard streams, so that pipes and
// pidfds get their numbers.
func TestAHostWithoutStandardStreamsRunsJobs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "said")
	out := runHelper(t, "host without standard streams", "SAID="+file)
	assert.Empty(t, out)
	said, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, "out\nerr\n|completed, exit 0|0 1 2|killed|", string(said))
}

func init() {
	hostHelper("host without standard streams", func() {
		for fd := range 3 {
			unix.Close(fd)
		}
		s := orExit(jobs.New(jobs.Config{}))
		ctx := context.Background()
		r := runIn(s, bash(`cat; echo out; echo err >&2; echo x >"$LLM_OUTPUT"; : >"$LLM_OUTPUT"`))
		said := string(r.Output.Bytes()) + "|" + r.Outcome()
		r = runIn(s, jobs.Spec{Argv: []string{"bash", "-c", `echo /proc/$$/fd/*`}})
		var fds []string
		for path := range strings.FieldsSeq(string(r.Output.Bytes())) {
			if fd := filepath.Base(path); len(fd) == 1 { // bash keeps one of its own at 255
				fds = append(fds, fd)
			}
		}
		said += "|" + strings.Join(fds[:min(3, len(fds))], " ")
		spec, mark := markedScript(`setsid sleep 300 & sleep 300; true`)
		job := orExit(s.Start(ctx, spec))
		check(eventually(func() bool { return len(marked(mark)) == 3 }), "no children")
		orExit(s.Cancel(ctx, job.ID))
		if len(marked(mark)) == 0 {
			said += "|killed|"
		}
		orExit(s.Close(ctx))
		check(os.WriteFile(os.Getenv("SAID"), []byte(said), 0o600) == nil, "cannot say %q", said)
	})
}

// Like RW-188: what a job was told in secret is in no error, list or notice,
// whichever way it ends.
func TestNoEndShowsTheEnvironment(t *testing.T) {
	s := newSupervisor(t, jobs.Config{KillGrace: 100 * time.Millisecond})
	tools := s.Toolset(jobs.ToolsetOptions{})
	for _, script := range []string{`exit 1`, `kill -9 $$`, `sleep 300 & exit 0`, `rm -f "$LLM_OUTPUT"; mkfifo "$LLM_OUTPUT"`} {
		spec := bash(script)
		spec.Env = []string{"TOKEN=" + secret}
		id := start(t, s, spec).ID
		awaitEnd(t, s, id)
		for _, call := range []string{"job__list", "job__check", "job__collect", "job__collect", "job__cancel"} {
			args := idArgs(id)
			if call == "job__list" {
				args = `{}`
			}
			assert.NotContains(t, ask(t, tools, call, args).text, secret, call)
		}
		_, err := s.Collect(testContext(t), id)
		var je *jobs.JobError
		require.True(t, errors.As(err, &je))
		assert.NotContains(t, fmt.Sprintf("%+v %v", je.Job, err), secret)
	}
}
