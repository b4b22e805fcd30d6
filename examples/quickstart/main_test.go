package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// quickstart builds the program and returns a command that runs it in the root
// of the module.
func quickstart(t *testing.T) *exec.Cmd {
	t.Helper()
	program := filepath.Join(t.TempDir(), "quickstart")
	out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	c := exec.Command(program)
	c.Dir = "../.."
	c.Stderr = os.Stderr
	return c
}

func TestEverythingTheTourShowsIsTrue(t *testing.T) {
	out, err := quickstart(t).Output()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "none is alive")
}

func TestInterruptingTheTourLeavesNothingBehind(t *testing.T) {
	c := quickstart(t)
	c.Stderr = nil // it says that it was interrupted
	stdout, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	r := bufio.NewReader(stdout)
	for line := ""; !strings.Contains(line, "job__check"); {
		line, err = r.ReadString('\n')
		require.NoError(t, err)
	}
	require.NoError(t, c.Process.Signal(os.Interrupt))
	rest, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Error(t, c.Wait(), "an interrupted tour has not shown everything")
	require.Contains(t, string(rest), "runaway: cancelled, shutdown, SIGKILL")
	require.Contains(t, string(rest), "none is alive")
}
