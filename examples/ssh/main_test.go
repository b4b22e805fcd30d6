//go:build unix

package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

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

func TestACommandIsFollowedToItsEnd(t *testing.T) {
	c, out, log := program(t.Context(), t.TempDir(), "sh", "-c", "echo one; sleep 1; echo two; exit 3")
	require.NoError(t, c.Run(), "%s", log)
	require.Equal(t, "one\ntwo\n", out.String())
	require.Contains(t, log.String(), "failed, exit 3")
}

func TestACommandGoesOnWithoutTheProgramAndIsTakenUpAgain(t *testing.T) {
	home := t.TempDir()
	begun, over := filepath.Join(home, "begun"), filepath.Join(home, "over")
	first, _, log := program(t.Context(), home, "sh", "-c", `: >"$0"; until [ -e "$1" ]; do sleep 0.05; done; echo over`, begun, over)
	require.NoError(t, first.Start())
	require.Eventually(t, func() bool { _, err := os.Stat(begun); return err == nil }, time.Minute, 10*time.Millisecond)
	require.NoError(t, first.Process.Signal(syscall.SIGINT))
	require.NoError(t, first.Wait(), "%s", log)
	require.Contains(t, log.String(), "goes on")
	require.NoError(t, os.WriteFile(over, nil, 0o600))
	second, out, log := program(t.Context(), home)
	require.NoError(t, second.Run(), "%s", log)
	require.Equal(t, "over", strings.TrimSpace(out.String()))
	require.Contains(t, log.String(), "completed, exit 0")
}

func TestACommandThatRunsCanBeStopped(t *testing.T) {
	home := t.TempDir()
	begun := filepath.Join(home, "begun")
	first, _, log := program(t.Context(), home, "sh", "-c", `: >"$0"; exec sleep 300`, begun)
	require.NoError(t, first.Start())
	require.Eventually(t, func() bool { _, err := os.Stat(begun); return err == nil }, time.Minute, 10*time.Millisecond)
	require.NoError(t, first.Process.Signal(syscall.SIGINT))
	require.NoError(t, first.Wait(), "%s", log)
	second, _, log := program(t.Context(), home, "-stop")
	require.NoError(t, second.Run(), "%s", log)
	require.Contains(t, log.String(), "cancelled")
}
