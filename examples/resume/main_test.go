//go:build unix

package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// showEnv makes the test binary the program.
const showEnv = "RESUME_TEST_SHOW"

func TestMain(m *testing.M) {
	if os.Getenv(hostEnv) != "" || os.Getenv(showEnv) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestEachJobOfAKilledHostIsAccountedFor(t *testing.T) {
	var out bytes.Buffer
	c := exec.CommandContext(t.Context(), os.Args[0])
	c.Env = append(os.Environ(), showEnv+"=1")
	c.Stdout, c.Stderr = io.MultiWriter(&out, t.Output()), t.Output()
	require.NoError(t, c.Run())
	for _, line := range []string{
		"a new host finds 1 lost, 1 ended, and 1 that runs",
		`(build) has ended: failed, exit 3`,
		"\n    \"built\\n\"\n",
		"(server) was lost",
		"\n    \"listening\\n\"\n",
		"(training) has ended: completed, exit 0",
		"\n    \"epoch 1\\nepoch 2\\nepoch 3\\n\"\n",
	} {
		require.Contains(t, out.String(), line)
	}
}
