//go:build linux

package jobs_test

import (
	"testing"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/require"
)

func TestStartThenCollectHandsOutTheResult(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	r := runScript(t, s, `echo hi; echo '{"answer": 42}' >"$LLM_OUTPUT"`)
	require.Equal(t, jobs.Completed, r.State)
	require.Equal(t, 0, r.ExitCode)
	require.Equal(t, "hi\n{\"answer\": 42}\n", string(r.Output.Bytes()))
	require.JSONEq(t, `{"answer": 42}`, string(r.File.JSON()))
}
