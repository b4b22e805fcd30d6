package jobs_test

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func init() {
	helpers["start as an outsider"] = startAsAnOutsider
	helpers["start with a locked path"] = startWithALockedPath
	helpers["start without descriptors"] = startWithoutDescriptors
	helpers["start without processes"] = startWithoutProcesses
	helpers["start on a terminal"] = startOnATerminal
	helpers["start in a deleted directory"] = startInADeletedDirectory
	helpers["start a nested job"] = startANestedJob
	helpers["start and print"] = startAndPrint
}

// secret is the value of an environment variable of every start that is
// expected to fail. No error may show it.
const secret = "s3cr3t-v4lue"

// spareNames is how many names of empty files a supervisor may keep for the
// next jobs, where not more than a few ran at once.
const spareNames = 8

// onFirstNeed is how many descriptors a supervisor may open for all its jobs
// once one of them needs them.
const onFirstNeed = 2

// A footprint counts what a failed start could leave behind.
type footprint struct {
	slots, records, descriptors, files, children int
}

func footprintOf(s *jobs.Supervisor, tempDir string) footprint {
	l := s.List()
	files := max(0, len(filesUnder(tempDir))-spareNames)
	return footprint{l.Running, len(l.Jobs), descriptors(), files, len(children())}
}

// settledFootprint returns the footprint once it stands still: a job gives back
// what it held only after its end was told.
func settledFootprint(s *jobs.Supervisor, tempDir string) footprint {
	last, still := footprintOf(s, tempDir), 0
	eventually(func() bool {
		now := footprintOf(s, tempDir)
		if still++; now != last {
			last, still = now, 0
		}
		return still == 5
	})
	return last
}

// staysWithin reports whether the footprint is, or soon becomes, not larger
// than before.
func staysWithin(before footprint, s *jobs.Supervisor, tempDir string) bool {
	return eventually(func() bool { return !footprintOf(s, tempDir).exceeds(before) })
}

// exceeds reports whether anything has been added to what was there before.
func (f footprint) exceeds(before footprint) bool {
	return f.slots > before.slots || f.records > before.records || f.descriptors > before.descriptors ||
		f.files > before.files || f.children > before.children
}

// filesUnder returns what dir holds at any depth, but for directories.
func filesUnder(dir string) []string {
	var files []string
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, path)
		}
		return nil
	})
	return files
}

// sizeUnder returns how much all files that dir holds at any depth hold.
func sizeUnder(dir string) int64 {
	var size int64
	for _, file := range filesUnder(dir) {
		if fi, err := os.Lstat(file); err == nil {
			size += fi.Size()
		}
	}
	return size
}

// refused starts a job that must not start, and returns what Start said about
// it. Its own error tells what Start did wrong.
func refused(s *jobs.Supervisor, tempDir string, spec jobs.Spec) (*jobs.StartError, error) {
	if len(spec.Argv) > 0 && spec.Func == nil {
		spec.Env = append(slices.Clip(spec.Env), "TOKEN="+secret)
	}
	before := settledFootprint(s, tempDir)
	snap, err := s.Start(context.Background(), spec)
	var refusal *jobs.StartError
	switch {
	case err == nil:
		return nil, fmt.Errorf("it was started as %s", snap.ID)
	case snap.ID != "":
		return nil, fmt.Errorf("beside the error came the job %s", snap.ID)
	case !staysWithin(before, s, tempDir):
		return nil, fmt.Errorf("left behind: %+v, before %+v", footprintOf(s, tempDir), before)
	case !errors.As(err, &refusal):
		return nil, fmt.Errorf("not a StartError: %w", err)
	case strings.Contains(err.Error(), secret):
		return nil, fmt.Errorf("the error shows a secret: %w", err)
	}
	return refusal, nil
}

// A refusal is a start that must fail.
type refusal struct {
	name  string
	spec  jobs.Spec
	stage jobs.Stage
	cause error  // found by errors.Is; nil where the system has no part in it
	says  string // part of the message
}

func (r refusal) require(t *testing.T, s *jobs.Supervisor, tempDir string) *jobs.StartError {
	t.Helper()
	got, err := refused(s, tempDir, r.spec)
	require.NoError(t, err)
	assert.Equal(t, r.stage, got.Stage, "%v", got)
	if r.cause != nil {
		assert.ErrorIs(t, got, r.cause)
	}
	assert.ErrorContains(t, got, r.says)
	return got
}

// newWarmSupervisor returns a supervisor that has run a job, so that it holds
// what it needs once, and the directory it uses.
func newWarmSupervisor(t testing.TB, cfg jobs.Config) (s *jobs.Supervisor, tempDir string) {
	t.Helper()
	gc := debug.SetGCPercent(-1) // it would close descriptors that were forgotten
	t.Cleanup(func() { debug.SetGCPercent(gc) })
	cfg.TempDir = t.TempDir()
	s = newSupervisor(t, cfg)
	require.Equal(t, jobs.Completed, runScript(t, s, "true").State)
	return s, cfg.TempDir
}

// writeFile makes a file of a test. No process may be forked while it is open
// for writing, or an exec of it could fail: golang/go#22315.
func writeFile(t testing.TB, dir, name string, perm fs.FileMode, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	require.NoError(t, os.WriteFile(path, []byte(content), perm))
	return path
}

// withoutLoader makes a program whose loader does not exist.
func withoutLoader(t testing.TB, dir string) string {
	t.Helper()
	file, err := elf.Open("/bin/true")
	require.NoError(t, err)
	defer file.Close()
	section := file.Section(".interp")
	if section == nil {
		t.Skip("/bin/true has no loader")
	}
	loader, err := section.Data()
	require.NoError(t, err)
	program, err := os.ReadFile("/bin/true")
	require.NoError(t, err)
	program = bytes.ReplaceAll(program, loader, bytes.ToUpper(loader))
	return writeFile(t, dir, "foreign", 0o755, string(program))
}

func TestStartSaysWhyAProgramCannotBeExecuted(t *testing.T) {
	s, tempDir := newWarmSupervisor(t, jobs.Config{})
	dir := t.TempDir()
	script := writeFile(t, dir, "script", 0o755, "#!/no/such/interpreter -x\n")
	plain := writeFile(t, dir, "plain", 0o644, "#!/bin/sh\n")
	headless := writeFile(t, dir, "headless", 0o755, "echo hi\n")
	foreign := withoutLoader(t, dir)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "folder"), 0o755))
	inDir := []string{"PATH=" + dir}
	for _, r := range []refusal{
		{
			name: "not in PATH", spec: jobs.Spec{Argv: []string{"no-such-program"}},
			stage: jobs.StagePath, cause: exec.ErrNotFound, says: "PATH",
		},
		{
			name: "PATH is empty", spec: jobs.Spec{Argv: []string{"true"}, Env: []string{"PATH="}},
			stage: jobs.StagePath, cause: exec.ErrNotFound, says: "PATH",
		},
		{
			name: "missing", spec: jobs.Spec{Argv: []string{"/no/such/program"}},
			stage: jobs.StagePath, cause: fs.ErrNotExist, says: "/no/such/program",
		},
		{
			name: "below a file", spec: jobs.Spec{Argv: []string{plain + "/program"}},
			stage: jobs.StagePath, cause: syscall.ENOTDIR, says: "plain/program",
		},
		{
			name: "missing in Dir", spec: jobs.Spec{Argv: []string{"./program"}, Dir: dir},
			stage: jobs.StagePath, cause: fs.ErrNotExist, says: filepath.Join(dir, "program"),
		},
		{
			name: "missing interpreter", spec: jobs.Spec{Argv: []string{script}},
			stage: jobs.StagePath, cause: fs.ErrNotExist, says: "interpreter /no/such/interpreter does not",
		},
		{
			name: "missing interpreter in PATH", spec: jobs.Spec{Argv: []string{"script"}, Env: inDir},
			stage: jobs.StagePath, cause: fs.ErrNotExist, says: "interpreter /no/such/interpreter does not",
		},
		{
			name: "missing interpreter in Dir", spec: jobs.Spec{Argv: []string{"./script"}, Dir: dir},
			stage: jobs.StagePath, cause: fs.ErrNotExist, says: "interpreter /no/such/interpreter does not",
		},
		{
			name: "missing loader", spec: jobs.Spec{Argv: []string{foreign}},
			stage: jobs.StagePath, cause: fs.ErrNotExist, says: "loader",
		},
		{
			name: "not executable", spec: jobs.Spec{Argv: []string{plain}},
			stage: jobs.StagePath, cause: fs.ErrPermission, says: "chmod +x",
		},
		{
			name: "not executable in PATH", spec: jobs.Spec{Argv: []string{"plain"}, Env: inDir},
			stage: jobs.StagePath, cause: fs.ErrPermission, says: plain,
		},
		{
			name: "directory", spec: jobs.Spec{Argv: []string{dir}},
			stage: jobs.StagePath, cause: fs.ErrPermission, says: "it is a directory",
		},
		{
			name: "directory in PATH", spec: jobs.Spec{Argv: []string{"folder"}, Env: inDir},
			stage: jobs.StagePath, cause: syscall.EISDIR, says: filepath.Join(dir, "folder"),
		},
		{
			name: "no first line", spec: jobs.Spec{Argv: []string{headless}},
			stage: jobs.StagePath, cause: syscall.ENOEXEC, says: "#!",
		},
	} {
		t.Run(r.name, func(t *testing.T) { r.require(t, s, tempDir) })
	}
	require.Equal(t, jobs.Completed, runScript(t, s, "true").State, "the supervisor works on")
}

func TestAScriptWhoseInterpreterExistsIsNotSaidToLackIt(t *testing.T) {
	s, tempDir := newWarmSupervisor(t, jobs.Config{})
	dir := t.TempDir()
	plain := writeFile(t, dir, "plain", 0o644, "")
	// The name in its first line ends with the carriage return.
	dos := writeFile(t, dir, "dos", 0o755, "#!/bin/sh\r\necho hi\r\n")
	got := refusal{
		spec: jobs.Spec{Argv: []string{dos}}, stage: jobs.StagePath, cause: fs.ErrNotExist, says: "interpreter",
	}.require(t, s, tempDir)
	require.NotContains(t, got.Error(), "/bin/sh does not")
	require.Regexp(t, `\\r|carriage return|line ending`, got.Error())

	locked := writeFile(t, dir, "locked", 0o755, "#!"+plain+"\n")
	refusal{
		spec: jobs.Spec{Argv: []string{locked}}, stage: jobs.StagePath, cause: fs.ErrPermission, says: "interpreter " + plain,
	}.require(t, s, tempDir)
}

func TestWhatAShellCannotExecuteIsAnExitCode(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	dir := t.TempDir()
	for _, c := range []struct {
		command string
		code    int
		prints  string
	}{
		{"no-such-program", 127, "not found"},
		{writeFile(t, dir, "script", 0o755, "#!/no/such/interpreter\n"), 127, "script"},
		{dir, 126, "directory"},
		{writeFile(t, dir, "plain", 0o644, "echo ran\n"), 126, "denied"},
		{writeFile(t, dir, "headless", 0o755, "echo ran\n"), 0, "ran"},
	} {
		r := runScript(t, s, c.command)
		assert.Equal(t, c.code, r.ExitCode, c.command)
		assert.Contains(t, strings.ToLower(string(r.Output.Bytes())), c.prints, c.command)
	}
}

func TestStartBlamesTheWorkingDirectoryNotTheProgram(t *testing.T) {
	s, tempDir := newWarmSupervisor(t, jobs.Config{})
	dir := t.TempDir()
	file := writeFile(t, dir, "file", 0o755, "#!/bin/sh\n")
	dangling, loop := filepath.Join(dir, "dangling"), filepath.Join(dir, "loop")
	require.NoError(t, os.Symlink(filepath.Join(dir, "gone"), dangling))
	require.NoError(t, os.Symlink(loop, loop))
	for _, argv := range [][]string{{"true"}, {"/bin/true"}, {"./true"}} {
		for _, r := range []refusal{
			{name: "missing", spec: jobs.Spec{Dir: filepath.Join(dir, "missing")}, cause: fs.ErrNotExist},
			{name: "regular file", spec: jobs.Spec{Dir: file}, cause: syscall.ENOTDIR},
			{name: "below a file", spec: jobs.Spec{Dir: filepath.Join(file, "x")}, cause: syscall.ENOTDIR},
			{name: "dangling link", spec: jobs.Spec{Dir: dangling}, cause: fs.ErrNotExist},
			{name: "loop of links", spec: jobs.Spec{Dir: loop}, cause: syscall.ELOOP},
			{name: "name too long", spec: jobs.Spec{Dir: strings.Repeat("d", 300)}, cause: syscall.ENAMETOOLONG},
		} {
			t.Run(r.name+" for "+argv[0], func(t *testing.T) {
				r.stage, r.says = jobs.StageDir, r.spec.Dir
				r.spec.Tool, r.spec.Argv = "mine", argv
				got := r.require(t, s, tempDir)
				assert.NotContains(t, got.Error(), "true")
			})
		}
	}
}

func TestStartRefusesASpecThatIsNotValid(t *testing.T) {
	s, tempDir := newWarmSupervisor(t, jobs.Config{})
	call := func(context.Context, io.Writer) (any, error) { return nil, nil }
	argv := []string{"true"}
	for _, r := range []refusal{
		{name: "nothing to run", says: "nothing to run"},
		{name: "no arguments at all", spec: jobs.Spec{Argv: []string{}}, says: "nothing to run"},
		{name: "both", spec: jobs.Spec{Argv: argv, Func: call}, says: "both"},
		{name: "Func with Dir", spec: jobs.Spec{Func: call, Dir: "/"}, says: "Dir"},
		{name: "Func with Env", spec: jobs.Spec{Func: call, Env: []string{"A=" + secret}}, says: "Env"},
		{name: "Func with SplitStderr", spec: jobs.Spec{Func: call, SplitStderr: true}, says: "SplitStderr"},
		{name: "empty program", spec: jobs.Spec{Argv: []string{"", "x"}}, says: "Argv[0]"},
		{name: "unknown policy", spec: jobs.Spec{Argv: argv, Leftovers: 7}, says: "7"},
		{name: "NUL in program", spec: jobs.Spec{Argv: []string{"tr\x00ue"}}, says: "Argv[0] contains a NUL"},
		{name: "NUL in argument", spec: jobs.Spec{Argv: []string{"true", "a", "b\x00"}}, says: "Argv[2] contains a NUL"},
		{name: "NUL in Dir", spec: jobs.Spec{Argv: argv, Dir: "/\x00"}, says: "directory contains a NUL"},
		{name: "NUL in key", spec: jobs.Spec{Argv: argv, Env: []string{"A=1", "B\x00=" + secret}}, says: "Env[1]: the key contains a NUL"},
		{name: "NUL in value", spec: jobs.Spec{Argv: argv, Env: []string{"KEY=" + secret + "\x00"}}, says: `Env[0]: the value of "KEY"`},
		{name: "no equals sign", spec: jobs.Spec{Argv: argv, Env: []string{secret}}, says: `Env[0]: an entry of 12 bytes has no "="`},
		{name: "empty entry", spec: jobs.Spec{Argv: argv, Env: []string{""}}, says: `has no "="`},
		{name: "empty key", spec: jobs.Spec{Argv: argv, Env: []string{"=" + secret}}, says: "key is empty"},
		{name: "result path", spec: jobs.Spec{Argv: argv, Env: []string{"LLM_OUTPUT=" + secret}}, says: "LLM_OUTPUT"},
		{name: "job id", spec: jobs.Spec{Argv: argv, Env: []string{"AGENT_JOB_ID=" + secret}}, says: "AGENT_JOB_ID"},
	} {
		t.Run(r.name, func(t *testing.T) {
			r.stage = jobs.StageSpec
			r.require(t, s, tempDir)
		})
	}
}

func TestNewRefusesABadEnvironmentWithoutShowingIt(t *testing.T) {
	for name, entry := range map[string]string{
		"no equals sign": secret,
		"empty key":      "=" + secret,
		"NUL in value":   "KEY=" + secret + "\x00",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := jobs.New(jobs.Config{Env: []string{"A=1", entry}})
			require.ErrorContains(t, err, "Config.Env[1]")
			require.NotContains(t, err.Error(), secret)
		})
	}
}

func TestNothingThatIsToldOfAJobShowsItsEnvironment(t *testing.T) {
	s := newSupervisor(t, jobs.Config{Env: []string{"PATH=/bin", "BASE=" + secret}})
	gate := newGate(t)
	spec := gate.gated(`read -r _ <"$GATE"`)
	spec.Env = append(spec.Env, "TOKEN="+secret)
	snap := start(t, s, spec)
	told := []any{snap, s.List()}
	gate.open(t)
	told = append(told, awaitEnd(t, s, snap.ID), s.List(), collect(t, s, snap.ID))
	_, err := s.Collect(t.Context(), snap.ID)
	told = append(told, err)
	for _, what := range told {
		require.NotContains(t, fmt.Sprintf("%+v", what), secret)
	}
}

func TestStartSaysWhatIsTooLargeButNotWhatIsInIt(t *testing.T) {
	s, tempDir := newWarmSupervisor(t, jobs.Config{})
	large := secret + strings.Repeat("x", 200_000)
	many := []string{"true"}
	for range 80 {
		many = append(many, strings.Repeat("y", 100_000))
	}
	for _, r := range []refusal{
		{name: "one argument", spec: jobs.Spec{Argv: []string{"true", "a", large}}, says: "Argv[2] with 200012"},
		{name: "one variable", spec: jobs.Spec{Argv: []string{"true"}, Env: []string{"BIG=" + large}}, says: "variable BIG with 200016"},
		{name: "many arguments", spec: jobs.Spec{Argv: many}, says: "arguments and environment take 80"},
	} {
		t.Run(r.name, func(t *testing.T) {
			r.stage, r.cause = jobs.StageArgs, syscall.E2BIG
			got := r.require(t, s, tempDir)
			assert.Less(t, len(got.Error()), 1000)
			require.Equal(t, jobs.Completed, runScript(t, s, "true").State)
		})
	}
}

func TestStartNeedsAUsableTempDirAndRecoversWithIt(t *testing.T) {
	dir := t.TempDir()
	file := writeFile(t, dir, "file", 0o644, "")
	for _, r := range []refusal{
		{name: filepath.Join(dir, "missing"), cause: fs.ErrNotExist},
		{name: file, cause: syscall.ENOTDIR},
		{name: filepath.Join(file, "below"), cause: syscall.ENOTDIR},
	} {
		t.Run(filepath.Base(r.name), func(t *testing.T) {
			s := newSupervisor(t, jobs.Config{TempDir: r.name})
			r.spec.Argv, r.stage, r.says = []string{"true"}, jobs.StageFile, "Config.TempDir"
			r.require(t, s, dir)
		})
	}
	later := filepath.Join(dir, "later")
	s := newSupervisor(t, jobs.Config{TempDir: later})
	_, err := refused(s, dir, jobs.Spec{Argv: []string{"true"}})
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(later, 0o700))
	require.Equal(t, jobs.Completed, runScript(t, s, "true").State)
}

// outsider is a user without any rights, and without other processes.
const outsider = 54_321

// asOutsider makes a helper run as outsider.
func asOutsider(t testing.TB, c *exec.Cmd) *exec.Cmd {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can become another user")
	}
	c.Path = "/proc/self/exe" // the file itself lies where only root can go
	c.Dir = "/"
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: outsider, Gid: outsider}}
	return c
}

// outsidersDir makes a directory that only outsider can use.
func outsidersDir(t testing.TB, path string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can make a directory of another user")
	}
	require.NoError(t, os.Mkdir(path, 0o700))
	require.NoError(t, os.Chown(path, outsider, outsider))
}

// publicDir returns a new directory that every user can enter.
func publicDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "jobs-test-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	return dir
}

func TestStartSaysWhatAnOrdinaryUserMayNotDo(t *testing.T) {
	dir := publicDir(t)
	for name, perm := range map[string]fs.FileMode{"temp": 0o777, "locked": 0o700, "readonly": 0o755} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), perm))
		require.NoError(t, os.Chmod(filepath.Join(dir, name), perm))
	}
	writeFile(t, dir, "private", 0o700, "#!/bin/sh\n")
	out, err := asOutsider(t, helper(t, "start as an outsider", "DIR="+dir)).Output()
	require.NoError(t, err, "%s", out)
}

func startAsAnOutsider() {
	dir := os.Getenv("DIR")
	temp, locked := filepath.Join(dir, "temp"), filepath.Join(dir, "locked")
	readonly, private := filepath.Join(dir, "readonly"), filepath.Join(dir, "private")
	for _, r := range []struct {
		temp  string
		spec  jobs.Spec
		stage jobs.Stage
		cause error
		says  string
	}{
		{temp, jobs.Spec{Argv: []string{"/bin/true"}, Dir: locked}, jobs.StageDir, fs.ErrPermission, locked},
		{temp, jobs.Spec{Argv: []string{"./x"}, Dir: locked + "/x"}, jobs.StageDir, fs.ErrPermission, locked + "/x"},
		{temp, jobs.Spec{Argv: []string{private}}, jobs.StagePath, fs.ErrPermission, private},
		{temp, jobs.Spec{Argv: []string{"private"}, Env: []string{"PATH=" + dir}}, jobs.StagePath, fs.ErrPermission, private},
		{temp, jobs.Spec{Argv: []string{locked + "/x"}}, jobs.StagePath, fs.ErrPermission, locked + "/x"},
		{readonly, jobs.Spec{Argv: []string{"/bin/true"}}, jobs.StageFile, fs.ErrPermission, "Config.TempDir"},
	} {
		s, err := jobs.New(jobs.Config{TempDir: r.temp})
		check(err == nil, "%v", err)
		if r.temp == temp {
			warmUp(s)
		}
		got, err := refused(s, r.temp, r.spec)
		check(err == nil, "%q in %q: %v", r.spec.Argv, r.spec.Dir, err)
		check(got.Stage == r.stage, "%q in %q: stage %q: %v", r.spec.Argv, r.spec.Dir, got.Stage, got)
		check(errors.Is(got, r.cause), "%q in %q: not because of %v: %v", r.spec.Argv, r.spec.Dir, r.cause, got)
		check(strings.Contains(got.Error(), r.says), "no %q in %v", r.says, got)
		s.Close(context.Background())
	}
}

func TestADirectoryInPathThatCannotBeSearchedHoldsNoProgram(t *testing.T) {
	dir := publicDir(t)
	locked := filepath.Join(dir, "locked")
	require.NoError(t, os.Mkdir(locked, 0o700))
	outsidersDir(t, filepath.Join(dir, "temp"))
	out, err := asOutsider(t, helper(t, "start with a locked path", "DIR="+dir)).Output()
	require.NoError(t, err, "%s", out)
}

func startWithALockedPath() {
	dir := os.Getenv("DIR")
	temp, locked := filepath.Join(dir, "temp"), filepath.Join(dir, "locked")
	s, err := jobs.New(jobs.Config{TempDir: temp})
	check(err == nil, "%v", err)
	r := runIn(s, jobs.Spec{Argv: []string{"true"}, Env: []string{"PATH=" + locked + ":/bin"}})
	check(r.State == jobs.Completed, "%s", r.Outcome())
	got, err := refused(s, temp, jobs.Spec{Argv: []string{"no-such-program"}, Env: []string{"PATH=" + locked}})
	check(err == nil, "%v", err)
	check(errors.Is(got, exec.ErrNotFound), "nobody can tell that it was found: %v", got)
	s.Close(context.Background())
}

// warmUp runs a job in a helper, so that the supervisor, and the runtime, hold
// what they need once.
func warmUp(s *jobs.Supervisor) {
	r := runIn(s, jobs.Spec{Argv: []string{"/bin/true"}})
	check(r.State == jobs.Completed, "true: %s", r.Outcome())
}

// runIn runs a job in a helper to its end.
func runIn(s *jobs.Supervisor, spec jobs.Spec) jobs.Result {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	snap, err := s.Start(ctx, spec)
	check(err == nil, "%v", err)
	r, err := s.Collect(ctx, snap.ID)
	check(err == nil, "%v", err)
	return r
}

func TestStartWithoutFreeDescriptorsFailsCleanlyAndRecovers(t *testing.T) {
	runHelper(t, "start without descriptors", "DIR="+t.TempDir())
}

// startWithoutDescriptors starts jobs under every limit on open files from
// none free to enough.
func startWithoutDescriptors() {
	debug.SetGCPercent(-1)
	dir := os.Getenv("DIR")
	s, err := jobs.New(jobs.Config{TempDir: dir})
	check(err == nil, "%v", err)
	warmUp(s)
	var usual syscall.Rlimit
	check(syscall.Getrlimit(syscall.RLIMIT_NOFILE, &usual) == nil, "getrlimit")
	for _, split := range []bool{false, true} {
		refusals, before := 0, settledFootprint(s, dir)
		for limit := lowestFree(); ; limit++ {
			tight := syscall.Rlimit{Cur: limit, Max: usual.Max}
			check(syscall.Setrlimit(syscall.RLIMIT_NOFILE, &tight) == nil, "setrlimit")
			snap, err := s.Start(context.Background(), jobs.Spec{
				Argv:        []string{"/bin/sh", "-c", "echo hi; exit 3"},
				Env:         []string{"TOKEN=" + secret},
				SplitStderr: split,
			})
			if err == nil {
				before.descriptors += onFirstNeed
				// A job that has begun ends properly without another descriptor.
				r, err := s.Collect(context.Background(), snap.ID)
				check(err == nil && r.ExitCode == 3 && string(r.Output.Bytes()) == "hi\n", "%v %s %q", err, r.Outcome(), r.Output.Bytes())
			}
			check(syscall.Setrlimit(syscall.RLIMIT_NOFILE, &usual) == nil, "setrlimit")
			check(staysWithin(before, s, dir), "at %d descriptors: left behind %+v, before %+v", limit, footprintOf(s, dir), before)
			if err == nil {
				break
			}
			var refusal *jobs.StartError
			check(errors.As(err, &refusal) && refusal.Stage == jobs.StageHost, "at %d descriptors: %v", limit, err)
			check(errors.Is(err, syscall.EMFILE), "at %d descriptors: %v", limit, err)
			check(!strings.Contains(err.Error(), secret), "%v", err)
			refusals++
		}
		check(refusals >= 4, "only %d limits were too low", refusals)
	}
	warmUp(s)
	s.Close(context.Background())
}

// lowestFree returns the lowest descriptor that is not in use.
func lowestFree() uint64 {
	f, err := os.Open("/")
	check(err == nil, "%v", err)
	defer f.Close()
	return uint64(f.Fd())
}

func TestStartWithoutRoomForAProcessFailsCleanlyAndRecovers(t *testing.T) {
	dir := publicDir(t)
	temp := filepath.Join(dir, "temp")
	outsidersDir(t, temp)
	out, err := asOutsider(t, helper(t, "start without processes", "DIR="+temp)).Output()
	require.NoError(t, err, "%s", out)
}

func startWithoutProcesses() {
	debug.SetGCPercent(-1)
	dir := os.Getenv("DIR")
	s, err := jobs.New(jobs.Config{TempDir: dir})
	check(err == nil, "%v", err)
	warmUp(s)
	idleThreads(8)
	var usual syscall.Rlimit
	check(unix.Prlimit(0, unix.RLIMIT_NPROC, nil, (*unix.Rlimit)(&usual)) == nil, "prlimit")
	check(unix.Prlimit(0, unix.RLIMIT_NPROC, &unix.Rlimit{Cur: 1, Max: usual.Max}, nil) == nil, "prlimit")
	got, err := refused(s, dir, jobs.Spec{Argv: []string{"/bin/true"}})
	check(unix.Prlimit(0, unix.RLIMIT_NPROC, (*unix.Rlimit)(&usual), nil) == nil, "prlimit")
	check(err == nil, "%v", err)
	check(got.Stage == jobs.StageHost && errors.Is(got, syscall.EAGAIN), "%v", got)
	check(strings.Contains(got.Hint, "later"), "%v", got)
	warmUp(s)
	s.Close(context.Background())
}

// idleThreads makes the runtime own n threads to spare. It dies where it needs
// one and the system refuses.
func idleThreads(n int) {
	var started, done sync.WaitGroup
	hold := make(chan struct{})
	for range n {
		started.Add(1)
		done.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			started.Done()
			<-hold
		})
	}
	started.Wait()
	close(hold)
	done.Wait()
}

// openings tells of every time that path is opened, be it by an execve that
// then fails.
func openings(t testing.TB, path string) <-chan struct{} {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	require.NoError(t, err)
	_, err = unix.InotifyAddWatch(fd, path, unix.IN_OPEN)
	require.NoError(t, err)
	if err := exec.Command(path).Run(); !errors.Is(err, syscall.ETXTBSY) {
		t.Skipf("a program that is open for writing can be executed here: %v", err)
	}
	buf := make([]byte, 4096)
	if n, _ := unix.Read(fd, buf); n <= 0 {
		t.Skip("the kernel does not tell of an execve that fails (before Linux 6.5)")
	}
	events := os.NewFile(uintptr(fd), "inotify")
	told := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			if n, _ := events.Read(buf); n <= 0 {
				return
			}
			select {
			case told <- struct{}{}:
			case <-t.Context().Done():
				return
			}
		}
	}()
	t.Cleanup(func() {
		events.Close()
		<-done
	})
	return told
}

// heldProgram makes a program that stays open for writing until release.
func heldProgram(t testing.TB) (path string, release func()) {
	t.Helper()
	path = writeFile(t, t.TempDir(), "saved", 0o755, "#!/bin/sh\necho ran\n")
	held, err := os.OpenFile(path, os.O_WRONLY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { held.Close() })
	return path, func() { held.Close() }
}

func TestStartTriesAgainWhileTheProgramIsOpenForWriting(t *testing.T) {
	s, _ := newWarmSupervisor(t, jobs.Config{})
	path, release := heldProgram(t)
	opened := openings(t, path)
	go func() {
		// The second attempt shows that the first was not the last.
		<-opened
		<-opened
		release()
	}()
	r := collect(t, s, start(t, s, jobs.Spec{Argv: []string{path}}).ID)
	require.Equal(t, "ran\n", string(r.Output.Bytes()))
}

func TestStartGivesUpOnAProgramThatStaysOpenForWriting(t *testing.T) {
	s, tempDir := newWarmSupervisor(t, jobs.Config{})
	path, release := heldProgram(t)
	refusal{
		spec: jobs.Spec{Argv: []string{path}}, stage: jobs.StagePath, cause: syscall.ETXTBSY, says: "open for writing",
	}.require(t, s, tempDir)
	release()
	require.Equal(t, jobs.Completed, collect(t, s, start(t, s, jobs.Spec{Argv: []string{path}}).ID).State)
}

func TestAContextThatEndsWhileStartTriesAgainAbortsIt(t *testing.T) {
	s, tempDir := newWarmSupervisor(t, jobs.Config{})
	path, _ := heldProgram(t)
	opened := openings(t, path)
	before := settledFootprint(s, tempDir)
	ctx, abort := context.WithCancelCause(t.Context())
	go func() {
		<-opened
		<-opened
		abort(errors.New("a cause"))
	}()
	_, err := s.Start(ctx, jobs.Spec{Argv: []string{path}})
	require.ErrorIs(t, err, context.Canceled)
	var refusal *jobs.StartError
	require.False(t, errors.As(err, &refusal), "the program is not to blame: %v", err)
	require.True(t, staysWithin(before, s, tempDir), "%+v, before %+v", footprintOf(s, tempDir), before)
}

func TestAContextThatIsDoneLeavesNoRecord(t *testing.T) {
	s, tempDir := newWarmSupervisor(t, jobs.Config{})
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	expired, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	before := settledFootprint(s, tempDir)
	for _, ctx := range []context.Context{canceled, expired} {
		for _, spec := range []jobs.Spec{
			{Argv: []string{"true"}},
			{Func: func(context.Context, io.Writer) (any, error) { panic("it ran") }},
		} {
			snap, err := s.Start(ctx, spec)
			require.ErrorIs(t, err, ctx.Err())
			require.Empty(t, snap.ID)
		}
	}
	require.True(t, staysWithin(before, s, tempDir), "%+v, before %+v", footprintOf(s, tempDir), before)
}

func TestDescriptorsReturnWhenJobsEndNotWhenTheyAreForgotten(t *testing.T) {
	s, tempDir := newWarmSupervisor(t, jobs.Config{MaxRetained: 200})
	before := settledFootprint(s, tempDir)
	for range 100 {
		awaitEnd(t, s, start(t, s, jobs.Spec{Argv: []string{"true"}}).ID)
		_, err := s.Start(t.Context(), jobs.Spec{Argv: []string{"/no/such/program"}})
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
	require.Len(t, s.List().Jobs, 100)
	before.records += 100
	before.descriptors += onFirstNeed
	require.True(t, staysWithin(before, s, tempDir), "%+v, before %+v", footprintOf(s, tempDir), before)
}

// environ runs a job that prints the environment it was started with.
func environ(t testing.TB, s *jobs.Supervisor, env ...string) []string {
	t.Helper()
	r := collect(t, s, start(t, s, jobs.Spec{Argv: []string{"/bin/cat", "/proc/self/environ"}, Env: env}).ID)
	require.Equal(t, jobs.Completed, r.State)
	return strings.Split(strings.TrimSuffix(string(r.Output.Bytes()), "\x00"), "\x00")
}

func TestEnvironmentReachesTheJobByteForByte(t *testing.T) {
	s := newSupervisor(t, jobs.Config{Env: []string{"BASE=base", "K=base"}})
	entries := []string{
		"EMPTY=",
		"EQUALS=a=b==c",
		"LINES=one\ntwo\r\n",
		`QUOTES="double" 'single' $HOME` + " `id` \\",
		"BYTES=caf\xe9 \xff\xfe",
		"key with spaces=x",
		"DASH=-x",
		"JAPANESE=日本語",
	}
	env := environ(t, s, append([]string{"K=1", "K=2"}, entries...)...)
	for _, entry := range append(entries, "K=2", "BASE=base") {
		require.Contains(t, env, entry)
	}
	keys := make(map[string]bool)
	for _, entry := range env {
		key, _, _ := strings.Cut(entry, "=")
		require.False(t, keys[key], "%s is there twice", key)
		keys[key] = true
	}
}

func TestArgumentsReachTheJobByteForByte(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	args := []string{"x y", "a'b", `"q"`, "$HOME", "`id`", "n\nl", "", "-x", "--", "\\", "*", "caf\xe9"}
	spec := jobs.Spec{Argv: append([]string{"bash", "-c", `printf '%s|' "$@"`, "-x"}, args...)}
	r := collect(t, s, start(t, s, spec).ID)
	require.Equal(t, strings.Join(args, "|")+"|", string(r.Output.Bytes()))
}

func TestConfigEnvReplacesTheHostsEnvironment(t *testing.T) {
	t.Setenv("JOBS_TEST_TOKEN", secret)
	path := "PATH=" + os.Getenv("PATH")
	env := environ(t, newSupervisor(t, jobs.Config{Env: []string{path}}))
	require.Contains(t, env, path)
	require.NotContains(t, strings.Join(env, "\n"), secret)
	env = environ(t, newSupervisor(t, jobs.Config{Env: []string{}}))
	require.NotContains(t, strings.Join(env, "\n"), secret, "an empty environment is not none")
	env = environ(t, newSupervisor(t, jobs.Config{}))
	require.Contains(t, env, "JOBS_TEST_TOKEN="+secret)
}

func TestQuietDefaultsCanBeOverridden(t *testing.T) {
	t.Setenv("PAGER", "less")
	s := newSupervisor(t, jobs.Config{})
	env := environ(t, s)
	for _, entry := range []string{"PAGER=cat", "GIT_PAGER=cat", "GIT_TERMINAL_PROMPT=0", "PYTHONUNBUFFERED=1", "DEBIAN_FRONTEND=noninteractive"} {
		require.Contains(t, env, entry)
	}
	env = environ(t, s, "PAGER=more", "PYTHONUNBUFFERED=")
	require.Contains(t, env, "PAGER=more")
	require.Contains(t, env, "PYTHONUNBUFFERED=")
	require.NotContains(t, env, "PAGER=cat")
}

func TestOddEntriesOfTheHostsEnvironmentAreLeftOut(t *testing.T) {
	out := runHelper(t, "start and print", "garbage", "=value", "ODD=fine", "ARGV=/bin/cat\n/proc/self/environ")
	env := strings.Split(out, "\x00")
	require.Contains(t, env, "ODD=fine")
	require.NotContains(t, env, "garbage")
	require.NotContains(t, env, "=value")
}

// startAndPrint runs the lines of $ARGV as a job and prints its output.
func startAndPrint() {
	s, err := jobs.New(jobs.Config{})
	check(err == nil, "%v", err)
	r := runIn(s, jobs.Spec{Argv: strings.Split(os.Getenv("ARGV"), "\n")})
	check(r.State == jobs.Completed, "%s", r.Outcome())
	os.Stdout.Write(r.Output.Bytes())
	s.Close(context.Background())
}

func TestWhatAJobStartsFromIsFrozen(t *testing.T) {
	t.Setenv("JOBS_TEST_FROZEN", "before")
	base := append(os.Environ(), "BASE=before")
	s := newSupervisor(t, jobs.Config{Env: base})
	base[len(base)-1] = "BASE=after"

	gate := newGate(t)
	spec := jobs.Spec{
		Argv: []string{"bash", "-c", `read -r _ <"$GATE"; printf '%s|' "$JOBS_TEST_FROZEN" "$BASE" "$OWN" "$0" "$PWD"`, "argument"},
		Env:  []string{"OWN=before", gate.env()},
		Dir:  "/",
	}
	id := start(t, s, spec).ID
	spec.Argv[2], spec.Argv[3] = "exit 1", "changed"
	spec.Env[0] = "OWN=after"
	t.Setenv("JOBS_TEST_FROZEN", "after")
	gate.open(t)
	require.Equal(t, "before|before|before|argument|/|", string(collect(t, s, id).Output.Bytes()))
}

func TestTheHostsEnvironmentIsReadAtEveryStart(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	for _, value := range []string{"one", "two"} {
		t.Setenv("JOBS_TEST_NOW", value)
		require.Contains(t, environ(t, s), "JOBS_TEST_NOW="+value)
	}
}

func TestStartLeavesTheCallersSlicesAlone(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	env := append(make([]string, 0, 100), "K=1", "K=2", "PATH="+os.Getenv("PATH"))
	argv := append(make([]string, 0, 100), "true")
	collect(t, s, start(t, s, jobs.Spec{Argv: argv, Env: env}).ID)
	require.Equal(t, []string{"K=1", "K=2", "PATH=" + os.Getenv("PATH"), "", ""}, env[:5])
	require.Equal(t, []string{"true", ""}, argv[:2])
}

// A gate stops a job until the test lets it on: `read -r _ <"$GATE"`.
type gate struct {
	path string
	fifo *os.File
}

func newGate(t testing.TB) *gate {
	t.Helper()
	g := &gate{path: filepath.Join(t.TempDir(), "gate")}
	require.NoError(t, unix.Mkfifo(g.path, 0o600))
	var err error
	// Open for both, so that neither side ever waits to open it.
	g.fifo, err = os.OpenFile(g.path, os.O_RDWR, 0)
	require.NoError(t, err)
	t.Cleanup(func() { g.fifo.Close() })
	return g
}

// env is the entry by which a job finds the gate.
func (g *gate) env() string { return "GATE=" + g.path }

// open lets the job on, once.
func (g *gate) open(t testing.TB) {
	t.Helper()
	_, err := g.fifo.WriteString("\n")
	require.NoError(t, err)
}

// gated is a Spec that runs a script with gates in it.
func (g *gate) gated(script string) jobs.Spec {
	spec := bash(script)
	spec.Env = []string{g.env()}
	return spec
}

func TestJobIDsFormAChainThroughNestedHosts(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	self, err := os.Executable()
	require.NoError(t, err)
	snap := start(t, s, jobs.Spec{Argv: []string{self}, Env: []string{helperEnv + "=start a nested job"}})
	r := collect(t, s, snap.ID)
	lines := strings.Fields(string(r.Output.Bytes()))
	require.Len(t, lines, 3, "%q", r.Output.Bytes())
	outer, inner, chain := lines[0], lines[1], lines[2]
	require.Equal(t, snap.ID, outer)
	require.Equal(t, outer+":"+inner, chain)
}

// startANestedJob prints the chain of its own, the id of a job it starts, and
// the chain of that.
func startANestedJob() {
	// The chain goes on whatever the host gives its jobs to start from.
	s, err := jobs.New(jobs.Config{Env: []string{"PATH=/bin", "AGENT_JOB_ID=job_0123456789abcdef0123"}})
	check(err == nil, "%v", err)
	r := runIn(s, jobs.Spec{Argv: []string{"sh", "-c", `echo "$AGENT_JOB_ID"`}})
	fmt.Printf("%s\n%s\n%s", os.Getenv(jobs.EnvJob), r.ID, r.Output.Bytes())
	s.Close(context.Background())
}

func TestProgramsAreFoundInThePathOfTheJob(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	first, second := t.TempDir(), t.TempDir()
	writeFile(t, first, "tool", 0o644, "#!/bin/sh\necho not executable\n")
	writeFile(t, second, "tool", 0o755, "#!/bin/sh\necho second\n")
	require.NoError(t, os.Mkdir(filepath.Join(first, "other"), 0o755))
	writeFile(t, second, "other", 0o755, "#!/bin/sh\necho other\n")
	path := "PATH=/no/such/dir:" + first + ":" + second
	for name, want := range map[string]string{"tool": "second\n", "other": "other\n"} {
		_, err := exec.LookPath(name)
		require.Error(t, err, "it must not be in the PATH of the host")
		r := collect(t, s, start(t, s, jobs.Spec{Argv: []string{name}, Env: []string{path}}).ID)
		require.Equal(t, want, string(r.Output.Bytes()))
	}
}

func TestRelativeElementsOfPathAreNotSearched(t *testing.T) {
	s, tempDir := newWarmSupervisor(t, jobs.Config{})
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "bin"), 0o755))
	writeFile(t, dir, "tool", 0o755, "#!/bin/sh\n")
	writeFile(t, filepath.Join(dir, "bin"), "tool", 0o755, "#!/bin/sh\n")
	t.Chdir(dir)
	for _, path := range []string{".", "", "bin", "./bin", ":/no/such/dir:"} {
		for _, in := range []string{"", dir} {
			refusal{
				spec:  jobs.Spec{Argv: []string{"tool"}, Dir: in, Env: []string{"PATH=" + path}},
				stage: jobs.StagePath, cause: exec.ErrNotFound,
			}.require(t, s, tempDir)
		}
	}
}

func TestARelativeProgramIsResolvedInDir(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	host, dir := t.TempDir(), t.TempDir()
	t.Chdir(host)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "bin"), 0o755))
	writeFile(t, host, "tool", 0o755, "#!/bin/sh\necho of the host\n")
	writeFile(t, dir, "tool", 0o755, "#!/bin/sh\necho of Dir\n")
	writeFile(t, filepath.Join(dir, "bin"), "tool", 0o755, "#!/bin/sh\necho of bin\n")
	for program, want := range map[string]string{"./tool": "of Dir\n", "bin/tool": "of bin\n"} {
		r := collect(t, s, start(t, s, jobs.Spec{Argv: []string{program}, Dir: dir}).ID)
		require.Equal(t, want, string(r.Output.Bytes()))
	}
	r := collect(t, s, start(t, s, jobs.Spec{Argv: []string{"./tool"}}).ID)
	require.Equal(t, "of the host\n", string(r.Output.Bytes()))
}

func TestEachJobHasAWorkingDirectoryOfItsOwn(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 10})
	before, err := os.Getwd()
	require.NoError(t, err)
	dirs := make(map[string]string)
	for range 10 {
		dir, err := filepath.EvalSymlinks(t.TempDir())
		require.NoError(t, err)
		dirs[start(t, s, jobs.Spec{Argv: []string{"pwd"}, Dir: dir}).ID] = dir
	}
	for id, dir := range dirs {
		require.Equal(t, dir+"\n", string(collect(t, s, id).Output.Bytes()))
	}
	after, err := os.Getwd()
	require.NoError(t, err)
	require.Equal(t, before, after)
}

func TestAHostWhoseDirectoryIsDeletedStillStartsJobs(t *testing.T) {
	runHelper(t, "start in a deleted directory", "DIR="+t.TempDir())
}

func startInADeletedDirectory() {
	gone := filepath.Join(os.Getenv("DIR"), "gone")
	check(os.Mkdir(gone, 0o755) == nil && os.Chdir(gone) == nil && os.Remove(gone) == nil, "cannot delete %s", gone)
	s, err := jobs.New(jobs.Config{TempDir: os.Getenv("DIR")})
	check(err == nil, "%v", err)
	r := runIn(s, jobs.Spec{Argv: []string{"/bin/sh", "-c", "pwd; echo '1' >\"$LLM_OUTPUT\""}, Dir: "/"})
	check(string(r.Output.Bytes()) == "/\n1\n" && string(r.File.JSON()) == "1", "%s %q", r.Outcome(), r.Output.Bytes())
	r = runIn(s, jobs.Spec{Argv: []string{"echo", "ok"}})
	check(string(r.Output.Bytes()) == "ok\n", "%s %q", r.Outcome(), r.Output.Bytes())
	s.Close(context.Background())
}

func TestARelativeTempDirGivesAResultPathThatWorksInEveryDir(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.Mkdir("temp", 0o700))
	s := newSupervisor(t, jobs.Config{TempDir: "temp"})
	spec := bash(`echo '"found"' >"$LLM_OUTPUT"`)
	spec.Dir = "/"
	r := collect(t, s, start(t, s, spec).ID)
	require.Equal(t, `"found"`, string(r.File.JSON()), "it printed %q", r.Output.Bytes())
}

func TestStandardInputIsEmptyWhateverTheHostHas(t *testing.T) {
	c := helper(t, "start and print", "ARGV=bash\n-c\nread -r x; echo \"rc=$? x=[$x]\"; cat; echo done")
	c.Stdin = strings.NewReader("for the host\n")
	out, err := c.Output()
	require.NoError(t, err)
	require.Equal(t, "rc=1 x=[]\ndone\n", string(out))
}

func TestStandardStreamsAreTheNullDeviceAndOneBlockingPipe(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	links := []string{"readlink", "/proc/self/fd/0", "/proc/self/fd/1", "/proc/self/fd/2"}
	r := collect(t, s, start(t, s, jobs.Spec{Argv: links}).ID)
	fds := strings.Fields(string(r.Output.Bytes()))
	require.Len(t, fds, 3)
	assert.Equal(t, "/dev/null", fds[0])
	assert.Regexp(t, `^pipe:`, fds[1])
	assert.Equal(t, fds[1], fds[2])

	r = collect(t, s, start(t, s, jobs.Spec{Argv: links, SplitStderr: true}).ID)
	fds = strings.Fields(string(r.Output.Bytes()))
	require.Len(t, fds, 3)
	assert.Regexp(t, `^pipe:`, fds[2])
	assert.NotEqual(t, fds[1], fds[2])

	// Programs do not expect EAGAIN from a write to their standard output.
	r = runScript(t, s, "cat /proc/self/fdinfo/{0,1,2}")
	flags := regexp.MustCompile(`(?m)^flags:\s+(\d+)$`).FindAllStringSubmatch(string(r.Output.Bytes()), -1)
	require.Len(t, flags, 3, "%q", r.Output.Bytes())
	for fd, match := range flags {
		bits, err := strconv.ParseInt(match[1], 8, 64)
		require.NoError(t, err)
		assert.Zero(t, bits&unix.O_NONBLOCK, "descriptor %d does not block", fd)
	}
}

// inherited returns the descriptors that this process was given and that every
// program it executes gets too.
func inherited(t testing.TB) []string {
	t.Helper()
	var fds []string
	names, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, name := range names {
		fd, err := strconv.Atoi(name.Name())
		require.NoError(t, err)
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && fd > 2 && flags&unix.FD_CLOEXEC == 0 {
			fds = append(fds, name.Name())
		}
	}
	return fds
}

func TestNoDescriptorThatTheHostOpenedReachesAJob(t *testing.T) {
	given := inherited(t)
	s := newSupervisor(t, jobs.Config{MaxRunning: 80})
	for range 5 {
		file, err := os.CreateTemp(t.TempDir(), "")
		require.NoError(t, err)
		defer file.Close()
		socket, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer socket.Close()
	}
	gate := newGate(t)
	for range 20 {
		start(t, s, gate.gated(`read -r _ <"$GATE"`))
	}
	spec := jobs.Spec{Argv: []string{"ls", "/proc/self/fd"}}
	var starters sync.WaitGroup
	for range 5 {
		starters.Go(func() {
			for range 10 {
				snap, err := s.Start(t.Context(), spec)
				if !assert.NoError(t, err) {
					return
				}
				r, err := s.Collect(t.Context(), snap.ID)
				assert.NoError(t, err)
				fds := slices.DeleteFunc(strings.Fields(string(r.Output.Bytes())), func(fd string) bool {
					return slices.Contains(given, fd)
				})
				assert.Len(t, fds, 4, "it has 0, 1, 2 and the directory that it lists")
				assert.Subset(t, fds, []string{"0", "1", "2"})
			}
		})
	}
	starters.Wait()
	for range 20 {
		gate.open(t)
	}
}

func TestADescriptorTheHostInheritedDoesNotReachAJob(t *testing.T) {
	// As with a shell's `exec 9>lock; host`, or the pipes of a make.
	c := helper(t, "start and print", "ARGV=ls\n/proc/self/fd")
	lock, err := os.CreateTemp(t.TempDir(), "lock")
	require.NoError(t, err)
	defer lock.Close()
	c.ExtraFiles = []*os.File{lock}
	out, err := c.Output()
	require.NoError(t, err)
	require.Equal(t, "0\n1\n2\n3\n", string(out))
}

func TestAJobHasTheLimitOnOpenFilesThatTheHostWasGiven(t *testing.T) {
	c := helper(t, "start and print", "ARGV=bash\n-c\nulimit -Sn; ulimit -Hn")
	c.Args = []string{"bash", "-c", `ulimit -Sn 1024; ulimit -Hn 4096; exec "$0"`, c.Path}
	c.Path = "/bin/bash"
	out, err := c.Output()
	require.NoError(t, err)
	require.Equal(t, "1024\n4096\n", string(out))
}

// newTerminal returns both sides of a new terminal.
func newTerminal(t testing.TB) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no terminals here:", err)
	}
	t.Cleanup(func() { master.Close() })
	require.NoError(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { slave.Close() })
	return master, slave
}

func TestAJobCannotReachTheTerminalOfItsHost(t *testing.T) {
	master, slave := newTerminal(t)
	c := helper(t, "start on a terminal")
	c.Stdin = slave
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	out, err := c.Output()
	require.NoError(t, err, "%s", out)
	slave.Close()
	shown, _ := io.ReadAll(master) // the other side is closed: EIO
	require.Contains(t, string(shown), "shown by the host")
	require.NotContains(t, string(shown), "leaked")
}

func startOnATerminal() {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	check(err == nil, "the host itself has no terminal: %v", err)
	fmt.Fprintln(tty, "shown by the host")
	s, err := jobs.New(jobs.Config{})
	check(err == nil, "%v", err)
	for script, want := range map[string]string{
		"read -r x </dev/tty; echo rc=$?":               "rc=1\n",
		"echo leaked >/dev/tty && echo wrote; echo end": "end\n",
		"cat </dev/tty; echo rc=$?":                     "rc=1\n",
	} {
		r := runIn(s, jobs.Spec{Argv: []string{"bash", "-c", "exec 2>/dev/null; " + script}, Timeout: patience})
		check(r.State == jobs.Completed && string(r.Output.Bytes()) == want, "%s: %s, %q", script, r.Outcome(), r.Output.Bytes())
	}
	s.Close(context.Background())
}

func TestASignalToItsOwnGroupReachesOnlyTheJob(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	gate := newGate(t)
	sibling := start(t, s, gate.gated(`read -r _ <"$GATE"; echo lives`))
	for name, number := range map[string]syscall.Signal{"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL} {
		if signal.Ignored(number) {
			continue // as where the tests run in the background of a script; jobs inherit that
		}
		r := runScript(t, s, "kill -"+name+" 0; sleep 60")
		require.Equal(t, jobs.ReasonSignal, r.Reason)
		require.Equal(t, jobs.Signal(number), r.Signal)
	}
	gate.open(t)
	require.Equal(t, "lives\n", string(collect(t, s, sibling.ID).Output.Bytes()))
}

func TestIDsAreUniqueAndNeverPartOfAnythingElse(t *testing.T) {
	dir := t.TempDir()
	s := newSupervisor(t, jobs.Config{TempDir: dir, MaxRetained: 2000, MaxRunning: 2000})
	known := make(map[string]bool)
	for range 1000 {
		known[start(t, s, jobs.Spec{Func: func(context.Context, io.Writer) (any, error) { return nil, nil }}).ID] = true
	}
	require.Len(t, known, 1000)
	var real string
	for real = range known {
		require.Regexp(t, `^job_[0-9a-f]{20}$`, real)
	}
	for _, id := range []string{
		"", "*", "../../etc/passwd", "a/b", "\x00", "job_", strings.ToUpper(real), real + " ", " " + real,
		real + "\x00", real[:len(real)-1], strings.Repeat("j", 10_000),
	} {
		_, err := s.Check(id)
		require.ErrorIs(t, err, jobs.ErrNotFound, "%.40q", id)
		require.Less(t, len(err.Error()), 400)
		_, err = s.Output(id, 0, 0)
		require.ErrorIs(t, err, jobs.ErrNotFound, "%.40q", id)
		_, err = s.Collect(t.Context(), id)
		require.ErrorIs(t, err, jobs.ErrNotFound, "%.40q", id)
		_, err = s.Cancel(t.Context(), id)
		require.ErrorIs(t, err, jobs.ErrNotFound, "%.40q", id)
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries, "functions need no directory")
}

func TestSupervisorsCanShareATempDir(t *testing.T) {
	dir := t.TempDir()
	a := newSupervisor(t, jobs.Config{TempDir: dir, MaxRunning: 50})
	b := newSupervisor(t, jobs.Config{TempDir: dir, MaxRunning: 50})
	var starters sync.WaitGroup
	for _, s := range []*jobs.Supervisor{a, b} {
		for n := range 25 {
			starters.Go(func() {
				snap, err := s.Start(t.Context(), bash(fmt.Sprintf(`echo %d >"$LLM_OUTPUT"`, n)))
				if !assert.NoError(t, err) {
					return
				}
				r, err := s.Collect(t.Context(), snap.ID)
				assert.NoError(t, err)
				assert.Equal(t, strconv.Itoa(n), string(r.File.JSON()))
			})
		}
	}
	starters.Wait()
	require.True(t, eventually(func() bool { return sizeUnder(dir) == 0 }), "%v", filesUnder(dir))
	_, err := a.Close(testContext(t))
	require.NoError(t, err)
	require.Equal(t, "1", string(runResult(t, b, `echo 1 >"$LLM_OUTPUT"`)), "one Close must not take the other's directory")
}

// runResult runs a script and returns its result.
func runResult(t testing.TB, s *jobs.Supervisor, script string) []byte {
	t.Helper()
	return runScript(t, s, script).File.JSON()
}
