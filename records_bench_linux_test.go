package jobs_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/require"
)

// BenchmarkStartWithRecords measures start → collect with records beside the
// same without, on the disk of the package's directory: memory file systems
// know no Sync.
func BenchmarkStartWithRecords(b *testing.B) {
	for _, work := range []struct {
		name string
		spec jobs.Spec
	}{
		{"true", jobs.Spec{Argv: []string{"/bin/true"}}},
		{"func", returning(1)},
	} {
		for _, mode := range []struct {
			name string
			cfg  jobs.Config
		}{
			{"records", jobs.Config{}},
			{"sync", jobs.Config{Sync: true}},
			{"log", jobs.Config{LogLimit: 1 << 20}},
		} {
			b.Run(work.name+"/"+mode.name, func(b *testing.B) {
				dir, err := os.MkdirTemp(".", "records-bench-")
				require.NoError(b, err)
				b.Cleanup(func() { os.RemoveAll(dir) })
				mode.cfg.Dir = dir
				with, without := newSupervisor(b, mode.cfg), newSupervisor(b, jobs.Config{})
				starts := make(map[*jobs.Supervisor]time.Duration)
				run := func(s *jobs.Supervisor) func() {
					return func() {
						begun := time.Now()
						snap, err := s.Start(context.Background(), work.spec)
						starts[s] += time.Since(begun)
						require.NoError(b, err)
						_, err = s.Collect(context.Background(), snap.ID)
						require.NoError(b, err)
					}
				}
				beside(b, run(with), run(without))
				b.ReportMetric(float64(starts[with])/float64(starts[without]), "start-ratio")
			})
		}
	}
}
