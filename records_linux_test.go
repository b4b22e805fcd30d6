package jobs_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A victim is a host with records, in a process of its own, that does what it is
// told until it is killed.
type victim struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// newVictim starts a host whose jobs' processes carry the mark.
func newVictim(t testing.TB, dir, mark string, env ...string) *victim {
	t.Helper()
	c := helper(t, "victim", append(env, "RECORDS="+dir, "MARK="+mark)...)
	return launchVictim(t, c)
}

func launchVictim(t testing.TB, c *exec.Cmd) *victim {
	t.Helper()
	in, err := c.StdinPipe()
	require.NoError(t, err)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	launch(t, c)
	return &victim{t, c, in, bufio.NewReader(out)}
}

// opened starts a host and waits until its New has returned.
func opened(t testing.TB, dir, mark string) *victim {
	t.Helper()
	v := newVictim(t, dir, mark)
	require.Equal(t, "open", v.line())
	return v
}

func (v *victim) line() string {
	v.t.Helper()
	return strings.TrimSpace(lineOf(v.t, v.out))
}

// do has the host do one thing and returns what it says of it.
func (v *victim) do(words ...string) string {
	v.t.Helper()
	text, err := json.Marshal(words)
	require.NoError(v.t, err)
	_, err = fmt.Fprintf(v.in, "%s\n", text)
	require.NoError(v.t, err)
	return v.line()
}

func (v *victim) kill() {
	v.t.Helper()
	require.NoError(v.t, v.cmd.Process.Kill())
	v.cmd.Wait()
}

// victimConfig is that of every victim.
func victimConfig() jobs.Config {
	return jobs.Config{Dir: os.Getenv("RECORDS"), LogLimit: 1 << 20, MaxRunning: 50, KillGrace: time.Second}
}

func init() {
	helpers["victim"] = func() { obey(orExit(jobs.New(victimConfig()))) }
}

// obey does what standard input says.
func obey(s *jobs.Supervisor) {
	time.AfterFunc(4*patience, func() { check(false, "the victim hangs") })
	ctx := context.Background()
	began := func(s *jobs.Supervisor, script string, end jobs.OwnerEnd) string {
		spec := bash(script)
		spec.Env, spec.OnOwnerEnd = []string{os.Getenv("MARK")}, end
		return orExit(s.Start(ctx, spec)).ID
	}
	fmt.Println("open")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var words []string
		check(json.Unmarshal(lines.Bytes(), &words) == nil, "words %s", lines.Text())
		verb, arg := words[0], words[1]
		switch verb {
		case "start":
			fmt.Println(began(s, arg, jobs.KillWithOwner))
		case "keep":
			fmt.Println(began(s, arg, jobs.KeepRunning))
		case "child":
			c := orExit(s.Child(jobs.ChildConfig{Name: arg}))
			fmt.Println(began(c, words[2], jobs.KillWithOwner))
		case "end":
			check(eventually(func() bool { return orExit(s.Check(arg)).Ended() }), "no end")
			fmt.Println(orExit(s.Check(arg)).Outcome())
		case "print":
			check(eventually(func() bool { return orExit(s.Check(arg)).OutputTotal > 0 }), "no output")
			fmt.Println(orExit(s.Check(arg)).PID)
		case "wait":
			r := orExit(s.Wait(ctx, jobs.WaitSpec{IDs: []string{arg}}))
			fmt.Println(len(r.Jobs))
		case "cancel":
			fmt.Println(orExit(s.Cancel(ctx, arg)).Outcome())
		case "collect":
			fmt.Println(orExit(s.Collect(ctx, arg)).Outcome())
		case "run":
			fmt.Println(orExit(s.Run(ctx, bash(arg), jobs.NoDetach)).ID)
		case "reap":
			fmt.Println(len(s.Reap(ctx, arg)))
		case "drain":
			fmt.Println(strings.Join(noticed(s), " "))
		case "refuse":
			s.Deliver(ctx, func(_ context.Context, ns []jobs.Notice) error {
				fmt.Println(ns[0].ID)
				return errors.New("not now")
			})
		case "hold":
			s.Deliver(ctx, func(_ context.Context, ns []jobs.Notice) error {
				fmt.Println(ns[0].ID)
				select {}
			})
		case "close":
			report, err := s.Close(ctx)
			check(err == nil, "%v", err)
			fmt.Println(len(report.Stopped), len(report.Uncollected), len(report.Kept))
		}
	}
}

// noticed takes what waits to be told and returns the ids in it.
func noticed(s *jobs.Supervisor) []string {
	var ids []string
	for _, n := range s.Drain() {
		ids = append(ids, n.ID)
	}
	return ids
}

// withRecords opens the records in a directory.
func withRecords(t testing.TB, dir string) *jobs.Supervisor {
	t.Helper()
	return newSupervisor(t, jobs.Config{Dir: dir})
}

// closed closes a supervisor before its test ends.
func closed(t testing.TB, s *jobs.Supervisor) jobs.Report {
	t.Helper()
	report, err := s.Close(testContext(t))
	require.NoError(t, err)
	return report
}

// endUncollected runs a function to its end in a host with records that is then
// closed, with its end told.
func endUncollected(t testing.TB, dir string) string {
	t.Helper()
	s := withRecords(t, dir)
	id := start(t, s, returning("kept")).ID
	awaitEnd(t, s, id)
	closed(t, s)
	return id
}

func TestWhatNeverBecameAJobLeavesNoRecord(t *testing.T) {
	dir, mark := t.TempDir(), freshMark()
	v := opened(t, dir, mark)
	answered := v.do("run", "true")
	reaped := v.do("start", "true")
	v.do("reap", reaped)
	v.kill()
	s := withRecords(t, dir)
	require.Zero(t, s.Recovered())
	require.Empty(t, s.Drain())
	for _, id := range []string{answered, reaped} {
		_, err := s.Check(id)
		require.ErrorIs(t, err, jobs.ErrExpired)
	}
}

func TestAFailedStartLeavesNoRecord(t *testing.T) {
	dir := t.TempDir()
	s := newSupervisor(t, jobs.Config{Dir: dir, LogLimit: 1 << 20})
	_, err := s.Start(t.Context(), jobs.Spec{Argv: []string{"/no/such/program"}})
	require.Error(t, err)
	_, err = s.Start(doneContext(), bash("true"))
	require.Error(t, err)
	closed(t, s)
	require.Zero(t, withRecords(t, dir).Recovered())
	logs, err := os.ReadDir(filepath.Join(dir, "logs"))
	require.NoError(t, err)
	require.Empty(t, logs)
}

func TestOneProcessUsesARecordDirectoryAtATime(t *testing.T) {
	dir := t.TempDir()
	v := opened(t, dir, freshMark())
	_, err := jobs.New(jobs.Config{Dir: dir})
	require.ErrorIs(t, err, jobs.ErrDirInUse)
	require.ErrorContains(t, err, fmt.Sprint("process ", v.cmd.Process.Pid))
	v.do("close", "")
	closed(t, withRecords(t, dir)) // released by Close, not by the end of the process
	again := withRecords(t, dir)
	require.Zero(t, again.Recovered())
}

func TestSupervisorsOfOneProcessShareADirectoryAndNothingElse(t *testing.T) {
	dir := t.TempDir()
	a, b := withRecords(t, dir), withRecords(t, filepath.Join(dir, "..", filepath.Base(dir)))
	ofA, ofB := start(t, a, returning("a")).ID, start(t, b, returning("b")).ID
	awaitEnd(t, a, ofA)
	awaitEnd(t, b, ofB)
	for _, x := range []struct {
		s         *jobs.Supervisor
		own, none string
	}{{a, ofA, ofB}, {b, ofB, ofA}} {
		_, err := x.s.Check(x.none)
		require.ErrorIs(t, err, jobs.ErrForeign)
		require.Equal(t, []string{x.own}, noticed(x.s))
	}
	closed(t, a)
	collect(t, b, ofB) // on record still
	last := start(t, b, returning("last")).ID
	awaitEnd(t, b, last)
	closed(t, b)

	s := withRecords(t, dir)
	var ids []string
	for _, snap := range s.Recovered().Ended {
		ids = append(ids, snap.ID)
	}
	require.Equal(t, []string{ofA, last}, ids)
	require.Empty(t, s.Drain(), "a Close told them")
}

// requirePrivate fails if a group or others may do anything below a directory.
func requirePrivate(t testing.TB, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		require.NoError(t, err)
		fi, err := d.Info()
		require.NoError(t, err)
		want := os.FileMode(0o600)
		if d.IsDir() {
			want = 0o700
		}
		assert.Equal(t, want, fi.Mode().Perm(), path)
		return nil
	})
	require.NoError(t, err)
}

func TestRecordsAreTheirUsersAloneWhateverTheUmask(t *testing.T) {
	for _, umask := range []string{"0", "077"} {
		dir := t.TempDir() + "/a b/records"
		runHelper(t, "host with a umask", "RECORDS="+dir, "UMASK="+umask)
		requirePrivate(t, dir)
	}
}

func TestADirectoryThatIsOpenToOthersIsClosedToThem(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "open")
	require.NoError(t, os.Mkdir(dir, 0o777))
	require.NoError(t, os.Chmod(dir, 0o777))
	withRecords(t, dir)
	requirePrivate(t, dir)
}

func init() {
	hostHelper("host with a umask", func() {
		var mask int
		orExit(fmt.Sscanf(os.Getenv("UMASK"), "%o", &mask))
		dir := os.Getenv("RECORDS")
		check(os.MkdirAll(filepath.Dir(dir), 0o700) == nil, "mkdir")
		unix.Umask(mask)
		s := orExit(jobs.New(jobs.Config{Dir: dir, LogLimit: 1 << 20, TempDir: filepath.Dir(dir)}))
		runIn(s, jobs.Spec{Func: returning(strings.Repeat("x", 100)).Func})
		orExit(s.Start(context.Background(), returning("left")))
		orExit(s.Close(context.Background()))
	})
}

func TestARelativeDirectoryWithMissingParentsIsMade(t *testing.T) {
	t.Chdir(t.TempDir())
	s := withRecords(t, "a/b c/records")
	id := start(t, s, returning(1)).ID
	awaitEnd(t, s, id)
	closed(t, s)
	t.Chdir("a")
	require.Len(t, withRecords(t, "b c/records").Recovered().Ended, 1)
}

func TestAnOrdinaryUserKeepsRecords(t *testing.T) {
	runMounting(t, "ordinary user with records")
}

func init() {
	hostHelper("ordinary user with records", func() {
		dir := orExit(os.MkdirTemp("/var/tmp", "records"))
		defer os.RemoveAll(dir)
		check(os.Chmod(dir, 0o777) == nil, "chmod")
		foreign := filepath.Join(dir, "foreign")
		check(os.Mkdir(foreign, 0o777) == nil && os.Chmod(foreign, 0o777) == nil, "mkdir")
		own := filepath.Join(dir, "own")
		s := giveUpRoot(jobs.Config{Dir: own, TempDir: dir})
		id := orExit(s.Start(context.Background(), bash("echo hi; exit 3"))).ID
		check(eventually(func() bool { return orExit(s.Check(id)).Ended() }), "no end")
		orExit(s.Close(context.Background()))
		s = orExit(jobs.New(jobs.Config{Dir: own}))
		check(orExit(s.Check(id)).Outcome() == "failed, exit 3", "not known")
		orExit(s.Close(context.Background()))
		_, err := jobs.New(jobs.Config{Dir: foreign})
		check(err != nil && strings.Contains(err.Error(), "belongs to the user"), "%v", err)
		os.RemoveAll(own)
	})
}

func TestADirectoryThatIsALinkIsRefused(t *testing.T) {
	dir := t.TempDir()
	link, dangling := filepath.Join(dir, "link"), filepath.Join(dir, "dangling")
	require.NoError(t, os.Symlink(t.TempDir(), link))
	require.NoError(t, os.Symlink("nowhere", dangling))
	_, err := jobs.New(jobs.Config{Dir: link})
	require.ErrorContains(t, err, "symbolic link")
	_, err = jobs.New(jobs.Config{Dir: dangling})
	require.ErrorContains(t, err, "symbolic link")
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = jobs.New(jobs.Config{Dir: file})
	require.ErrorIs(t, err, syscall.ENOTDIR)
	_, err = jobs.New(jobs.Config{Dir: filepath.Join(file, "below")})
	require.ErrorIs(t, err, syscall.ENOTDIR)
}

// What cannot be read is put aside and told once; what can be read counts.
func TestBadRecordsArePutAsideAndGoodOnesCount(t *testing.T) {
	good := "job_0123456789abcdefabcd"
	tests := map[string]struct{ before, after string }{
		"torn last line":   {"", `{"v":1,"k":"end","id":"` + good},
		"half JSON":        {`{"v":1,"k":` + "\n", ""},
		"NUL bytes":        {strings.Repeat("\x00", 4096) + "\n", strings.Repeat("\x00", 4096)},
		"garbage":          {"\xff\xfe\x01 no record\n", "~~~~\n\r\n"},
		"future version":   {`{"v":2,"k":"begin","id":"` + good + `"}` + "\n", ""},
		"no version":       {`{"k":"begin","id":"` + good + `"}` + "\n", ""},
		"other JSON":       {"[1,2]\n", "null\n"},
		"bad id":           {`{"v":1,"k":"begin","id":"../../etc/passwd"}` + "\n", ""},
		"end of no job":    {`{"v":1,"k":"end","id":"` + good + `","end":{"state":"failed"}}` + "\n", ""},
		"deep JSON":        {strings.Repeat("[", 100_000) + "\n", ""},
		"a very long line": {strings.Repeat("x", 4<<20) + "\n", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			id := endUncollected(t, dir)
			journal := filepath.Join(dir, "journal")
			data, err := os.ReadFile(journal)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(journal, []byte(tt.before+string(data)+tt.after), 0o600))

			s := withRecords(t, dir)
			requireQuarantineTold(t, s)
			require.Equal(t, "kept", returnedText(t, s, id))
			runScript(t, s, "true")
			closed(t, s)
			s = withRecords(t, dir)
			require.Empty(t, s.Recovered().Quarantine)
			require.Empty(t, s.Drain(), "told again")
		})
	}
}

// requireQuarantineTold checks that bad records are told once.
func requireQuarantineTold(t testing.TB, s *jobs.Supervisor) {
	t.Helper()
	aside := s.Recovered().Quarantine
	require.FileExists(t, aside)
	notices := s.Drain()
	require.Len(t, notices, 1)
	require.Equal(t, jobs.EventQuarantined, notices[0].Event)
	require.Equal(t, aside, notices[0].Line)
}

// returnedText collects the JSON text that a function returned.
func returnedText(t testing.TB, s *jobs.Supervisor, id string) string {
	t.Helper()
	var text string
	require.NoError(t, json.Unmarshal(collect(t, s, id).File.Data, &text))
	return text
}

// Whoever wrote these is no friend, but New and the verbs must stand them.
func TestRecordsThatMakeNoSenseDoNoHarm(t *testing.T) {
	const id = "job_0123456789abcdefabcd"
	begin := func(more string) string {
		return `{"v":1,"k":"begin","id":"` + id + `","at":"2020-01-01T00:00:00Z"` + more + "}\n"
	}
	started := `{"v":1,"k":"start","id":"` + id + `"}` + "\n"
	end := func(more string) string {
		return `{"v":1,"k":"end","id":"` + id + `","end":{"state":"completed"` + more + "}}\n"
	}
	cut := func(text string) string { return `{"v":1,"k":"cut","id":"` + id + `","cut":` + text + "}\n" }
	for name, journal := range map[string]string{
		"negative total":       begin("") + started + end(`,"total":-5,"err_total":-5`),
		"huge total":           begin(`,"split":true`) + started + end(`,"total":9223372036854775807,"err_total":9223372036854775807`),
		"negative header":      begin(`,"log_head":-5`) + started + end(`,"total":5,"log_bytes":5`),
		"header past the end":  begin(`,"log_head":500000`) + started + end(`,"total":5,"log_bytes":5`),
		"negative cut":         begin(`,"log_head":1`) + started + cut(`{"end":-9,"next":-5,"pos":-7}`) + end(`,"total":9,"log_bytes":9`),
		"huge cut":             begin(`,"log_head":1`) + started + cut(`{"end":4611686018427387904,"next":9223372036854775807,"pos":9223372036854775807}`) + end(`,"total":9,"log_bytes":9`),
		"cut of a lost job":    begin(`,"log_head":1`) + started + cut(`{"end":4611686018427387904,"next":9223372036854775807,"pos":3}`),
		"cut without numbers":  begin(`,"log_head":1`) + started + cut(`null`),
		"pid of init":          begin(bootNow()) + `{"v":1,"k":"start","id":"` + id + `","pid":1,"ticks":1}` + "\n",
		"negative pid":         begin(bootNow()) + `{"v":1,"k":"start","id":"` + id + `","pid":-1,"ticks":1}` + "\n",
		"huge pid":             begin(bootNow()) + `{"v":1,"k":"start","id":"` + id + `","pid":99999999999,"ticks":1}` + "\n",
		"begun twice":          begin("") + begin("") + started + end(""),
		"ended twice":          begin("") + started + end("") + end(`,"exit_code":3`),
		"unknown state":        begin("") + started + `{"v":1,"k":"end","id":"` + id + `","end":{"state":"sleeping"}}` + "\n",
		"survivors of no size": begin("") + started + end(`,"survivors":[{"pid":-1,"name":"\u0000"}]`),
		"huge elapsed":         begin("") + started + end(`,"elapsed":-9223372036854775808`),
		"result without file":  begin("") + started + end(`,"result_size":1000`),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.Mkdir(filepath.Join(dir, "logs"), 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "logs", id+".log"), []byte("0123456789"), 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "journal"), []byte(journal), 0o600))
			s := withRecords(t, dir)
			snap, err := s.Check(id)
			require.NoError(t, err)
			require.True(t, snap.Ended(), "%s", snap.Outcome())
			for _, from := range []int64{0, 3, -3, 1 << 40} {
				c, err := s.Output(id, from, 0)
				require.NoError(t, err)
				require.LessOrEqual(t, len(c.Data), 10)
				_, err = s.Stderr(id, from, 0)
				require.NoError(t, err)
			}
			require.NotEmpty(t, jobs.FormatJob(snap, jobs.Log{}))
			collect(t, s, id).Text(jobs.TextOptions{})
		})
	}
}

// bootNow is the member of a begin record that names this run of the system.
func bootNow() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return `,"boot":"` + strings.TrimSpace(string(id)) + `"`
}

// Something else stands where a file of the records should be.
func TestStrangeFilesInTheDirectoryHoldUpNothing(t *testing.T) {
	strange := map[string]func(path string) error{
		"directory": func(path string) error { return os.MkdirAll(filepath.Join(path, "full"), 0o700) },
		"link":      func(path string) error { return os.Symlink("/etc/passwd", path) },
		"dead link": func(path string) error { return os.Symlink("/no/such/file", path) },
		"FIFO":      func(path string) error { return unix.Mkfifo(path, 0o600) },
		"empty":     func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"garbage":   func(path string) error { return os.WriteFile(path, []byte("\x00garbage"), 0o600) },
		"read-only": func(path string) error { return os.WriteFile(path, nil, 0o400) },
	}
	passwd, err := os.ReadFile("/etc/passwd")
	require.NoError(t, err)
	for _, name := range []string{"journal", "journal.new", "key", "lock", "logs", "results", "quarantine"} {
		for kind, make := range strange {
			t.Run(kind+" named "+name, func(t *testing.T) {
				dir := t.TempDir()
				require.NoError(t, make(filepath.Join(dir, name)))
				begun := time.Now()
				s, err := jobs.New(jobs.Config{Dir: dir})
				require.Less(t, time.Since(begun), promptly)
				if err != nil {
					require.NotContains(t, []string{"journal", "journal.new", "key"}, name, "%v", err)
					require.ErrorContains(t, err, name, "it must say what is wrong")
					return
				}
				defer closed(t, s)
				require.Equal(t, "kept", returnedText(t, s, start(t, s, returning("kept")).ID))
				now, err := os.ReadFile("/etc/passwd")
				require.NoError(t, err)
				require.Equal(t, passwd, now)
			})
		}
	}
}

// A lock file names the process that made it, for people. It says nothing.
func TestTheLockOfADeadHostIsNoLock(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "lock"), []byte("1\n"), 0o600))
	withRecords(t, dir)
}

func TestRecordsThatMayOnlyBeReadAreTakenOver(t *testing.T) {
	dir := t.TempDir()
	id := endUncollected(t, dir)
	for _, name := range []string{"journal", "key", "lock"} {
		require.NoError(t, os.Chmod(filepath.Join(dir, name), 0o400))
	}
	s := withRecords(t, dir)
	require.Equal(t, "kept", returnedText(t, s, id))
}

func TestALostKeyDoesNotMakeAnotherJobOfAnID(t *testing.T) {
	dir := t.TempDir()
	id := endUncollected(t, dir)
	require.NoError(t, os.Remove(filepath.Join(dir, "key")))
	s := withRecords(t, dir)
	require.Equal(t, "kept", returnedText(t, s, id))
}

func TestNothingOfTheEnvironmentIsOnRecord(t *testing.T) {
	const secret = "s3cr3t-of-the-environment"
	dir := t.TempDir()
	s := newSupervisor(t, jobs.Config{Dir: dir, LogLimit: 1 << 20, Env: append(os.Environ(), "FROM_CONFIG="+secret)})
	spec := bash(`echo "${#TOKEN}"; echo 1 >$LLM_OUTPUT`)
	spec.Env = []string{"TOKEN=" + secret, "HARMLESS_NAME=" + secret}
	require.Equal(t, "completed, exit 0", awaitEnd(t, s, start(t, s, spec).ID).Outcome())
	spec.Dir = "/no/such/directory"
	_, err := s.Start(t.Context(), spec)
	require.Error(t, err)
	require.NotContains(t, err.Error(), secret)
	spec.Dir, spec.Env = "", append(spec.Env, "BIG="+strings.Repeat(secret, 200_000))
	_, err = s.Start(t.Context(), spec)
	require.ErrorIs(t, err, syscall.E2BIG)
	require.NotContains(t, err.Error(), secret)
	requireNowhere(t, dir, secret)
	closed(t, s)
	requireNowhere(t, dir, secret)
}

// requireNowhere fails if a file below dir holds a text.
func requireNowhere(t testing.TB, dir, text string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		require.NoError(t, err)
		if d.IsDir() {
			return nil
		}
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.NotContains(t, string(data), text, path)
		files++
		return nil
	})
	require.NoError(t, err)
	require.GreaterOrEqual(t, files, 3)
}

func TestARestoredJobAnswersEveryVerb(t *testing.T) {
	dir := t.TempDir()
	v := opened(t, dir, freshMark())
	ended := v.do("start", `echo first; seq 3; echo '{"a":1}' >$LLM_OUTPUT; exit 3`)
	require.Equal(t, "failed, exit 3", v.do("end", ended))
	lost := v.do("start", "echo lost; exec sleep 300")
	v.do("print", lost)
	v.kill()
	s := withRecords(t, dir)
	for id, want := range map[string]string{ended: "first\n1\n2\n3\n{\"a\":1}\n", lost: "lost\n"} {
		c, err := s.Output(id, 0, 0)
		require.NoError(t, err)
		assert.Equal(t, want, string(c.Data))
		assert.True(t, c.EOF)
		c, err = s.Output(id, 2, 3)
		require.NoError(t, err)
		assert.Equal(t, want[2:5], string(c.Data))
		_, err = s.Input(id)
		require.ErrorIs(t, err, jobs.ErrNoInput)
		r, err := s.Wait(t.Context(), jobs.WaitSpec{IDs: []string{id}})
		require.NoError(t, err)
		require.Len(t, r.Jobs, 1)
	}
	require.Empty(t, s.Drain(), "Wait has told")
	require.Len(t, s.List().Jobs, 2)
	require.Zero(t, s.List().Running)
	require.Equal(t, "failed, exit 3", cancel(t, s, ended).Outcome())
	require.Equal(t, "lost", cancel(t, s, lost).Outcome())
	fresh := start(t, s, returning(1)).ID
	require.NotContains(t, []string{ended, lost}, fresh)
	require.Equal(t, `{"a":1}`+"\n", string(collect(t, s, ended).File.Data))
	_, err := s.Collect(t.Context(), ended)
	require.ErrorIs(t, err, jobs.ErrCollected)
	require.Equal(t, "lost", collect(t, s, lost).Outcome())
	collect(t, s, fresh)
	closed(t, s)
	s = withRecords(t, dir)
	require.Zero(t, s.Recovered(), "all were collected")
	_, err = s.Check(ended)
	require.ErrorIs(t, err, jobs.ErrExpired)
}

func TestAToolsetKnowsRestoredJobs(t *testing.T) {
	dir := t.TempDir()
	v := opened(t, dir, freshMark())
	ended := v.do("start", `echo '{"a":1}' >$LLM_OUTPUT`)
	v.do("end", ended)
	lost := v.do("start", "echo lost; exec sleep 300")
	v.do("print", lost)
	v.kill()
	s := withRecords(t, dir)
	ts := s.Toolset(jobs.ToolsetOptions{})
	ask := func(tool, id string) string {
		args, _ := json.Marshal(map[string]string{"id": id})
		if id == "" {
			args = json.RawMessage("{}")
		}
		out, _ := ts.Call(t.Context(), tool, args)
		return string(out)
	}
	assert.Contains(t, ask("job__check", lost), `"lost"`)
	list := ask("job__list", "")
	assert.Contains(t, list, ended)
	assert.Contains(t, list, lost)
	assert.Contains(t, ask("job__cancel", lost), `lost`)
	assert.Contains(t, ask("job__collect", ended), `"a":1`)
	assert.NotContains(t, ask("job__collect", ended), `"a":1`, "consumed once")
}

func TestTheEndOfATurnRemindsOfRestoredJobs(t *testing.T) {
	dir := t.TempDir()
	id := endUncollected(t, dir)
	s := withRecords(t, dir)
	var last jobs.Reminder
	for range 4 {
		require.NotEqual(t, jobs.TurnDiscard, last.Action)
		last = s.TurnEnd(t.Context())
	}
	require.Equal(t, jobs.TurnDiscard, last.Action)
	closed(t, s)
	s = withRecords(t, dir)
	require.Zero(t, s.Recovered(), "discarded")
	_, err := s.Check(id)
	require.ErrorIs(t, err, jobs.ErrExpired)
}

// What was let go is told by the report, and the next host leaves it alone.
func TestAJobThatWasLetGoIsLeftAloneByTheNextHost(t *testing.T) {
	dir := t.TempDir()
	s := withRecords(t, dir)
	spec, mark := markedScript("exec sleep 300 >/dev/null 2>&1")
	spec.OnOwnerEnd = jobs.KeepRunning
	id := start(t, s, spec).ID
	for _, pid := range awaitSleepers(t, mark, 1) {
		endProcess(t, pid)
	}
	require.Len(t, closed(t, s).Kept, 1)
	s = withRecords(t, dir)
	require.Len(t, marked(mark), 1)
	snap, err := s.Check(id)
	require.NoError(t, err)
	require.Equal(t, jobs.Lost, snap.State)
	require.Empty(t, s.Drain(), "the report has told")
	require.Empty(t, s.Recovered().Ended)
}
