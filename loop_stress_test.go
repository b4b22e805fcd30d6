package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A ledger counts how often each end was told, and by what.
type ledger struct {
	mu   sync.Mutex // guards told
	told map[string][]string
}

func (l *ledger) tell(by string, ids ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		l.told[id] = append(l.told[id], by)
	}
}

func (l *ledger) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.told)
}

// requireEachOnce fails unless exactly these ends were told, each once.
func (l *ledger) requireEachOnce(t testing.TB, all []string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range all {
		require.Len(t, l.told[id], 1, "%s was told by %v", id, l.told[id])
	}
	require.Len(t, l.told, len(all), "ends were told that nobody asked for")
}

// A moody consumer takes what it is given, or not, as chance has it.
type moodyConsumer struct {
	t      *testing.T
	s      *jobs.Supervisor
	book   *ledger
	mu     sync.Mutex // guards random
	random *rand.Rand
	atWork atomic.Int32
	moods  [7]atomic.Int32 // how often each came
}

// chance returns a number below n.
func (m *moodyConsumer) chance(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.random.IntN(n)
}

func (m *moodyConsumer) consume(stop context.CancelFunc, notices []jobs.Notice) error {
	assert.EqualValues(m.t, 1, m.atWork.Add(1), "two consumers at work")
	defer m.atWork.Add(-1)
	given := noticeIDs(notices)
	for range m.chance(3) {
		time.Sleep(time.Duration(m.chance(300)) * time.Millisecond)
	}
	mood := m.chance(len(m.moods))
	m.moods[mood].Add(1)
	switch mood {
	case 0:
		return errBusy
	case 1:
		panic("boom")
	case 2:
		runtime.Goexit()
	case 3:
		stop()
		return context.Canceled
	case 4:
		stop() // takes them all the same
	case 5:
		// An answer tells one of them, so it must not be offered again.
		if id := given[m.chance(len(given))]; m.collect(id) {
			m.book.tell("answer in hand", id)
		}
		return errBusy
	}
	m.book.tell("consumer", given...)
	return nil
}

// collect reports whether it was the one to get the result.
func (m *moodyConsumer) collect(id string) bool {
	_, err := m.s.Collect(context.Background(), id)
	return err == nil
}

// keepDelivering starts a Deliver again and again until over is closed.
func (m *moodyConsumer) keepDelivering(over <-chan struct{}) {
	for {
		ctx, stop := context.WithCancel(context.Background())
		returned := make(chan struct{})
		go func() {
			defer close(returned)
			m.s.Deliver(ctx, func(_ context.Context, notices []jobs.Notice) error { return m.consume(stop, notices) })
		}()
		select {
		case <-returned:
			stop()
		case <-over:
			stop()
			<-returned
			return
		}
	}
}

// end starts a job, lets it end, and tells the end if an answer does.
func (m *moodyConsumer) end(ctx context.Context) (id string) {
	gate := make(chan struct{})
	for {
		snap, err := m.s.Start(ctx, gated(gate, ""))
		if err == nil {
			id = snap.ID
			break
		}
		assert.ErrorIs(m.t, err, jobs.ErrAtCapacity)
		time.Sleep(100 * time.Millisecond)
	}
	time.Sleep(time.Duration(m.chance(3000)) * time.Millisecond)
	answered := make(chan bool)
	announced := newWatchedContext(ctx)
	switch m.chance(8) {
	case 0, 1: // waits before the end comes, so that the answer tells it
		go func() {
			_, err := m.s.Collect(announced, id)
			answered <- err == nil
		}()
		<-announced.waiting
		close(gate)
	case 2:
		go func() {
			_, err := m.s.Wait(announced, jobs.WaitSpec{IDs: []string{id}})
			answered <- err == nil
		}()
		<-announced.waiting
		close(gate)
	case 3:
		go func() {
			r, err := m.s.Cancel(ctx, id)
			answered <- err == nil && r.State == jobs.Cancelled
		}()
	case 4: // gives up as the end comes
		go func() {
			_, err := m.s.Collect(announced, id)
			answered <- err == nil
		}()
		<-announced.waiting
		go announced.cancel()
		close(gate)
	default:
		close(gate)
		return id
	}
	if <-answered {
		m.book.tell("answer", id)
	}
	return id
}

func TestEveryEndIsToldOnceWhateverItsConsumersDo(t *testing.T) {
	const ends, starters = 1000, 80
	seeds := uint64(5)
	if testing.Short() {
		seeds = 2
	}
	var moods [7]int32
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSupervisor(t, jobs.Config{MaxRunning: 64, MaxRetained: 10 * ends})
				m := &moodyConsumer{t: t, s: s, book: &ledger{told: make(map[string][]string)}, random: rand.New(rand.NewPCG(seed, 3))}
				ctx := context.Background()
				var all []string
				var mu sync.Mutex // guards all
				var starting, telling sync.WaitGroup
				for range starters {
					starting.Go(func() {
						for {
							mu.Lock()
							if len(all) >= ends {
								mu.Unlock()
								return
							}
							i := len(all)
							all = append(all, "")
							mu.Unlock()
							id := m.end(ctx)
							mu.Lock()
							all[i] = id
							mu.Unlock()
						}
					})
				}
				over := make(chan struct{})
				for range 2 {
					telling.Go(func() { m.keepDelivering(over) })
				}
				tools := funcs{}.toolset(s, jobs.ToolsetOptions{})
				telling.Go(func() {
					for {
						select {
						case <-over:
							return
						case <-time.After(time.Duration(m.chance(700)) * time.Millisecond):
						}
						if m.chance(2) == 0 {
							m.book.tell("Drain", noticeIDs(s.Drain())...)
							continue
						}
						out, isError := tools.Call(ctx, "no tool", nil)
						r, fault := readReply("", out, isError)
						assert.Empty(t, fault)
						for _, n := range r.Notices {
							m.book.tell("tool answer", n.ID)
						}
					}
				})
				starting.Wait()
				for end := time.Now().Add(24 * time.Hour); m.book.len() < ends && time.Now().Before(end); {
					time.Sleep(time.Second)
				}
				time.Sleep(time.Minute)
				close(over)
				telling.Wait()
				require.Nil(t, s.Drain(), "somebody still waits to be told")
				require.Empty(t, s.Ready())
				m.book.requireEachOnce(t, all)
				for mood := range moods {
					moods[mood] += m.moods[mood].Load()
				}
			})
		})
	}
	require.NotContains(t, moods, int32(0), "not every mood came: %v", moods)
}

// A modelJob is what a test expects of a job.
type modelJob struct {
	id                         string
	gate                       chan struct{}
	state                      jobs.State
	told, collected, dismissed bool
}

// A model is what a test expects of a supervisor: a small one that is plainly
// right.
type model struct {
	t       testing.TB
	s       *jobs.Supervisor
	random  *rand.Rand
	max     int
	all     []*modelJob
	waiting []string // for a notice, oldest first
	history []string
}

func (m *model) note(format string, args ...any) {
	m.history = append(m.history, fmt.Sprintf(format, args...))
}

func (m *model) those(want func(*modelJob) bool) (picked []*modelJob) {
	for _, j := range m.all {
		if want(j) {
			picked = append(picked, j)
		}
	}
	return picked
}

func (m *model) running() []*modelJob {
	return m.those(func(j *modelJob) bool { return j.state == jobs.Running })
}

// tell takes an end out of those that wait for their notice.
func (m *model) tell(j *modelJob) {
	j.told = true
	m.waiting = slices.DeleteFunc(m.waiting, func(id string) bool { return id == j.id })
}

func (m *model) start() {
	gate := make(chan struct{})
	snap, err := m.s.Start(context.Background(), gated(gate, "x"))
	if len(m.running()) == m.max {
		require.ErrorIs(m.t, err, jobs.ErrAtCapacity)
		return
	}
	require.NoError(m.t, err)
	require.Equal(m.t, jobs.Running, snap.State)
	m.all = append(m.all, &modelJob{id: snap.ID, gate: gate, state: jobs.Running})
}

func (m *model) end() {
	running := m.running()
	if len(running) == 0 {
		return
	}
	j := running[m.random.IntN(len(running))]
	close(j.gate)
	synctest.Wait()
	j.state = jobs.Completed
	m.waiting = append(m.waiting, j.id)
}

// answered checks what Collect or Cancel gave of an ended job.
func (m *model) answered(j *modelJob, r jobs.Result, err error) {
	if j.collected {
		je := requireJobError(m.t, err, jobs.ErrCollected, j.id)
		require.Equal(m.t, j.state, je.Job.State)
		return
	}
	require.NoError(m.t, err)
	require.Equal(m.t, j.state, r.State)
	require.Equal(m.t, "x", string(r.Output.Bytes()))
}

func (m *model) cancel(j *modelJob) {
	if j.state == jobs.Running {
		synctest.Wait() // so that it has printed
		j.state = jobs.Cancelled
	}
	r, err := m.s.Cancel(context.Background(), j.id)
	m.answered(j, r, err)
	j.dismissed = j.dismissed || j.state == jobs.Cancelled
	m.tell(j)
}

func (m *model) collect(j *modelJob) {
	r, err := m.s.Collect(doneContext(), j.id)
	if j.state == jobs.Running {
		require.ErrorIs(m.t, err, context.Canceled)
		require.Equal(m.t, jobs.Running, r.State)
		return
	}
	m.answered(j, r, err)
	j.collected = true
	m.tell(j)
}

// requireWaiting fails unless exactly what waits was given.
func (m *model) requireWaiting(given []string) {
	require.Equal(m.t, append([]string{}, m.waiting...), append([]string{}, given...))
}

func (m *model) drain() {
	m.requireWaiting(noticeIDs(m.s.Drain()))
	m.waiting = nil
}

// deliver hands over what waits, to a consumer that takes it or not.
func (m *model) deliver() {
	takes := m.random.IntN(2) == 0
	ctx, stop := context.WithTimeout(context.Background(), time.Second)
	defer stop()
	var given []string
	m.s.Deliver(ctx, func(_ context.Context, notices []jobs.Notice) error {
		given = noticeIDs(notices)
		require.Empty(m.t, m.s.Ready())
		stop()
		if takes {
			return nil
		}
		return errBusy
	})
	m.requireWaiting(given)
	if takes {
		m.waiting = nil
	}
}

// reap forgets a job.
func (m *model) reap(j *modelJob) {
	reaped := m.s.Reap(context.Background(), j.id)
	if j.collected {
		require.Empty(m.t, reaped)
		return
	}
	require.Equal(m.t, []string{j.id}, ids(reaped))
	m.tell(j)
	_, err := m.s.Check(j.id)
	require.ErrorIs(m.t, err, jobs.ErrExpired)
	m.all = slices.DeleteFunc(m.all, func(other *modelJob) bool { return other == j })
}

func (m *model) check() {
	var open []string
	for _, j := range m.all {
		snap, err := m.s.Check(j.id)
		require.NoError(m.t, err)
		require.Equal(m.t, j.state, snap.State)
		require.Equal(m.t, j.collected, snap.Collected)
		if !j.collected && !j.dismissed {
			open = append(open, j.id)
		}
	}
	list := m.s.List()
	require.Equal(m.t, len(m.running()), list.Running)
	require.Equal(m.t, append([]string{}, open...), ids(list.Jobs))
	require.Equal(m.t, len(m.waiting) > 0, len(m.s.Ready()) == 1, "Ready")
}

// step does one thing, and looks at all there is to see.
func (m *model) step() {
	verb := m.random.IntN(12)
	var j *modelJob
	if len(m.all) > 0 {
		j = m.all[m.random.IntN(len(m.all))]
		m.note("%d of %s %s", verb, j.id, j.state)
	}
	switch {
	case verb < 3 || j == nil:
		m.start()
	case verb < 6:
		m.end()
	case verb == 6:
		m.cancel(j)
	case verb < 9:
		m.collect(j)
	case verb == 9:
		m.drain()
	case verb == 10:
		m.deliver()
	default:
		m.reap(j)
	}
	m.check()
}

func TestAnyOrderOfEventsAgreesWithAModel(t *testing.T) {
	seeds := uint64(40)
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			m := &model{t: t, s: newSupervisor(t, jobs.Config{MaxRunning: 4, MaxRetained: 1000}), random: rand.New(rand.NewPCG(seed, 4)), max: 4}
			defer func() {
				if t.Failed() {
					t.Logf("seed %d: %s", seed, strings.Join(m.history, ", "))
				}
			}()
			for range 150 {
				m.step()
			}
			report, err := m.s.Close(context.Background())
			require.NoError(t, err)
			require.Len(t, report.Stopped, len(m.running()))
			require.Nil(t, m.s.Drain(), "the report tells the rest")
		})
		if t.Failed() {
			return
		}
	}
}

// One that gives up on a job while a consumer fails with its notice, over and
// over: whoever comes last must find the end untold.
func TestAnEndThatNobodyCouldBeToldOfIsOfferedToTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSupervisor(t, jobs.Config{})
		gate := make(chan struct{})
		id := start(t, s, gated(gate, "")).ID
		ctx, cancelWait := context.WithCancel(context.Background())
		gaveUp := make(chan error)
		go func() {
			_, err := s.Collect(ctx, id)
			gaveUp <- err
		}()
		synctest.Wait()
		cancelWait()
		require.ErrorIs(t, <-gaveUp, context.Canceled)
		close(gate)
		for range 5 {
			ctx, stop := context.WithCancel(context.Background())
			err := s.Deliver(ctx, func(_ context.Context, notices []jobs.Notice) error {
				stop()
				assert.Equal(t, []string{id}, noticeIDs(notices))
				return errors.New("not now")
			})
			require.ErrorIs(t, err, context.Canceled)
		}
		require.Equal(t, []string{id}, noticeIDs(s.Drain()))
	})
}
