package top_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/agentjobs/jobs/examples/top"
	"github.com/stretchr/testify/require"
)

const patience = 30 * time.Second // of a loaded machine

// envScene makes this binary the program under test. It names a directory where
// that finds a pipe to read, and writes what the test wants to know.
const envScene = "TOP_SCENE"

func TestMain(m *testing.M) {
	if dir := os.Getenv(envScene); dir != "" {
		// tmux does not always learn how a program ended.
		if err := os.WriteFile(fileOf(dir, "end"), fmt.Append(nil, play(dir)), 0o600); err != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// hostile is what a job would print to take a terminal over: it clears the
// screen, goes to its top, sets the title, asks for the mouse and leaves the
// alternate screen.
const hostile = `printf 'before\n\033[2J\033[1;1HTAKEN\033]2;TAKEN\a\033[?1000h\033[?1049lafter\n'; exec sleep 600`

// play is the program under test: a host with the jobs of two owners.
func play(dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	s, err := jobs.New(jobs.Config{KillGrace: 500 * time.Millisecond})
	if err != nil {
		return err
	}
	defer s.Close(context.Background())
	for _, j := range []struct{ owner, tool, text string }{
		{"ann", "feed", "exec cat " + filepath.Join(dir, "feed")},
		{"bob", "paint\x1b]2;TAKEN\a", hostile},
		{"bob", "server", "exec sleep 600"},
	} {
		owner, err := s.Child(jobs.ChildConfig{Name: j.owner})
		if err != nil {
			return err
		}
		job, err := owner.Start(ctx, jobs.Spec{Tool: j.tool, Argv: []string{"sh", "-c", j.text}})
		if err != nil {
			return err
		}
		if err := os.WriteFile(fileOf(dir, j.tool), fmt.Append(nil, job.PID), 0o600); err != nil {
			return err
		}
	}
	err = top.Run(ctx, s)
	told := "told:"
	for _, owner := range s.Children() {
		for _, n := range owner.Drain() {
			told += " " + n.Event
		}
	}
	return errors.Join(err, os.WriteFile(fileOf(dir, "told"), []byte(told), 0o600))
}

// fileOf is where the id of the process of a tool is written to.
func fileOf(dir, tool string) string {
	name, _, _ := strings.Cut(tool, "\x1b")
	return filepath.Join(dir, name+".out")
}

// A terminal is a real one, of a tmux server of its own.
type terminal struct {
	t   *testing.T
	dir string
}

func (m *terminal) tmux(args ...string) string {
	m.t.Helper()
	cmd := exec.Command("tmux", append([]string{"-L", "top", "-f", "/dev/null", "-u"}, args...)...)
	cmd.Env = append(os.Environ(), "TMUX_TMPDIR="+m.dir, "LC_ALL=C.UTF-8", "TERM=xterm-256color", "TMUX=")
	out, err := cmd.CombinedOutput()
	require.NoError(m.t, err, "tmux %q: %s", args, out)
	return strings.TrimRight(string(out), "\n")
}

// start runs a program in a terminal of 80 by 24.
func start(t *testing.T, dir string, command ...string) *terminal {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		require.Fail(t, "no tmux in PATH: install it, on Debian with apt-get install tmux")
	}
	m := &terminal{t: t, dir: dir}
	m.tmux(append([]string{"new-session", "-d", "-x", "80", "-y", "24", "--"}, command...)...)
	pid := m.pane("pane_pid")
	t.Cleanup(func() {
		m.tmux("kill-server")
		until(t, "the program ends with its terminal", func() bool { return gone(pid) }, nil)
	})
	m.tmux("set-option", "remain-on-exit", "on")
	return m
}

// newScene starts the program under test.
func newScene(t *testing.T) *terminal {
	t.Helper()
	dir, err := os.MkdirTemp("", "top-") // short enough for the name of a socket
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "feed"), 0o600))
	self, err := os.Executable()
	require.NoError(t, err)
	m := start(t, dir, "env", envScene+"="+dir, self)
	m.until("server is shown", func(s string) bool { return strings.Contains(s, "server") })
	return m
}

func (m *terminal) pane(variable string) string {
	m.t.Helper()
	return m.tmux("display-message", "-p", "#{"+variable+"}")
}

func (m *terminal) screen() string { return m.tmux("capture-pane", "-p") }

// until waits until the screen is as wanted, and returns it.
func (m *terminal) until(what string, wanted func(screen string) bool) string {
	m.t.Helper()
	var screen string
	until(m.t, what, func() bool {
		screen = m.screen()
		return wanted(screen)
	}, &screen)
	return screen
}

func (m *terminal) shows(text string) string {
	m.t.Helper()
	return m.until("shows "+text, func(s string) bool { return strings.Contains(s, text) })
}

// read returns what the program under test wrote: the id of a tool's process, how
// it ended, or what its owners were told.
func (m *terminal) read(name string) string {
	m.t.Helper()
	text, err := os.ReadFile(fileOf(m.dir, name))
	require.NoError(m.t, err)
	return string(text)
}

func until(t *testing.T, what string, condition func() bool, seen *string) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline:
			if seen == nil {
				seen = new(string)
			}
			require.Fail(t, "never: "+what, "the screen:\n%s", *seen)
		}
	}
}

// gone reports whether a process has ended: what is left is at most its status.
func gone(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return true
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(after, "Z")
}
