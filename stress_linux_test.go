//go:build linux

package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// many returns n, or less in a short run.
func many(n int) int {
	if testing.Short() {
		return n / 10
	}
	return n
}

// inParallel calls f with 0 to n-1, width calls at a time.
func inParallel(n, width int, f func(i int)) {
	next := make(chan int)
	var workers sync.WaitGroup
	for range width {
		workers.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
}

// shared is how many descriptors all jobs of a supervisor share: the null
// device, /proc/loadavg, and what tells of exits.
const shared = 3

// settles waits until this process has no more descriptors than open and the
// shared ones: those of a job are closed right after its end is told.
func settles(open int) bool {
	return eventually(func() bool { return descriptors() <= open+shared })
}

// heapInUse returns the bytes of the heap after a collection.
func heapInUse() int64 {
	runtime.GC()
	runtime.GC() // what had a finalizer
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse)
}

func init() {
	// Runs JOBS_TEST_COUNT jobs, 64 at a time, of which each leaves a sleep
	// behind, and prints how many threads that took.
	helpers["jobs that leave a sleep"] = func() {
		watchdog()
		n, _ := strconv.Atoi(os.Getenv("JOBS_TEST_COUNT"))
		ctx := context.Background()
		s, err := jobs.New(jobs.Config{MaxRunning: 64})
		check(err == nil, "%v", err)
		var looking sync.Mutex
		run := func(i int) {
			spec := jobs.Spec{Argv: []string{"/bin/sh", "-c", fmt.Sprintf("sleep 300 >/dev/null 2>&1 & echo out %d; exit %d", i, i%7)}}
			if i%50 == 0 { // a held pipe makes the job drain
				spec.Argv[2] = strings.Replace(spec.Argv[2], ">/dev/null 2>&1", "", 1)
			}
			snap, err := s.Start(ctx, spec)
			check(err == nil, "start %d: %v", i, err)
			r, err := s.Collect(ctx, snap.ID)
			check(err == nil, "collect %d: %v", i, err)
			check(string(r.Output.Bytes()) == fmt.Sprintf("out %d\n", i), "job %d printed %q", i, r.Output.Bytes())
			check(r.ExitCode == i%7, "job %d: %s", i, r.Outcome())
			check(r.Survivors == nil && r.Err == nil, "job %d: survivors %v, %v", i, r.Survivors, r.Err)
			looking.Lock() // so as not to need a thread each
			defer looking.Unlock()
			for _, p := range r.Leftovers {
				check(!alive(p.PID), "job %d left %d %s alive", i, p.PID, p.Name)
			}
		}
		warmPoller()
		before := descriptors()
		inParallel(n, 64, run)
		check(settles(before), "%d descriptors, before %d", descriptors(), before)
		_, err = s.Close(ctx)
		check(err == nil, "%v", err)
		check(descriptors() == before, "%d descriptors, before %d", descriptors(), before)
		check(len(children()) == 0, "children %v", children())
		fmt.Println(threads()) // the runtime gives none back: this is the peak
	}

	// Keeps 300 jobs running that do nothing, then closes.
	helpers["idle jobs"] = func() {
		watchdog()
		const n = 300
		ctx := context.Background()
		warmPoller()
		open := descriptors()
		s, err := jobs.New(jobs.Config{MaxRunning: n})
		check(err == nil, "%v", err)
		sleep := jobs.Spec{Argv: []string{"sleep", "300"}}
		snap, err := s.Start(ctx, sleep) // what is made once does not count
		check(err == nil, "%v", err)
		_, err = s.Cancel(ctx, snap.ID)
		check(err == nil, "%v", err)
		heap := heapInUse()
		for i := range n {
			_, err := s.Start(ctx, sleep)
			check(err == nil, "start %d: %v", i, err)
		}
		_, err = s.Start(ctx, sleep)
		check(errors.Is(err, jobs.ErrAtCapacity), "one more: %v", err)
		grown, opened, peak := heapInUse()-heap, descriptors()-open, threads()
		check(grown < 4<<20, "%d idle jobs cost %d bytes of heap", n, grown)
		check(opened <= 2*n+shared, "%d idle jobs cost %d descriptors", n, opened)
		_, err = s.Close(ctx)
		check(err == nil, "%v", err)
		check(descriptors() == open, "%d descriptors, before %d", descriptors(), open)
		check(len(children()) == 0, "children %v", children())
		fmt.Println(peak)
	}
}

// watchdog ends a helper that hangs, with the stacks of all its goroutines.
func watchdog() {
	time.AfterFunc(4*patience, func() {
		debug.SetTraceback("all")
		panic("the helper hangs")
	})
}

// requireThreads fails if a helper printed that it needed more than most
// threads. Without pidfds each job has one of its own.
func requireThreads(t *testing.T, printed string, most int) {
	t.Helper()
	if jobs.PidfdWorks() {
		require.LessOrEqual(t, pids(t, printed)[0], most, "threads")
	}
}

func TestThousandsOfJobsThatLeaveProcessesAreAllCleanedUp(t *testing.T) {
	mark := freshMark()
	// On a busy machine threads are suspended amid their system calls, and the
	// runtime puts others in their place. The best of three runs is what the
	// jobs need; a thread for each would be 64 and more in all of them.
	var printed string
	for range 3 {
		printed = runHelper(t, "jobs that leave a sleep", mark, fmt.Sprint("JOBS_TEST_COUNT=", many(2000)))
		require.Empty(t, marked(mark))
		if !jobs.PidfdWorks() || pids(t, printed)[0] <= 16 {
			break
		}
	}
	requireThreads(t, printed, 16)
}

func TestIdleJobsCostNoThreadAndNoBuffer(t *testing.T) {
	mark := freshMark()
	requireThreads(t, runHelper(t, "idle jobs", mark), 16)
	require.Empty(t, marked(mark))
}

func TestOneSlotIsEnoughForAThousandProcessesInTurn(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 1})
	ctx := testContext(t)
	for range many(1000) {
		snap, err := s.Start(ctx, jobs.Spec{Argv: []string{"true"}})
		require.NoError(t, err)
		_, err = s.Collect(ctx, snap.ID)
		require.NoError(t, err)
	}
	require.Empty(t, children(), "zombies")
}

// With one processor, kept busy, a short job is over and the poller has seen it
// before the goroutines that wait for its exit and its output have run at all.
func TestAnExitThatNobodyWaitsForYetIsNotMissed(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	s := newSupervisor(t, jobs.Config{})
	for range 10 {
		snap, err := s.Start(testContext(t), jobs.Spec{Argv: []string{"echo", "over"}})
		require.NoError(t, err)
		for busy := time.Now(); time.Since(busy) < 30*time.Millisecond; {
		}
		ctx, cancel := context.WithTimeout(testContext(t), patience/3)
		r, err := s.Collect(ctx, snap.ID)
		cancel()
		require.NoError(t, err, "it is not seen that the job has ended")
		require.Equal(t, "over\n", string(r.Output.Bytes()))
	}
}

func TestTheOutputOfAShortJobIsComplete(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	ctx := testContext(t)
	want := strings.Repeat("0123456789abcde\n", 320) // 5 KiB
	inParallel(many(300), 4, func(int) {
		snap, err := s.Start(ctx, jobs.Spec{Argv: []string{"printf", "%s", want}})
		if !assert.NoError(t, err) {
			return
		}
		r, err := s.Collect(ctx, snap.ID)
		assert.NoError(t, err)
		assert.Equal(t, want, string(r.Output.Bytes()))
	})
}

func TestFinishedJobsHoldNoDescriptor(t *testing.T) {
	warmPoller()
	before := descriptors()
	s := newSupervisor(t, jobs.Config{MaxRetained: 1000})
	n := many(500)
	for range n {
		awaitEnd(t, s, start(t, s, jobs.Spec{Argv: []string{"true"}}).ID)
	}
	require.Len(t, s.List().Jobs, n, "none was collected or forgotten")
	require.True(t, settles(before), "%d descriptors, before %d", descriptors(), before)
}

func TestFailedStartsHoldNeitherSlotNorDescriptor(t *testing.T) {
	warmPoller()
	before := descriptors()
	s := newSupervisor(t, jobs.Config{MaxRunning: 1})
	for range many(300) / 3 {
		for _, spec := range []jobs.Spec{
			{Argv: []string{"/missing/program"}},
			{Argv: []string{"true"}, Dir: "/missing"},
		} {
			_, err := s.Start(testContext(t), spec)
			var se *jobs.StartError
			require.ErrorAs(t, err, &se)
		}
		runScript(t, s, "exit 0")
	}
	require.True(t, settles(before), "%d descriptors, before %d", descriptors(), before)
	require.Zero(t, s.List().Running)
	require.Empty(t, children())
}

func TestTimeoutsLeaveNoGoroutine(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 20})
	runScript(t, s, "exit") // what lives as long as the supervisor
	ctx := testContext(t)
	before := runtime.NumGoroutine()
	inParallel(many(200), 20, func(int) {
		snap, err := s.Start(ctx, jobs.Spec{Argv: []string{"sleep", "300"}, Timeout: time.Millisecond})
		if !assert.NoError(t, err) {
			return
		}
		r, err := s.Collect(ctx, snap.ID)
		assert.NoError(t, err)
		assert.Equal(t, jobs.ReasonTimeout, r.Reason)
	})
	after := 0
	require.True(t, eventually(func() bool {
		after = runtime.NumGoroutine()
		return after <= before
	}), "%d goroutines before, %d after", before, after)
}

func TestACancelInTheMomentOfTheStartLeavesNoProcess(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 8})
	mark := freshMark()
	ctx := testContext(t)
	inParallel(many(300), 8, func(int) {
		spec := bash("sleep 300 & sleep 300")
		spec.Env = []string{mark}
		snap, err := s.Start(ctx, spec)
		if !assert.NoError(t, err) {
			return
		}
		r, err := s.Cancel(ctx, snap.ID)
		assert.NoError(t, err)
		assert.Equal(t, jobs.Cancelled, r.State)
		assert.Nil(t, r.Survivors)
	})
	require.Empty(t, marked(mark))
}

func TestACancelInTheMomentOfTheExitIsNoError(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 8})
	ctx := testContext(t)
	inParallel(many(400), 8, func(i int) {
		snap, err := s.Start(ctx, jobs.Spec{Argv: []string{"true"}})
		if !assert.NoError(t, err) {
			return
		}
		for end := time.Now().Add(time.Duration(rand.IntN(3000)) * time.Microsecond); time.Now().Before(end); {
			runtime.Gosched()
		}
		r, err := s.Cancel(ctx, snap.ID)
		assert.NoError(t, err)
		assert.NoError(t, r.Err)
		switch r.State {
		case jobs.Completed:
			assert.Equal(t, jobs.ReasonExit, r.Reason)
			assert.Zero(t, r.ExitCode)
		case jobs.Cancelled:
			assert.Equal(t, jobs.ReasonCancelled, r.Reason)
		default:
			assert.Fail(t, "neither completed nor cancelled", r.Outcome())
		}
	})
}

func TestListShowsEveryLiveProcess(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 20})
	for range 20 {
		start(t, s, jobs.Spec{Argv: []string{"sleep", "300"}})
	}
	var listed []int
	for _, snap := range s.List().Jobs {
		listed = append(listed, snap.PID)
	}
	require.ElementsMatch(t, children(), listed)
}

func TestTwoSupervisorsShareADirectory(t *testing.T) {
	dir := t.TempDir()
	var both [2]*jobs.Supervisor
	for i := range both {
		both[i] = newSupervisor(t, jobs.Config{TempDir: dir, MaxRunning: 8, MaxRetained: 200})
	}
	ctx := testContext(t)
	var mu sync.Mutex // guards seen
	seen := make(map[string]bool)
	inParallel(many(200), 8, func(i int) {
		s := both[i%2]
		snap, err := s.Start(ctx, bash(fmt.Sprintf("echo %d >$LLM_OUTPUT", i)))
		if !assert.NoError(t, err) {
			return
		}
		r, err := s.Collect(ctx, snap.ID)
		assert.NoError(t, err)
		assert.Equal(t, strconv.Itoa(i), string(r.File.JSON()))
		mu.Lock()
		defer mu.Unlock()
		assert.False(t, seen[r.ID])
		seen[r.ID] = true
	})
	_, err := both[0].Close(ctx)
	require.NoError(t, err)
	// The other one's directory is not touched.
	require.Equal(t, "7", string(runScript(t, both[1], "echo 7 >$LLM_OUTPUT").File.JSON()))
	_, err = both[1].Close(ctx)
	require.NoError(t, err)
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, files)
}

func TestCheckAndReadOutputOfAProcessAllocateNothing(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	id := start(t, s, bash("printf '%100000s'; exec sleep 300")).ID
	require.True(t, eventually(func() bool { return checkJob(t, s, id).OutputTotal == 100_000 }))
	buf := make([]byte, 4<<10)
	// Now and then a look reads the result file, which costs something.
	assert.Zero(t, testing.AllocsPerRun(2000, func() { s.Check(id) }), "Check")
	assert.Zero(t, testing.AllocsPerRun(2000, func() { s.ReadOutput(id, -4096, buf) }), "ReadOutput")
}

// lasting returns the part of a final Snapshot that must not change any more.
func lasting(end jobs.Snapshot) jobs.Snapshot {
	end.Collected = false
	if end.Reason == jobs.ReasonUnreaped {
		end.LeaderExited = false // the work may end after all
	}
	return end
}

// A witness watches jobs from one goroutine and fails if one of them steps
// back.
type witness struct {
	t    *testing.T
	last map[string]jobs.Snapshot
}

func rank(s jobs.State) int {
	switch s {
	case jobs.Running:
		return 0
	case jobs.Cancelling:
		return 1
	}
	return 2
}

func (w *witness) see(now jobs.Snapshot) {
	was, ok := w.last[now.ID]
	w.last[now.ID] = now
	if !ok {
		return
	}
	assert.GreaterOrEqual(w.t, rank(now.State), rank(was.State), "%s after %s", now.State, was.State)
	assert.GreaterOrEqual(w.t, now.OutputTotal, was.OutputTotal)
	assert.GreaterOrEqual(w.t, now.OutputDropped, was.OutputDropped)
	assert.GreaterOrEqual(w.t, now.Elapsed, was.Elapsed)
	assert.False(w.t, was.LeaderExited && !now.LeaderExited, "the leader came back")
	assert.False(w.t, was.Collected && !now.Collected, "collected no more")
	if was.Reason != "" && now.Reason != jobs.ReasonUnreaped { // slow machines lose functions
		assert.Equal(w.t, was.Reason, now.Reason)
	}
	if was.Ended() {
		assert.Equal(w.t, lasting(was), lasting(now), "an end has changed")
	}
}

func TestHammeredVerbsOnlyEverSeeJobsMoveForward(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 6, MaxRetained: 1 << 20, KillGrace: 20 * time.Millisecond})
	specs := []func() jobs.Spec{
		func() jobs.Spec { return jobs.Spec{Argv: []string{"true"}} },
		func() jobs.Spec { return bash("echo a; sleep 0.01; echo b; exit 3") },
		func() jobs.Spec { return bash("trap '' TERM; while :; do echo x; done") },
		func() jobs.Spec { return bash("sleep 300 & echo left") },
		func() jobs.Spec { return jobs.Spec{Argv: []string{"sleep", "300"}, Timeout: 20 * time.Millisecond} },
		func() jobs.Spec { return gated(nil, "function") },
		func() jobs.Spec { return returning(1) },
		func() jobs.Spec { return function(func(context.Context, io.Writer) (any, error) { panic("boom") }) },
	}
	var mu sync.Mutex // guards the three below
	var known []string
	collected := make(map[string]int)
	ends := make(map[string]jobs.Snapshot)
	// pick returns one of the last few ids, and how many there have been.
	pick := func() (string, int) {
		mu.Lock()
		defer mu.Unlock()
		if len(known) == 0 {
			return "", 0
		}
		return known[max(0, len(known)-1-rand.IntN(12))], len(known)
	}
	length := time.Second
	if testing.Short() {
		length = 200 * time.Millisecond
	}
	stop := time.Now().Add(length)
	var hammers sync.WaitGroup
	for range 16 {
		hammers.Go(func() {
			w := &witness{t: t, last: make(map[string]jobs.Snapshot)}
			see := func(snap jobs.Snapshot) {
				w.see(snap)
				if snap.Ended() {
					mu.Lock()
					defer mu.Unlock()
					first, ok := ends[snap.ID]
					if !ok {
						ends[snap.ID] = snap
						return
					}
					assert.Equal(t, lasting(first), lasting(snap), "two ends of one job")
				}
			}
			// told takes the answer of a verb that waits.
			told := func(r jobs.Result, err error) bool {
				var je *jobs.JobError
				switch {
				case err == nil:
					see(r.Snapshot)
					return true
				case errors.As(err, &je) && je.Job != nil:
					assert.ErrorIs(t, err, jobs.ErrCollected)
					assert.True(t, je.Job.Ended() && je.Job.Collected)
					see(*je.Job)
				default:
					assert.ErrorIs(t, err, context.DeadlineExceeded)
					see(r.Snapshot)
				}
				return false
			}
			buf := make([]byte, 100)
			for !t.Failed() {
				id, sofar := pick()
				if sofar > 20 && time.Now().After(stop) {
					return
				}
				ctx, cancel := context.WithTimeout(context.Background(), 3*time.Millisecond)
				switch verb := rand.IntN(12); {
				case verb < 2 || id == "":
					snap, err := s.Start(context.Background(), specs[rand.IntN(len(specs))]())
					if err != nil {
						assert.ErrorIs(t, err, jobs.ErrAtCapacity)
						break
					}
					see(snap)
					mu.Lock()
					known = append(known, snap.ID)
					mu.Unlock()
				case verb < 5:
					snap, err := s.Check(id)
					assert.NoError(t, err)
					see(snap)
				case verb < 7:
					c, err := s.ReadOutput(id, int64(rand.IntN(100)), buf)
					if err != nil {
						assert.ErrorIs(t, err, jobs.ErrCollected)
						break
					}
					assert.Equal(t, c.From+int64(len(c.Data)), c.Next)
					assert.LessOrEqual(t, c.Next, c.Total)
				case verb < 8:
					list := s.List()
					assert.LessOrEqual(t, list.Running, list.MaxRunning)
					for _, snap := range list.Jobs {
						assert.False(t, snap.Collected)
						see(snap)
					}
				case verb < 10:
					r, err := s.Collect(ctx, id)
					if told(r, err) {
						mu.Lock()
						collected[id]++
						mu.Unlock()
					}
				default:
					r, err := s.Cancel(ctx, id)
					told(r, err)
				}
				cancel()
			}
		})
	}
	hammers.Wait()
	_, err := s.Close(testContext(t))
	require.NoError(t, err)
	for _, id := range known {
		require.True(t, checkJob(t, s, id).Ended())
		require.LessOrEqual(t, collected[id], 1, "results handed out of one job")
		require.Equal(t, collected[id] == 1, checkJob(t, s, id).Collected)
	}
	require.Empty(t, children())
}
