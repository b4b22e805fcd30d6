package jobs_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/require"
)

// The benchmarks measure a job beside the bare alternative, turn by turn in one
// run, and report the ratio of the medians: machines are noisy, and what slows
// one side slows the other.

// beside runs work and bare by turns and reports the ratio of their medians.
func beside(b *testing.B, work, bare func()) {
	var works, bares []time.Duration
	for b.Loop() {
		works = append(works, timed(work))
		bares = append(bares, timed(bare))
	}
	b.ReportMetric(float64(median(works))/float64(median(bares)), "ratio")
	b.ReportMetric(float64(median(bares)), "bare-ns/op")
}

func timed(f func()) time.Duration {
	begun := time.Now()
	f()
	return time.Since(begun)
}

func median(ds []time.Duration) time.Duration {
	slices.Sort(ds)
	return ds[len(ds)/2]
}

func BenchmarkStartToCollectOfTrueBesideBareExec(b *testing.B) {
	s := newSupervisor(b, jobs.Config{})
	ctx := context.Background()
	beside(b, func() {
		snap, err := s.Start(ctx, jobs.Spec{Argv: []string{"/bin/true"}})
		require.NoError(b, err)
		_, err = s.Collect(ctx, snap.ID)
		require.NoError(b, err)
	}, func() {
		require.NoError(b, exec.Command("/bin/true").Run())
	})
}

// BenchmarkExitToWaitingCollector measures how long after its exit a job's
// waiting collector has the result. The job is killed from outside, which is
// the one moment of its end that both sides see; a bare waiter, a pidfd in
// poll(2), is measured the same way.
func BenchmarkExitToWaitingCollector(b *testing.B) {
	s := newSupervisor(b, jobs.Config{})
	var took, bare []time.Duration
	for b.Loop() {
		snap := start(b, s, jobs.Spec{Argv: []string{"/bin/sleep", "60"}})
		woken := make(chan time.Time)
		go func() {
			_, err := s.Collect(context.Background(), snap.ID)
			require.NoError(b, err)
			woken <- time.Now()
		}()
		begun := time.Now()
		kill(b, snap.PID)
		took = append(took, (<-woken).Sub(begun))

		c := exec.Command("/bin/sleep", "60")
		require.NoError(b, c.Start())
		go func() { c.Wait(); woken <- time.Now() }()
		begun = time.Now()
		kill(b, c.Process.Pid)
		bare = append(bare, (<-woken).Sub(begun))
	}
	b.ReportMetric(float64(median(took))/1e3, "us/median")
	b.ReportMetric(float64(median(bare))/1e3, "bare-us/median")
}

func kill(b *testing.B, pid int) {
	p, err := os.FindProcess(pid)
	require.NoError(b, err)
	require.NoError(b, p.Kill())
	p.Release()
}

func BenchmarkPumpBesideCat(b *testing.B) {
	const size = 512 << 20
	s := newSupervisor(b, jobs.Config{})
	writer := fmt.Sprintf("head -c %d /dev/zero", size)
	b.SetBytes(size)
	beside(b, func() {
		r := runScript(b, s, writer)
		require.EqualValues(b, size, r.OutputTotal)
	}, func() {
		require.NoError(b, exec.Command("bash", "-c", writer+" | cat >/dev/null").Run())
	})
}

func BenchmarkCheck(b *testing.B) {
	s := newSupervisor(b, jobs.Config{})
	snap := start(b, s, bash(`head -c 1000000 /dev/zero; echo end; sleep 60`))
	require.True(b, eventually(func() bool {
		now, err := s.Check(snap.ID)
		require.NoError(b, err)
		return now.OutputTotal == 1_000_004
	}))
	b.Run("Check", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := s.Check(snap.ID); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("ReadOutput4KiB", func(b *testing.B) {
		b.ReportAllocs()
		buf := make([]byte, 4096)
		for b.Loop() {
			if _, err := s.ReadOutput(snap.ID, -4096, buf); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkIdleJobs starts many jobs that do nothing and reports what one of
// them costs the host.
func BenchmarkIdleJobs(b *testing.B) {
	const n = 1000
	for b.Loop() {
		s, err := jobs.New(jobs.Config{MaxRunning: n})
		require.NoError(b, err)
		fds, rss := descriptors(), resident(b)
		for range n {
			start(b, s, jobs.Spec{Argv: []string{"/bin/sleep", "600"}})
		}
		b.ReportMetric(float64(threads()), "threads")
		b.ReportMetric(float64(descriptors()-fds)/n, "fds/job")
		b.ReportMetric(float64(resident(b)-rss)/n, "resident-B/job")
		_, err = s.Close(testContext(b))
		require.NoError(b, err)
	}
}

// resident returns the resident size of this process in bytes.
func resident(b *testing.B) int {
	data, err := os.ReadFile("/proc/self/status")
	require.NoError(b, err)
	_, rest, _ := strings.Cut(string(data), "VmRSS:")
	kb, err := strconv.Atoi(strings.Fields(rest)[0])
	require.NoError(b, err)
	return kb << 10
}

func BenchmarkCancelBesideKillAndWait(b *testing.B) {
	const n = 1000
	s := newSupervisor(b, jobs.Config{MaxRunning: n})
	ids := make([]string, n)
	cmds := make([]*exec.Cmd, n)
	var ours, bare []time.Duration
	for b.Loop() {
		for i := range ids {
			ids[i] = start(b, s, jobs.Spec{Argv: []string{"/bin/sleep", "600"}}).ID
			cmds[i] = exec.Command("/bin/sleep", "600")
			require.NoError(b, cmds[i].Start())
		}
		ours = append(ours, timed(func() {
			done := make(chan error)
			for _, id := range ids {
				go func() {
					_, err := s.Cancel(context.Background(), id)
					done <- err
				}()
			}
			for range ids {
				require.NoError(b, <-done)
			}
		}))
		bare = append(bare, timed(func() {
			done := make(chan error)
			for _, c := range cmds {
				go func() {
					c.Process.Signal(os.Interrupt)
					c.Wait()
					done <- nil
				}()
			}
			for range cmds {
				<-done
			}
		}))
	}
	b.ReportMetric(float64(median(ours))/float64(median(bare)), "ratio")
	b.ReportMetric(float64(median(ours))/n, "ns/job")
}

// BenchmarkParallelStartsBesideBareExec starts and collects from as many
// goroutines as there are processors.
func BenchmarkParallelStartsBesideBareExec(b *testing.B) {
	const n = 64
	s := newSupervisor(b, jobs.Config{MaxRunning: n})
	workers := runtime.GOMAXPROCS(0)
	parallel := func(run func()) func() {
		return func() {
			var all sync.WaitGroup
			for range workers {
				all.Go(func() {
					for range n / workers {
						run()
					}
				})
			}
			all.Wait()
		}
	}
	beside(b, parallel(func() {
		snap, err := s.Start(context.Background(), jobs.Spec{Argv: []string{"/bin/true"}})
		require.NoError(b, err)
		_, err = s.Collect(context.Background(), snap.ID)
		require.NoError(b, err)
	}), parallel(func() {
		require.NoError(b, exec.Command("/bin/true").Run())
	}))
}

// BenchmarkLooksAtManyJobs measures what one look costs beside many other jobs.
func BenchmarkLooksAtManyJobs(b *testing.B) {
	for _, n := range []int{1, 1000, 10_000} {
		s := newSupervisor(b, jobs.Config{MaxRunning: n})
		var id string
		for range n {
			id = start(b, s, function(func(ctx context.Context, _ io.Writer) (any, error) {
				<-ctx.Done()
				return nil, nil
			})).ID
		}
		b.Run(fmt.Sprintf("Check/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Check(id); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("List/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.List()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/job")
		})
		_, err := s.Close(testContext(b))
		require.NoError(b, err)
	}
}

// BenchmarkNotices measures a function job from its start to its notice, beside
// a goroutine and a channel.
func BenchmarkNotices(b *testing.B) {
	const n = 1000
	s := newSupervisor(b, jobs.Config{MaxRunning: n, MaxRetained: 1})
	beside(b, func() {
		for range n {
			start(b, s, returning(nil))
		}
		for told := 0; told < n; {
			<-s.Ready()
			told += len(s.Drain())
		}
	}, func() {
		ch := make(chan int)
		for i := range n {
			go func() { ch <- i }()
		}
		for range n {
			<-ch
		}
	})
}

// BenchmarkManySmallWriters runs 500 jobs at once, each of which prints 200
// lines of 80 bytes, one write for each.
func BenchmarkManySmallWriters(b *testing.B) {
	const n, lines = 500, 200
	const script = `i=0; while [ $i -lt 200 ]; do echo 1234567890123456789012345678901234567890123456789012345678901234567890123456789; i=$((i+1)); done`
	s := newSupervisor(b, jobs.Config{MaxRunning: n})
	b.SetBytes(n * lines * 80)
	beside(b, func() {
		ids := make([]string, n)
		for i := range ids {
			ids[i] = start(b, s, jobs.Spec{Argv: []string{"sh", "-c", script}}).ID
		}
		for _, id := range ids {
			require.EqualValues(b, lines*80, collect(b, s, id).OutputTotal)
		}
	}, func() {
		var all sync.WaitGroup
		for range n {
			c := exec.Command("sh", "-c", script)
			var out bytes.Buffer
			c.Stdout, c.Stderr = &out, &out
			require.NoError(b, c.Start())
			all.Go(func() { c.Wait() })
		}
		all.Wait()
	})
}
