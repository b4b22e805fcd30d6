package jobs_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What a log keeps of the beginning and of the end while there is memory, and
// of the end where there is none.
const (
	headKept  = jobs.DefaultHeadBytes
	tailKept  = jobs.DefaultTailBytes
	leastKept = 4 << 10
)

// printsMuch is a function that prints n bytes, the last of which are "the end",
// in writes of several sizes.
func printsMuch(n int) func(context.Context, io.Writer) (any, error) {
	text := strings.Repeat("0123456789abcde\n", n/16+1)[:n-len("the end")] + "the end"
	return func(_ context.Context, out io.Writer) (any, error) {
		for rest := text; rest != ""; {
			size := min(len(rest), 1+rand.IntN(8<<10))
			if _, err := io.WriteString(out, rest[:size]); err != nil {
				return nil, err
			}
			rest = rest[size:]
		}
		return nil, nil
	}
}

// keptBy returns how many bytes of the output of a job are kept.
func keptBy(snap jobs.Snapshot) int64 { return snap.OutputTotal - snap.OutputDropped }

// keptByANewJob runs a job that prints more than is ever kept, and returns how
// much of that is.
func keptByANewJob(t testing.TB, s *jobs.Supervisor) int64 {
	t.Helper()
	return keptBy(collect(t, s, start(t, s, jobs.Spec{Func: printsMuch(80 << 10)}).ID).Snapshot)
}

func TestTheOutputOfAllJobsTogetherStaysWithinItsMemory(t *testing.T) {
	const n, printed, memory = 200, 64 << 10, 1 << 20
	s := newSupervisor(t, jobs.Config{MaxRunning: n, OutputMemory: memory})
	var started []string
	for range n {
		started = append(started, start(t, s, jobs.Spec{Func: printsMuch(printed)}).ID)
	}
	var kept int64
	for _, id := range started {
		snap := endOf(t, s, id)
		kept += keptBy(snap)
		require.Equal(t, int64(printed), snap.OutputTotal)
	}
	require.LessOrEqual(t, kept, int64(memory+n*(headKept+leastKept)))
	require.Greater(t, kept, int64(memory/2), "the memory is there to be used")
	for _, id := range started {
		r := collect(t, s, id)
		data := r.Output.Bytes()
		require.Equal(t, r.OutputTotal, int64(len(data))+r.OutputDropped)
		require.Equal(t, r.Output.Dropped, r.OutputDropped)
		require.GreaterOrEqual(t, len(data), headKept+leastKept)
		require.Equal(t, strings.Repeat("0123456789abcde\n", headKept/16), string(data[:headKept]))
		require.True(t, strings.HasSuffix(string(data), "cde\n0123456the end") || strings.HasSuffix(string(data), "the end"), "%.40q", data[len(data)-40:])
	}
}

func TestALogWithoutMemoryKeepsWhatItHasAndItsLastBytes(t *testing.T) {
	s := newSupervisor(t, jobs.Config{OutputMemory: 1})
	p := newPuppet()
	id := start(t, s, jobs.Spec{Func: p.run}).ID
	p.print("first line\n")
	for range 64 {
		p.print(strings.Repeat("x", 1023) + "\n")
	}
	p.print("last line\n")
	snap := checkJob(t, s, id)
	require.Equal(t, int64(headKept+leastKept), keptBy(snap))
	c, err := s.Output(id, -10, 0)
	require.NoError(t, err)
	require.Equal(t, "last line\n", string(c.Data))
	p.finish(nil)
	text := string(collect(t, s, id).Output.Bytes())
	require.True(t, strings.HasPrefix(text, "first line\n"))
	require.True(t, strings.HasSuffix(text, "last line\n"))
}

func TestMemoryOfOutputIsGivenBack(t *testing.T) {
	const memory = 4 * (headKept + tailKept)
	ctx := context.Background()
	for _, tt := range []struct {
		name string
		cfg  jobs.Config
		give func(t *testing.T, s *jobs.Supervisor, ids []string)
	}{
		{"collected", jobs.Config{}, func(t *testing.T, s *jobs.Supervisor, ids []string) {
			for _, id := range ids {
				collect(t, s, id)
			}
		}},
		{"cancelled, then collected", jobs.Config{}, func(t *testing.T, s *jobs.Supervisor, ids []string) {
			for _, id := range ids {
				cancel(t, s, id)
				collect(t, s, id)
			}
		}},
		{"reaped", jobs.Config{}, func(t *testing.T, s *jobs.Supervisor, ids []string) {
			require.Len(t, s.Reap(ctx, ids...), len(ids))
		}},
		{"reset", jobs.Config{}, func(t *testing.T, s *jobs.Supervisor, ids []string) { s.Reset(ctx) }},
		{"collected, then reset", jobs.Config{}, func(t *testing.T, s *jobs.Supervisor, ids []string) {
			collect(t, s, ids[0])
			s.Reset(ctx)
		}},
		{"told and forgotten for its age", jobs.Config{RetainFor: 1}, func(t *testing.T, s *jobs.Supervisor, ids []string) {
			s.Drain()
			s.List()
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.cfg.OutputMemory = memory
			s := newSupervisor(t, tt.cfg)
			for round := range 50 {
				var filled []string
				for range 4 {
					filled = append(filled, start(t, s, jobs.Spec{Func: printsMuch(80 << 10)}).ID)
				}
				for _, id := range filled {
					require.Equal(t, int64(headKept+tailKept), keptBy(endOf(t, s, id)), "round %d", round)
				}
				require.Equal(t, int64(headKept+leastKept), keptByANewJob(t, s), "round %d: the memory is used up", round)
				tt.give(t, s, filled)
			}
		})
	}
}

func TestAJobThatIsForgottenForTheirNumberGivesItsMemoryBack(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 1, MaxRetained: 1, OutputMemory: 2 * (headKept + tailKept)})
	for round := range 50 {
		id := endedFunc(t, s, printsMuch(80<<10))
		require.Equal(t, int64(headKept+tailKept), keptBy(checkJob(t, s, id)), "round %d", round)
	}
}

func TestRunGivesTheMemoryOfItsOutputBack(t *testing.T) {
	s := newSupervisor(t, jobs.Config{OutputMemory: headKept + tailKept})
	for round := range 50 {
		r, err := s.Run(testContext(t), jobs.Spec{Func: printsMuch(80 << 10)}, jobs.NoDetach)
		require.NoError(t, err)
		require.Equal(t, int64(headKept+tailKept), keptBy(r.Snapshot), "round %d", round)
		require.Len(t, r.Output.Bytes(), headKept+tailKept)
	}
}

func TestOwnersShareTheMemoryOfOutput(t *testing.T) {
	s := newSupervisor(t, jobs.Config{OutputMemory: headKept + tailKept})
	child, err := s.Child(jobs.ChildConfig{})
	require.NoError(t, err)
	id := endedFunc(t, child, printsMuch(80<<10))
	require.Equal(t, int64(headKept+leastKept), keptByANewJob(t, s))
	collect(t, child, id)
	require.Equal(t, int64(headKept+tailKept), keptByANewJob(t, s))
	require.Equal(t, int64(headKept+tailKept), keptByANewJob(t, child))
}

func TestWithoutABoundEveryJobKeepsAllItMay(t *testing.T) {
	s := newSupervisor(t, jobs.Config{OutputMemory: -1, KillOverMemory: true})
	for range 20 {
		id := endedFunc(t, s, printsMuch(80<<10))
		require.Equal(t, int64(headKept+tailKept), keptBy(checkJob(t, s, id)))
	}
}

func TestAJobThatFindsNoMemoryIsStoppedWhereTheHostWantsThat(t *testing.T) {
	s := newSupervisor(t, jobs.Config{OutputMemory: headKept + tailKept, KillOverMemory: true})
	first := endedFunc(t, s, printsMuch(80<<10))
	require.Equal(t, jobs.Completed, checkJob(t, s, first).State, "a full log finds room for ever")

	small := endedFunc(t, s, prints("a few words"))
	require.Equal(t, jobs.Completed, checkJob(t, s, small).State)

	second := start(t, s, function(func(ctx context.Context, out io.Writer) (any, error) {
		for ctx.Err() == nil {
			fmt.Fprintln(out, "more")
		}
		return nil, ctx.Err()
	})).ID
	r := collect(t, s, second)
	require.Equal(t, jobs.Failed, r.State)
	require.Equal(t, jobs.ReasonOutputLimit, r.Reason)
	assert.True(t, strings.HasPrefix(string(r.Output.Bytes()), "more\nmore\n"))
	assert.Equal(t, r.OutputTotal, int64(len(r.Output.Bytes()))+r.OutputDropped)

	collect(t, s, first)
	collect(t, s, small)
	require.Equal(t, int64(headKept+tailKept), keptByANewJob(t, s))
}
