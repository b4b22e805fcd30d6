package main

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

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
	looptest.Progress(t, out.String())
}

func TestAnInterruptedRunLeavesNoProcess(t *testing.T) {
	looptest.Interrupted(t, func(ctx context.Context, m *fakemodel.Model) error {
		server := m.OpenAI()
		defer server.Close()
		return run(ctx, clientOf(server.URL), "go", io.Discard)
	})
}

func TestASchemaThatIsNoJSONIsAnError(t *testing.T) {
	_, err := declare(jobs.Declaration{Name: "odd", Parameters: []byte("{")})
	require.ErrorContains(t, err, "tool odd")
}
