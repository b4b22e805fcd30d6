package main

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/agentjobs/jobs"
	"github.com/agentjobs/jobs/examples/internal/fakemodel"
	"github.com/agentjobs/jobs/examples/internal/looptest"
)

func TestTheModelIsToldBetweenTurnsAndGetsEachResultOnce(t *testing.T) {
	var out strings.Builder
	looptest.Conversation(t, looptest.AfterResults, func(ctx context.Context, s *jobs.Supervisor, m *fakemodel.Model) (string, error) {
		server := m.OpenAI()
		defer server.Close()
		return converse(ctx, s, clientOf(server.URL), "go", &out)
	})
	looptest.Progress(t, out.String(), "told      [Machine event")
}

func TestAnInterruptedRunLeavesNoProcess(t *testing.T) {
	looptest.Interrupted(t, func(ctx context.Context, m *fakemodel.Model) error {
		server := m.OpenAI()
		defer server.Close()
		return run(ctx, clientOf(server.URL), "go", io.Discard)
	})
}
