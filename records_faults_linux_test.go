package jobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// unrecorded counts the notices of records that cannot be written among those
// that wait, and fails for any other than the ends of jobs.
func unrecorded(s *jobs.Supervisor) (n int) {
	for _, notice := range s.Drain() {
		if notice.Event == jobs.EventUnrecorded {
			check(notice.Line != "" && notice.ID == "", "notice %+v", notice)
			n++
		}
	}
	return n
}

// requireUnaffected runs a job in a helper, whose records are in trouble.
func requireUnaffected(s *jobs.Supervisor) {
	r := runIn(s, bash("head -c 200000 /dev/zero | tr '\\0' z; echo tail"))
	check(r.Outcome() == "completed, exit 0", "%s", r.Outcome())
	check(r.OutputTotal == 200_005 && strings.HasSuffix(string(r.Output.Bytes()), "ztail\n"), "%d bytes", r.OutputTotal)
	check(runIn(s, bash("exit 3")).ExitCode == 3, "another job is affected")
}

// endedIn runs a job in a helper to its end and leaves its result there.
func endedIn(s *jobs.Supervisor, spec jobs.Spec) string {
	id := orExit(s.Start(context.Background(), spec)).ID
	check(eventually(func() bool { return orExit(s.Check(id)).Ended() }), "no end")
	return id
}

// What waits for the disk is bounded. What was too much must not spoil what
// comes after it.
func TestADiskThatIsFullForLongSpoilsNoLaterRecord(t *testing.T) {
	runMounting(t, "host with records on a disk that is full for long", "DIR="+t.TempDir())
}

func TestRecordsOnAReadOnlyDiskAreRefusedByName(t *testing.T) {
	runMounting(t, "host with records on a read-only disk", "DIR="+t.TempDir())
}

// fillUp writes a file until the disk is full.
func fillUp(path string) {
	f := orExit(os.Create(path))
	defer f.Close()
	for _, size := range []int{4096, 1} {
		for err := error(nil); err == nil; {
			_, err = f.Write(make([]byte, size))
			check(err == nil || errors.Is(err, unix.ENOSPC), "%v", err)
		}
	}
}

func init() {
	hostHelper("host with records on a full disk", func() {
		dir := os.Getenv("DIR")
		mountTemp(dir, "size=64k")
		cfg := jobs.Config{Dir: filepath.Join(dir, "records"), LogLimit: 1 << 20}
		s := orExit(jobs.New(cfg))
		ballast := filepath.Join(dir, "ballast")
		fillUp(ballast)
		// Until what is left of the last block is used up.
		check(eventually(func() bool {
			requireUnaffected(s)
			return unrecorded(s) == 1
		}), "nobody is told")
		during := endedIn(s, returning("during"))
		requireUnaffected(s)
		check(unrecorded(s) == 0, "told again and again")
		check(os.Remove(ballast) == nil, "remove")
		after := endedIn(s, returning("after"))
		running := orExit(s.Start(context.Background(), bash("sleep 300"))).ID
		check(unrecorded(s) == 0, "records fail still")
		orExit(s.Close(context.Background()))

		s = orExit(jobs.New(cfg))
		check(s.Recovered().Quarantine == "", "bad records")
		for _, id := range []string{during, after} {
			check(orExit(s.Check(id)).State == jobs.Completed, "%s is not known", id)
		}
		check(orExit(s.Check(running)).Reason == jobs.ReasonShutdown, "not known")
		check(len(s.Drain()) == 0, "told twice")
		fillUp(ballast)
		check(eventually(func() bool {
			requireUnaffected(s)
			return unrecorded(s) == 1
		}), "the next time is not told")
		orExit(s.Close(context.Background()))
		_, err := jobs.New(cfg)
		check(err == nil || errors.Is(err, unix.ENOSPC), "%v", err)
	})

	hostHelper("host with records on a disk that is full for long", func() {
		dir := os.Getenv("DIR")
		mountTemp(dir, "size=4m")
		cfg := jobs.Config{Dir: filepath.Join(dir, "records")}
		s := orExit(jobs.New(cfg))
		ballast := filepath.Join(dir, "ballast")
		fillUp(ballast)
		for n := range 600 { // 2.4 MB
			spec := returning(n)
			spec.Tag = strings.Repeat("x", 4000)
			id := endedIn(s, spec)
			orExit(s.Collect(context.Background(), id))
		}
		check(unrecorded(s) == 1, "not told once")
		check(os.Remove(ballast) == nil, "remove")
		after := endedIn(s, returning("after"))
		last := endedIn(s, returning("last"))
		orExit(s.Close(context.Background()))
		s = orExit(jobs.New(cfg))
		for _, id := range []string{after, last} {
			snap, err := s.Check(id)
			check(err == nil && snap.State == jobs.Completed, "%s: %v", id, err)
		}
		orExit(s.Close(context.Background()))
	})

	hostHelper("host with records on a read-only disk", func() {
		dir := os.Getenv("DIR")
		mountTemp(dir, "")
		cfg := jobs.Config{Dir: filepath.Join(dir, "records")}
		id := ""
		for _, readOnly := range []bool{false, true, false} {
			flags := uintptr(unix.MS_REMOUNT)
			if readOnly {
				flags |= unix.MS_RDONLY
			}
			check(unix.Mount("", dir, "", flags, "") == nil, "remount")
			s, err := jobs.New(cfg)
			if readOnly {
				check(errors.Is(err, unix.EROFS) && strings.Contains(err.Error(), cfg.Dir), "%v", err)
				continue
			}
			check(err == nil, "%v", err)
			if id == "" {
				id = endedIn(s, returning(1))
			}
			check(orExit(s.Check(id)).Ended(), "not known")
			orExit(s.Close(context.Background()))
		}
	})

	hostHelper("host with records and small files", func() {
		cfg := jobs.Config{Dir: os.Getenv("DIR"), LogLimit: 1 << 20, TempDir: os.Getenv("DIR")}
		s := orExit(jobs.New(cfg))
		var usual unix.Rlimit
		check(unix.Getrlimit(unix.RLIMIT_FSIZE, &usual) == nil, "getrlimit")
		check(unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 8 << 10, Max: usual.Max}) == nil, "setrlimit")
		check(eventually(func() bool {
			requireUnaffected(s)
			return unrecorded(s) == 1
		}), "nobody is told")
		check(unix.Setrlimit(unix.RLIMIT_FSIZE, &usual) == nil, "setrlimit")
		id := endedIn(s, bash("exit 3"))
		check(unrecorded(s) == 0, "records fail still")
		orExit(s.Close(context.Background()))
		s = orExit(jobs.New(cfg))
		check(s.Recovered().Quarantine == "", "bad records")
		check(orExit(s.Check(id)).ExitCode == 3, "not known")
		orExit(s.Close(context.Background()))
	})
}

func init() {
	hostHelper("host with records that is closed after a full disk", func() {
		dir := os.Getenv("DIR")
		mountTemp(dir, "size=64k")
		cfg := jobs.Config{Dir: filepath.Join(dir, "records")}
		s := orExit(jobs.New(cfg))
		ballast := filepath.Join(dir, "ballast")
		fillUp(ballast)
		var id string
		for told := false; !told; told = unrecorded(s) == 1 {
			id = endedIn(s, returning(1))
		}
		check(os.Remove(ballast) == nil, "remove")
		orExit(s.Close(context.Background()))
		s = orExit(jobs.New(cfg))
		snap, err := s.Check(id)
		check(err == nil && snap.Ended(), "%v", err)
		orExit(s.Close(context.Background()))
	})
}

// bigSpec is a job whose record is large, so that few of them make a journal
// that has to be compacted.
func bigSpec(n int) jobs.Spec {
	spec := returning(n)
	spec.Tag = strings.Repeat("x", 8000)
	return spec
}

func journalSize(t testing.TB, dir string) int64 {
	t.Helper()
	fi, err := os.Stat(filepath.Join(dir, "journal"))
	require.NoError(t, err)
	return fi.Size()
}

func TestTheJournalStaysSmallHoweverManyJobsThereWere(t *testing.T) {
	dir := t.TempDir()
	s := newSupervisor(t, jobs.Config{Dir: dir, MaxRunning: 20})
	gate := make(chan struct{})
	running := start(t, s, gated(gate, "")).ID
	kept := start(t, s, bigSpec(-1)).ID
	awaitEnd(t, s, kept)
	var workers sync.WaitGroup
	largest := int64(0)
	for range 4 {
		workers.Go(func() {
			for n := range 150 { // 5 MB in all
				snap, err := s.Start(testContext(t), bigSpec(n))
				if !assert.NoError(t, err) {
					return
				}
				_, err = s.Collect(testContext(t), snap.ID)
				assert.NoError(t, err)
			}
		})
	}
	workers.Wait()
	largest = journalSize(t, dir)
	require.Less(t, largest, int64(2<<20))
	close(gate)
	awaitEnd(t, s, running)
	last := start(t, s, returning("last")).ID
	awaitEnd(t, s, last)
	closed(t, s)

	s = withRecords(t, dir)
	require.Empty(t, s.Recovered().Quarantine)
	var ids []string
	for _, snap := range s.Recovered().Ended {
		ids = append(ids, snap.ID)
	}
	require.Equal(t, []string{running, kept, last}, ids)
	require.Less(t, journalSize(t, dir), int64(20<<10))
}

// A host is killed at random moments while its journal is compacted again and
// again by many jobs at once.
func TestACrashWhileTheJournalIsCompactedLosesNothing(t *testing.T) {
	dir := t.TempDir()
	told := make(map[string]int)
	known := make(map[string]bool)
	for n := range 8 {
		v := launchVictim(t, helper(t, "host that compacts", "RECORDS="+dir))
		require.Equal(t, "open", v.line())
		<-time.After(time.Duration(n*25) * time.Millisecond)
		v.cmd.Process.Kill()
		for {
			id, err := v.out.ReadString('\n')
			if err != nil {
				break
			}
			known[strings.TrimSpace(id)] = true
		}
		v.cmd.Wait()
		s := newSupervisor(t, jobs.Config{Dir: dir, MaxRetained: 1000})
		requireTornAtMost(t, s, known)
		for _, id := range noticed(s) {
			told[id]++
		}
		closed(t, s)
	}
	require.NotEmpty(t, known)
	for id := range known {
		require.Equal(t, 1, told[id], id)
	}
}

// requireTornAtMost checks that nothing was put aside but the start of one
// record, which the next host has no need of: a kill may cut a write in two
// where a page ends.
func requireTornAtMost(t testing.TB, s *jobs.Supervisor, known map[string]bool) {
	t.Helper()
	aside := s.Recovered().Quarantine
	if aside == "" {
		return
	}
	text, err := os.ReadFile(aside)
	require.NoError(t, err)
	line := strings.TrimSuffix(string(text), "\n")
	require.NotContains(t, line, "\n")
	require.False(t, json.Valid([]byte(line)))
	require.True(t, strings.HasPrefix(line, `{"v":1,"k":"`), "%.200q", line)
	for id := range known {
		require.False(t, strings.HasPrefix(line, `{"v":1,"k":"begin","id":"`+id), "the job was started")
	}
}

func init() {
	hostHelper("host that compacts", func() {
		ctx := context.Background()
		s := orExit(jobs.New(jobs.Config{Dir: os.Getenv("RECORDS"), MaxRunning: 50, MaxRetained: 1000}))
		fmt.Println("open")
		for worker := range 8 {
			go func() {
				for n := 0; ; n++ {
					id := orExit(s.Start(ctx, bigSpec(n))).ID
					if worker == 0 && n%20 == 0 {
						os.Stdout.WriteString(id + "\n")
						continue // left for the next host
					}
					orExit(s.Collect(ctx, id))
				}
			}()
		}
		select {}
	})
}

// A log file that somebody removes or cuts costs the job nothing.
func TestALogFileThatIsTamperedWithCostsTheLogOnly(t *testing.T) {
	for name, tamper := range map[string]func(path string) error{
		"removed":  os.Remove,
		"cut":      func(path string) error { return os.Truncate(path, 3) },
		"replaced": func(path string) error { return errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := newSupervisor(t, jobs.Config{Dir: dir, LogLimit: 1 << 20})
			path, gate := fifo(t)
			job := start(t, s, bash("seq 20000; read -r _ <"+strconv.Quote(path)+"; echo end; exit 3"))
			require.True(t, eventually(func() bool { return checkJob(t, s, job.ID).OutputTotal == 108_894 }))
			require.NoError(t, tamper(checkJob(t, s, job.ID).LogPath))
			fmt.Fprintln(gate, "go")
			snap := awaitEnd(t, s, job.ID)
			require.Equal(t, "failed, exit 3", snap.Outcome())
			require.Error(t, snap.LogErr)
			closed(t, s)
			s = withRecords(t, dir)
			restored := checkJob(t, s, job.ID)
			require.Equal(t, "failed, exit 3", restored.Outcome())
			require.Equal(t, snap.OutputTotal, restored.OutputTotal)
			r := collect(t, s, job.ID)
			require.Equal(t, r.OutputTotal, int64(len(r.Output.Bytes()))+r.OutputDropped)
		})
	}
}
