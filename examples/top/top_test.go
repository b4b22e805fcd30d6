package top_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheTailOfThePickedJobGrows(t *testing.T) {
	m := newScene(t)
	feed, err := os.OpenFile(filepath.Join(m.dir, "feed"), os.O_WRONLY, 0)
	require.NoError(t, err)
	defer feed.Close()
	feed.WriteString("first line\n")
	m.shows("first line")
	feed.WriteString("\tsecond line\n")
	screen := m.shows("        second line")
	require.Contains(t, screen, "first line")
	require.Contains(t, screen, "jobs: 3 running, 0 ended")
	require.Contains(t, screen, "> running")

	require.NoError(t, feed.Close())
	screen = m.shows("feed: completed, exit 0")
	require.Contains(t, screen, "jobs: 2 running, 1 ended")
	require.Contains(t, screen, "second line")
}

func TestKeysPickAndCancel(t *testing.T) {
	m := newScene(t)
	m.tmux("send-keys", "Down", "Down")
	m.shows("server: running")
	m.tmux("send-keys", "c")
	m.shows("server: cancelled, SIGTERM")
	require.True(t, gone(m.read("server")))
	require.False(t, gone(m.read("paint")), "only the picked one")
	m.tmux("send-keys", "c") // once more changes nothing
	m.shows("server has ended")
	m.tmux("send-keys", "Home")
	m.shows("feed: running")

	program := m.pane("pane_pid")
	m.tmux("send-keys", "q")
	until(t, "the program ends", func() bool { return gone(program) }, nil)
	require.Equal(t, "told: job_cancelled", m.read("told"), "its owner is told")
}

func TestNoEscapeSequenceReachesTheTerminal(t *testing.T) {
	m := newScene(t)
	m.tmux("send-keys", "j")
	screen := m.shows("after")
	lines := strings.Split(screen, "\n")
	require.Contains(t, lines[0], "jobs: 3 running")
	require.Contains(t, screen, "before\nTAKENafter")
	require.NotContains(t, m.pane("pane_title"), "TAKEN")
	require.Equal(t, "0", m.pane("mouse_any_flag"))
	require.Equal(t, "1", m.pane("alternate_on"))
	require.NotContains(t, strings.Join(lines[1:6], "\n"), "TAKEN", "in a name")
}

func TestTheScreenFollowsTheTerminalsSize(t *testing.T) {
	m := newScene(t)
	for _, size := range []struct{ width, height int }{{120, 40}, {40, 10}, {80, 24}} {
		m.tmux("resize-window", "-x", fmt.Sprint(size.width), "-y", fmt.Sprint(size.height))
		m.until(fmt.Sprint("it fills ", size), func(screen string) bool {
			lines := strings.Split(screen, "\n")
			head := m.tmux("capture-pane", "-p", "-N", "-E", "0") // with its spaces
			return len(lines) == size.height && len(head) == size.width &&
				strings.HasPrefix(head, " jobs: 3 running") &&
				strings.HasPrefix(lines[len(lines)-1], "q quit")
		})
	}
	screen := m.screen()
	require.Contains(t, screen, "ann")
	require.Contains(t, screen, "bob")
	m.tmux("resize-window", "-x", "15", "-y", "5")
	m.shows("too small")
	m.tmux("resize-window", "-x", "80", "-y", "24")
	m.shows("server")
}

func TestQuitEndsTheJobs(t *testing.T) {
	m := newScene(t)
	program, jobs := m.pane("pane_pid"), []string{m.read("feed"), m.read("paint"), m.read("server")}
	m.tmux("send-keys", "q")
	until(t, "the program ends", func() bool { return gone(program) }, nil)
	require.Equal(t, "<nil>", m.read("end"))
	for _, pid := range jobs {
		require.True(t, gone(pid))
	}
}

func TestATerminalThatIsClosedEndsTheJobs(t *testing.T) {
	m := newScene(t)
	program, jobs := m.pane("pane_pid"), []string{m.read("feed"), m.read("paint"), m.read("server")}
	m.tmux("set-option", "exit-empty", "off") // the server is needed at the end
	m.tmux("kill-session")
	until(t, "the program ends", func() bool { return gone(program) }, nil)
	require.Equal(t, "<nil>", m.read("end"))
	for _, pid := range jobs {
		require.True(t, gone(pid))
	}
}

func TestOneCommandShowsTheDemo(t *testing.T) {
	dir, err := os.MkdirTemp("", "top-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	program := filepath.Join(dir, "demo")
	out, err := exec.Command("go", "build", "-o", program, "./cmd").CombinedOutput()
	require.NoError(t, err, "%s", out)
	m := start(t, dir, program)
	screen := m.shows("compiling scan.go")
	for _, shown := range []string{"session one", "session two", "build (release)", "download"} {
		require.Contains(t, screen, shown)
	}
	m.tmux("send-keys", "q")
	until(t, "it says what it stopped", func() bool {
		// The line that says that the program has ended moved ours out of sight.
		return strings.Contains(m.tmux("capture-pane", "-p", "-S", "-"), "jobs were stopped")
	}, nil)
}
