package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestProcessesThatEndAtOnceAreToldOnceEach(t *testing.T) {
	const n = 64
	s := newSupervisor(t, jobs.Config{MaxRunning: n})
	barrier := newGate(t)
	var all []string
	for range n {
		all = append(all, start(t, s, barrier.gated(`echo ready; read -r _ <"$GATE"`)).ID)
	}
	for _, id := range all {
		awaitOutput(t, s, id, "ready")
	}
	book := &ledger{told: make(map[string][]string)}
	var busy sync.Once
	deliver(t, s, func(_ context.Context, notices []jobs.Notice) (err error) {
		busy.Do(func() { err = errBusy })
		if err == nil {
			book.tell("consumer", noticeIDs(notices)...)
		}
		return err
	})
	_, err := barrier.fifo.WriteString(strings.Repeat("\n", n))
	require.NoError(t, err)
	require.True(t, eventually(func() bool { return book.len() == n }), "%d told", book.len())
	require.Nil(t, s.Drain())
	book.requireEachOnce(t, all)
}

// A usage is what a host has in use.
type usage struct {
	heap                    int64
	goroutines, descriptors int
}

func usageNow() usage { return usage{heapInUse(), runtime.NumGoroutine(), descriptors()} }

func TestThousandsOfJobsThroughOneSupervisorAreToldOnceAndLeaveNothing(t *testing.T) {
	const places = 64
	s := newSupervisor(t, jobs.Config{MaxRunning: places})
	book := &ledger{told: make(map[string][]string)}
	untold := make(chan struct{}, 500) // far from what the queue drops
	deliver(t, s, func(_ context.Context, notices []jobs.Notice) error {
		for _, n := range notices {
			if !assert.NotEqual(t, jobs.EventDropped, n.Event) {
				continue
			}
			book.tell("consumer", n.ID)
			<-untold
		}
		return nil
	})
	var mu sync.Mutex // guards all
	var all []string
	// pass runs n jobs and waits until each has been told.
	pass := func(n int, spec jobs.Spec) {
		inParallel(n, 8, func(int) {
			untold <- struct{}{}
			var snap jobs.Snapshot
			assert.True(t, eventually(func() (started bool) {
				var err error
				snap, err = s.Start(context.Background(), spec)
				return !errors.Is(err, jobs.ErrAtCapacity) && assert.NoError(t, err)
			}))
			mu.Lock()
			defer mu.Unlock()
			all = append(all, snap.ID)
		})
		require.True(t, eventually(func() bool { return len(untold) == 0 }), "%d are not told", len(untold))
		book.requireEachOnce(t, all)
		book.told, all = make(map[string][]string), nil
	}
	process := jobs.Spec{Argv: []string{"true"}}
	pass(2*places, process) // what is made once, and what is remembered
	pass(2*places, returning(1))
	before := usageNow()
	pass(many(10_000), returning(1))
	pass(many(1000), process)
	pass(2*places, returning(1))
	var after usage
	require.True(t, eventually(func() bool {
		after = usageNow()
		return after.heap <= before.heap+1<<20 && after.goroutines <= before.goroutines && after.descriptors <= before.descriptors
	}), "before %+v, after %+v", before, after)
	require.Zero(t, s.List().Running)
	require.Empty(t, children())
}

// An anvil is a few jobs that many goroutines hammer on.
type anvil struct {
	t         *testing.T
	s         *jobs.Supervisor
	mu        sync.Mutex // guards the fields below
	known     []string
	ends      map[string]jobs.Snapshot
	handedOut map[string]int
}

// pick returns one of the last few ids, noJob if there is none.
func (a *anvil) pick() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.known) == 0 {
		return noJob
	}
	return a.known[max(0, len(a.known)-1-rand.IntN(10))]
}

func (a *anvil) add(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known = append(a.known, id)
}

// A hammer is one goroutine that does what it likes.
type hammer struct {
	*anvil
	witness
}

// see checks a Snapshot against what this goroutine, and any other, has seen.
func (h *hammer) see(snaps ...jobs.Snapshot) {
	for _, snap := range snaps {
		if snap.ID == "" {
			continue
		}
		h.witness.see(snap)
		if !snap.Ended() {
			continue
		}
		h.mu.Lock()
		first, ok := h.ends[snap.ID]
		if !ok {
			h.ends[snap.ID] = snap
		}
		h.mu.Unlock()
		if ok {
			assert.Equal(h.anvil.t, lasting(first), lasting(snap), "two ends of one job")
		}
	}
}

// expect fails unless err is nil or one that must be reckoned with, and looks
// at the Snapshot it carries.
func (h *hammer) expect(err error, also ...error) bool {
	if err == nil {
		return true
	}
	var je *jobs.JobError
	if errors.As(err, &je) && je.Job != nil {
		h.see(*je.Job)
	}
	for _, allowed := range append(also, jobs.ErrExpired, jobs.ErrNotFound) {
		if errors.Is(err, allowed) {
			return false
		}
	}
	assert.NoError(h.anvil.t, err)
	return false
}

func (h *hammer) spec() jobs.Spec {
	var spec jobs.Spec
	switch rand.IntN(8) {
	case 0:
		spec = jobs.Spec{Argv: []string{"true"}}
	case 1:
		spec = bash("echo a; sleep 0.01; echo line b; exit 3")
	case 2:
		spec = bash("trap '' TERM; while :; do echo line; sleep 0.01; done")
	case 3:
		spec = jobs.Spec{Argv: []string{"cat"}, Input: true}
	case 4:
		spec = jobs.Spec{Argv: []string{"sleep", "300"}, Timeout: 30 * time.Millisecond}
	case 5:
		spec = gated(nil, "line of a function\n")
	case 6:
		spec = returning(1)
	default:
		spec = jobs.Spec{Func: func(context.Context, io.Writer) (any, error) { panic("boom") }}
	}
	if rand.IntN(2) == 0 {
		spec.Key = fmt.Sprint("key ", rand.IntN(3))
	}
	spec.OnOwnerEnd = []jobs.OwnerEnd{jobs.KillWithOwner, jobs.HandUp}[rand.IntN(2)]
	return spec
}

var anyLine = regexp.MustCompile("line")

// strike calls one verb.
func (h *hammer) strike(ctx context.Context) {
	t, s, id := h.anvil.t, h.s, h.pick()
	switch rand.IntN(21) {
	case 0, 1:
		if snap, err := s.Start(context.Background(), h.spec()); h.expect(err, jobs.ErrAtCapacity) {
			h.see(snap)
			h.add(snap.ID)
		}
	case 2:
		r, err := s.Run(ctx, h.spec(), []time.Duration{0, time.Millisecond, 10 * time.Millisecond, jobs.NoDetach}[rand.IntN(4)])
		h.expect(err, jobs.ErrAtCapacity, context.DeadlineExceeded, jobs.ErrCollected)
		h.see(r.Snapshot)
		if r.ID != "" {
			h.add(r.ID)
		}
	case 3, 4:
		snap, err := s.Check(id)
		h.expect(err)
		h.see(snap)
	case 5:
		c, err := s.Output(id, int64(rand.IntN(100)), 100)
		if h.expect(err, jobs.ErrCollected) {
			assert.Equal(t, c.From+int64(len(c.Data)), c.Next)
		}
	case 6:
		list := s.List()
		assert.LessOrEqual(t, list.Running, list.MaxRunning)
		h.see(list.Jobs...)
	case 7:
		r, err := s.Collect(ctx, id)
		h.see(r.Snapshot)
		if h.expect(err, jobs.ErrCollected, jobs.ErrPending, context.DeadlineExceeded) {
			h.mu.Lock()
			h.handedOut[id]++
			h.mu.Unlock()
		}
	case 8:
		r, err := s.Cancel(ctx, id)
		h.expect(err, jobs.ErrCollected, context.DeadlineExceeded)
		h.see(r.Snapshot)
	case 9, 10:
		spec := jobs.WaitSpec{IDs: []string{id, h.pick()}, All: rand.IntN(2) == 0, Timeout: time.Millisecond}
		if rand.IntN(2) == 0 {
			spec.Pattern = anyLine
		}
		r, err := s.Wait(ctx, spec)
		h.expect(err, jobs.ErrPending, context.DeadlineExceeded)
		h.see(r.Jobs...)
	case 11:
		stop, err := s.Watch(id, jobs.WatchSpec{Pattern: anyLine})
		if h.expect(err, jobs.ErrEnded) && rand.IntN(2) == 0 {
			stop()
			stop()
		}
	case 12:
		in, err := s.Input(id)
		if !h.expect(err, jobs.ErrEnded, jobs.ErrNoInput) {
			break
		}
		_, err = in.Write([]byte("line of input\n"))
		h.expect(err, jobs.ErrEnded, os.ErrClosed)
		if rand.IntN(3) == 0 {
			in.Close()
		}
	case 13:
		if rand.IntN(4) == 0 {
			h.see(s.Reap(ctx, id, h.pick())...)
		}
	case 14:
		rem := s.TurnEndOf(ctx, id, h.pick())
		h.see(rem.Running...)
		h.see(rem.Uncollected...)
		h.see(rem.Discarded...)
		assert.LessOrEqual(t, rem.Strike, 3)
	case 15:
		s.SetPending([]string{"", "", "somebody asks"}[rand.IntN(3)])
	case 16:
		err := s.Deliver(ctx, func(context.Context, []jobs.Notice) error {
			switch rand.IntN(3) {
			case 0:
				return errBusy
			case 1:
				panic("boom")
			}
			return nil
		})
		h.expect(err, context.DeadlineExceeded)
	case 17:
		for _, n := range s.Drain() {
			assert.NotEmpty(t, n.Event)
		}
	case 18:
		child, err := s.Child(jobs.ChildConfig{MaxRunning: 2})
		if !h.expect(err) {
			break
		}
		var begun []string
		for range rand.IntN(3) {
			if snap, err := child.Start(ctx, h.spec()); h.expect(err, jobs.ErrAtCapacity, context.DeadlineExceeded) {
				h.see(snap)
				begun = append(begun, snap.ID)
			}
		}
		report, err := child.Close(ctx)
		h.expect(err, context.DeadlineExceeded)
		h.see(report.Stopped...)
		h.see(report.Uncollected...)
		h.see(report.HandedUp...)
		for _, snap := range report.HandedUp {
			assert.Contains(t, begun, snap.ID)
			h.add(snap.ID)
		}
	case 19:
		assert.NotEmpty(t, jobs.Texts{}.State(s.List()))
	case 20:
		out, isError := funcs{}.toolset(s, jobs.ToolsetOptions{Wait: time.Millisecond}).Call(ctx, "job__collect", []byte(idArgs(id)))
		r, fault := readReply("", out, isError)
		assert.Empty(t, fault)
		if r.Result != nil {
			h.mu.Lock()
			h.handedOut[id]++
			h.mu.Unlock()
		}
	}
}

func TestAllVerbsTogetherOnlyEverSeeJobsMoveForward(t *testing.T) {
	length := 10 * time.Second
	if testing.Short() {
		length = 2 * time.Second
	}
	a := &anvil{
		t:         t,
		s:         newSupervisor(t, jobs.Config{MaxRunning: 8, MaxRetained: 1 << 20, KillGrace: 20 * time.Millisecond}),
		ends:      make(map[string]jobs.Snapshot),
		handedOut: make(map[string]int),
	}
	mark := freshMark()
	t.Setenv(strings.Split(mark, "=")[0], strings.Split(mark, "=")[1])
	over := time.Now().Add(length)
	var hammers sync.WaitGroup
	for range 16 {
		hammers.Go(func() {
			h := &hammer{a, witness{t: t, last: make(map[string]jobs.Snapshot)}}
			for !t.Failed() && time.Now().Before(over) {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+rand.IntN(30))*time.Millisecond)
				h.strike(ctx)
				cancel()
			}
		})
	}
	finished := make(chan struct{})
	go func() {
		hammers.Wait()
		close(finished)
	}()
	select {
	case <-finished:
	case <-time.After(length + 2*patience):
		stacks := make([]byte, 1<<20)
		t.Fatalf("they wait for each other:\n%s", stacks[:runtime.Stack(stacks, true)])
	}
	a.s.SetPending("")
	_, err := a.s.Close(testContext(t))
	require.NoError(t, err)
	for _, id := range a.known {
		snap, err := a.s.Check(id)
		if err != nil {
			require.True(t, errors.Is(err, jobs.ErrExpired) || errors.Is(err, jobs.ErrForeign), "%v", err) // of a child once
			continue
		}
		require.True(t, snap.Ended(), "%s is %s", id, snap.State)
	}
	for id, times := range a.handedOut {
		require.Equal(t, 1, times, "results handed out of %s", id)
	}
	require.NotEmpty(t, a.handedOut)
	require.Empty(t, marked(mark))
	require.Empty(t, children())
}
