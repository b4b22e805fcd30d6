package jobs_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/require"
)

// BenchmarkPumpWithALogFileBesideWithout prints as much as fits into a log file.
// Besides the ratio it reports what the log file costs in memory allocated: for
// each MiB printed, and in pieces for each job.
func BenchmarkPumpWithALogFileBesideWithout(b *testing.B) {
	for _, size := range []int64{64 << 20, 1 << 20} {
		b.Run(fmt.Sprintf("%d MiB", size>>20), func(b *testing.B) {
			with := newSupervisor(b, jobs.Config{Dir: b.TempDir(), LogLimit: 128 << 20, LogBudget: 256 << 20})
			without := newSupervisor(b, jobs.Config{})
			script := fmt.Sprintf("head -c %d /dev/zero", size)
			work := func(s *jobs.Supervisor, bytes, pieces *uint64) func() {
				return func() {
					var before, after runtime.MemStats
					runtime.ReadMemStats(&before)
					r := runScript(b, s, script)
					runtime.ReadMemStats(&after)
					require.Equal(b, size, r.OutputTotal)
					require.NoError(b, r.LogErr)
					*bytes += after.TotalAlloc - before.TotalAlloc
					*pieces += after.Mallocs - before.Mallocs
				}
			}
			var bytes, pieces [2]uint64
			b.SetBytes(size)
			beside(b, work(with, &bytes[0], &pieces[0]), work(without, &bytes[1], &pieces[1]))
			more := func(of [2]uint64) float64 { return (float64(of[0]) - float64(of[1])) / float64(b.N) }
			b.ReportMetric(more(bytes)/float64(size>>20), "log-B/MiB")
			b.ReportMetric(more(pieces), "log-allocs/job")
		})
	}
}

// BenchmarkOutputFromALogFile reads 4 KiB that memory has dropped.
func BenchmarkOutputFromALogFile(b *testing.B) {
	s := newSupervisor(b, jobs.Config{Dir: b.TempDir(), LogLimit: 64 << 20})
	id := ended(b, s, bash("head -c 10000000 /dev/zero")).ID
	buf := make([]byte, 4096)
	b.SetBytes(int64(len(buf)))
	b.ReportAllocs()
	for b.Loop() {
		c, err := s.ReadOutput(id, 5_000_000, buf)
		require.NoError(b, err)
		require.Zero(b, c.Dropped)
	}
}
