package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/agentjobs/jobs"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

func TestAJobRunsInTheOperatorsDirectoryWithoutSecrets(t *testing.T) {
	t.Setenv("SOME_TOKEN", "hidden")
	t.Setenv("OTHER_TOKEN", "shown")
	t.Setenv("HOME", home) // of the detached ones
	for _, onExit := range []string{"kill", "keep"} {
		t.Run(onExit, func(t *testing.T) {
			set := testSettings(t)
			set.Pass, set.OnExit = []string{"OTHER_TOKEN"}, onExit
			c := connect(t, set, nil)
			started, err := callTool(t, t.Context(), c, "job__start", runArgs("env"))
			require.NoError(t, err)
			ended, err := callTool(t, t.Context(), c, "job__collect", map[string]any{"id": started.JobID})
			require.NoError(t, err)
			require.Equal(t, "completed", ended.Status)
			require.NotContains(t, ended.OutputTail, "hidden")
			require.Contains(t, ended.OutputTail, "OTHER_TOKEN=shown\n")

			started, err = callTool(t, t.Context(), c, "job__start", runArgs("pwd", "-P"))
			require.NoError(t, err)
			ended, err = callTool(t, t.Context(), c, "job__collect", map[string]any{"id": started.JobID})
			require.NoError(t, err)
			require.Equal(t, set.Dir+"\n", ended.OutputTail)
		})
	}
}

func TestACancelledCollectLeavesTheJobAndItsResult(t *testing.T) {
	t.Parallel()
	set := testSettings(t)
	ctx, cancel := context.WithCancel(t.Context())
	c := connect(t, set, &mcp.ClientOptions{
		// The first one shows that the server waits.
		ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationClientRequest) { cancel() },
	})
	started, err := callTool(t, t.Context(), c, "job__start", runArgs("sh", "-c", gated("echo whole; exit 4")))
	require.NoError(t, err)
	id := map[string]any{"id": started.JobID}

	params := &mcp.CallToolParams{Name: "job__collect", Arguments: id}
	params.SetProgressToken("token")
	_, err = c.CallTool(ctx, params)
	require.ErrorIs(t, err, context.Canceled)

	now, err := callTool(t, t.Context(), c, "job__check", id)
	require.NoError(t, err)
	require.Equal(t, "running", now.Status)
	openGate(t, set.Dir)
	ended, err := callTool(t, t.Context(), c, "job__collect", id)
	require.NoError(t, err)
	require.Equal(t, "failed", ended.Status)
	require.Equal(t, 4, *ended.ExitCode)
	require.Equal(t, "whole\n", ended.OutputTail)
}

func TestACollectGivesWayBeforeTheClientsTimeout(t *testing.T) {
	t.Parallel()
	set := testSettings(t)
	set.Wait = 1
	c := connect(t, set, nil)
	started, err := callTool(t, t.Context(), c, "job__start", runArgs("sh", "-c", gated("")))
	require.NoError(t, err)
	now, err := callTool(t, t.Context(), c, "job__collect", map[string]any{"id": started.JobID})
	require.NoError(t, err)
	require.Equal(t, "running", now.Status)
}

func TestFlatNamesAreUsedThroughout(t *testing.T) {
	t.Parallel()
	set := testSettings(t)
	set.FlatNames = true
	c := connect(t, set, nil)
	require.Contains(t, c.InitializeResult().Instructions, "job_start")
	for tool, err := range c.Tools(t.Context(), nil) {
		require.NoError(t, err)
		require.NotContains(t, tool.Name+tool.Description, "__")
		require.Equal(t, tool.Name == "job_start", strings.Contains(tool.Description, `Commands: "sh", "cat", "env", "pwd".`))
	}
	started, err := callTool(t, t.Context(), c, "job_start", runArgs("pwd"))
	require.NoError(t, err)
	require.Contains(t, started.Message, "job_collect")
}

func TestALongOutputIsShownFromItsEnd(t *testing.T) {
	t.Parallel()
	c := connect(t, testSettings(t), nil)
	started, err := callTool(t, t.Context(), c, "job__start", runArgs("sh", "-c", "yes 0123456789 | head -100000; echo last"))
	require.NoError(t, err)
	ended, err := callTool(t, t.Context(), c, "job__wait", map[string]any{"ids": started.JobID})
	require.NoError(t, err)
	require.Equal(t, "ok", ended.Status)
	read, err := c.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: jobScheme + started.JobID})
	require.NoError(t, err)
	text := read.Contents[0].Text
	require.Regexp(t, `(?m)^state +completed, exit 0$`, text)
	require.True(t, strings.HasSuffix(text, "\n0123456789\nlast\n"), text)
	require.Less(t, len(text), shownTail+1000)
}

func TestASignalEndsTheServerAndItsJobs(t *testing.T) {
	t.Parallel()
	for _, sig := range []os.Signal{syscall.SIGTERM, os.Interrupt, syscall.SIGHUP} {
		t.Run(fmt.Sprint(sig), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			p := startProcess(t, modern(), "-allow", "sh", "-dir", dir)
			life := newLifeline(t, dir)
			p.start("exec 3>life; echo ready >&3; sleep 300 & wait")
			require.Equal(t, "ready", life.next(t))
			require.NoError(t, p.Process.Signal(sig))
			require.NoError(t, p.Wait())
			life.ended(t)
		})
	}
}

func TestJobsDieWithAServerThatIsKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := startProcess(t, modern(), "-allow", "sh", "-dir", dir)
	life := newLifeline(t, dir)
	p.start("exec 3>life; echo ready >&3; " + stubborn)
	require.Equal(t, "ready", life.next(t))
	require.NoError(t, p.Process.Kill())
	require.Error(t, p.Wait())
	life.ended(t)
}

func TestASecondServerDoesNotShareRecords(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	s, err := jobs.New(jobs.Config{Dir: state})
	require.NoError(t, err)
	defer s.Close(t.Context())
	p := startProcess(t, modern(), "-allow", "sh", "-state", state)
	require.Error(t, p.Wait())
	require.Equal(t, 1, p.ProcessState.ExitCode())
}
