package jobs_test

import (
	"context"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// printsEvery is a function that prints so many times, each time after a pause,
// and then is silent until it is stopped.
func printsEvery(pause time.Duration, times int) func(context.Context, io.Writer) (any, error) {
	return func(ctx context.Context, out io.Writer) (any, error) {
		for range times {
			select {
			case <-time.After(pause):
				io.WriteString(out, "x")
			case <-ctx.Done():
			}
		}
		return waits(ctx, out)
	}
}

func TestASilentJobIsStoppedWithAllItsProcesses(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	spec, mark := markedScript("sleep 300 & setsid sleep 300 & echo up; exec sleep 300")
	spec.IdleTimeout = 300 * time.Millisecond
	r := collect(t, s, start(t, s, spec).ID)
	require.Equal(t, jobs.Failed, r.State)
	require.Equal(t, jobs.ReasonIdle, r.Reason)
	require.Equal(t, "failed, idle, SIGTERM", r.Outcome())
	require.GreaterOrEqual(t, r.Elapsed, spec.IdleTimeout)
	require.Equal(t, "up\n", string(r.Output.Bytes()))
	require.Nil(t, r.Survivors)
	require.Empty(t, marked(mark))
}

func TestWhateverAJobWritesKeepsItFromBeingIdle(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 12})
	running := map[string]string{}
	for name, write := range map[string]string{
		"standard output":                  "echo x",
		"standard error":                   "echo x >&2",
		"the result file alone":            `echo x >>"$LLM_OUTPUT"`,
		"the result file, each time anew":  `seq $i >"$LLM_OUTPUT"`,
		"the result file, nothing in it":   `: >"$LLM_OUTPUT"`,
		"the result file, another by name": `seq $i >"$LLM_OUTPUT.new"; mv "$LLM_OUTPUT.new" "$LLM_OUTPUT"`,
	} {
		for _, split := range []bool{false, true} {
			spec := bash("for i in 1 2 3 4; do sleep 1; " + write + "; done")
			spec.IdleTimeout, spec.SplitStderr = 2*time.Second, split
			running[start(t, s, spec).ID] = name
		}
	}
	for id, name := range running {
		r := collect(t, s, id)
		assert.Equal(t, jobs.Completed, r.State, "%s: %s after %v", name, r.Outcome(), r.Elapsed)
	}
}

func TestAJobThatFallsSilentIsStoppedAfterItsLastOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSupervisor(t, jobs.Config{})
		for _, tt := range []struct {
			name          string
			times         int
			idle, timeout time.Duration
			want          jobs.Reason
			after         time.Duration
		}{
			{"never printed", 0, 5 * time.Second, 0, jobs.ReasonIdle, 5 * time.Second},
			{"printed for long", 100, 5 * time.Second, 0, jobs.ReasonIdle, 405 * time.Second},
			{"the timeout is shorter", 0, 5 * time.Second, 4 * time.Second, jobs.ReasonTimeout, 4 * time.Second},
			{"the timeout comes first all the same", 100, 5 * time.Second, 30 * time.Second, jobs.ReasonTimeout, 30 * time.Second},
			{"the timeout is longer", 3, 5 * time.Second, 18 * time.Second, jobs.ReasonIdle, 17 * time.Second},
			{"a pause of the same length", 2, 4*time.Second + 1, 0, jobs.ReasonIdle, 12*time.Second + 1},
			{"none", 2, 0, time.Hour, jobs.ReasonTimeout, time.Hour},
			{"negative", 2, -1, time.Hour, jobs.ReasonTimeout, time.Hour},
		} {
			id := start(t, s, jobs.Spec{Func: printsEvery(4*time.Second, tt.times), IdleTimeout: tt.idle, Timeout: tt.timeout}).ID
			r, err := s.Collect(context.Background(), id)
			require.NoError(t, err)
			assert.Equal(t, jobs.Failed, r.State, tt.name)
			assert.Equal(t, tt.want, r.Reason, tt.name)
			assert.Equal(t, tt.after, r.Elapsed, tt.name)
		}
	})
}

func TestTheIdleTimeoutStaysArmedInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSupervisor(t, jobs.Config{})
		r, err := s.Run(testContext(t), jobs.Spec{Func: printsEvery(3*time.Second, 4), IdleTimeout: 5 * time.Second}, 2*time.Second)
		require.NoError(t, err)
		require.Equal(t, jobs.Running, r.State)
		synctest.Wait()
		time.Sleep(time.Minute)
		notices := s.Drain()
		require.Len(t, notices, 1)
		require.Equal(t, jobs.ReasonIdle, notices[0].Reason)
		require.Equal(t, 17*time.Second, notices[0].Elapsed)
		require.Equal(t, "xxxx", string(collect(t, s, r.ID).Output.Bytes()))
	})
}

func TestAProcessInTheBackgroundIsStillStoppedForItsSilence(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	spec := bash("echo up; exec sleep 300")
	spec.IdleTimeout = time.Second
	r, err := s.Run(testContext(t), spec, 10*time.Millisecond)
	require.NoError(t, err)
	require.Equal(t, jobs.Running, r.State)
	require.Equal(t, jobs.ReasonIdle, awaitEnd(t, s, r.ID).Reason)
	require.Equal(t, []string{r.ID}, noticeIDs(s.Drain()))
}

func TestTheFirstOfTwoLimitsIsTheReason(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	var both sync.WaitGroup
	for want, spec := range map[jobs.Reason]jobs.Spec{
		jobs.ReasonIdle:    {IdleTimeout: 200 * time.Millisecond, Timeout: patience},
		jobs.ReasonTimeout: {IdleTimeout: patience, Timeout: 200 * time.Millisecond},
	} {
		spec.Argv = []string{"sleep", "300"}
		id := start(t, s, spec).ID
		both.Go(func() { assert.Equal(t, want, awaitEnd(t, s, id).Reason) })
	}
	both.Wait()
}

// Looks of a host, which let the result file join the output, are no output.
func TestLooksDoNotKeepASilentJobAlive(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	spec := bash(`echo x >"$LLM_OUTPUT"; exec sleep 300`)
	spec.IdleTimeout = 500 * time.Millisecond
	require.Equal(t, jobs.ReasonIdle, awaitEnd(t, s, start(t, s, spec).ID).Reason)
}
