package jobs_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// half is how many numbers a job prints before something happens to its log.
const half = 30_000

// requireNothingWrong reads on to the end and fails if a byte is not that of the
// stream, or not counted.
func requireNothingWrong(t testing.TB, s *jobs.Supervisor, id, stream string) {
	t.Helper()
	kept, dropped := 0, int64(0)
	for next := int64(0); ; {
		c, err := s.Output(id, next, 1000)
		require.NoError(t, err)
		require.Equal(t, next+c.Dropped, c.From)
		require.True(t, stream[c.From:c.Next] == string(c.Data), "wrong bytes from %d on: %.50q", c.From, c.Data)
		kept, dropped, next = kept+len(c.Data), dropped+c.Dropped, c.Next
		if len(c.Data) == 0 {
			break
		}
	}
	require.EqualValues(t, len(stream), int64(kept)+dropped)
}

func TestWhatBecomesOfALogFileHarmsNoJob(t *testing.T) {
	swap := func(path string, put func() error) error {
		if err := os.Remove(path); err != nil {
			return err
		}
		return put()
	}
	other := strings.Repeat("not what the job printed\n", 100_000)
	for name, fault := range map[string]func(path string) error{
		"unlinked":  os.Remove,
		"truncated": func(path string) error { return os.Truncate(path, 0) },
		"shortened": func(path string) error { return os.Truncate(path, 5000) },
		"replaced": func(path string) error {
			return swap(path, func() error { return os.WriteFile(path, []byte(other), 0o600) })
		},
		"appended to": func(path string) error {
			f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			if err == nil {
				_, err = f.WriteString("x")
				f.Close()
			}
			return err
		},
		"truncated and filled": func(path string) error { return os.WriteFile(path, []byte(other[:100]), 0o600) },
		"made a directory":     func(path string) error { return swap(path, func() error { return os.Mkdir(path, 0o700) }) },
		"made a FIFO":          func(path string) error { return swap(path, func() error { return unix.Mkfifo(path, 0o600) }) },
		"made a link":          func(path string) error { return swap(path, func() error { return os.Symlink("/etc/passwd", path) }) },
		"moved":                func(path string) error { return os.Rename(filepath.Dir(path), filepath.Dir(path)+".old") },
		"directory gone":       func(path string) error { return os.RemoveAll(filepath.Dir(path)) },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := withLogs(t, jobs.Config{HeadBytes: 10, TailBytes: 10})
			s := newSupervisor(t, cfg)
			gate := newGate(t)
			snap := start(t, s, gate.gated(fmt.Sprintf(`seq %d; read -r _ <"$GATE"; seq %d`, half, half)))
			want := seq(1, half)
			awaitTotal(t, s, snap.ID, len(want))
			requireStream(t, s.Output, snap.ID, want)
			require.NoError(t, fault(snap.LogPath))
			if name != "appended to" && name != "moved" {
				requireNothingWrong(t, s, snap.ID, want)
			}
			gate.open(t)
			snap = awaitEnd(t, s, snap.ID)
			require.Equal(t, "completed, exit 0", snap.Outcome())
			if name == "moved" {
				return // it is whole, elsewhere
			}
			require.Error(t, snap.LogErr)
			want += want
			requireNothingWrong(t, s, snap.ID, want)
			assert.Equal(t, []string{jobs.EventLogStopped, jobs.EventCompleted}, eventsOf(s, snap.ID))
			s = restarted(t, s, cfg)
			requireNothingWrong(t, s, snap.ID, want)
		})
	}
}

func TestALogFileThatCannotBeMadeIsToldAndHarmsNoJob(t *testing.T) {
	cfg := withLogs(t, jobs.Config{})
	s := newSupervisor(t, cfg)
	logs := filepath.Join(cfg.Dir, "logs")
	require.NoError(t, os.RemoveAll(logs))
	require.NoError(t, os.WriteFile(logs, nil, 0o600))
	spec := bash("seq 100000; seq 10 >&2; exit 3")
	spec.SplitStderr = true
	for range 2 {
		snap := ended(t, s, spec)
		require.Equal(t, "failed, exit 3", snap.Outcome())
		require.ErrorIs(t, snap.LogErr, unix.ENOTDIR)
		events := eventsOf(s, snap.ID)
		require.Equal(t, jobs.EventLogStopped, events[0])
		require.Equal(t, jobs.EventFailed, events[len(events)-1])
		requireNothingWrong(t, s, snap.ID, seq(1, 100_000))
	}
}

// faultyLogs runs a job whose log file can no longer be written after the first
// half of its output, and checks that it goes on and what is told of it.
func faultyLogs(s *jobs.Supervisor, fault func(), cause error) {
	ctx := context.Background()
	in := bash(fmt.Sprintf("seq %d; read -r _; for n in 1 2 3 4 5 6 7 8 9 10; do seq %d; done; exit 4", half, half))
	in.Input = true
	snap := orExit(s.Start(ctx, in))
	first := seq(1, half)
	total := func() int64 { return orExit(s.Check(snap.ID)).OutputTotal }
	check(eventually(func() bool { return total() == int64(len(first)) }), "total %d", total())
	check(string(orExit(s.Output(snap.ID, 100, 100)).Data) == first[100:200], "wrong bytes before the fault")
	fault()
	w := orExit(s.Input(snap.ID))
	w.Write([]byte("\n"))
	w.Close()
	check(eventually(func() bool { return orExit(s.Check(snap.ID)).Ended() }), "no end")
	end := orExit(s.Check(snap.ID))
	check(end.Outcome() == "failed, exit 4", "%s", end.Outcome())
	check(end.LogErr != nil && strings.Contains(end.LogErr.Error(), cause.Error()), "%v", end.LogErr)
	var events []string
	for _, n := range s.Drain() {
		if n.ID == snap.ID {
			events = append(events, n.Event)
		}
	}
	check(fmt.Sprint(events) == fmt.Sprint([]string{jobs.EventLogStopped, jobs.EventFailed}), "%v", events)
	stream := strings.Repeat(first, 11)
	for next := int64(0); ; {
		c := orExit(s.Output(snap.ID, next, 0))
		check(stream[c.From:c.Next] == string(c.Data), "wrong bytes from %d", c.From)
		if c.EOF {
			break
		}
		next = c.Next
	}
	check(orExit(s.Output(snap.ID, 100, 100)).Dropped == 0, "what is in the file is not read from it")
}

func init() {
	hostHelper("logs on a full disk", func() {
		dir := os.Getenv("DIR")
		mountTemp(dir, "size=600k")
		s := orExit(jobs.New(jobs.Config{Dir: dir, LogLimit: 64 << 20, HeadBytes: 10, TailBytes: 10}))
		faultyLogs(s, func() {}, unix.ENOSPC)
		// And one that cannot even begin.
		snap := orExit(s.Start(context.Background(), bash("echo x")))
		check(eventually(func() bool { return orExit(s.Check(snap.ID)).Ended() }), "no end")
		check(orExit(s.Check(snap.ID)).Outcome() == "completed, exit 0", "harmed")
		orExit(s.Close(context.Background()))
	})
	hostHelper("logs under a limit on file sizes", func() {
		dir := os.Getenv("DIR")
		mountTemp(dir, "")
		s := orExit(jobs.New(jobs.Config{Dir: dir, LogLimit: 64 << 20, HeadBytes: 10, TailBytes: 10}))
		faultyLogs(s, func() {
			var old unix.Rlimit
			check(unix.Getrlimit(unix.RLIMIT_FSIZE, &old) == nil, "no limits")
			old.Cur = 4096
			check(unix.Setrlimit(unix.RLIMIT_FSIZE, &old) == nil, "cannot set the limit")
		}, unix.EFBIG)
	})
	hostHelper("logs in a read-only directory", func() {
		dir := os.Getenv("DIR")
		mountTemp(dir, "")
		logs := filepath.Join(dir, "logs")
		s := orExit(jobs.New(jobs.Config{Dir: dir, LogLimit: 1 << 20}))
		check(unix.Mount(logs, logs, "", unix.MS_BIND, "") == nil, "cannot bind")
		check(unix.Mount("", logs, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "") == nil, "cannot remount")
		r := orExit(s.Run(context.Background(), bash("echo x"), jobs.NoDetach))
		check(r.Outcome() == "completed, exit 0", "%s", r.Outcome())
		check(r.LogErr != nil && strings.Contains(r.LogErr.Error(), unix.EROFS.Error()), "%v", r.LogErr)
		check(string(r.Output.Bytes()) == "x\n", "%q", r.Output.Bytes())
		orExit(s.Close(context.Background()))
	})
}

func TestAFullDiskStopsALogFileAndNoJob(t *testing.T) {
	runMounting(t, "logs on a full disk", "DIR="+t.TempDir())
}

func TestALimitOnFileSizesStopsALogFileAndNoJob(t *testing.T) {
	runMounting(t, "logs under a limit on file sizes", "DIR="+t.TempDir())
}

func TestAReadOnlyDirectoryOfLogsHarmsNoJob(t *testing.T) {
	runMounting(t, "logs in a read-only directory", "DIR="+t.TempDir())
}

func init() {
	hostHelper("host that logs a flood", func() {
		s := orExit(jobs.New(jobs.Config{Dir: os.Getenv("RECORDS"), LogLimit: 1 << 30, HeadBytes: 10, TailBytes: 10}))
		spec := jobs.Spec{Argv: []string{"seq", "1000000000"}}
		if os.Getenv("CUT") != "" {
			spec = bash("while :; do echo line; head -c 20000 /dev/zero >>$LLM_OUTPUT; done")
		}
		id := orExit(s.Start(context.Background(), spec)).ID
		fmt.Println(id)
		check(eventually(func() bool {
			snap := orExit(s.Check(id))
			text := orExit(os.ReadFile(snap.LogPath))
			gaps := strings.Count(string(text), "bytes are not in this file")
			return len(text) > 1<<21 && os.Getenv("CUT") == "" || gaps > 2
		}), "no flood")
		fmt.Println("flooded")
		for {
			orExit(s.Check(id)) // what joins from the result file leaves gaps
		}
	})
}

// killedHost runs a host that logs a flood, kills it, and opens its directory.
func killedHost(t testing.TB, env string) (s *jobs.Supervisor, id, dir string) {
	dir = t.TempDir()
	c := helper(t, "host that logs a flood", "RECORDS="+dir, env)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	launch(t, c)
	lines := bufio.NewReader(out)
	id = strings.TrimSpace(lineOf(t, lines))
	lineOf(t, lines)
	require.NoError(t, c.Process.Kill())
	c.Wait()
	return newSupervisor(t, jobs.Config{Dir: dir, HeadBytes: 100, TailBytes: 1000}), id, dir
}

func TestAHostKilledInAFloodLeavesAPrefixOfIt(t *testing.T) {
	s, id, _ := killedHost(t, "CUT=")
	for range 2 {
		snap, err := s.Check(id)
		require.NoError(t, err)
		require.Equal(t, jobs.Lost, snap.State)
		require.Greater(t, snap.OutputTotal, int64(1<<20))
		text := readText(t, snap.LogPath)
		_, body, _ := strings.Cut(text, "\n\n")
		require.EqualValues(t, len(body), snap.OutputTotal)
		require.True(t, strings.HasPrefix(seq(1, len(body)/6), body))
		requireStream(t, s.Output, id, body)
	}
}

func TestAHostKilledBetweenGapsLeavesNoMarkThatCountsAsOutput(t *testing.T) {
	s, id, _ := killedHost(t, "CUT=1")
	snap, err := s.Check(id)
	require.NoError(t, err)
	data, dropped, err := follow(s.Output, id, 0)
	require.NoError(t, err)
	require.EqualValues(t, snap.OutputTotal, int64(len(data))+dropped)
	require.Positive(t, dropped)
	require.Empty(t, strings.Trim(strings.ReplaceAll(string(data), "line\n", ""), "\x00"))
}
