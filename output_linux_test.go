package jobs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

func init() {
	helpers["output of a gigabyte"] = outputOfAGigabyte
}

// alternation writes o1 to standard output, e1 to standard error, and so on.
const alternation = `for i in $(seq 1 200); do echo o$i; echo e$i >&2; done`

func TestOutputKeepsTheExactOrderOfBothStreams(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	var want strings.Builder
	for n := range 200 {
		fmt.Fprintf(&want, "o%d\ne%d\n", n+1, n+1)
	}
	r := runScript(t, s, alternation)
	require.Equal(t, want.String(), string(r.Output.Bytes()))
	require.Empty(t, r.Stderr.Bytes())
	require.Zero(t, r.StderrTotal)
}

func TestSplitStderrGivesEachStreamALogOfItsOwn(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	var stdout, stderr strings.Builder
	for n := range 200 {
		fmt.Fprintf(&stdout, "o%d\n", n+1)
		fmt.Fprintf(&stderr, "e%d\n", n+1)
	}
	spec := bash(alternation)
	spec.SplitStderr = true
	id := start(t, s, spec).ID
	awaitEnd(t, s, id)
	require.Equal(t, stdout.String(), string(readAll(t, s.Output, id)))
	require.Equal(t, stderr.String(), string(readAll(t, s.Stderr, id)))
	r := collect(t, s, id)
	require.Equal(t, stdout.String(), string(r.Output.Bytes()))
	require.Equal(t, stderr.String(), string(r.Stderr.Bytes()))
	require.EqualValues(t, stdout.Len(), r.OutputTotal)
	require.EqualValues(t, stderr.Len(), r.StderrTotal)
}

func TestSplitStderrJoinsTheResultFileToStandardOutput(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	spec := bash(`echo out; echo err >&2; echo result >"$LLM_OUTPUT"`)
	spec.SplitStderr = true
	r := collect(t, s, start(t, s, spec).ID)
	require.Equal(t, "out\nresult\n", string(r.Output.Bytes()))
	require.Equal(t, "err\n", string(r.Stderr.Bytes()))
}

// A reader is Output or Stderr of a Supervisor.
type reader func(id string, from int64, max int) (jobs.Chunk, error)

// follow reads what a reader gives from the beginning to the end, in chunks of
// at most size bytes. It returns what it got and how much it was told to have
// missed.
func follow(read reader, id string, size int) (data []byte, dropped int64, err error) {
	var next int64
	done := eventually(func() bool {
		for {
			var c jobs.Chunk
			if c, err = read(id, next, size); err != nil {
				return true
			}
			switch {
			case c.From != next+c.Dropped, c.Next != c.From+int64(len(c.Data)), c.Next > c.Total:
				err = fmt.Errorf("from %d: a chunk that does not fit: %+v", next, c)
			case size > 0 && len(c.Data) > size:
				err = fmt.Errorf("%d bytes where %d were asked for", len(c.Data), size)
			case c.EOF && c.Next != c.Total:
				err = fmt.Errorf("EOF at %d of %d", c.Next, c.Total)
			}
			data, dropped, next = append(data, c.Data...), dropped+c.Dropped, c.Next
			if err != nil || c.EOF {
				return true
			}
			if len(c.Data) == 0 {
				return false
			}
		}
	})
	if !done {
		err = errors.New("no EOF")
	}
	return data, dropped, err
}

// readAll reads all output of a job, of which nothing is dropped.
func readAll(t testing.TB, read reader, id string) []byte {
	t.Helper()
	data, dropped, err := follow(read, id, 0)
	require.NoError(t, err)
	require.Zero(t, dropped)
	return data
}

func TestReadersDoNotDisturbEachOther(t *testing.T) {
	s := newSupervisor(t, jobs.Config{TailBytes: 1 << 20})
	gate := newGate(t)
	id := start(t, s, gate.gated(`read -r _ <"$GATE"; for i in 1 2 3 4 5; do seq 1 4000; done`)).ID
	want := strings.Repeat(seq(1, 4000), 5)
	var readers sync.WaitGroup
	for _, size := range []int{1000, 7777, 0, 100_000} {
		readers.Go(func() {
			data, dropped, err := follow(s.Output, id, size)
			assert.NoError(t, err)
			assert.Zero(t, dropped)
			assert.Equal(t, want, string(data), "read by %d", size)
		})
	}
	readers.Go(func() {
		buf := make([]byte, 333)
		data, dropped, err := follow(func(id string, from int64, _ int) (jobs.Chunk, error) {
			return s.ReadOutput(id, from, buf)
		}, id, len(buf))
		assert.NoError(t, err)
		assert.Zero(t, dropped)
		assert.Equal(t, want, string(data))
	})
	gate.open(t)
	readers.Wait()
	require.Equal(t, want, string(collect(t, s, id).Output.Bytes()))
}

func TestTheSameOffsetGivesTheSameBytes(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	gate := newGate(t)
	id := start(t, s, gate.gated(`seq 1 100; read -r _ <"$GATE"; seq 101 200`)).ID
	awaitOutput(t, s, id, "\n100\n")
	read := func(from int64, max int) jobs.Chunk {
		c, err := s.Output(id, from, max)
		require.NoError(t, err)
		return c
	}
	first := read(50, 20)
	require.Equal(t, seq(1, 100)[50:70], string(first.Data))
	require.Equal(t, first, read(50, 20))
	gate.open(t)
	awaitEnd(t, s, id)
	again := read(50, 20)
	require.Equal(t, first.Data, again.Data)
	require.EqualValues(t, len(seq(1, 200)), again.Total)
}

func TestOutputContract(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	gate := newGate(t)
	id := start(t, s, gate.gated(`printf 0123456789; read -r _ <"$GATE"`)).ID
	awaitOutput(t, s, id, "9")
	for _, ended := range []bool{false, true} {
		if ended {
			gate.open(t)
			awaitEnd(t, s, id)
		}
		for _, c := range []struct {
			from       int64
			max        int
			start, end int64
		}{
			{0, 0, 0, 10},
			{0, -1, 0, 10},
			{0, 4, 0, 4},
			{4, 4, 4, 8},
			{8, 4, 8, 10},
			{0, 1 << 40, 0, 10},
			{10, 4, 10, 10},
			{11, 4, 10, 10}, // nothing can be asked for that is not written
			{1 << 62, 4, 10, 10},
			{-3, 0, 7, 10},
			{-3, 2, 7, 9},
			{-10, 0, 0, 10},
			{-11, 0, 0, 10},
			{-1 << 63, 0, 0, 10},
		} {
			got, err := s.Output(id, c.from, c.max)
			require.NoError(t, err)
			want := jobs.Chunk{
				From: c.start, Next: c.end, Total: 10, EOF: ended && c.end == 10,
				Data: []byte("0123456789")[c.start:c.end],
			}
			require.Equal(t, want, got, "Output(%d, %d), ended %t", c.from, c.max, ended)
		}
		buf := make([]byte, 5)
		got, err := s.ReadOutput(id, 6, buf)
		require.NoError(t, err)
		require.Equal(t, "6789", string(got.Data))
		require.Equal(t, ended, got.EOF)
		require.Same(t, &buf[0], &got.Data[0], "the bytes are in the buffer of the caller")
		got, err = s.ReadOutput(id, 6, nil)
		require.NoError(t, err)
		require.Equal(t, jobs.Chunk{From: 6, Next: 6, Total: 10}, clean(got))

		// Without SplitStderr there is nothing to read, and never was.
		got, err = s.Stderr(id, 0, 0)
		require.NoError(t, err)
		require.Equal(t, jobs.Chunk{EOF: ended}, clean(got))
	}
}

// clean returns a chunk whose Data is nil if it is empty.
func clean(c jobs.Chunk) jobs.Chunk {
	if len(c.Data) == 0 {
		c.Data = nil
	}
	return c
}

func TestOutputGivesAllThatIsThereInOneChunk(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	id := start(t, s, bash("seq 1 2000")).ID
	awaitEnd(t, s, id)
	c, err := s.Output(id, 0, 0)
	require.NoError(t, err)
	require.Equal(t, seq(1, 2000), string(c.Data), "nothing was dropped, so nothing divides head and tail")
	require.True(t, c.EOF)
}

func TestACollectedJobHasNoOutput(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	spec := bash("echo out; echo err >&2")
	spec.SplitStderr = true
	id := start(t, s, spec).ID
	collect(t, s, id)
	for name, read := range map[string]reader{
		"Output": s.Output,
		"Stderr": s.Stderr,
		"ReadOutput": func(id string, from int64, max int) (jobs.Chunk, error) {
			return s.ReadOutput(id, from, make([]byte, 10))
		},
	} {
		c, err := read(id, 0, 0)
		require.ErrorIs(t, err, jobs.ErrCollected, name)
		var about *jobs.JobError
		require.ErrorAs(t, err, &about)
		require.Equal(t, id, about.ID)
		require.Equal(t, jobs.Completed, about.Job.State)
		require.Zero(t, c)
	}
	snap, err := s.Check(id)
	require.NoError(t, err)
	require.EqualValues(t, 4, snap.OutputTotal, "the counts stay")
	require.EqualValues(t, 4, snap.StderrTotal)
}

func TestOutputOfAnUnknownJobIsAnError(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	for _, read := range []reader{s.Output, s.Stderr} {
		_, err := read("job_0123456789abcdef0123", 0, 0)
		require.ErrorIs(t, err, jobs.ErrNotFound)
	}
}

func TestOutputIsCompleteAsSoonAsTheEndIsTold(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	want := strings.Repeat("x", 5000)
	spec := jobs.Spec{Argv: []string{"printf", "%s", want}}
	for range 300 {
		r := collect(t, s, start(t, s, spec).ID)
		require.Equal(t, want, string(r.Output.Bytes()))
		require.EqualValues(t, 5000, r.OutputTotal)
	}
}

func TestTextWithoutANewlineIsVisibleWhileTheJobRuns(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	gate := newGate(t)
	id := start(t, s, gate.gated(`printf 'Password: '; read -r _ <"$GATE"`)).ID
	require.Equal(t, "Password: ", awaitOutput(t, s, id, ": "))
	snap, err := s.Check(id)
	require.NoError(t, err)
	require.Equal(t, jobs.Running, snap.State)
	require.EqualValues(t, 10, snap.OutputTotal)
	gate.open(t)
	collect(t, s, id)
}

func TestTheLastLinesOfALongOutputAreThere(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	r := runScript(t, s, "seq 1 200000; echo LAST")
	require.True(t, strings.HasPrefix(string(r.Output.Bytes()), seq(1, 800)))
	require.True(t, strings.HasSuffix(string(r.Output.Bytes()), seq(195_000, 200_000)+"LAST\n"))
	requireExact(t, r, int64(len(seq(1, 200_000))+5))
}

// requireExact fails unless the counts of a result are exact: total bytes were
// written, and all that is not kept is counted as dropped.
func requireExact(t testing.TB, r jobs.Result, total int64) {
	t.Helper()
	require.Equal(t, total, r.OutputTotal)
	require.Equal(t, r.OutputTotal, int64(len(r.Output.Bytes()))+r.OutputDropped)
	require.Equal(t, r.Output.Total, r.OutputTotal)
	require.Equal(t, r.Output.Dropped, r.OutputDropped)
}

func TestALongLineIsKeptByteForByte(t *testing.T) {
	const line = `head -c 204800 /dev/zero | tr '\0' q; printf Z; echo; echo after`
	want := strings.Repeat("q", 204_800) + "Z\nafter\n"
	r := runScript(t, newSupervisor(t, jobs.Config{TailBytes: 256 << 10}), line)
	require.Equal(t, want, string(r.Output.Bytes()))
	requireExact(t, r, int64(len(want)))

	r = runScript(t, newSupervisor(t, jobs.Config{}), line)
	require.Len(t, r.Output.Pieces, 2)
	require.Equal(t, want[:jobs.DefaultHeadBytes], string(r.Output.Pieces[0].Data))
	require.Equal(t, want[len(want)-jobs.DefaultTailBytes:], string(r.Output.Pieces[1].Data))
	require.EqualValues(t, len(want)-jobs.DefaultTailBytes, r.Output.Pieces[1].From)
	requireExact(t, r, int64(len(want)))
}

func TestDroppedBytesAreCountedExactlyAtTheBorder(t *testing.T) {
	s := newSupervisor(t, jobs.Config{HeadBytes: 100, TailBytes: 1000})
	for n := 1098; n <= 1102; n++ {
		want := strings.Repeat("0123456789", 200)[:n]
		id := start(t, s, jobs.Spec{Argv: []string{"printf", "%s", want}}).ID
		awaitEnd(t, s, id)
		data, dropped, err := follow(s.Output, id, 0)
		require.NoError(t, err)
		require.EqualValues(t, max(0, n-1100), dropped)
		require.Equal(t, want[:100]+want[max(100, n-1000):], string(data))
		r := collect(t, s, id)
		require.EqualValues(t, dropped, r.OutputDropped)
		requireExact(t, r, int64(n))
	}
}

func TestOutputBeforeAViolentDeathIsKept(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	for range 20 {
		r := runScript(t, s, `for i in $(seq 1 50); do echo $i; done; kill -9 $$`)
		require.Equal(t, jobs.ReasonSignal, r.Reason)
		require.Equal(t, seq(1, 50), string(r.Output.Bytes()))
	}
}

func TestOutputBytesArriveUnchanged(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	all := make([]byte, 0, 512)
	for n := range 256 {
		all = append(all, byte(n), byte(255-n))
	}
	file := writeFile(t, t.TempDir(), "bytes", 0o600, string(all))
	r := collect(t, s, start(t, s, jobs.Spec{Argv: []string{"cat", file}}).ID)
	require.Equal(t, all, r.Output.Bytes())
}

func TestOutputLimitStopsAJobThatWritesMore(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	for _, split := range []bool{false, true} {
		spec := bash(`yes & yes >&2`)
		spec.OutputLimit, spec.SplitStderr = 1<<20, split
		r := collect(t, s, start(t, s, spec).ID)
		require.Equal(t, jobs.Failed, r.State)
		require.Equal(t, jobs.ReasonOutputLimit, r.Reason)
		require.Greater(t, r.OutputTotal+r.StderrTotal, int64(1<<20))
		require.Equal(t, r.OutputTotal, int64(len(r.Output.Bytes()))+r.OutputDropped)
		require.Equal(t, r.StderrTotal, int64(len(r.Stderr.Bytes()))+r.StderrDropped)
		require.Empty(t, r.Survivors)
	}
}

func TestOutputLimitAllowsExactlyThatMuch(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	for _, split := range []bool{false, true} {
		spec := bash(`printf '%0600d' 0; printf '%0400d' 0 >&2`)
		spec.OutputLimit, spec.SplitStderr = 1000, split
		r := collect(t, s, start(t, s, spec).ID)
		require.Equal(t, jobs.Completed, r.State)
		require.EqualValues(t, 1000, r.OutputTotal+r.StderrTotal)

		spec = bash(`printf '%0600d' 0; printf '%0401d' 0 >&2; exec sleep 60`)
		spec.OutputLimit, spec.SplitStderr = 1000, split
		r = collect(t, s, start(t, s, spec).ID)
		require.Equal(t, jobs.ReasonOutputLimit, r.Reason)
		require.EqualValues(t, 1001, r.OutputTotal+r.StderrTotal)
	}
}

func TestAFloodDoesNotHoldUpAStop(t *testing.T) {
	s := newSupervisor(t, jobs.Config{KillGrace: 200 * time.Millisecond})
	for name, script := range map[string]string{
		"one writer":           "exec yes",
		"a writer that stays":  "trap '' TERM; yes & yes & yes",
		"through another":      "yes | cat",
		"both streams at once": "yes & yes >&2",
	} {
		t.Run(name, func(t *testing.T) {
			spec := bash(script)
			spec.SplitStderr = strings.Contains(script, "2")
			id := start(t, s, spec).ID
			awaitOutput(t, s, id, "y\n")
			begin := time.Now()
			r := cancel(t, s, id)
			require.Less(t, time.Since(begin), 10*time.Second)
			require.Equal(t, jobs.Cancelled, r.State)
			require.Equal(t, r.OutputTotal, int64(len(r.Output.Bytes()))+r.OutputDropped)
			collect(t, s, id)

			spec.Timeout = 50 * time.Millisecond
			r = collect(t, s, start(t, s, spec).ID)
			require.Equal(t, jobs.ReasonTimeout, r.Reason)
			require.Less(t, r.Elapsed, 10*time.Second)
			require.Equal(t, r.OutputTotal, int64(len(r.Output.Bytes()))+r.OutputDropped)
		})
	}
}

func TestATimeoutKeepsWhatWasPrinted(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	spec := bash("printf unfinished; exec sleep 60")
	spec.Timeout = time.Second
	r := collect(t, s, start(t, s, spec).ID)
	require.Equal(t, jobs.ReasonTimeout, r.Reason)
	require.Equal(t, "unfinished", string(r.Output.Bytes()))
}

func TestWhatKeptLeftoversPrintIsCountedAndThrownAway(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	for _, split := range []bool{false, true} {
		gate := newGate(t)
		spec := gate.gated(`echo early; (read -r _ <"$GATE"; echo late; echo later >&2; read -r _ <"$GATE") & exit 0`)
		spec.Leftovers, spec.SplitStderr = jobs.KeepLeftovers, split
		id := start(t, s, spec).ID
		require.Zero(t, awaitEnd(t, s, id).LateBytes)
		gate.open(t)
		var snap jobs.Snapshot
		require.True(t, eventually(func() bool {
			var err error
			snap, err = s.Check(id)
			require.NoError(t, err)
			return snap.LateBytes == int64(len("late\nlater\n"))
		}), "%d late bytes", snap.LateBytes)
		require.EqualValues(t, 6, snap.OutputTotal)
		c, err := s.Output(id, 0, 0)
		require.NoError(t, err)
		require.Equal(t, "early\n", string(c.Data))
		require.True(t, c.EOF)
		gate.open(t)
		r := collect(t, s, id)
		require.Equal(t, "early\n", string(r.Output.Bytes()))
		require.Empty(t, r.Stderr.Bytes())
	}
}

func TestWithoutRoomForOutputItIsStillCounted(t *testing.T) {
	s := newSupervisor(t, jobs.Config{HeadBytes: -1, TailBytes: -1})
	id := start(t, s, bash("seq 1 1000")).ID
	awaitEnd(t, s, id)
	total := int64(len(seq(1, 1000)))
	data, dropped, err := follow(s.Output, id, 100)
	require.NoError(t, err)
	require.Empty(t, data)
	require.Equal(t, total, dropped)
	r := collect(t, s, id)
	require.Empty(t, r.Output.Bytes())
	requireExact(t, r, total)
}

func TestOutputOfOneJobStaysOutOfAnother(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 10})
	gate := newGate(t)
	var ids []string
	for n := range 10 {
		ids = append(ids, start(t, s, gate.gated(fmt.Sprintf(`read -r _ <"$GATE"; for i in $(seq 1 300); do echo %d; done`, n))).ID)
	}
	for range ids {
		gate.open(t)
	}
	for n, id := range ids {
		require.Equal(t, strings.Repeat(strconv.Itoa(n)+"\n", 300), string(collect(t, s, id).Output.Bytes()))
	}
}

func TestAGigabyteOfOutputCostsNoMemory(t *testing.T) {
	growth, err := strconv.Atoi(strings.TrimSpace(runHelper(t, "output of a gigabyte")))
	require.NoError(t, err)
	limit := 2 << 10
	if underRace() {
		limit *= 8 // the detector keeps a shadow of what is used
	}
	require.LessOrEqual(t, growth, limit, "KiB of resident memory")
}

// underRace reports whether the tests run under the race detector.
func underRace() bool {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return false
	}
	for _, setting := range info.Settings {
		if setting.Key == "-race" {
			return setting.Value == "true"
		}
	}
	return false
}

// outputOfAGigabyte prints by how many KiB the resident memory of the host
// grows while one job writes a gigabyte.
func outputOfAGigabyte() {
	s, err := jobs.New(jobs.Config{})
	check(err == nil, "%v", err)
	warmUp(s)
	debug.FreeOSMemory()
	os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // forget the peak
	before := memory("VmRSS")
	r := runIn(s, jobs.Spec{Argv: []string{"sh", "-c", "echo first; head -c 1000000000 /dev/zero; echo last"}})
	peak := memory("VmHWM")
	check(r.State == jobs.Completed, "%s", r.Outcome())
	out := r.Output.Bytes()
	check(bytes.HasPrefix(out, []byte("first\n\x00")), "the first line is gone")
	check(bytes.HasSuffix(out, []byte("\x00last\n")), "the last line is gone")
	check(r.OutputTotal == 1_000_000_011, "%d bytes", r.OutputTotal)
	check(int64(len(out))+r.OutputDropped == r.OutputTotal, "%d kept and %d dropped of %d", len(out), r.OutputDropped, r.OutputTotal)
	fmt.Println(peak - before)
	s.Close(context.Background())
}

// memory returns a figure of /proc/self/status in KiB.
func memory(name string) int {
	status, err := os.ReadFile("/proc/self/status")
	check(err == nil, "%v", err)
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == name+":" {
			kib, err := strconv.Atoi(fields[1])
			check(err == nil, "%v", err)
			return kib
		}
	}
	check(false, "no %s in /proc/self/status", name)
	return 0
}

func TestAJobMayDeleteItsWorkingDirectory(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	dir := filepath.Join(t.TempDir(), "work")
	require.NoError(t, os.Mkdir(dir, 0o700))
	spec := bash(`echo before; rm -rf "$PWD"; echo after; echo 1 >"$LLM_OUTPUT"`)
	spec.Dir = dir
	r := collect(t, s, start(t, s, spec).ID)
	require.Equal(t, jobs.Completed, r.State)
	require.Equal(t, "before\nafter\n1\n", string(r.Output.Bytes()))
	require.Equal(t, "1", string(r.File.JSON()))
}
