package main

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/stretchr/testify/require"

	"github.com/agentjobs/jobs"
	"github.com/agentjobs/jobs/examples/internal/fakemodel"
	"github.com/agentjobs/jobs/examples/internal/host"
	"github.com/agentjobs/jobs/examples/internal/looptest"
)

func TestTheModelIsToldWithAResultAndGetsEachResultOnce(t *testing.T) {
	var out strings.Builder
	looptest.Conversation(t, looptest.InResult, func(ctx context.Context, s *jobs.Supervisor, m *fakemodel.Model) (string, error) {
		server := serve(m)
		defer server.Close()
		return converse(ctx, s, clientOf(server.URL), "go", &out)
	})
	looptest.Progress(t, out.String(), `"notices":[`)
}

func TestAnInterruptedRunLeavesNoProcess(t *testing.T) {
	looptest.Interrupted(t, func(ctx context.Context, m *fakemodel.Model) error {
		server := serve(m)
		defer server.Close()
		return run(ctx, clientOf(server.URL), "go", io.Discard)
	})
}

func TestAnErrorOfAJobToolBecomesAMarkedResult(t *testing.T) {
	s, err := host.New()
	require.NoError(t, err)
	defer s.Close(context.Background())
	set := host.Toolset(s)
	for _, d := range set.Declarations() {
		_, err := jobTool(set, d).Execute(t.Context(), json.RawMessage(`{"id":"job_of_nobody"}`))
		require.ErrorContains(t, err, `"status":"error"`, d.Name)
	}
}

// If this fails the runner has learned to wait, and news can come as messages.
func TestWhatIsAppendedToTheRunnerWouldStandBeforeTheResults(t *testing.T) {
	s, err := host.New()
	require.NoError(t, err)
	defer s.Close(context.Background())
	server := serve(&fakemodel.Model{Build: "true", Test: "true", Work: "true"})
	defer server.Close()
	c := clientOf(server.URL)
	runner := c.Beta.Messages.NewToolRunner(toolsOf(s, io.Discard), anthropic.BetaToolRunnerParams{
		BetaMessageNewParams: anthropic.BetaMessageNewParams{Model: "fake", MaxTokens: 1, Messages: []anthropic.BetaMessageParam{message("go")}},
		DisableThread:        true,
	})
	_, err = runner.NextMessage(t.Context())
	require.NoError(t, err)
	runner.AppendMessages(message("news"))
	_, err = runner.NextMessage(t.Context())
	require.ErrorContains(t, err, "messages.2: user stands between calls and their results")
}
