package jobs_test

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Every kind of job.

// bothKinds are a process and a function that print "out", wait for the test
// and then have the result 7. Each comes with what lets it go on.
func bothKinds(t testing.TB) map[string]struct {
	spec jobs.Spec
	goOn func()
} {
	g, gate := newGate(t), make(chan struct{})
	return map[string]struct {
		spec jobs.Spec
		goOn func()
	}{
		"process": {g.gated(`echo -n out; read -r _ <"$GATE"; echo 7 >"$LLM_OUTPUT"`), func() { g.open(t) }},
		"function": {function(func(ctx context.Context, out io.Writer) (any, error) {
			io.WriteString(out, "out")
			select {
			case <-gate:
				return 7, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}), func() { close(gate) }},
	}
}

func TestAFunctionAnswersToTheVerbsLikeAProcess(t *testing.T) {
	for name, kind := range bothKinds(t) {
		t.Run(name, func(t *testing.T) {
			s := newSupervisor(t, jobs.Config{MaxRunning: 1})
			id := start(t, s, kind.spec).ID
			awaitOutput(t, s, id, "out")
			assert.Equal(t, jobs.Running, checkJob(t, s, id).State)
			assert.Equal(t, []string{id}, ids(s.List().Jobs))
			_, err := s.Start(testContext(t), kind.spec)
			assert.ErrorIs(t, err, jobs.ErrAtCapacity)
			assert.True(t, waitOn(t, s, jobs.WaitSpec{IDs: []string{id}, Timeout: -1}).TimedOut)
			kind.goOn()
			assert.Equal(t, []jobs.State{jobs.Completed}, states(waitOn(t, s, jobs.WaitSpec{IDs: []string{id}}).Jobs))
			assert.Equal(t, jobs.Completed, cancel(t, s, id).State, "it had ended")
			r := collect(t, s, id)
			assert.Equal(t, "7", strings.TrimSpace(string(r.File.JSON())))
			assert.True(t, strings.HasPrefix(string(r.Output.Bytes()), "out"))
			_, err = s.Collect(testContext(t), id)
			requireJobError(t, err, jobs.ErrCollected, id)
		})
	}
}

func TestAFunctionIsStoppedByEveryVerbThatStopsAProcess(t *testing.T) {
	for how, stop := range map[string]func(s *jobs.Supervisor, id string){
		"Cancel": func(s *jobs.Supervisor, id string) { s.Cancel(context.Background(), id) },
		"Reap":   func(s *jobs.Supervisor, id string) { s.Reap(context.Background(), id) },
		"Reset":  func(s *jobs.Supervisor, _ string) { s.Reset(context.Background()) },
		"Close":  func(s *jobs.Supervisor, _ string) { s.Close(context.Background()) },
	} {
		for name, kind := range bothKinds(t) {
			t.Run(name+", "+how, func(t *testing.T) {
				s := newSupervisor(t, jobs.Config{})
				id := start(t, s, kind.spec).ID
				awaitOutput(t, s, id, "out")
				stop(s, id)
				require.Zero(t, s.List().Running)
				require.Empty(t, children())
				require.Nil(t, s.Drain(), "who stops it is told")
			})
		}
	}
}

func TestListShowsALiveJobHoweverItWasStarted(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	spec := bash("exec sleep 300")
	tools := s.Toolset(jobs.ToolsetOptions{
		Declared: []string{"build"},
		Resolve:  func(context.Context, string, json.RawMessage) (jobs.Spec, error) { return spec, nil },
	})
	want := []string{start(t, s, spec).ID, demote(t, s, spec).ID, begin(t, tools, "build")}
	ctx, stop := context.WithCancel(testContext(t))
	defer stop()
	ran := make(chan error, 1)
	go func() {
		_, err := s.Run(ctx, spec, patience)
		ran <- err
	}()
	require.True(t, eventually(func() bool { return len(s.List().Jobs) == 4 }))
	list := s.List().Jobs
	require.Equal(t, want, ids(list[:3]))
	var listed []int
	for _, snap := range list {
		listed = append(listed, snap.PID)
	}
	require.ElementsMatch(t, children(), listed)
	stop()
	require.ErrorIs(t, <-ran, context.Canceled)
}

func TestAJobOutlivesTheRequestThatStartedIt(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	g := newGate(t)
	tools := s.Toolset(jobs.ToolsetOptions{
		Declared: []string{"build"},
		Resolve: func(context.Context, string, json.RawMessage) (jobs.Spec, error) {
			return g.gated(`read -r _ <"$GATE"; echo lived on`), nil
		},
	})
	request, over := context.WithCancel(testContext(t))
	id := askContext(request, t, tools, "job__start", `{"tool":"build"}`).JobID
	over()
	g.open(t)
	r := ask(t, tools, "job__collect", idArgs(id))
	require.Equal(t, "completed", r.Status)
	require.Equal(t, "lived on\n", r.tail())
}

// Delivery.

func TestANoticeReachesAModelAsAKeyATurnOrATask(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	id := start(t, s, bash("echo text; exit 3")).ID
	n := requireOneEnd(t, s, id)
	texts := jobs.Texts{}
	key := string(texts.Merge(json.RawMessage(`{"a":1}`), "", []jobs.Notice{n}))
	turn, task, plain := texts.Turn(n, "text\n"), texts.Task(n), texts.Plain(n)
	for name, text := range map[string]string{"key": key, "turn": turn, "task": task, "plain": plain} {
		assert.Contains(t, text, id, name)
		if name != "turn" {
			assert.NotContains(t, text, "text", "the %s shows output", name)
		}
		if name != "plain" {
			assert.Contains(t, text, "job__collect", "the %s does not say what to do", name)
		}
	}
	assert.True(t, strings.HasPrefix(key, `{"a":1,"notices":[`), key)
	assert.Contains(t, turn, "```\ntext\n```")
}

func TestAThousandDrainsAfterANoticeGiveNothing(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	tools := s.Toolset(jobs.ToolsetOptions{})
	id := start(t, s, bash("true")).ID
	requireOneEnd(t, s, id)
	for range 1000 {
		require.Nil(t, s.Drain())
		require.Empty(t, s.Ready())
	}
	require.Empty(t, ask(t, tools, "job__list", "").Notices)
	require.NotContains(t, ask(t, tools, "job__check", idArgs(id)).fields, "notices")
}

func TestTheProcessIsReapedWhenItsNoticeComes(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	for range 100 {
		job := start(t, s, bash("exit 0"))
		<-s.Ready()
		require.Empty(t, procState(job.PID), "told while it still runs, or is a zombie")
		require.Equal(t, []string{job.ID}, noticeIDs(s.Drain()))
	}
}

// Exit, timeout, idle timeout and cancels, which do not wait, want to end the
// same job.
func TestSeveralCausesAtOnceMakeOneNotice(t *testing.T) {
	s := newSupervisor(t, jobs.Config{KillGrace: 50 * time.Millisecond})
	for range 50 {
		spec := bash("sleep 0.02")
		spec.Timeout, spec.IdleTimeout = 20*time.Millisecond, 20*time.Millisecond
		id := start(t, s, spec).ID
		var told atomic.Bool // by a Cancel that came after the end
		var cancels sync.WaitGroup
		for range 4 {
			cancels.Go(func() {
				if _, err := s.Cancel(doneContext(), id); err == nil {
					told.Store(true)
				}
			})
		}
		cancels.Wait()
		endOf(t, s, id)
		notices := s.Drain()
		if told.Load() {
			require.Empty(t, notices)
		} else {
			require.Equal(t, []string{id}, noticeIDs(notices))
		}
		collect(t, s, id)
		require.Nil(t, s.Drain())
	}
}

func TestAConsumerThatIsSlowStallsNoJob(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	consume, hands := inHand()
	deliver(t, s, consume)
	first := start(t, s, bash("true")).ID
	slow := <-hands
	require.Equal(t, []string{first}, slow.ids)
	id := start(t, s, bash("head -c 10000000 /dev/zero; echo; echo end")).ID
	snap := endOf(t, s, id)
	require.Equal(t, "completed, exit 0", snap.Outcome())
	require.EqualValues(t, 10_000_005, snap.OutputTotal)
	slow.settle <- nil
	next := <-hands
	require.Equal(t, []string{id}, next.ids)
	next.settle <- nil
}

// A reader that never reads on holds up neither its job nor another.
func TestAReaderThatStopsReadingStallsNoJob(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	g := newGate(t)
	loud := start(t, s, g.gated(`echo begun; read -r _ <"$GATE"; head -c 10000000 /dev/zero`)).ID
	awaitOutput(t, s, loud, "begun")
	_, err := s.Output(loud, 0, 2) // and no more
	require.NoError(t, err)
	g.open(t)
	require.Equal(t, "quiet\n", string(runScript(t, s, "echo quiet").Output.Bytes()))
	require.EqualValues(t, 10_000_006, collect(t, s, loud).OutputTotal)
}

func TestTheEndOfWorkElsewhereIsToldLikeThatOfAProcess(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	remote := make(chan error) // what another host answers
	id := start(t, s, function(func(ctx context.Context, out io.Writer) (any, error) {
		io.WriteString(out, "working\n")
		select {
		case err := <-remote:
			return "built", err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})).ID
	awaitOutput(t, s, id, "working")
	require.Empty(t, s.Ready())
	remote <- nil
	<-s.Ready()
	requireOneEnd(t, s, id)
	require.Equal(t, `"built"`, string(collect(t, s, id).File.JSON()))
}

func TestADemotedRunIsTheBusinessOfATurnEnd(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	r := demote(t, s, gated(nil, ""))
	requireOpen(t, s.TurnEnd(testContext(t)), jobs.TurnInject, 1, []string{r.ID}, nil)
}

// Bounds.

func TestTenMegabytesOfOutputFitOneAnswer(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	tools := s.Toolset(jobs.ToolsetOptions{})
	id := start(t, s, bash("yes 0123456789 | head -c 10000000; echo; echo end")).ID
	endOf(t, s, id)
	for _, verb := range []string{"job__check", "job__collect"} {
		r := ask(t, tools, verb, idArgs(id, `"tail_lines":1000000`))
		require.LessOrEqual(t, len(r.text), answerBytes)
		require.True(t, strings.HasSuffix(r.tail(), "end\n"), "%s ends with %q", verb, r.tail()[max(0, len(r.tail())-100):])
		require.EqualValues(t, 10_000_005, *r.Captured)
		require.True(t, r.TailTruncated)
	}
}

func TestOfAHundredStartsAtOnceFiftyRunAndAnEndedOneFreesItsSlot(t *testing.T) {
	const limit, calls = 50, 100
	s := newSupervisor(t, jobs.Config{MaxRunning: limit})
	started := make([]string, calls)
	inParallel(calls, calls, func(i int) {
		snap, err := s.Start(context.Background(), jobs.Spec{Argv: []string{"sleep", "300"}})
		if err != nil {
			assert.ErrorIs(t, err, jobs.ErrAtCapacity)
		}
		started[i] = snap.ID
	})
	require.Len(t, s.List().Jobs, limit)
	require.Len(t, children(), limit)
	victim := s.List().Jobs[0]
	require.NoError(t, unix.Kill(victim.PID, unix.SIGKILL))
	endOf(t, s, victim.ID) // and nobody collects it
	start(t, s, jobs.Spec{Argv: []string{"sleep", "300"}})
	require.Equal(t, limit, s.List().Running)
}

func TestWhateverComesAfterTheExitSaysHowTheJobEnded(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	spec := bash("exit 3")
	spec.Input = true
	id := start(t, s, spec).ID
	endOf(t, s, id)
	_, err := s.Input(id)
	require.Equal(t, "failed, exit 3", requireJobError(t, err, jobs.ErrEnded, id).Job.Outcome())
	require.Equal(t, "failed, exit 3", cancel(t, s, id).Outcome())
	require.Equal(t, "failed, exit 3", firstOf(waitOn(t, s, jobs.WaitSpec{IDs: []string{id}})).Outcome())
	require.Equal(t, "failed, exit 3", collect(t, s, id).Outcome())
}

func TestAJobIsReadWhileItPrints(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	tools := s.Toolset(jobs.ToolsetOptions{Wait: time.Millisecond})
	id := start(t, s, bash("seq 1 200000")).ID
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				out, isError := tools.Call(context.Background(), "job__check", json.RawMessage(idArgs(id)))
				r, fault := readReply("", out, isError)
				if !assert.Empty(t, fault) || r.Status != "running" {
					return
				}
				_, err := s.Output(id, -4096, 0)
				assert.NoError(t, err)
			}
		})
	}
	readers.Wait()
	require.True(t, strings.HasSuffix(string(collect(t, s, id).Output.Bytes()), "\n200000\n"))
}
