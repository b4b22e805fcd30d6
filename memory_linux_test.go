package jobs_test

import (
	"strings"
	"testing"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/require"
)

func TestProcessesShareTheMemoryOfOutput(t *testing.T) {
	const n, memory = 40, 512 << 10
	s := newSupervisor(t, jobs.Config{MaxRunning: n, OutputMemory: memory})
	want := seq(1, 20000) // 109 KB
	var started []string
	for i := range n {
		spec := bash("seq 1 20000")
		spec.SplitStderr = i%2 == 0
		started = append(started, start(t, s, spec).ID)
	}
	var kept int64
	for _, id := range started {
		kept += keptBy(endOf(t, s, id))
	}
	require.LessOrEqual(t, kept, int64(memory+n*(headKept+leastKept)))
	for _, id := range started {
		r := collect(t, s, id)
		requireExact(t, r, int64(len(want)))
		require.GreaterOrEqual(t, len(r.Output.Bytes()), headKept+leastKept)
		require.True(t, strings.HasSuffix(string(r.Output.Bytes()), "19999\n20000\n"))
		for _, piece := range r.Output.Pieces {
			require.Equal(t, want[piece.From:piece.From+int64(len(piece.Data))], string(piece.Data))
		}
	}
	require.Equal(t, int64(headKept+tailKept), keptByANewJob(t, s))
}

func TestAProcessThatFindsNoMemoryIsStoppedWhereTheHostWantsThat(t *testing.T) {
	s := newSupervisor(t, jobs.Config{OutputMemory: 64 << 10, KillOverMemory: true})
	spec, mark := markedScript("sleep 300 & yes")
	r := collect(t, s, start(t, s, spec).ID)
	require.Equal(t, jobs.Failed, r.State)
	require.Equal(t, jobs.ReasonOutputLimit, r.Reason)
	require.Equal(t, r.OutputTotal, int64(len(r.Output.Bytes()))+r.OutputDropped)
	require.Empty(t, marked(mark))
}
