package jobs_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
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
	const n = 200
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
