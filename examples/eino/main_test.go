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
		return converse(ctx, s, fake{Model: m}, "go", &out)
	})
	looptest.Progress(t, out.String(), "told      [Machine event")
}

func TestAnInterruptedRunLeavesNoProcess(t *testing.T) {
	looptest.Interrupted(t, func(ctx context.Context, m *fakemodel.Model) error {
		return run(ctx, fake{Model: m}, "go", io.Discard)
	})
}

func TestASchemaThatIsNoJSONIsAnError(t *testing.T) {
	_, err := newTool(jobs.Declaration{Name: "odd", Parameters: []byte("{")}, nil)
	require.ErrorContains(t, err, "tool odd")
}
