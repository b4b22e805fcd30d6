package jobs_test

import (
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAnUnchangedLookAtAJobThatWaitsForInputCostsAtMost200Bytes(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	for _, optional := range []jobs.OptionalTools{0, jobs.WriteTool} {
		tools := s.Toolset(jobs.ToolsetOptions{Optional: optional})
		id := start(t, s, listening(`printf 'name? '; read -r x`)).ID
		ask(t, tools, "job__check", idArgs(id)) // before it is known that it waits
		awaitPrompt(t, s, id)
		r := ask(t, tools, "job__check", idArgs(id))
		require.Contains(t, r.Hint, "job__cancel", "that it waits is news")
		for range 5 {
			r = ask(t, tools, "job__check", idArgs(id))
			require.True(t, r.Unchanged, r.text)
			require.Contains(t, r.fields, "waiting_for_input")
			require.Contains(t, r.Hint, "job__cancel")
			require.LessOrEqual(t, len(r.text)+len("9999.9"), 200, r.text)
		}
	}
}

// Where no job of the model runs, there is none to wait for or to stop.
func TestAStartAtCapacityAdvisesNothingThatCannotBeDone(t *testing.T) {
	for name, fill := range map[string]func(t *testing.T, s, child *jobs.Supervisor) (refuses *jobs.Supervisor){
		"by a job that could not be stopped": func(t *testing.T, s, _ *jobs.Supervisor) *jobs.Supervisor {
			run, _ := stubborn(t)
			require.Equal(t, jobs.ReasonUnreaped, cancel(t, s, start(t, s, jobs.Spec{Func: run}).ID).Reason)
			return s
		},
		"by the job of a child": func(t *testing.T, s, child *jobs.Supervisor) *jobs.Supervisor {
			start(t, child, gated(nil, ""))
			return s
		},
		"by the job of the parent": func(t *testing.T, s, child *jobs.Supervisor) *jobs.Supervisor {
			start(t, s, gated(nil, ""))
			return child
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSupervisor(t, jobs.Config{MaxRunning: 1, KillGrace: time.Millisecond})
			tools := funcs{"build": waits}.toolset(fill(t, s, newChild(t, s, jobs.ChildConfig{})), jobs.ToolsetOptions{})
			require.Zero(t, *ask(t, tools, "job__list", "").ActiveJobs)
			r := ask(t, tools, "job__start", `{"tool":"build"}`)
			require.True(t, r.failed(), r.text)
			assert.NotContains(t, r.Message, "job__collect")
			assert.NotContains(t, r.Message, "job__cancel")
		})
	}
}

// Whoever ends a turn does not wait for that call, so it is somebody else's,
// who would get an end that is none of its own.
func TestAForegroundRunIsNoBusinessOfATurnEnd(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	gate := make(chan struct{})
	ctx := newWatchedContext(testContext(t))
	ran := make(chan jobs.Result)
	go func() {
		r, err := s.Run(ctx, gated(gate, ""), patience)
		assert.NoError(t, err)
		ran <- r
	}()
	<-ctx.waiting
	require.True(t, eventually(func() bool { return len(s.List().Jobs) == 1 }))
	for range 5 {
		assert.Equal(t, jobs.Reminder{}, s.TurnEnd(testContext(t)))
	}
	close(gate)
	require.Equal(t, jobs.Completed, (<-ran).State)
}
