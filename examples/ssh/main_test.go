//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

const programEnv = "SSH_EXAMPLE_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(programEnv) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// program is the example as a command, with a shell of this machine for the way
// to another, and its files in home.
func program(ctx context.Context, home string, args ...string) (c *exec.Cmd, out, log *bytes.Buffer) {
	c = exec.CommandContext(ctx, os.Args[0], append([]string{"-via", "env HOME=" + home + " sh", "-dir", filepath.Join(home, "records")}, args...)...)
	c.Env = append(os.Environ(), programEnv+"=1")
	out, log = new(bytes.Buffer), new(bytes.Buffer)
	c.Stdout, c.Stderr = out, log
	return c, out, log
}

// interrupted starts a command through the program, interrupts that once it says
// that the command runs, and returns what it says after that.
func interrupted(t *testing.T, home string, command ...string) string {
	c, _, _ := program(t.Context(), home, command...)
	c.Stderr = nil
	log, err := c.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	lines := bufio.NewReader(log)
	runs, err := lines.ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, runs, "runs on")
	require.NoError(t, c.Process.Signal(syscall.SIGINT))
	rest, err := io.ReadAll(lines)
	require.NoError(t, err)
	require.NoError(t, c.Wait(), "%s", rest)
	return string(rest)
}

func TestACommandIsFollowedToItsEnd(t *testing.T) {
	c, out, log := program(t.Context(), t.TempDir(), "sh", "-c", "echo one; sleep 1; echo two; exit 3")
	require.NoError(t, c.Run(), "%s", log)
	require.Equal(t, "one\ntwo\n", out.String())
	require.Contains(t, log.String(), "failed, exit 3")
}

func TestACommandGoesOnWithoutTheProgramAndIsTakenUpAgain(t *testing.T) {
	home := t.TempDir()
	over := filepath.Join(home, "over")
	told := interrupted(t, home, "sh", "-c", `until [ -e "$0" ]; do sleep 0.05; done; echo over`, over)
	require.Contains(t, told, "goes on")
	require.NoError(t, os.WriteFile(over, nil, 0o600))
	second, out, log := program(t.Context(), home)
	require.NoError(t, second.Run(), "%s", log)
	require.Equal(t, "over", strings.TrimSpace(out.String()))
	require.Contains(t, log.String(), "completed, exit 0")
}

func TestACommandThatRunsCanBeStopped(t *testing.T) {
	home := t.TempDir()
	interrupted(t, home, "sleep", "300")
	second, _, log := program(t.Context(), home, "-stop")
	require.NoError(t, second.Run(), "%s", log)
	require.Contains(t, log.String(), "cancelled")
}
