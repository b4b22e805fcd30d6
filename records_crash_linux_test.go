package jobs_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// toldNext returns what the next host is told, and lets that host end well.
func toldNext(t testing.TB, dir string) []string {
	t.Helper()
	s := withRecords(t, dir)
	ids := noticed(s)
	closed(t, s)
	return ids
}

func TestACrashBetweenAnEndAndItsTellingTellsItLater(t *testing.T) {
	dir := t.TempDir()
	v := opened(t, dir, freshMark())
	id := v.do("start", "exit 3")
	require.Equal(t, "failed, exit 3", v.do("end", id))
	v.kill()
	opened(t, dir, "").kill() // nor does this one
	require.Equal(t, []string{id}, toldNext(t, dir))
	require.Empty(t, toldNext(t, dir))
}

func TestAnEndIsToldOnceOverTheLivesOfAHost(t *testing.T) {
	for name, tell := range map[string]func(v *victim, id string){
		"drained":   func(v *victim, id string) { v.do("drain", "") },
		"waited":    func(v *victim, id string) { v.do("wait", id) },
		"cancelled": func(v *victim, id string) { v.do("cancel", id) },
		"collected": func(v *victim, id string) { v.do("collect", id) },
		"reaped":    func(v *victim, id string) { v.do("reap", id) },
		"closed":    func(v *victim, id string) { v.do("close", "") },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			v := opened(t, dir, freshMark())
			id := v.do("start", "true")
			v.do("end", id)
			tell(v, id)
			v.kill()
			opened(t, dir, "").kill()
			require.Empty(t, toldNext(t, dir))
		})
	}
}

// A consumer that failed, or was at work when its host died, has told nobody.
func TestWhatAConsumerDidNotTakeIsToldByTheNextHost(t *testing.T) {
	for _, consumer := range []string{"refuse", "hold"} {
		t.Run(consumer, func(t *testing.T) {
			dir := t.TempDir()
			v := opened(t, dir, freshMark())
			id := v.do("start", "true")
			require.Equal(t, id, v.do(consumer, ""))
			v.kill()
			require.Equal(t, []string{id}, toldNext(t, dir))
			require.Empty(t, toldNext(t, dir))
		})
	}
}

// The host that settles what a dead one left dies while it waits for a process
// that is deaf to SIGTERM.
func TestACrashWhileAnEarlierOneIsSettledTellsNothingTwice(t *testing.T) {
	dir, mark, deafMark := t.TempDir(), freshMark(), "DEAF="+freshMark()
	v := opened(t, dir, mark)
	ended := v.do("start", "true")
	v.do("end", ended)
	lost := v.do("start", "exec sleep 300")
	deaf := v.do("start", "export "+deafMark+"; trap '' TERM; bash -c 'echo deaf; while :; do sleep 1; done'; :")
	v.do("print", deaf)
	awaitSleepers(t, mark, 2)
	v.kill()

	second := newVictim(t, dir, "")
	require.True(t, eventually(func() bool { return len(marked(mark)) < 4 }), "nothing was told to end")
	second.kill()
	require.NotEmpty(t, marked(deafMark), "that host was not killed at its work")

	s := withRecords(t, dir)
	require.Empty(t, marked(mark))
	require.ElementsMatch(t, []string{ended, lost, deaf}, noticed(s))
	require.Len(t, s.Recovered().Lost, 2)
	require.Empty(t, s.Recovered().Quarantine)
	closed(t, s)
	require.Empty(t, toldNext(t, dir))
}

// More jobs end untold than a supervisor remembers.
func TestMoreUntoldEndsThanAreRememberedAreToldAllTheSame(t *testing.T) {
	dir := t.TempDir()
	v := opened(t, dir, freshMark())
	var ids []string
	for range 40 {
		ids = append(ids, v.do("start", "exec sleep 300"))
	}
	v.kill()
	s := withRecords(t, dir)
	require.Len(t, s.Recovered().Lost, 40)
	require.Equal(t, ids, noticed(s))
	closed(t, s)
	require.Empty(t, toldNext(t, dir))
}

func init() {
	hostHelper("host that dies with little memory", func() {
		orExit(jobs.New(jobs.Config{Dir: os.Getenv("RECORDS"), MaxRetained: 5}))
	})
}

// editRecords changes the records of a dead host. edit returns false for a
// record to be taken out.
func editRecords(t testing.TB, dir string, edit func(record map[string]any) bool) {
	t.Helper()
	path := filepath.Join(dir, "journal")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var lines []byte
	for line := range strings.Lines(string(data)) {
		decoder := json.NewDecoder(strings.NewReader(line))
		decoder.UseNumber()
		var r map[string]any
		require.NoError(t, decoder.Decode(&r))
		if edit(r) {
			text, err := json.Marshal(r)
			require.NoError(t, err)
			lines = append(append(lines, text...), '\n')
		}
	}
	require.NoError(t, os.WriteFile(path, lines, 0o600))
}

// Without its environment a process is known by the start time of its leader.
func TestAScrubbedProcessIsKnownByItsNumberAndStartTimeTogether(t *testing.T) {
	never := func(map[string]any) {}
	for name, tt := range map[string]struct {
		change func(record map[string]any)
		dies   bool
	}{
		"as recorded": {never, true},
		"another start time": {func(r map[string]any) {
			if r["k"] == "start" {
				ticks, _ := r["ticks"].(json.Number).Int64()
				r["ticks"] = ticks + 1000
			}
		}, false},
		"another boot": {func(r map[string]any) {
			if r["k"] == "begin" {
				r["boot"] = "00000000-0000-0000-0000-000000000000"
			}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			v := opened(t, dir, freshMark())
			// A leader and a member of its session, in a group of its own, both
			// without a trace of the job.
			id := v.do("start", `exec env -i PATH="$PATH" bash -c 'set -m; sleep 300 >/dev/null 2>&1 & echo $!; exec sleep 300'`)
			leader, err := strconv.Atoi(v.do("print", id))
			require.NoError(t, err)
			endProcess(t, leader)
			require.True(t, eventually(func() bool { return comm(leader) == "sleep" }))
			v.kill()
			data, err := os.ReadFile(filepath.Join(dir, "logs", id+".log"))
			require.NoError(t, err)
			var member int
			for line := range strings.Lines(string(data)) {
				if n, err := strconv.Atoi(strings.TrimSpace(line)); err == nil {
					member = n
				}
			}
			require.NotZero(t, member, "%s", data)
			endProcess(t, member)
			editRecords(t, dir, func(r map[string]any) bool { tt.change(r); return true })
			s := withRecords(t, dir)
			assert.Equal(t, tt.dies, !alive(leader), "leader")
			assert.Equal(t, tt.dies, !alive(member), "member of its session")
			snap, err := s.Check(id)
			require.NoError(t, err)
			require.Equal(t, jobs.Lost, snap.State)
			require.Equal(t, jobs.ReasonLost, snap.Reason)
		})
	}
}

func TestAStrangerWithTheNumberOfALostJobIsNotHurt(t *testing.T) {
	runInNamespace(t, "next host of a lost job whose pid is used again", "RECORDS="+t.TempDir())
}

func init() {
	hostHelper("next host of a lost job whose pid is used again", func() {
		mountProc()
		makeThreads()
		dir := os.Getenv("RECORDS")
		c := exec.Command(orExit(os.Executable()))
		c.Env = append(os.Environ(), helperEnv+"=victim", "MARK=A=b")
		c.Stderr = os.Stderr
		in, out := orExit(c.StdinPipe()), orExit(c.StdoutPipe())
		check(c.Start() == nil, "no host")
		lines := bufio.NewReader(out)
		orExit(lines.ReadString('\n'))
		// The same command as the stranger's.
		script, _ := json.Marshal([]string{"start", `sleep 300 & echo $!; wait`})
		fmt.Fprintf(in, "%s\n", script)
		id := strings.TrimSpace(orExit(lines.ReadString('\n')))
		fmt.Fprintf(in, "[\"print\",%q]\n", id)
		leader := orExit(strconv.Atoi(strings.TrimSpace(orExit(lines.ReadString('\n')))))
		check(c.Process.Kill() == nil, "kill")
		c.Wait()
		unix.Kill(-leader, unix.SIGKILL)
		check(eventually(func() bool {
			unix.Wait4(-1, nil, unix.WNOHANG, nil)
			return unix.Kill(-leader, 0) == unix.ESRCH // nor is it the number of a group
		}), "the leader's number is not free")
		// Numbers come round again in minutes, not within one tick of the clock.
		uptime := func() string { return strings.Fields(string(orExit(os.ReadFile("/proc/uptime"))))[0] }
		begun := uptime()
		check(eventually(func() bool { return uptime() != begun }), "the clock stands still")
		stranger := occupy(leader)
		s := orExit(jobs.New(jobs.Config{Dir: dir}))
		check(orExit(s.Check(id)).State == jobs.Lost, "not lost")
		orExit(s.Cancel(context.Background(), id))
		orExit(s.Close(context.Background()))
		stranger.requireUnhurt()
	})
}

// The cases of lost hosts, see cases_linux_test.go. RW-078 and RW-080 are shown
// by the tests of full disks and of many jobs, RW-156 by those of bad records
// and strange files, RW-159 by that of the stranger, RW-188 by that of the
// environment.
func TestCasesOfLostHosts(t *testing.T) {
	for _, c := range []struct {
		id, claim, script string
		before            func(v *victim, id string)
		want              string
		see               func(t *testing.T, snap jobs.Snapshot, dir string)
	}{
		{
			id: "RW-018", claim: "an orphan that ignores SIGPIPE is found and killed",
			script: `trap '' PIPE; while :; do echo x >>$D/log; echo y 2>/dev/null; sleep 0.1; done`,
			want:   "lost",
		},
		{
			id: "RW-018", claim: "like it, deaf to SIGTERM and in a session of its own",
			script: `setsid bash -c "trap '' TERM PIPE; while :; do echo y; sleep 0.1; done" & wait`,
			want:   "lost",
		},
		{
			id: "RW-100", claim: "a job that was cancelled is cancelled, not failed with 143, in the record too",
			script: `echo y; exec sleep 300`,
			before: func(v *victim, id string) { v.do("cancel", id) },
			want:   "cancelled, SIGTERM",
		},
		{
			id: "RW-152", claim: "no record stays running without a process", script: "echo y; exec sleep 300", want: "lost",
		},
		{
			id: "RW-154", claim: "an exit that nobody saw is neither success nor failure",
			script: `echo y; read -r _ <$D/gate; echo end >$D/end; exit 7`,
			want:   "lost",
			see: func(t *testing.T, snap jobs.Snapshot, dir string) {
				assert.FileExists(t, filepath.Join(dir, "end"), "it ended after its host")
				assert.Equal(t, -1, snap.ExitCode)
				assert.Equal(t, jobs.ReasonLost, snap.Reason)
			},
		},
	} {
		t.Run(c.claim, func(t *testing.T) {
			dir, own, mark := t.TempDir(), t.TempDir(), freshMark()
			gate := filepath.Join(own, "gate")
			require.NoError(t, unix.Mkfifo(gate, 0o600))
			v := opened(t, dir, mark)
			id := v.do("start", "D="+own+"; "+c.script)
			v.do("print", id)
			if c.before != nil {
				c.before(v, id)
			}
			v.kill()
			if c.see != nil {
				require.NoError(t, os.WriteFile(gate, []byte("go\n"), 0))
				require.True(t, eventually(func() bool { return len(marked(mark)) == 0 }))
			}
			begun := time.Now()
			s := withRecords(t, dir)
			require.Less(t, time.Since(begun), 2*time.Second+slack, c.id)
			requireNoneLeft(t, mark)
			snap, err := s.Check(id)
			require.NoError(t, err, c.id)
			require.Equal(t, c.want, snap.Outcome(), c.id)
			running := slices.ContainsFunc(s.List().Jobs, func(s jobs.Snapshot) bool { return !s.Ended() })
			require.False(t, running, c.id)
			if c.see != nil {
				c.see(t, snap, own)
			}
		})
	}
}

// RW-170: what comes after the end changes neither the result nor its record.
func TestAResultOnRecordIsFrozenAtTheEnd(t *testing.T) {
	dir, own, mark := t.TempDir(), t.TempDir(), freshMark()
	gate := filepath.Join(own, "gate")
	require.NoError(t, unix.Mkfifo(gate, 0o600))
	s := withRecords(t, dir)
	spec := bash(`exec 9>>"$LLM_OUTPUT"; echo early >&9; (read -r _ <$D/gate; echo late >&9; echo >$D/written) </dev/null >/dev/null 2>&1 & exit 0`)
	spec.Env, spec.Leftovers = []string{mark, "D=" + own}, jobs.KeepLeftovers
	id := start(t, s, spec).ID
	awaitEnd(t, s, id)
	require.NoError(t, os.WriteFile(gate, []byte("go\n"), 0))
	require.True(t, eventually(func() bool { return exists(filepath.Join(own, "written")) }))
	closed(t, s)
	s = withRecords(t, dir)
	require.Equal(t, "early\n", string(collect(t, s, id).File.Data))
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// RW-080: files of jobs that were collected do not pile up.
func TestAThousandCollectedJobsLeaveNoFiles(t *testing.T) {
	dir, temp := t.TempDir(), t.TempDir()
	s := newSupervisor(t, jobs.Config{Dir: dir, TempDir: temp})
	for n := range 1000 {
		spec := returning("hi")
		if n%10 == 0 {
			spec = bash("echo hi; echo 1 >$LLM_OUTPUT")
		}
		collect(t, s, start(t, s, spec).ID)
	}
	closed(t, s)
	left, err := os.ReadDir(temp)
	require.NoError(t, err)
	require.Empty(t, left)
	require.Zero(t, withRecords(t, dir).Recovered())
	files := 0
	err = filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if !d.IsDir() {
			files++
		}
		return err
	})
	require.NoError(t, err)
	require.Equal(t, 3, files, "journal, key, lock")
}
