package main

import (
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	if n, err := strconv.Atoi(os.Getenv(maxThreadsEnv)); err == nil {
		debug.SetMaxThreads(n)
	}
	// The tests start this program for the parts that children play.
	if played, err := asChild(os.Args[1:], os.Stdout); played {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// tiny is a round of everything in a few seconds.
var tiny = sizes{
	Starts: 2, Budget: time.Millisecond, Workers: 2, Wakes: 1, Flood: 8 << 20,
	Idle: 3, Writers: 2, Lines: 20, Ring: 1 << 20, Cancels: 3,
}

func TestARunMeasuresEveryContenderInEveryWorkItTakesPartIn(t *testing.T) {
	rows, err := measure(context.Background(), works(tiny), tiny, 1, 0, io.Discard)
	require.NoError(t, err)
	for _, r := range rows {
		for i, c := range r.cells {
			if c.took {
				require.Empty(t, c.failed, "%s, %s", r.title, contenders[i].name)
				require.Len(t, c.rounds, 1)
			}
		}
	}
	var table, svg strings.Builder
	require.NoError(t, writeTable(&table, rows))
	require.NoError(t, writeChart(&svg, rows, machine()))
	wellFormed(t, svg.String())
	for _, r := range rows {
		require.Contains(t, table.String(), r.title)
		if r.chart {
			require.Contains(t, svg.String(), escape(plain(r.title)))
		}
	}
}

func TestQuietIsNotAwaitedLongerThanPatienceAllows(t *testing.T) {
	begun := time.Now()
	awaitQuiet(context.Background(), 0)
	require.Less(t, time.Since(begun), 100*time.Millisecond)
	m := startNoiseMeter()
	awaitQuiet(context.Background(), time.Millisecond)
	part := m.others()
	require.GreaterOrEqual(t, part, 0.)
	require.LessOrEqual(t, part, 1.)
}

func TestArgumentsThatMakeNoSenseAreRefused(t *testing.T) {
	for _, args := range [][]string{{"-rounds", "0"}, {"-idle", "0"}, {"-only", "nothing"}, {"left over"}, {"-unknown"}} {
		require.Error(t, run(context.Background(), args, io.Discard, io.Discard), "%q", args)
	}
}

func TestAChildThatCannotDoItsTaskSaysWhy(t *testing.T) {
	_, err := task{Work: "nothing"}.inChild(context.Background())
	require.ErrorContains(t, err, `no work "nothing"`)
}

// maxThreadsEnv bounds the threads of children, so that one crashes with few
// jobs for what it otherwise takes ten thousand.
const maxThreadsEnv = "BENCH_TEST_MAX_THREADS"

func TestACrashForWantOfThreadsIsToldByItsCause(t *testing.T) {
	t.Setenv(maxThreadsEnv, "40")
	z := tiny
	z.Idle = 60
	values, err := task{Work: "idle", Contender: "jobs", Sizes: z}.inChild(t.Context())
	require.NoError(t, err)
	require.Less(t, values[0], 40.)
	_, err = task{Work: "idle", Contender: "os/exec + bytes.Buffer", Sizes: z}.inChild(t.Context())
	require.EqualError(t, err, "crashed: thread exhaustion")
	_, err = task{Work: "idle", Sizes: z}.inChild(t.Context())
	require.EqualError(t, err, "crashed: thread exhaustion")
}

func TestWithoutABareNumberThereIsNoRatio(t *testing.T) {
	rows := sample()
	rows[0].bare.failed = "crashed"
	rows[0].finish()
	var table, svg strings.Builder
	require.NoError(t, writeTable(&table, rows))
	require.Contains(t, table.String(), "| failed | 1 ms | failed | 3 s |  |  |  |\n")
	require.NoError(t, writeChart(&svg, rows, ""))
	wellFormed(t, svg.String())
	require.NotContains(t, svg.String(), "NaN")
}

// sample has a bar to either side, one that failed and one that has no ratio.
func sample() []row {
	r := row{metric: metric{"work & \"more\" <of> it", seconds, true}, against: "less", cells: make([]cell, len(contenders))}
	r.bare.took, r.bare.rounds = true, []float64{2e-3, 1e-3, 3e-3}
	r.cells[0] = cell{took: true, rounds: []float64{1e-3}}
	r.cells[1] = cell{took: true, failed: "crashed"}
	r.cells[2] = cell{took: true, rounds: []float64{3}}
	r.finish()
	return []row{r}
}

func TestTheTableShowsValuesRatiosAndFailures(t *testing.T) {
	var b strings.Builder
	require.NoError(t, writeTable(&b, sample()))
	require.Contains(t, b.String(), "| 2 ms | 1 ms (0.50×) | failed | 3 s (1,500×) |  |  |  |\n")
	require.Contains(t, b.String(), "less (± 50 %)")
	require.Contains(t, b.String(), contenders[1].name+": failed, crashed")
}

func TestTheChartIsWellFormedAndFitsAPhone(t *testing.T) {
	var b strings.Builder
	require.NoError(t, writeChart(&b, sample(), "2 cores"))
	wellFormed(t, b.String())
	require.Contains(t, b.String(), "0.50×")
	require.Contains(t, b.String(), "1,500×")
	for _, w := range works(tiny) {
		for _, m := range w.metrics {
			require.LessOrEqual(t, len([]rune(plain(m.title))), 54, "%q is too wide", m.title)
		}
	}
}

func wellFormed(t *testing.T, doc string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(doc))
	for {
		if _, err := d.Token(); err == io.EOF {
			return
		} else {
			require.NoError(t, err)
		}
	}
}

func TestNumbersAreShownWithThreeDigits(t *testing.T) {
	for want, got := range map[string]string{
		"–":         seconds.format(math.NaN()),
		"0 ns":      seconds.format(0),
		"1.23 µs":   seconds.format(1.234e-6),
		"12.3 ms":   seconds.format(0.01234),
		"123 s":     seconds.format(123.4),
		"1 GiB":     size(1 << 30),
		"1.50 KiB":  size(1536),
		"207":       count.format(207),
		"0.07":      count.format(0.07),
		"0.005×":    formatRatio(.00498),
		"0.02×":     formatRatio(.0246),
		"237×":      formatRatio(237.4),
		"12":        thousands(12),
		"12,345":    thousands(12345),
		"1,234,567": thousands(1234567),
	} {
		require.Equal(t, want, got)
	}
}
