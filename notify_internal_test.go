package jobs

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A fakeWork is the work of a job that breaks where a test wants it to.
type fakeWork struct {
	atHand
	onFollow, onSettle, onStop, onRelease func()
	end                                   ending
}

func (w *fakeWork) follow(*job)              { call(w.onFollow) }
func (w *fakeWork) settle(*job, bool) ending { call(w.onSettle); return w.end }
func (w *fakeWork) stop(*job) ([]Process, bool, error) {
	call(w.onStop)
	return nil, false, nil
}
func (w *fakeWork) release(*job)   { call(w.onRelease) }
func (w *fakeWork) finished() bool { return false }
func (w *fakeWork) pid() int       { return 0 }

func (w *fakeWork) unread() time.Duration { return 0 }

func call(f func()) {
	if f != nil {
		f()
	}
}

// startWork starts a job that consists of w.
func startWork(t *testing.T, s *Supervisor, w work) *job {
	t.Helper()
	id, err := s.admit()
	require.NoError(t, err)
	j := newJob(s, id, Spec{Tool: "fake", Timeout: -1})
	j.work = w
	require.NoError(t, s.register(j))
	return j
}

func newFakeSupervisor(t *testing.T) *Supervisor {
	t.Helper()
	s, err := New(Config{MaxRunning: 1, KillGrace: 10 * time.Millisecond})
	require.NoError(t, err)
	return s
}

// soon bounds a wait that does not come to an end where the package is broken.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// requireOneNotice fails unless the job's end has come and is told by exactly
// one notice, and its slot is free.
func requireOneNotice(t *testing.T, s *Supervisor, j *job) Notice {
	t.Helper()
	require.True(t, closedBefore(soon(t), j.done), "the job has not ended")
	settled := func() bool { return s.List().Running == 0 }
	for ctx := soon(t); !settled() && ctx.Err() == nil; {
		time.Sleep(time.Millisecond)
	}
	require.Zero(t, s.List().Running, "the slot is not free, or was freed twice")
	notices := s.Drain()
	require.Len(t, notices, 1)
	require.Equal(t, j.id, notices[0].ID)
	require.Nil(t, s.Drain())

	// The slot can be had again, once.
	another := startWork(t, s, &fakeWork{})
	_, err := s.Collect(soon(t), another.id)
	require.NoError(t, err)
	return notices[0]
}

func TestAPanicInsideThePackageHasOneNoticeAndFreesTheSlot(t *testing.T) {
	boom := func() { panic("boom") }
	for name, w := range map[string]*fakeWork{
		"follow": {onFollow: boom},
		"settle": {onSettle: boom},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFakeSupervisor(t)
			j := startWork(t, s, w)
			n := requireOneNotice(t, s, j)
			require.Equal(t, "job_failed", n.Event)
			require.Equal(t, ReasonInternal, n.Reason)
			r, err := s.Collect(soon(t), j.id)
			require.NoError(t, err)
			require.EqualError(t, r.Err, "panic: boom")
		})
	}
}

func TestAPanicInReleaseFreesTheSlotOnce(t *testing.T) {
	s := newFakeSupervisor(t)
	released := make(chan struct{})
	j := startWork(t, s, &fakeWork{onRelease: func() {
		defer close(released)
		panic("boom")
	}})
	<-released
	n := requireOneNotice(t, s, j)
	require.Equal(t, "job_completed", n.Event, "the end had been told")
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Zero(t, s.reg.slots)
}

// A stop that breaks leaves the work alone: callers must still be released,
// and the slot becomes free once the work ends by itself.
func TestAPanicInStopReleasesTheCallers(t *testing.T) {
	s := newFakeSupervisor(t)
	let := make(chan struct{})
	letGo := sync.OnceFunc(func() { close(let) })
	t.Cleanup(letGo)
	j := startWork(t, s, &fakeWork{
		onFollow: func() { <-let },
		onStop:   func() { panic("boom") },
	})
	j.requestStop(ReasonCancelled)
	<-j.settled
	ended := closedBefore(soon(t), j.done)
	letGo()
	require.True(t, ended, "nobody stops the job any more, and its callers wait for it")
	requireOneNotice(t, s, j)
	require.Contains(t, j.end.err.Error(), "boom")
}

func TestAPanicInStopOfWorkThatEndsHasOneNotice(t *testing.T) {
	s := newFakeSupervisor(t)
	let := make(chan struct{})
	j := startWork(t, s, &fakeWork{
		onFollow: func() { <-let },
		onStop: func() {
			close(let)
			panic("boom")
		},
	})
	j.requestStop(ReasonCancelled)
	requireOneNotice(t, s, j)
	require.Contains(t, j.end.err.Error(), "boom")
}

// What a panic leaves running must not run on unseen, and what the work held
// must be given back: a process job has strays to kill, a leader to reap and
// descriptors to close.
func TestAPanicLeavesNoWorkRunningAndNothingHeld(t *testing.T) {
	boom := func() { panic("boom") }
	for name, w := range map[string]*fakeWork{
		"follow": {onFollow: boom},
		"settle": {onSettle: boom},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFakeSupervisor(t)
			stopped, released := make(chan struct{}), make(chan struct{})
			w.onStop = func() { close(stopped) }
			w.onRelease = func() { close(released) }
			j := startWork(t, s, w)
			require.True(t, closedBefore(soon(t), j.done))
			wait, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			assert.True(t, closedBefore(wait, stopped), "told as ended while something of it may still run")
			assert.True(t, closedBefore(wait, released), "what it held is never given back")
		})
	}
}

// Nothing may be lost because an answer is too long: the result is handed out
// once.
func TestManyLeftoversDoNotCostTheResult(t *testing.T) {
	s := newFakeSupervisor(t)
	e := ending{resultFile: ResultFile{Data: []byte("42"), Size: 2}}
	for pid := range 10_000 {
		e.leftovers = append(e.leftovers, Process{PID: 1_000_000 + pid, Name: "sleep"})
	}
	j := startWork(t, s, &fakeWork{end: e})
	require.True(t, closedBefore(soon(t), j.done))
	tools := s.Toolset(ToolsetOptions{})
	for _, verb := range []string{toolCheck, toolCancel, toolCollect} {
		out, isError := tools.Call(soon(t), verb, json.RawMessage(`{"id":"`+j.id+`"}`))
		require.LessOrEqual(t, len(out), answerLimit)
		var a struct {
			Status, Message string
			Result          json.RawMessage
		}
		require.NoError(t, json.Unmarshal(out, &a))
		require.Equal(t, "completed", a.Status, "%s: %s", verb, a.Message)
		require.False(t, isError)
		if verb == toolCollect {
			require.Equal(t, "42", string(a.Result))
		}
	}
}

func TestTenThousandJobsAreListedWithinTheBound(t *testing.T) {
	const n = 10_000
	s, err := New(Config{MaxRunning: n})
	require.NoError(t, err)
	for range n {
		id, err := s.admit()
		require.NoError(t, err)
		j := newJob(s, id, Spec{Tool: strings.Repeat("x", 20)})
		j.work = &fakeWork{}
		s.mu.Lock()
		s.reg.add(j)
		s.mu.Unlock()
	}
	out, isError := s.Toolset(ToolsetOptions{}).Call(soon(t), toolList, nil)
	require.False(t, isError)
	require.LessOrEqual(t, len(out), answerLimit)
	var a struct {
		Active int `json:"active_jobs"`
		Jobs   []jobLine
		Hint   string
	}
	require.NoError(t, json.Unmarshal(out, &a))
	require.Equal(t, n, a.Active)
	require.Greater(t, len(a.Jobs), 200)
	require.NotEmpty(t, a.Hint, "a list that is not whole must say so")
}
