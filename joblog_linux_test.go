package jobs_test

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// readText reads a file.
func readText(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(data)
}

// ended starts a job and waits for its end.
func ended(t testing.TB, s *jobs.Supervisor, spec jobs.Spec) jobs.Snapshot {
	t.Helper()
	return awaitEnd(t, s, start(t, s, spec).ID)
}

// eventsOf takes the notices and returns the events of one job, in order.
func eventsOf(s *jobs.Supervisor, id string) (events []string) {
	for _, n := range s.Drain() {
		if n.ID == id {
			events = append(events, n.Event)
		}
	}
	return events
}

func TestALogFileHasAHeaderTheOutputAndAFooter(t *testing.T) {
	s := newSupervisor(t, withLogs(t, jobs.Config{}))
	gate := newGate(t)
	spec := gate.gated(`echo out; echo err >&2; printf end; read -r _ <"$GATE"; exit 7`)
	spec.Tool = "build"
	snap := start(t, s, spec)
	require.True(t, filepath.IsAbs(snap.LogPath))
	awaitOutput(t, s, snap.ID, "end")
	header := fmt.Sprintf("# %s (build), %s\n# bash -c ", snap.ID, snap.Started.Format(time.RFC3339))
	require.True(t, eventually(func() bool { return strings.HasSuffix(readText(t, snap.LogPath), "\nend") }))
	text := readText(t, snap.LogPath)
	assert.True(t, strings.HasPrefix(text, header), "%q", text)
	assert.True(t, strings.HasSuffix(text, "\n\nout\nerr\nend"), "no footer before the end, in %q", text)
	gate.open(t)
	awaitEnd(t, s, snap.ID)
	require.True(t, eventually(func() bool { return strings.HasSuffix(readText(t, snap.LogPath), " bytes in all\n") }))
	rest := strings.TrimPrefix(readText(t, snap.LogPath), text)
	assert.Regexp(t, `^\n# failed, exit 7, after \S.*; 11 bytes in all\n$`, rest)
	end, err := s.Check(snap.ID)
	require.NoError(t, err)
	assert.NoError(t, end.LogErr)
}

func TestALogFileIsWholeWhereMemoryKeepsTheEnd(t *testing.T) {
	s := newSupervisor(t, withLogs(t, jobs.Config{TailBytes: 16 << 10}))
	snap := ended(t, s, bash(`head -c 50000 /dev/zero | tr '\0' x; echo " the end"`))
	c, err := s.Output(snap.ID, -16384, 0)
	require.NoError(t, err)
	require.Len(t, c.Data, 16384)
	require.Equal(t, strings.Repeat("x", 50_000)+" the end\n", logBody(t, snap.LogPath))
}

func TestWhatAJobPrintsForgesNothingInItsLogFile(t *testing.T) {
	for name, output := range map[string]string{
		"nothing":      "",
		"footer":       "\n# completed, exit 0, after 1 s; 0 bytes in all\n",
		"mark":         "\n# 1000 bytes are not in this file\n",
		"header":       "# job-1 (x), 2020\n# true\n\n",
		"binary":       "\x00\xff\xfe\x1b[2J\r\x00",
		"no end":       "abc",
		"empty lines":  "\n\n\n",
		"half a rune":  "\xe2\x82",
		"long no line": strings.Repeat("#", 300_000),
	} {
		t.Run(name, func(t *testing.T) {
			cfg := withLogs(t, jobs.Config{HeadBytes: -1, TailBytes: -1})
			s := newSupervisor(t, cfg)
			path := filepath.Join(t.TempDir(), "output")
			require.NoError(t, os.WriteFile(path, []byte(output), 0o600))
			snap := ended(t, s, jobs.Spec{Argv: []string{"cat", path}})
			require.Equal(t, output, logBody(t, snap.LogPath))
			for range 2 {
				require.Equal(t, output, string(readAll(t, s.Output, snap.ID)))
				s = restarted(t, s, cfg)
			}
		})
	}
}

func TestNoNameOfAToolOrCommandForgesALogFile(t *testing.T) {
	cfg := withLogs(t, jobs.Config{})
	s := newSupervisor(t, cfg)
	spec := jobs.Spec{Tool: "../../x\n\nforged", Tag: "/etc", Argv: []string{"printf", "%s", "a\n\nb\x1b[2J", strings.Repeat("c", 100_000)}}
	snap := ended(t, s, spec)
	require.Equal(t, filepath.Join(cfg.Dir, "logs", snap.ID+".log"), snap.LogPath)
	require.Equal(t, "a\n\nb\x1b[2J"+strings.Repeat("c", 100_000), logBody(t, snap.LogPath))
	header, _, _ := strings.Cut(readText(t, snap.LogPath), "\n\n")
	require.Len(t, strings.Split(header, "\n"), 2, "%q", header)
	require.NotContains(t, header, "\x1b")
	require.Less(t, len(header), 2000)
}

func TestLogFilesAreForTheirUserOnly(t *testing.T) {
	cfg := withLogs(t, jobs.Config{})
	s := newSupervisor(t, cfg)
	spec := bash("echo x; echo y >&2")
	spec.SplitStderr = true
	snap := ended(t, s, spec)
	paths, err := filepath.Glob(filepath.Join(cfg.Dir, "logs", "*"))
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(cfg.Dir, "logs", snap.ID+".err.log"), snap.LogPath}, paths)
	for _, path := range append(paths, filepath.Dir(snap.LogPath)) {
		fi, err := os.Stat(path)
		require.NoError(t, err)
		require.Zero(t, fi.Mode().Perm()&0o077, "%s", path)
	}
}

func TestAJobStartedWithoutALogLimitHasNoLogFile(t *testing.T) {
	cfg := jobs.Config{Dir: t.TempDir()}
	s := newSupervisor(t, cfg)
	snap := ended(t, s, bash("echo x"))
	require.Empty(t, snap.LogPath)
	require.Empty(t, filesUnder(filepath.Join(cfg.Dir, "logs")))
}

func TestALogFileNeverPassesItsLimit(t *testing.T) {
	const limit = 64 << 10
	s := newSupervisor(t, withLogs(t, jobs.Config{LogLimit: limit}))
	snap := start(t, s, jobs.Spec{Argv: []string{"yes", strings.Repeat("y", 200)}})
	size := func() int64 {
		fi, err := os.Stat(snap.LogPath)
		require.NoError(t, err)
		require.LessOrEqual(t, fi.Size(), int64(limit))
		return fi.Size()
	}
	require.True(t, eventually(func() bool {
		size()
		now, err := s.Check(snap.ID)
		require.NoError(t, err)
		return now.OutputTotal > 100*limit
	}))
	cancel(t, s, snap.ID)
	require.Greater(t, size(), int64(limit-1000), "the end is there too")
}

func TestACutLogGoesOnAndIsToldOnce(t *testing.T) {
	s := newSupervisor(t, withLogs(t, jobs.Config{LogLimit: 16 << 10}))
	gate := newGate(t)
	id := start(t, s, gate.gated(`seq 100000; read -r _ <"$GATE"; echo last; exit 5`)).ID
	require.True(t, eventually(func() bool { return len(s.List().Jobs) == 1 && isPoked(s.Ready()) }))
	notices := s.Drain()
	require.Len(t, notices, 1)
	assert.Equal(t, jobs.EventLogStopped, notices[0].Event)
	assert.Equal(t, id, notices[0].ID)
	assert.Equal(t, jobs.Running, notices[0].State)
	assert.Contains(t, notices[0].Line, "full at ")
	gate.open(t)
	snap := awaitEnd(t, s, id)
	require.Equal(t, "failed, exit 5", snap.Outcome())
	require.Equal(t, []string{jobs.EventFailed}, eventsOf(s, id))
	require.True(t, strings.HasSuffix(logBody(t, snap.LogPath), "\n100000\nlast\n"))
	require.Zero(t, len(eventsOf(s, id)))
}

func isPoked(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func TestThatALogWasCutIsToldBeforeTheEnd(t *testing.T) {
	s := newSupervisor(t, withLogs(t, jobs.Config{LogLimit: 16 << 10}))
	for range 20 {
		id := ended(t, s, bash("seq 10000")).ID
		require.Equal(t, []string{jobs.EventLogStopped, jobs.EventCompleted}, eventsOf(s, id))
	}
}

func TestAFullLogStopsAJobThatIsToStop(t *testing.T) {
	const limit = 1 << 20
	s := newSupervisor(t, withLogs(t, jobs.Config{LogLimit: limit}))
	spec := jobs.Spec{Argv: []string{"yes"}, LogFull: jobs.StopJob}
	snap := ended(t, s, spec)
	require.Equal(t, jobs.Failed, snap.State)
	require.Equal(t, jobs.ReasonOutputLimit, snap.Reason)
	require.Equal(t, []string{jobs.EventFailed}, eventsOf(s, snap.ID))
	fi, err := os.Stat(snap.LogPath)
	require.NoError(t, err)
	require.LessOrEqual(t, fi.Size(), int64(limit))
}

func TestAFunctionStopsWhereItsLogIsFull(t *testing.T) {
	s := newSupervisor(t, withLogs(t, jobs.Config{LogLimit: 16 << 10}))
	spec := function(func(ctx context.Context, out io.Writer) (any, error) {
		for ctx.Err() == nil {
			io.WriteString(out, "line\n")
		}
		return nil, ctx.Err()
	})
	spec.LogFull = jobs.StopJob
	require.Equal(t, jobs.ReasonOutputLimit, ended(t, s, spec).Reason)
}

func TestWhatAFunctionWritesAtOnceIsInItsLogFile(t *testing.T) {
	// More than a reader of a pipe ever sees at once.
	s := newSupervisor(t, withLogs(t, jobs.Config{HeadBytes: -1, TailBytes: 10}))
	want := strings.Repeat("0123456789abcde\n", 100_000)
	snap := ended(t, s, function(func(_ context.Context, out io.Writer) (any, error) {
		io.WriteString(out, want)
		return nil, nil
	}))
	require.NoError(t, snap.LogErr)
	requireStream(t, s.Output, snap.ID, want)
}

func TestWhatManyWritersOfAFunctionPrintIsInItsLogFile(t *testing.T) {
	const writers, lines = 16, 20
	s := newSupervisor(t, withLogs(t, jobs.Config{HeadBytes: -1, TailBytes: 10}))
	snap := ended(t, s, function(func(_ context.Context, out io.Writer) (any, error) {
		var wg sync.WaitGroup
		for n := range writers {
			wg.Go(func() {
				for range lines {
					io.WriteString(out, strings.Repeat(string(rune('a'+n)), 50_000)+"\n")
				}
			})
		}
		wg.Wait()
		return nil, nil
	}))
	require.NoError(t, snap.LogErr)
	data := string(readAll(t, s.Output, snap.ID))
	require.Len(t, data, writers*lines*50_001)
	for line := range strings.Lines(data) {
		require.Equal(t, strings.Repeat(line[:1], 50_000)+"\n", line)
	}
}

func TestTheLogOfADemotedRunIsWhole(t *testing.T) {
	s := newSupervisor(t, withLogs(t, jobs.Config{HeadBytes: -1, TailBytes: -1}))
	gate := newGate(t)
	r, err := s.Run(testContext(t), gate.gated(`seq 1000; read -r _ <"$GATE"; seq 1001 50000`), 0)
	require.NoError(t, err)
	require.Equal(t, jobs.Running, r.State)
	gate.open(t)
	awaitEnd(t, s, r.ID)
	requireStream(t, s.Output, r.ID, seq(1, 50_000))
}

func TestARunThatAnswersLeavesItsLogFile(t *testing.T) {
	s := newSupervisor(t, withLogs(t, jobs.Config{LogLimit: 16 << 10}))
	r, err := s.Run(testContext(t), bash("seq 10000"), jobs.NoDetach)
	require.NoError(t, err)
	require.Equal(t, jobs.Completed, r.State)
	require.True(t, strings.HasSuffix(logBody(t, r.LogPath), "\n10000\n"))
	require.Empty(t, s.Drain(), "its answer has told all")
}

func TestAJobThatDoesNotStartLeavesNoLogFile(t *testing.T) {
	cfg := withLogs(t, jobs.Config{})
	s := newSupervisor(t, cfg)
	spec := jobs.Spec{Argv: []string{"/no/such/program"}, SplitStderr: true}
	_, err := s.Start(t.Context(), spec)
	require.Error(t, err)
	require.Empty(t, filesUnder(filepath.Join(cfg.Dir, "logs")))
}

func TestALogFileOutlivesItsCollectedJob(t *testing.T) {
	s := newSupervisor(t, withLogs(t, jobs.Config{}))
	r := runScript(t, s, "seq 100000")
	require.Equal(t, seq(1, 100_000), logBody(t, r.LogPath))
}

func TestALogOfLeftoversEndsWithItsJob(t *testing.T) {
	s := newSupervisor(t, withLogs(t, jobs.Config{HeadBytes: -1, TailBytes: -1}))
	gate := newGate(t)
	spec := gate.gated(`echo first; (read -r _ <"$GATE"; seq 100000; read -r _ <"$GATE") & exit 0`)
	spec.Leftovers = jobs.KeepLeftovers
	snap := ended(t, s, spec)
	gate.open(t)
	require.True(t, eventually(func() bool {
		now, err := s.Check(snap.ID)
		require.NoError(t, err)
		return now.LateBytes == int64(len(seq(1, 100_000)))
	}))
	require.Equal(t, "first\n", logBody(t, snap.LogPath))
	gate.open(t)
}

func TestAFloodThatGoesOnPastTheExitIsInTheLogFile(t *testing.T) {
	// What a pipe still holds, and what is printed while that is taken, is more
	// than one read.
	s := newSupervisor(t, withLogs(t, jobs.Config{HeadBytes: -1, TailBytes: -1, DrainGrace: time.Millisecond}))
	for range 3 {
		spec := bash("yes & exit 0")
		spec.Leftovers = jobs.KeepLeftovers
		snap := ended(t, s, spec)
		for _, p := range snap.Leftovers {
			endProcess(t, p.PID)
		}
		require.NoError(t, snap.LogErr)
		requireStream(t, s.Output, snap.ID, strings.Repeat("y\n", int(snap.OutputTotal)/2+1)[:snap.OutputTotal])
	}
}

func TestAJobWithoutMemoryForItsOutputHasALogFile(t *testing.T) {
	s := newSupervisor(t, withLogs(t, jobs.Config{OutputMemory: 1, KillOverMemory: true}))
	snap := ended(t, s, jobs.Spec{Argv: []string{"yes"}})
	require.Equal(t, jobs.ReasonOutputLimit, snap.Reason)
	require.NoError(t, snap.LogErr)
	requireStream(t, s.Output, snap.ID, strings.Repeat("y\n", int(snap.OutputTotal)/2+1)[:snap.OutputTotal])
}

func TestALogFileCostsARunningJobOneDescriptor(t *testing.T) {
	count := func(cfg jobs.Config, split bool) int {
		const n = 10
		cfg.MaxRunning = 2 * n
		s := newSupervisor(t, cfg)
		gate := newGate(t)
		spec := gate.gated(`read -r _ <"$GATE"`)
		spec.SplitStderr = split
		start(t, s, spec) // and with it what is opened once
		before := descriptors()
		for range n {
			start(t, s, spec)
		}
		opened := descriptors() - before
		for range n + 1 {
			gate.open(t)
		}
		for _, snap := range s.List().Jobs {
			awaitEnd(t, s, snap.ID)
		}
		require.Zero(t, opened%n)
		return opened / n
	}
	dir := func() jobs.Config { return jobs.Config{Dir: t.TempDir()} }
	assert.Equal(t, count(dir(), false)+1, count(withLogs(t, jobs.Config{}), false))
	assert.Equal(t, count(dir(), true)+2, count(withLogs(t, jobs.Config{}), true))
}

func TestManyJobsWithLogFilesGiveAllBack(t *testing.T) {
	const n = 500
	cfg := withLogs(t, jobs.Config{MaxRunning: 20, LogBudget: 64 << 10})
	s := newSupervisor(t, cfg)
	runScript(t, s, "true")
	before := descriptors()
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for range n / 20 {
				snap, err := s.Start(context.Background(), jobs.Spec{Argv: []string{"echo", "x"}})
				if !assert.NoError(t, err) {
					return
				}
				r, err := s.Collect(context.Background(), snap.ID)
				assert.NoError(t, err)
				assert.NoError(t, r.LogErr)
			}
		})
	}
	wg.Wait()
	require.True(t, eventually(func() bool { return descriptors() <= before }), "%d, before %d", descriptors(), before)
	require.LessOrEqual(t, sizeUnder(filepath.Join(cfg.Dir, "logs")), cfg.LogBudget)
}

func TestAllLogFilesStayWithinTheirBudget(t *testing.T) {
	const budget, jobsAtOnce = 300_000, 20
	cfg := withLogs(t, jobs.Config{MaxRunning: jobsAtOnce, LogBudget: budget, LogLimit: 100_000})
	s := newSupervisor(t, cfg)
	size := func() int64 { return sizeUnder(filepath.Join(cfg.Dir, "logs")) }
	var ids []string
	for range jobsAtOnce {
		ids = append(ids, start(t, s, jobs.Spec{Argv: []string{"yes"}}).ID)
	}
	told := make(map[string]int)
	require.True(t, eventually(func() bool {
		require.LessOrEqual(t, size(), int64(budget))
		for _, n := range s.Drain() {
			require.Equal(t, jobs.EventLogStopped, n.Event)
			told[n.ID]++
		}
		return len(told) == jobsAtOnce
	}), "only %d were told", len(told))
	for _, id := range ids {
		require.Equal(t, 1, told[id])
		cancel(t, s, id)
		require.LessOrEqual(t, size(), int64(budget))
	}
	// What the ended ones took makes room.
	snap := ended(t, s, bash("seq 1000"))
	require.NoError(t, snap.LogErr)
	require.Equal(t, seq(1, 1000), logBody(t, snap.LogPath))
	require.LessOrEqual(t, size(), int64(budget))
}

func TestAJobThatFindsNoRoomForALogFileIsToldOf(t *testing.T) {
	cfg := withLogs(t, jobs.Config{LogBudget: 2000})
	s := newSupervisor(t, cfg)
	first := start(t, s, jobs.Spec{Argv: []string{"yes"}})
	require.True(t, eventually(func() bool { return len(eventsOf(s, first.ID)) == 1 }))
	for _, spec := range []jobs.Spec{bash("echo x"), function(func(_ context.Context, out io.Writer) (any, error) {
		io.WriteString(out, "x\n")
		return nil, nil
	})} {
		snap := ended(t, s, spec)
		require.Equal(t, jobs.Completed, snap.State)
		require.Error(t, snap.LogErr)
		require.Equal(t, []string{jobs.EventLogStopped, jobs.EventCompleted}, eventsOf(s, snap.ID))
		require.Equal(t, "x\n", string(readAll(t, s.Output, snap.ID)))
	}
	spec := jobs.Spec{Argv: []string{"yes"}, LogFull: jobs.StopJob}
	require.Equal(t, jobs.ReasonOutputLimit, ended(t, s, spec).Reason)
	require.LessOrEqual(t, sizeUnder(filepath.Dir(first.LogPath)), cfg.LogBudget)
}

func TestTheBudgetIsNotUsedUpBySmallLogsAndFailedStarts(t *testing.T) {
	const budget = 64 << 10
	s := newSupervisor(t, withLogs(t, jobs.Config{LogBudget: budget}))
	for range 300 {
		_, err := s.Start(t.Context(), jobs.Spec{Argv: []string{"/no/such/program"}})
		require.Error(t, err)
	}
	first := ended(t, s, returning(nil))
	for range 30 {
		ended(t, s, returning(nil))
	}
	// All of them together take a few thousand bytes.
	require.FileExists(t, first.LogPath)
	snap := ended(t, s, jobs.Spec{Argv: []string{"seq", "5000"}})
	require.NoError(t, snap.LogErr)
	require.Equal(t, seq(1, 5000), logBody(t, snap.LogPath))
	require.FileExists(t, first.LogPath)
}

func TestOldLogsMakeRoomOldestFirst(t *testing.T) {
	cfg := withLogs(t, jobs.Config{LogBudget: 100_000})
	s := newSupervisor(t, cfg)
	gate := newGate(t)
	running := start(t, s, gate.gated(`echo running; read -r _ <"$GATE"`))
	awaitOutput(t, s, running.ID, "running")
	var logs []string
	age := func(path string, d time.Duration) {
		when := time.Now().Add(-d)
		require.NoError(t, os.Chtimes(path, when, when))
	}
	for n := range 3 {
		snap := ended(t, s, bash(`head -c 30000 /dev/zero`))
		age(snap.LogPath, time.Duration(10-n)*time.Minute)
		logs = append(logs, snap.LogPath)
	}
	age(running.LogPath, time.Hour)
	ended(t, s, bash(`head -c 30000 /dev/zero`))
	require.NoFileExists(t, logs[0])
	require.FileExists(t, logs[1])
	require.FileExists(t, logs[2])
	require.FileExists(t, running.LogPath, "it is being written")
	gate.open(t)
}

func TestLogsGoOnceTheyAreTooOld(t *testing.T) {
	cfg := withLogs(t, jobs.Config{LogAge: time.Minute})
	s := newSupervisor(t, cfg)
	old, fresh := ended(t, s, bash("echo old")), ended(t, s, bash("echo new"))
	past := time.Now().Add(-2 * time.Minute)
	require.NoError(t, os.Chtimes(old.LogPath, past, past))
	s = restarted(t, s, cfg)
	require.NoFileExists(t, old.LogPath)
	require.FileExists(t, fresh.LogPath)
	c, err := s.Output(old.ID, 0, 0)
	require.NoError(t, err)
	require.Equal(t, jobs.Chunk{From: 4, Next: 4, Dropped: 4, Total: 4, EOF: true, Data: []byte{}}, c)
	require.Equal(t, "new\n", string(readAll(t, s.Output, fresh.ID)))
}

func TestLogsGoOnceTheyAreTooOldWhileTheHostLives(t *testing.T) {
	cfg := withLogs(t, jobs.Config{LogAge: time.Millisecond})
	s := newSupervisor(t, cfg)
	gate := newGate(t)
	running := start(t, s, gate.gated(`read -r _ <"$GATE"`))
	old := ended(t, s, bash("echo old"))
	past := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(old.LogPath, past, past))
	require.NoError(t, os.Chtimes(running.LogPath, past, past))
	require.True(t, eventually(func() bool {
		collect(t, s, start(t, s, returning(nil)).ID)
		_, err := os.Stat(old.LogPath)
		return os.IsNotExist(err)
	}))
	require.FileExists(t, running.LogPath, "it is being written")
	gate.open(t)
}

func TestALogOfAChildIsInTheSameDirectory(t *testing.T) {
	cfg := withLogs(t, jobs.Config{})
	s := newSupervisor(t, cfg)
	c, err := s.Child(jobs.ChildConfig{Name: "child"})
	require.NoError(t, err)
	snap := ended(t, c, bash("seq 100000"))
	require.Equal(t, filepath.Join(cfg.Dir, "logs"), filepath.Dir(snap.LogPath))
	requireStream(t, c.Output, snap.ID, seq(1, 100_000))
	_, err = s.Output(snap.ID, 0, 0)
	require.ErrorIs(t, err, jobs.ErrForeign)
}

func TestAReaderWithNoRoomMissesNothing(t *testing.T) {
	s := newSupervisor(t, withLogs(t, jobs.Config{HeadBytes: -1, TailBytes: -1}))
	snap := ended(t, s, bash("seq 1000"))
	c, err := s.ReadOutput(snap.ID, 10, nil)
	require.NoError(t, err)
	require.Equal(t, []int64{10, 10, 0}, []int64{c.From, c.Next, c.Dropped})
}

func TestACollectedJobsOutputIsNotReadFromItsLogFile(t *testing.T) {
	s := newSupervisor(t, withLogs(t, jobs.Config{HeadBytes: -1, TailBytes: -1}))
	r := runScript(t, s, "seq 1000")
	_, err := s.Output(r.ID, 0, 0)
	require.ErrorIs(t, err, jobs.ErrCollected)
	fi, err := os.Lstat(r.LogPath)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), fi.Mode())
}
