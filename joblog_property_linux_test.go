package jobs_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// rings are sizes of what memory keeps, from all to nothing.
var rings = map[string]jobs.Config{
	"default": {},
	"nothing": {HeadBytes: -1, TailBytes: -1},
	"a byte":  {HeadBytes: 1, TailBytes: 1},
	"head":    {HeadBytes: 100, TailBytes: -1},
	"tail":    {HeadBytes: -1, TailBytes: 5000},
	"uneven":  {HeadBytes: 7, TailBytes: 4099},
	"all":     {HeadBytes: 1 << 20, TailBytes: 1 << 20},
}

// withLogs adds log files to a Config, with room for all that tests print.
func withLogs(t testing.TB, cfg jobs.Config) jobs.Config {
	cfg.Dir = t.TempDir()
	if cfg.LogLimit == 0 {
		cfg.LogLimit = 64 << 20
	}
	return cfg
}

// restarted closes a supervisor and opens its directory again.
func restarted(t testing.TB, s *jobs.Supervisor, cfg jobs.Config) *jobs.Supervisor {
	t.Helper()
	_, err := s.Close(testContext(t))
	require.NoError(t, err)
	return newSupervisor(t, cfg)
}

// A hole is a stretch of a stream that nobody has kept.
type hole struct{ from, to int64 }

// requireStream probes a log at many places and fails unless every chunk is what
// a reader of the whole stream, but for its holes, would get there.
func requireStream(t testing.TB, read reader, id, stream string, holes ...hole) {
	t.Helper()
	total := int64(len(stream))
	for range 200 {
		from := rand.Int64N(2*total+20) - total - 10
		size := []int{0, 1, 1 + rand.IntN(100), 1 + rand.IntN(1<<17)}[rand.IntN(4)]
		c, err := read(id, from, size)
		require.NoError(t, err)
		asked := min(from, total)
		if from < 0 {
			asked = max(0, total+from)
		}
		want, end := asked, total
		for _, h := range holes {
			if want >= h.from && want < h.to {
				want = h.to
			}
			if want < h.from {
				end = min(end, h.from)
			}
		}
		require.Equal(t, []int64{want, want - asked, total, want + int64(len(c.Data))},
			[]int64{c.From, c.Dropped, c.Total, c.Next}, "from %d, %d bytes of %d", from, size, total)
		require.True(t, stream[c.From:c.Next] == string(c.Data), "wrong bytes from %d, %d bytes", from, size)
		require.LessOrEqual(t, c.Next, end)
		require.Equal(t, len(c.Data) == 0, want == total, "from %d, %d bytes", from, size)
		if size > 0 {
			require.LessOrEqual(t, len(c.Data), size)
		}
	}
	data, dropped, next := "", int64(0), int64(0)
	for next < total {
		c, err := read(id, next, 0)
		require.NoError(t, err)
		data, dropped, next = data+string(c.Data), dropped+c.Dropped, c.Next
	}
	require.EqualValues(t, total, int64(len(data))+dropped)
}

func TestOutputIsTheSameFromMemoryAndFromTheLogFile(t *testing.T) {
	const n = 60_000
	want := seq(1, n)
	for name, ring := range rings {
		t.Run(name, func(t *testing.T) {
			cfg := withLogs(t, ring)
			s := newSupervisor(t, cfg)
			gate := newGate(t)
			id := start(t, s, gate.gated(fmt.Sprintf(`seq %d; read -r _ <"$GATE"`, n))).ID
			awaitTotal(t, s, id, len(want))
			requireStream(t, s.Output, id, want)
			gate.open(t)
			awaitEnd(t, s, id)
			requireStream(t, s.Output, id, want)
			for other := range rings {
				next := rings[other]
				next.Dir = cfg.Dir
				s = restarted(t, s, next)
				requireStream(t, s.Output, id, want)
			}
		})
	}
}

// awaitTotal waits until a job has printed n bytes.
func awaitTotal(t testing.TB, s *jobs.Supervisor, id string, n int) {
	t.Helper()
	var snap jobs.Snapshot
	require.True(t, eventually(func() bool {
		var err error
		snap, err = s.Check(id)
		require.NoError(t, err)
		return snap.OutputTotal+snap.StderrTotal >= int64(n)
	}), "only %d of %d bytes", snap.OutputTotal+snap.StderrTotal, n)
	require.EqualValues(t, n, snap.OutputTotal+snap.StderrTotal)
}

func TestEachOfTwoStreamsHasItsLogFile(t *testing.T) {
	out, errs := seq(1, 30_000), seq(40_000, 90_000)
	cfg := withLogs(t, jobs.Config{HeadBytes: 10, TailBytes: 20})
	s := newSupervisor(t, cfg)
	spec := bash("seq 40000 90000 >&2; seq 30000")
	spec.SplitStderr = true
	id := start(t, s, spec).ID
	awaitEnd(t, s, id)
	for range 2 {
		requireStream(t, s.Output, id, out)
		requireStream(t, s.Stderr, id, errs)
		s = restarted(t, s, cfg)
	}
}

func TestReadersOfAGrowingLogFileGetAllOfIt(t *testing.T) {
	for name, ring := range rings {
		t.Run(name, func(t *testing.T) {
			s := newSupervisor(t, withLogs(t, ring))
			var want strings.Builder
			for n := 0; want.Len() < 1<<20; n++ {
				want.WriteString(strings.Repeat(fmt.Sprintln(n), 1+n%97))
			}
			ready := make(chan struct{})
			id := start(t, s, function(func(_ context.Context, out io.Writer) (any, error) {
				<-ready
				for rest := want.String(); rest != ""; {
					n := min(len(rest), 1+rand.IntN(9000))
					io.WriteString(out, rest[:n])
					rest = rest[n:]
				}
				return nil, nil
			})).ID
			var readers sync.WaitGroup
			for _, size := range []int{3001, 0, 1 << 16} {
				readers.Go(func() {
					data, dropped, err := follow(s.Output, id, size)
					assert.NoError(t, err)
					assert.Zero(t, dropped)
					assert.True(t, want.String() == string(data), "read by %d", size)
				})
			}
			close(ready)
			readers.Wait()
		})
	}
}

func TestALogFileGoesOnAfterWhatAResultFileLeftOut(t *testing.T) {
	// What a look leaves out of a result file is in no log; what comes before and
	// after it is.
	const before, result, left, after = 30_000, 20_000, 20_000 - 8<<10, 50_000
	for name, ring := range rings {
		t.Run(name, func(t *testing.T) {
			cfg := withLogs(t, ring)
			s := newSupervisor(t, cfg)
			gate := newGate(t)
			spec := gate.gated(fmt.Sprintf(`head -c %d /dev/zero | tr '\0' a; read -r _ <"$GATE"
				head -c %d /dev/zero | tr '\0' r >"$LLM_OUTPUT.new"; cat "$LLM_OUTPUT.new" >"$LLM_OUTPUT"; read -r _ <"$GATE"
				head -c %d /dev/zero | tr '\0' b; read -r _ <"$GATE"`, before, result, after))
			id := start(t, s, spec).ID
			awaitTotal(t, s, id, before)
			gate.open(t)
			require.True(t, eventually(func() bool {
				snap, err := s.Check(id)
				require.NoError(t, err)
				return snap.OutputTotal == before+result
			}))
			gate.open(t)
			awaitTotal(t, s, id, before+result+after)
			gate.open(t)
			awaitEnd(t, s, id)
			stream := strings.Repeat("a", before) + strings.Repeat("r", result) + strings.Repeat("b", after)
			gap := hole{before, before + left}
			requireStream(t, s.Output, id, stream, gap)
			snap, err := s.Check(id)
			require.NoError(t, err)
			file, err := os.ReadFile(snap.LogPath)
			require.NoError(t, err)
			require.Contains(t, string(file), fmt.Sprintf("a\n# %d bytes are not in this file\nr", left))
			s = restarted(t, s, cfg)
			requireStream(t, s.Output, id, stream, gap)
		})
	}
}

func TestALogFileThatIsFullHoldsTheBeginningAndTheEnd(t *testing.T) {
	const limit = 100_000
	want := seq(1, 200_000)
	for name, ring := range rings {
		t.Run(name, func(t *testing.T) {
			ring.LogLimit = limit
			cfg := withLogs(t, ring)
			s := newSupervisor(t, cfg)
			id := start(t, s, bash("seq 200000; exit 3")).ID
			require.Equal(t, 3, awaitEnd(t, s, id).ExitCode)
			snap, err := s.Check(id)
			require.NoError(t, err)
			var missing int64
			begin, end := cutLog(t, snap.LogPath, &missing)
			assert.True(t, strings.HasPrefix(want, begin), "the beginning")
			assert.True(t, strings.HasSuffix(want, end), "the end")
			assert.EqualValues(t, len(want), int64(len(begin)+len(end))+missing)
			fi, err := os.Stat(snap.LogPath)
			require.NoError(t, err)
			assert.LessOrEqual(t, fi.Size(), int64(limit))

			gone := hole{int64(len(begin)), int64(len(want) - len(end))}
			next := cfg
			next.HeadBytes, next.TailBytes = -1, -1
			s = restarted(t, s, next)
			requireStream(t, s.Output, id, want, gone)
		})
	}
}

// cutLog reads a log file that leaves something out: what is before that and
// what is after it.
func cutLog(t testing.TB, path string, missing *int64) (begin, end string) {
	t.Helper()
	text := logBody(t, path)
	begin, end, ok := strings.Cut(text, "\n# ")
	require.True(t, ok)
	first, end, _ := strings.Cut(end, "\n")
	_, err := fmt.Sscanf(first, "%d bytes are not in this file", missing)
	require.NoError(t, err, "%q", first)
	return begin, end
}

// logBody reads a log file of an ended job, without its header and its footer.
func logBody(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	_, body, ok := strings.Cut(string(data), "\n\n")
	require.True(t, ok, "no header in %.200q", data)
	foot := strings.LastIndex(strings.TrimSuffix(body, "\n"), "\n# ")
	require.GreaterOrEqual(t, foot, 0, "no footer in %.200q", body)
	return body[:foot]
}
