package jobs_test

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/require"
)

// Errors of a host of which more panics than their text.
type (
	badIs     struct{}
	badAs     struct{}
	badUnwrap struct{}
)

func (badIs) Error() string     { return "bad Is" }
func (badIs) Is(error) bool     { panic("in Is") }
func (badAs) Error() string     { return "bad As" }
func (badAs) As(any) bool       { panic("in As") }
func (badUnwrap) Error() string { return "bad Unwrap" }
func (badUnwrap) Unwrap() error { panic("in Unwrap") }

var badErrors = map[string]error{"Error": badError{}, "Is": badIs{}, "As": badAs{}, "Unwrap": badUnwrap{}}

// requireWorks fails unless a supervisor with one slot still runs jobs, has told
// every end, and holds nothing.
func requireWorks(t testing.TB, s *jobs.Supervisor) {
	t.Helper()
	require.Zero(t, s.List().Running)
	require.Empty(t, s.Drain())
	require.Equal(t, jobs.Completed, runScript(t, s, "true").State)
	require.Equal(t, jobs.Completed, collect(t, s, start(t, s, returning(1)).ID).State)
}

func TestAnErrorOfTheHostWhoseMethodsPanicIsContained(t *testing.T) {
	for name, bad := range badErrors {
		t.Run("Func, "+name, func(t *testing.T) {
			s := newSupervisor(t, jobs.Config{MaxRunning: 1})
			tools := s.Toolset(jobs.ToolsetOptions{})
			for range 2 {
				id := endedFunc(t, s, func(_ context.Context, out io.Writer) (any, error) {
					io.WriteString(out, "printed")
					return "value", bad
				})
				require.NotPanics(t, func() {
					out, _ := tools.Call(t.Context(), "job__check", json.RawMessage(idArgs(id)))
					require.Contains(t, string(out), `"failed"`)
					out, _ = tools.Call(t.Context(), "job__collect", json.RawMessage(idArgs(id)))
					require.Contains(t, string(out), "printed")
				})
			}
			requireWorks(t, s)
		})
		t.Run("Deliver, "+name, func(t *testing.T) {
			s := newSupervisor(t, jobs.Config{MaxRunning: 1})
			id := endedFunc(t, s, returns(1))
			calls := 0
			ctx, stop := context.WithCancel(t.Context())
			require.ErrorIs(t, s.Deliver(ctx, func(_ context.Context, notices []jobs.Notice) error {
				require.Equal(t, []string{id}, noticeIDs(notices))
				if calls++; calls == 2 {
					stop()
					return nil
				}
				return bad
			}), context.Canceled)
			requireWorks(t, s)
		})
	}
}

func TestAnErrorOfAHookWhoseMethodsPanicIsContained(t *testing.T) {
	for name, bad := range badErrors {
		t.Run("Resolve, "+name, func(t *testing.T) {
			s := newSupervisor(t, jobs.Config{MaxRunning: 1})
			tools := s.Toolset(jobs.ToolsetOptions{Declared: []string{"build"}, Resolve: func(context.Context, string, json.RawMessage) (jobs.Spec, error) { return jobs.Spec{}, bad }})
			require.NotPanics(t, func() {
				out, isError := tools.Call(testContext(t), "job__start", json.RawMessage(`{"tool":"build"}`))
				require.True(t, isError, "%s", out)
				_, fault := readReply("", out, isError)
				require.Empty(t, fault)
			})
			requireWorks(t, s)
		})
		t.Run("Wrap, "+name, func(t *testing.T) {
			s := newSupervisor(t, jobs.Config{MaxRunning: 1, Wrap: func(argv []string) ([]string, error) {
				if len(argv) == 1 {
					return nil, bad
				}
				return argv, nil
			}})
			tools := s.Toolset(jobs.ToolsetOptions{Declared: []string{"build"}, Resolve: func(context.Context, string, json.RawMessage) (jobs.Spec, error) {
				return jobs.Spec{Argv: []string{"true"}}, nil
			}})
			require.NotPanics(t, func() {
				_, err := s.Start(testContext(t), jobs.Spec{Argv: []string{"true"}})
				require.Error(t, err)
				out, isError := tools.Call(testContext(t), "job__start", json.RawMessage(`{"tool":"build"}`))
				require.True(t, isError, "%s", out)
			})
			requireWorks(t, s)
		})
	}
}

func TestWhatAFunctionWritesWhileNobodyReadsIsCountedAndNeverBlocks(t *testing.T) {
	const much, line = 10_000, "0123456789abcdef\n"
	s := newSupervisor(t, jobs.Config{})
	begun, goOn := make(chan struct{}), make(chan struct{})
	id := start(t, s, jobs.Spec{Func: func(_ context.Context, out io.Writer) (any, error) {
		var writers sync.WaitGroup
		for range 4 {
			writers.Go(func() {
				for range much / 4 {
					io.WriteString(out, line)
				}
			})
		}
		writers.Wait()
		close(begun)
		<-goOn
		_, err := io.WriteString(out, "end\n")
		return nil, err
	}}).ID
	<-begun
	// A reader that comes late and looks rarely learns what it has missed.
	var read, missed, from int64
	text := ""
	for eof := false; !eof; {
		c, err := s.Output(id, from, 1000)
		require.NoError(t, err)
		require.Equal(t, from+c.Dropped, c.From)
		read, missed, from = read+int64(len(c.Data)), missed+c.Dropped, c.Next
		text += string(c.Data)
		if eof = c.EOF; from == c.Total && !eof && !strings.HasSuffix(text, "end\n") {
			close(goOn)
			awaitEnd(t, s, id)
		}
	}
	const total = much*int64(len(line)) + 4
	require.Equal(t, total, read+missed)
	require.True(t, strings.HasPrefix(text, line) && strings.HasSuffix(text, line+"end\n"))
	r := collect(t, s, id)
	require.Equal(t, total, r.OutputTotal)
	require.Equal(t, total, r.OutputDropped+int64(len(r.Output.Bytes())))
}

// A consumer that takes a second for each hand-over holds up nobody, and misses
// nothing.
func TestASlowConsumerHoldsUpNobodyAndIsToldOfEveryEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSupervisor(t, jobs.Config{MaxRunning: 1})
		var told []string
		calls := 0
		delivering := deliver(t, s, func(_ context.Context, notices []jobs.Notice) error {
			time.Sleep(time.Second)
			if calls++; calls%3 == 0 {
				panic("and is not reliable either")
			}
			told = append(told, noticeIDs(notices)...)
			return nil
		})
		var ended []string
		begun := time.Now()
		for range 200 {
			id := start(t, s, jobs.Spec{Func: func(context.Context, io.Writer) (any, error) {
				time.Sleep(50 * time.Millisecond)
				return 1, nil
			}}).ID
			ended = append(ended, id)
			for snap := checkJob(t, s, id); !snap.Ended(); snap = checkJob(t, s, id) {
				time.Sleep(10 * time.Millisecond)
			}
		}
		require.LessOrEqual(t, time.Since(begun), 200*70*time.Millisecond, "the jobs waited for the consumer")
		time.Sleep(time.Minute)
		synctest.Wait()
		delivering.stop()
		require.Equal(t, ended, told)
	})
}

func TestAReaderThatIsSlowHoldsUpNoProcess(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	id := start(t, s, bash(`head -c 20000000 /dev/zero | tr '\0' z; echo end`)).ID
	var read, missed, from int64
	for {
		c, err := s.Output(id, from, 7)
		require.NoError(t, err)
		read, missed, from = read+int64(len(c.Data)), missed+c.Dropped, c.Next
		if c.EOF {
			break
		}
		if len(c.Data) == 0 {
			awaitEnd(t, s, id)
		}
	}
	r := collect(t, s, id)
	require.Equal(t, "completed, exit 0", r.Outcome())
	require.EqualValues(t, 20_000_004, r.OutputTotal)
	require.Equal(t, r.OutputTotal, read+missed)
	require.Equal(t, r.OutputTotal, r.OutputDropped+int64(len(r.Output.Bytes())))
	require.True(t, strings.HasSuffix(string(r.Output.Bytes()), "zend\n"))
}
