package jobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// needProcesses skips a test that runs a helper where there are no processes.
func needProcesses(t *testing.T) {
	if runtime.GOOS == "js" || runtime.GOOS == "wasip1" {
		t.Skip("no processes on " + runtime.GOOS)
	}
}

func TestTheValueOfAFunctionIsItsResultAsJSON(t *testing.T) {
	type point struct {
		X int    `json:"x"`
		S string `json:"s,omitempty"`
	}
	s := newSupervisor(t, jobs.Config{})
	for _, tt := range []struct {
		name  string
		value any
		want  string
	}{
		{"struct", point{X: 1}, `{"x":1}`},
		{"pointer", &point{X: 2}, `{"x":2}`},
		{"map", map[string]any{"b": 1, "a": []int{1, 2}}, `{"a":[1,2],"b":1}`},
		{"string", "text", `"text"`},
		{"empty string", "", `""`},
		{"number", 1.5, `1.5`},
		{"large integer", uint64(math.MaxUint64), `18446744073709551615`},
		{"false", false, `false`},
		{"markup stays legible", "<a href='x'>&</a>", `"<a href='x'>&</a>"`},
		{"ready JSON", json.RawMessage(`{"id":12345678901234567890}`), `{"id":12345678901234567890}`},
		{"error as a value", struct{ Error string }{"no"}, `{"Error":"no"}`},
		{"typed nil", (*point)(nil), `null`},
		{"nil", nil, `"DONE"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := collect(t, s, start(t, s, returning(tt.value)).ID)
			assert.Equal(t, jobs.Completed, r.State)
			assert.Equal(t, jobs.ReasonExit, r.Reason)
			assert.NoError(t, r.Err)
			assert.Equal(t, tt.want, string(r.File.JSON()))
			if tt.value == nil {
				assert.Zero(t, r.File)
				return
			}
			assert.Equal(t, tt.want, string(r.File.Data))
			assert.Equal(t, int64(len(tt.want)), r.File.Size)
			assert.False(t, r.File.Truncated)
		})
	}
}

func TestAFunctionHasNoExitCode(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	for _, end := range []error{nil, errors.New("no")} {
		r := collect(t, s, start(t, s, function(func(context.Context, io.Writer) (any, error) {
			return nil, end
		})).ID)
		assert.Equal(t, -1, r.ExitCode)
		assert.Equal(t, -1, r.ShellCode())
		assert.Zero(t, r.Signal)
		assert.Zero(t, r.PID)
		assert.Equal(t, "func", r.Tool)
		assert.Nil(t, r.Leftovers)
	}
}

func TestAnErrorMakesAFunctionFail(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	r := collect(t, s, start(t, s, function(func(_ context.Context, out io.Writer) (any, error) {
		io.WriteString(out, "before")
		return nil, fmt.Errorf("reading: %w", io.ErrUnexpectedEOF)
	})).ID)
	assert.Equal(t, jobs.Failed, r.State)
	assert.Equal(t, jobs.ReasonExit, r.Reason)
	assert.ErrorIs(t, r.Err, io.ErrUnexpectedEOF)
	assert.Equal(t, "before", string(r.Output.Bytes()))
	assert.Equal(t, "failed", r.Outcome())
}

// A stubbornValue has an encoding that its method denies it.
type stubbornValue struct{ encode func() }

func (s stubbornValue) MarshalJSON() ([]byte, error) {
	s.encode()
	return nil, errors.New("not today")
}

func TestAValueWithoutAnEncodingMakesAFunctionFail(t *testing.T) {
	loop := map[string]any{}
	loop["self"] = loop
	s := newSupervisor(t, jobs.Config{})
	for name, value := range map[string]any{
		"channel":        make(chan int),
		"function":       func() {},
		"not a number":   math.NaN(),
		"cycle":          loop,
		"its own error":  stubbornValue{func() {}},
		"no JSON at all": json.RawMessage("{"),
	} {
		t.Run(name, func(t *testing.T) {
			r := collect(t, s, start(t, s, returning(value)).ID)
			assert.Equal(t, jobs.Failed, r.State)
			assert.Equal(t, jobs.ReasonExit, r.Reason)
			assert.ErrorContains(t, r.Err, "the result cannot be encoded: json: ")
			assert.Zero(t, r.File)
		})
	}
}

func TestAPanicIsContained(t *testing.T) {
	var nilMap map[string]int
	cause := errors.New("an error")
	s := newSupervisor(t, jobs.Config{})
	bystander := start(t, s, gated(nil, "")).ID
	for _, tt := range []struct {
		name string
		run  func()
		want string
	}{
		{"text", func() { panic("boom") }, "panic: boom"},
		{"error", func() { panic(cause) }, "panic: an error"},
		{"nil", func() { panic(nil) }, "panic: panic called with nil argument"},
		{"of the runtime", func() { nilMap["x"] = 1 }, "panic: assignment to entry in nil map"},
		{"exit of its goroutine", runtime.Goexit, "ended its goroutine"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			id := start(t, s, function(func(_ context.Context, out io.Writer) (any, error) {
				io.WriteString(out, "before")
				tt.run()
				return "after", nil
			})).ID
			r := collect(t, s, id)
			assert.Equal(t, jobs.Failed, r.State)
			assert.Equal(t, jobs.ReasonInternal, r.Reason)
			assert.ErrorContains(t, r.Err, tt.want)
			assert.Equal(t, "before", string(r.Output.Bytes()))
			assert.Zero(t, r.File)
			assert.Equal(t, "failed, internal", r.Outcome())
		})
	}
	require.Equal(t, jobs.Running, checkJob(t, s, bystander).State)
}

func init() {
	// Each runs a function whose value has a method that gives no encoding, and
	// prints how the job ended.
	stubbornly := func(name string, encode func(), end func(*jobs.Supervisor, context.Context, string) (jobs.Result, error)) {
		helpers[name] = func() {
			s, err := jobs.New(jobs.Config{KillGrace: 100 * time.Millisecond})
			check(err == nil, "%v", err)
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			snap, err := s.Start(ctx, returning(stubbornValue{encode}))
			check(err == nil, "%v", err)
			r, err := end(s, ctx, snap.ID)
			check(err == nil, "the job does not end: %v", err)
			fmt.Print(r.Outcome())
		}
	}
	stubbornly("panic while encoding", func() { panic("boom") }, (*jobs.Supervisor).Collect)
	stubbornly("goroutine exit while encoding", runtime.Goexit, (*jobs.Supervisor).Collect)
	encoding := make(chan struct{})
	stubbornly("endless encoding", func() { close(encoding); <-make(chan int) },
		func(s *jobs.Supervisor, ctx context.Context, id string) (jobs.Result, error) {
			<-encoding
			return s.Cancel(ctx, id)
		})
}

// The method that encodes a value is code of the host too, and as little to be
// trusted as the function. It runs in a process of its own here: what is not
// contained would end, or hang, the whole.
func TestTheEncodingOfAValueIsContainedLikeTheFunction(t *testing.T) {
	needProcesses(t)
	for name, want := range map[string]string{
		"panic while encoding":          "failed, internal",
		"goroutine exit while encoding": "failed, internal",
		"endless encoding":              "failed, unreaped",
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, want, runHelper(t, name))
		})
	}
}

type contextKey struct{}

func TestAFunctionSeesTheValuesOfTheStartContextButNotItsEnd(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	ctx, cancelStart := context.WithTimeout(context.WithValue(context.Background(), contextKey{}, "value"), patience)
	gate := make(chan struct{})
	seen := make(chan context.Context, 1)
	snap, err := s.Start(ctx, function(func(ctx context.Context, _ io.Writer) (any, error) {
		seen <- ctx
		<-gate
		return ctx.Value(contextKey{}), ctx.Err()
	}))
	require.NoError(t, err)
	inside := <-seen
	_, bounded := inside.Deadline()
	assert.False(t, bounded, "the deadline of the start is not the job's")
	cancelStart()
	assert.NoError(t, inside.Err())
	close(gate)
	r := collect(t, s, snap.ID)
	assert.Equal(t, jobs.Completed, r.State, "%v", r.Err)
	assert.Equal(t, `"value"`, string(r.File.JSON()))
	assert.Error(t, inside.Err(), "what the function left behind sees that it is over")
}

func TestAStoppedFunctionIsCancelledWhateverItReturns(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	for _, tt := range []struct {
		name  string
		value any
		err   error
	}{
		{"the error of its context", nil, context.Canceled},
		{"an error of its own", nil, errors.New("interrupted")},
		{"a value", "partial", nil},
		{"nothing", nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			id := start(t, s, function(func(ctx context.Context, out io.Writer) (any, error) {
				io.WriteString(out, "ready")
				<-ctx.Done()
				io.WriteString(out, ", stopping")
				return tt.value, tt.err
			})).ID
			awaitOutput(t, s, id, "ready")
			r := cancel(t, s, id)
			assert.Equal(t, jobs.Cancelled, r.State)
			assert.Equal(t, jobs.ReasonCancelled, r.Reason)
			assert.Equal(t, tt.err, r.Err)
			assert.Equal(t, "ready, stopping", string(r.Output.Bytes()))
			assert.Equal(t, -1, r.ExitCode)
		})
	}
}

func TestAPanicDuringAStopIsContained(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	id := start(t, s, function(func(ctx context.Context, _ io.Writer) (any, error) {
		<-ctx.Done()
		panic("boom")
	})).ID
	r := cancel(t, s, id)
	assert.Equal(t, jobs.ReasonCancelled, r.Reason, "the request came first")
	assert.ErrorContains(t, r.Err, "boom")
}

func TestWhatAFunctionWritesAfterItsEndIsRefused(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	var late io.Writer
	id := start(t, s, function(func(_ context.Context, out io.Writer) (any, error) {
		late = out
		io.WriteString(out, "in time")
		return nil, nil
	})).ID
	end := awaitEnd(t, s, id)
	n, err := io.WriteString(late, "too late")
	require.ErrorIs(t, err, io.ErrClosedPipe)
	require.Zero(t, n)
	require.Equal(t, end, checkJob(t, s, id))
	require.Equal(t, "in time", string(collect(t, s, id).Output.Bytes()))
	_, err = io.WriteString(late, "later still")
	require.ErrorIs(t, err, io.ErrClosedPipe)
	require.Equal(t, int64(7), checkJob(t, s, id).OutputTotal)
}

func TestTheOutputOfAFunctionTakesConcurrentWrites(t *testing.T) {
	const writers, lines = 8, 200
	s := newSupervisor(t, jobs.Config{})
	id := start(t, s, function(func(_ context.Context, out io.Writer) (any, error) {
		var all sync.WaitGroup
		for range writers {
			all.Go(func() {
				for range lines {
					fmt.Fprintln(out, "a whole line")
				}
			})
		}
		all.Wait()
		return nil, nil
	})).ID
	r := collect(t, s, id)
	require.Equal(t, strings.Repeat("a whole line\n", writers*lines), string(r.Output.Bytes()))
}

func TestAFunctionThatIgnoresItsStopIsGivenUpAfterTheGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSupervisor(t, jobs.Config{MaxRunning: 1, KillGrace: 3 * time.Second})
		gate := make(chan struct{})
		var late error
		spec := function(func(_ context.Context, out io.Writer) (any, error) {
			io.WriteString(out, "deaf")
			<-gate
			_, late = io.WriteString(out, "still here")
			return "value", nil
		})
		id := start(t, s, spec).ID
		synctest.Wait()

		r := cancel(t, s, id)
		assert.Equal(t, 3*time.Second, r.Elapsed)
		assert.Equal(t, jobs.Failed, r.State)
		assert.Equal(t, jobs.ReasonUnreaped, r.Reason)
		assert.ErrorContains(t, r.Err, "has not returned")
		assert.Equal(t, "deaf", string(r.Output.Bytes()))
		assert.Equal(t, -1, r.ExitCode)

		// The slot stays taken: the work may still use what jobs share.
		assert.Equal(t, 1, s.List().Running)
		_, err := s.Start(context.Background(), returning(nil))
		require.ErrorIs(t, err, jobs.ErrAtCapacity)
		assert.Equal(t, jobs.ReasonUnreaped, cancel(t, s, id).Reason, "a second cancel waits for nothing")

		close(gate)
		synctest.Wait()
		assert.ErrorIs(t, late, io.ErrClosedPipe)
		assert.Zero(t, s.List().Running)
		snap := checkJob(t, s, id)
		assert.Equal(t, jobs.ReasonUnreaped, snap.Reason, "an end is told once")
		assert.Equal(t, r.OutputTotal, snap.OutputTotal)
		assert.Equal(t, "deaf", string(collect(t, s, id).Output.Bytes()))
		collect(t, s, start(t, s, returning(nil)).ID)
	})
}

func TestCloseGivesUpAFunctionThatIgnoresItsStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSupervisor(t, jobs.Config{KillGrace: 3 * time.Second})
		gate := make(chan struct{})
		defer close(gate)
		id := start(t, s, deaf(gate)).ID
		begun := time.Now()
		report, err := s.Close(testContext(t))
		require.NoError(t, err)
		assert.Equal(t, 3*time.Second, time.Since(begun))
		require.Equal(t, []string{id}, ids(report.Stopped))
		assert.Equal(t, jobs.ReasonUnreaped, report.Stopped[0].Reason)
	})
}

// A function cannot be forced, so a hurried stop must still leave it the moment
// it needs to see that its context is done.
func TestAHurriedCloseLetsAFunctionReturn(t *testing.T) {
	s := newSupervisor(t, jobs.Config{KillGrace: patience})
	id := start(t, s, gated(nil, "ready")).ID
	awaitOutput(t, s, id, "ready")
	report, err := s.Close(doneContext())
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, report.Stopped, 1)
	assert.Equal(t, jobs.ReasonShutdown, report.Stopped[0].Reason)
	assert.Equal(t, jobs.Cancelled, report.Stopped[0].State)
	assert.Zero(t, s.List().Running)
}

func TestAHurriedCloseGivesUpAFunctionWithinSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSupervisor(t, jobs.Config{KillGrace: time.Hour})
		gate := make(chan struct{})
		defer close(gate)
		start(t, s, deaf(gate))
		begun := time.Now()
		report, err := s.Close(doneContext())
		require.ErrorIs(t, err, context.Canceled)
		assert.LessOrEqual(t, time.Since(begun), 2*time.Second)
		require.Len(t, report.Stopped, 1)
		assert.Equal(t, jobs.ReasonUnreaped, report.Stopped[0].Reason)
	})
}

func TestATimeoutStopsAFunctionAndKeepsItsOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSupervisor(t, jobs.Config{})
		spec := function(func(ctx context.Context, out io.Writer) (any, error) {
			for {
				select {
				case <-time.After(time.Second):
					io.WriteString(out, "tick ")
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
		})
		spec.Timeout = 3500 * time.Millisecond
		r := collect(t, s, start(t, s, spec).ID)
		assert.Equal(t, jobs.Failed, r.State)
		assert.Equal(t, jobs.ReasonTimeout, r.Reason)
		assert.Equal(t, spec.Timeout, r.Elapsed)
		assert.Equal(t, "tick tick tick ", string(r.Output.Bytes()))
		assert.Equal(t, "failed, timeout", r.Outcome())
	})
}

func TestAFunctionHasNoTimeoutUnlessItsSpecSaysSo(t *testing.T) {
	for name, timeout := range map[string]time.Duration{
		"zero":           0,
		"negative":       -1,
		"most negative":  math.MinInt64,
		"beyond bounds":  math.MaxInt64,
		"a million days": 24_000_000 * time.Minute,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSupervisor(t, jobs.Config{Timeout: time.Second})
				spec := function(func(ctx context.Context, _ io.Writer) (any, error) {
					time.Sleep(24 * time.Hour)
					return nil, ctx.Err()
				})
				spec.Timeout = timeout
				id := start(t, s, spec).ID
				r, err := s.Collect(context.Background(), id)
				require.NoError(t, err)
				assert.Equal(t, jobs.Completed, r.State, "%v", r.Err)
				assert.Equal(t, 24*time.Hour, r.Elapsed)
			})
		})
	}
}

func TestTheShortestTimeoutStillGivesOneEnd(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	spec := gated(nil, "")
	spec.Timeout = time.Nanosecond
	for range 100 {
		r := collect(t, s, start(t, s, spec).ID)
		require.Equal(t, jobs.ReasonTimeout, r.Reason)
		require.Equal(t, jobs.Failed, r.State)
	}
}

func TestAFunctionThatReturnsInTimeHasNoTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSupervisor(t, jobs.Config{})
		spec := returning("quick")
		spec.Timeout = time.Second
		id := start(t, s, spec).ID
		time.Sleep(time.Hour / 10)
		require.Equal(t, jobs.Completed, collect(t, s, id).State)
	})
}

func TestAFunctionThatPrintsTooMuchIsStopped(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	spec := function(func(ctx context.Context, out io.Writer) (any, error) {
		io.WriteString(out, "1234567890") // as much as it may
		if ctx.Err() != nil {
			return nil, errors.New("stopped too early")
		}
		io.WriteString(out, "x")
		<-ctx.Done()
		return nil, nil
	})
	spec.OutputLimit = 10
	r := collect(t, s, start(t, s, spec).ID)
	assert.Equal(t, jobs.Failed, r.State)
	assert.Equal(t, jobs.ReasonOutputLimit, r.Reason)
	assert.NoError(t, r.Err)
	assert.Equal(t, "1234567890x", string(r.Output.Bytes()))
}

func TestWhatIsForProcessesIsRefusedForAFunction(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	for name, set := range map[string]func(*jobs.Spec){
		"Argv":        func(spec *jobs.Spec) { spec.Argv = []string{"true"} },
		"Dir":         func(spec *jobs.Spec) { spec.Dir = "/" },
		"Env":         func(spec *jobs.Spec) { spec.Env = []string{"A=b"} },
		"SplitStderr": func(spec *jobs.Spec) { spec.SplitStderr = true },
	} {
		spec := returning(nil)
		set(&spec)
		_, err := s.Start(testContext(t), spec)
		var se *jobs.StartError
		require.ErrorAs(t, err, &se, name)
		assert.Equal(t, jobs.StageSpec, se.Stage, name)
	}
	require.Empty(t, s.List().Jobs)
}

func TestAPlatformWithoutProcessesSaysSoAndRunsFunctions(t *testing.T) {
	switch runtime.GOOS {
	case "darwin", "dragonfly", "freebsd", "linux", "netbsd", "openbsd":
		t.Skip("processes run on " + runtime.GOOS)
	}
	s := newSupervisor(t, jobs.Config{MaxRunning: 1})
	_, err := s.Start(testContext(t), jobs.Spec{Argv: []string{"true"}})
	require.ErrorIs(t, err, jobs.ErrUnsupported)
	require.Empty(t, s.List().Jobs)
	require.Equal(t, jobs.Completed, collect(t, s, start(t, s, returning(nil)).ID).State)
}

func TestAFunctionHasNoStandardError(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	gate := make(chan struct{})
	id := start(t, s, gated(gate, "x")).ID
	c, err := s.Stderr(id, 0, 0)
	require.NoError(t, err)
	require.Empty(t, c.Data)
	close(gate)
	require.Empty(t, collect(t, s, id).Stderr)
}

// No code of the host runs under the supervisor's lock.
func TestAFunctionMayUseItsSupervisor(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	own := make(chan string, 1)
	id := start(t, s, function(func(ctx context.Context, out io.Writer) (any, error) {
		self := <-own
		if _, err := s.Check(self); err != nil {
			return nil, err
		}
		inner, err := s.Start(ctx, returning("from inside"))
		if err != nil {
			return nil, err
		}
		r, err := s.Collect(ctx, inner.ID)
		if err != nil {
			return nil, err
		}
		fmt.Fprint(out, len(s.List().Jobs), " listed")
		return r.File.JSON(), nil
	})).ID
	own <- id
	r := collect(t, s, id)
	require.NoError(t, r.Err)
	assert.Equal(t, `"from inside"`, string(r.File.JSON()))
	assert.Equal(t, "1 listed", string(r.Output.Bytes()))
}

func TestAFunctionMayCancelItself(t *testing.T) {
	s := newSupervisor(t, jobs.Config{KillGrace: patience})
	own := make(chan string, 1)
	id := start(t, s, function(func(ctx context.Context, _ io.Writer) (any, error) {
		_, err := s.Cancel(ctx, <-own) // its context ends the wait for itself
		return nil, err
	})).ID
	own <- id
	r := collect(t, s, id)
	assert.Equal(t, jobs.Cancelled, r.State)
	assert.ErrorIs(t, r.Err, context.Canceled)
}

func TestFunctionsLeaveNoGoroutineHoweverTheyEnd(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	ends := []func(ctx context.Context) (any, error){
		func(context.Context) (any, error) { return "value", nil },
		func(context.Context) (any, error) { return nil, errors.New("no") },
		func(context.Context) (any, error) { return make(chan int), nil },
		func(context.Context) (any, error) { panic("boom") },
		func(context.Context) (any, error) { runtime.Goexit(); return nil, nil },
		func(ctx context.Context) (any, error) { <-ctx.Done(); return nil, ctx.Err() }, // its timeout
	}
	ctx := testContext(t)
	before := runtime.NumGoroutine()
	for range 50 {
		for _, end := range ends {
			spec := function(func(ctx context.Context, _ io.Writer) (any, error) { return end(ctx) })
			spec.Timeout = time.Millisecond
			snap, err := s.Start(ctx, spec)
			require.NoError(t, err)
			_, err = s.Collect(ctx, snap.ID)
			require.NoError(t, err)
		}
	}
	after := 0
	require.True(t, eventually(func() bool {
		after = runtime.NumGoroutine()
		return after <= before
	}), "%d goroutines before, %d after", before, after)
}
