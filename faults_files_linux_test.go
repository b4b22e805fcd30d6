package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// privateDirOf returns the private directory of a supervisor: the one thing that
// its TempDir holds.
func privateDirOf(t testing.TB, tempDir string) string {
	t.Helper()
	entries, err := os.ReadDir(tempDir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	return filepath.Join(tempDir, entries[0].Name())
}

func TestAReplacedPrivateDirectoryIsMadeAgain(t *testing.T) {
	strange := strangeDir(t)
	for name, replace := range map[string]func(private string) error{
		"by nothing":                       func(string) error { return nil },
		"by a link that leads nowhere":     func(private string) error { return os.Symlink("nowhere", private) },
		"by a link to a strange directory": func(private string) error { return os.Symlink(strange, private) },
		"by an empty directory":            func(private string) error { return os.Mkdir(private, 0o755) },
	} {
		t.Run(name, func(t *testing.T) { requirePrivateDirMadeAgain(t, replace) })
	}
	require.Equal(t, []string{filepath.Join(strange, "precious")}, filesUnder(strange))
}

// The directories inside can be replaced too, by a job that knows only the path
// of its own file.
func TestAReplacedDirectoryOfResultsIsMadeAgain(t *testing.T) {
	strange := strangeDir(t)
	for name, script := range map[string]string{
		"by nothing":                       `rm -r "$d"`,
		"by a link that leads nowhere":     `rm -r "$d"; ln -s nowhere "$d"`,
		"by a link to a strange directory": `rm -r "$d"; ln -s ` + strange + ` "$d"`,
	} {
		for _, inner := range []string{"out", "links"} {
			t.Run(inner+" "+name, func(t *testing.T) { requireInnerDirMadeAgain(t, inner, script) })
		}
	}
	require.Equal(t, []string{filepath.Join(strange, "precious")}, filesUnder(strange))
	for name, script := range map[string]string{
		"by a file":           `rm -r "$d"; echo x >"$d"`,
		"by a link to itself": `rm -r "$d"; ln -s "$d" "$d"`,
	} {
		t.Run("out "+name, func(t *testing.T) { requireInnerDirMadeAgain(t, "out", script) })
	}
}

// strangeDir returns a directory whose content nobody may touch.
func strangeDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "precious"), []byte("x"), 0o600))
	return dir
}

// requirePrivateDirMadeAgain replaces the private directory while a job runs.
// The jobs that come must have results, and that one must say what it has lost.
func requirePrivateDirMadeAgain(t *testing.T, replace func(private string) error) {
	dir := t.TempDir()
	s := newSupervisor(t, jobs.Config{TempDir: dir})
	gate := newGate(t)
	during := start(t, s, gate.gated(`echo ready; read -r _ <"$GATE"; echo 1 2>/dev/null >"$LLM_OUTPUT"; exit 3`)).ID
	awaitOutput(t, s, during, "ready")
	private := privateDirOf(t, dir)
	require.NoError(t, os.RemoveAll(private))
	require.NoError(t, replace(private))

	require.Equal(t, "7", string(runResult(t, s, `echo 7 >"$LLM_OUTPUT"`)))
	gate.open(t)
	r := collect(t, s, during)
	require.Equal(t, "failed, exit 3", r.Outcome())
	require.NotEmpty(t, r.File.Problem, "a result that is lost")
	require.Equal(t, "8", string(runResult(t, s, `echo 8 >"$LLM_OUTPUT"`)))
}

// requireInnerDirMadeAgain runs a job that replaces $d, a directory inside the
// private one. The jobs that come must have results.
func requireInnerDirMadeAgain(t *testing.T, inner, replace string) {
	s := newSupervisor(t, jobs.Config{TempDir: t.TempDir()})
	r := runScript(t, s, `d="${LLM_OUTPUT%/*/*}/`+inner+`"; `+replace+`; echo done`)
	require.Equal(t, "completed, exit 0", r.Outcome())
	require.Equal(t, "done\n", string(r.Output.Bytes()))
	for n := range 3 {
		require.Equal(t, strconv.Itoa(n), string(runResult(t, s, fmt.Sprintf(`echo %d >"$LLM_OUTPUT"`, n))))
	}
}

// runMounting runs a helper that may mount what it likes.
func runMounting(t testing.TB, name string, env ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a file system")
	}
	c := helper(t, name, env...)
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	out, err := c.Output()
	if errors.Is(err, unix.EPERM) {
		t.Skip("needs the right to make a mount namespace")
	}
	require.NoError(t, err, "helper %s printed %q", name, out)
}

// mountTemp mounts a file system of its own for a helper.
func mountTemp(dir, options string) {
	check(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") == nil, "cannot make mounts private")
	err := unix.Mount("tmpfs", dir, "tmpfs", 0, options)
	check(err == nil, "mount: %v", err)
}

// refusedFile checks that a start fails for want of a result file.
func refusedFile(s *jobs.Supervisor, dir string, cause error) {
	got, err := refused(s, dir, jobs.Spec{Argv: []string{"/bin/true"}})
	check(err == nil, "%v", err)
	check(got.Stage == jobs.StageFile && errors.Is(got, cause), "%v", got)
}

func TestAStartWithoutRoomForAResultFileFailsCleanlyAndRecovers(t *testing.T) {
	runMounting(t, "start on a full disk", "DIR="+t.TempDir())
}

func TestAStartOnAReadOnlyDiskFailsCleanlyAndRecovers(t *testing.T) {
	runMounting(t, "start on a read-only disk", "DIR="+t.TempDir())
}

func init() {
	// A directory needs three inodes and each file one more.
	hostHelper("start on a full disk", func() {
		dir := os.Getenv("DIR")
		mountTemp(dir, "nr_inodes=8")
		ctx := context.Background()
		ballast := func(n int) string { return filepath.Join(dir, "ballast"+strconv.Itoa(n)) }
		for free := range 4 {
			s := orExit(jobs.New(jobs.Config{TempDir: dir}))
			for n := range 7 - free {
				check(os.WriteFile(ballast(n), nil, 0o600) == nil, "no inode for ballast")
			}
			refusedFile(s, dir, syscall.ENOSPC)
			check(len(filesUnder(dir)) == 7-free, "left behind: %v", filesUnder(dir))
			for n := range 7 - free {
				check(os.Remove(ballast(n)) == nil, "ballast stays")
			}
			for range 3 {
				warmUp(s)
			}
			orExit(s.Close(ctx))
			check(len(orExit(os.ReadDir(dir))) == 0, "left behind: %v", filesUnder(dir))
		}
	})

	hostHelper("start on a read-only disk", func() {
		dir := os.Getenv("DIR")
		mountTemp(dir, "")
		mode := func(flags uintptr) {
			check(unix.Mount("", dir, "", unix.MS_REMOUNT|flags, "") == nil, "cannot mount again")
		}
		ctx := context.Background()
		s := orExit(jobs.New(jobs.Config{TempDir: dir}))
		mode(unix.MS_RDONLY)
		refusedFile(s, dir, syscall.EROFS)
		check(len(orExit(os.ReadDir(dir))) == 0, "a directory on a read-only disk")
		mode(0)

		// It becomes so while a job runs.
		job := orExit(s.Start(ctx, jobs.Spec{Argv: []string{"bash", "-c", `read -r _; echo 1 >"$LLM_OUTPUT"; echo printed; exit 3`}, Input: true}))
		mode(unix.MS_RDONLY)
		input := orExit(s.Input(job.ID))
		orExit(input.Write([]byte("\n")))
		r := orExit(s.Collect(ctx, job.ID))
		check(r.ExitCode == 3 && strings.HasSuffix(string(r.Output.Bytes()), "printed\n"), "%s %q", r.Outcome(), r.Output.Bytes())
		check(r.File.Size == 0, "%+v", r.File)
		check(len(s.Drain()) == 0, "told twice")
		refusedFile(s, dir, syscall.EROFS)
		mode(0)
		for n := range 3 {
			r := runIn(s, jobs.Spec{Argv: []string{"bash", "-c", fmt.Sprintf(`echo %d >"$LLM_OUTPUT"`, n)}})
			check(string(r.File.JSON()) == strconv.Itoa(n), "%s", r.File.JSON())
		}
		orExit(s.Close(ctx))
		check(len(orExit(os.ReadDir(dir))) == 0, "left behind: %v", filesUnder(dir))
	})
}

func TestAPrivateDirectoryReplacedByNoDirectoryIsMadeAgain(t *testing.T) {
	for name, replace := range map[string]func(private string) error{
		"by a file":           func(private string) error { return os.WriteFile(private, []byte("x"), 0o600) },
		"by a link to itself": func(private string) error { return os.Symlink(private, private) },
	} {
		t.Run(name, func(t *testing.T) { requirePrivateDirMadeAgain(t, replace) })
	}
}

func TestADirectoryOfLinksReplacedByNoDirectoryIsMadeAgain(t *testing.T) {
	for name, script := range map[string]string{
		"by a file":           `rm -r "$d"; echo x >"$d"`,
		"by a link to itself": `rm -r "$d"; ln -s "$d" "$d"`,
	} {
		t.Run(name, func(t *testing.T) { requireInnerDirMadeAgain(t, "links", script) })
	}
}
