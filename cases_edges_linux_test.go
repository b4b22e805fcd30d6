package jobs_test

import (
	"context"
	"fmt"
	"os"
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

// Like RW-105: a host that is stopped, as by Ctrl-Z, finds its timers overdue
// and what the job has printed meanwhile still in the pipe.
func TestAJobThatTalkedWhileItsHostSleptWasNotIdle(t *testing.T) {
	for range 3 {
		c := helper(t, "host that sleeps beside a talkative job")
		out, err := c.StdoutPipe()
		require.NoError(t, err)
		launch(t, c)
		require.Equal(t, "ready", firstLine(t, out))
		require.NoError(t, c.Process.Signal(unix.SIGSTOP))
		require.True(t, eventually(func() bool { return procState(c.Process.Pid) == "T" }))
		<-time.After(1200 * time.Millisecond) // longer than the idle timeout
		require.NoError(t, c.Process.Signal(unix.SIGCONT))
		require.Equal(t, "completed, exit 0", firstLine(t, out))
		require.NoError(t, c.Wait())
	}
}

func init() {
	hostHelper("host that sleeps beside a talkative job", func() {
		s := orExit(jobs.New(jobs.Config{}))
		ctx := context.Background()
		spec := bash(`for i in {1..40}; do echo $i; sleep 0.05; done`)
		spec.IdleTimeout = 800 * time.Millisecond
		job := orExit(s.Start(ctx, spec))
		check(eventually(func() bool { return orExit(s.Check(job.ID)).OutputTotal > 0 }), "no output")
		fmt.Println("ready")
		r := orExit(s.Collect(ctx, job.ID))
		fmt.Println(r.Outcome())
		orExit(s.Close(ctx))
	})
}

// Like RW-035.
func TestNothingIsLostInPacketMode(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	const done = "completed, exit 0"
	requireFaults(t, []fault{
		{
			id: "like RW-035", claim: "a pipe in packet mode",
			spec: jobs.Spec{Argv: []string{self}, Env: []string{helperEnv + "=print in packets"}},
			want: done,
			see: func(t *testing.T, r jobs.Result, _ trial) {
				requireExact(t, r, int64(len(seq(1, 20_000))))
				assert.Equal(t, "19999\n20000\n", r.Text(jobs.TextOptions{TailLines: 2}).Body)
			},
		},
	})
}

func init() {
	// A pipe in packet mode keeps of each write what the read has room for.
	helpers["print in packets"] = func() {
		check(unix.SetNonblock(1, false) == nil, "fcntl")
		_, err := unix.FcntlInt(1, unix.F_SETFL, unix.O_DIRECT)
		check(err == nil, "packet mode: %v", err)
		for text := seq(1, 20_000); text != ""; {
			n, err := unix.Write(1, []byte(text[:min(len(text), 4000)]))
			check(err == nil, "write: %v", err)
			text = text[n:]
		}
	}
}

// Like RW-160 and RW-164: a job may do to the private directory what it likes,
// and the next one works all the same.
func TestNoJobSpoilsTheResultsOfTheNext(t *testing.T) {
	for claim, script := range map[string]string{
		"its directory is gone":            `rm -rf "$out"`,
		"its directory is a file":          `rm -rf "$out"; touch "$out"`,
		"its directory is a link":          `rm -rf "$out"; ln -s "$D" "$out"`,
		"its directory may not be used":    `chmod 0 "$out"`,
		"the private one is gone":          `rm -rf "$private"`,
		"the private one is a file":        `rm -rf "$private"; touch "$private"`,
		"the private one is a link":        `rm -rf "$private"; ln -s "$D" "$private"`,
		"the private one is a loop":        `rm -rf "$private"; ln -s "$private" "$private"`,
		"the private one is a FIFO":        `rm -rf "$private"; mkfifo "$private"`,
		"the private one may not be used":  `chmod 0 "$private"`,
		"all in the private one are files": `rm -rf "$private"/*; touch "$private/out" "$private/links"`,
		"nothing in it may be written":     `chmod -R a-w "$private"`,
	} {
		t.Run(claim, func(t *testing.T) {
			temp := t.TempDir()
			t.Cleanup(func() { openUp(temp) })
			s := newSupervisor(t, jobs.Config{TempDir: temp})
			spec := bash(`out=$(dirname "$LLM_OUTPUT") private=$(dirname "$(dirname "$LLM_OUTPUT")"); ` + script)
			spec.Env = []string{"D=" + t.TempDir()}
			require.Equal(t, "completed, exit 0", collect(t, s, start(t, s, spec).ID).Outcome())
			for n := range 3 {
				snap, err := s.Start(testContext(t), bash(fmt.Sprintf(`echo %d >"$LLM_OUTPUT"`, n)))
				require.NoError(t, err)
				assert.Equal(t, fmt.Sprint(n), string(collect(t, s, snap.ID).File.JSON()))
			}
		})
	}
}

// openUp makes all directories below dir usable, so that they can be removed.
func openUp(dir string) {
	os.Chmod(dir, 0o700)
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			openUp(filepath.Join(dir, e.Name()))
		}
	}
}

// Like RW-176: half a character, as an escape, is for many readers no JSON.
func TestALoneSurrogateReachesNobody(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	tools := s.Toolset(jobs.ToolsetOptions{})
	for content, result := range map[string]string{
		`"\ud83d"`:                           `{"output":"\"\\ud83d\""}`,
		`{"\udc00x":["\ud83d\ud83d\ude00"]}`: `{"output":"{\"\\udc00x\":[\"\\ud83d\\ud83d\\ude00\"]}"}`,
		`"\ud83d\n\ude00"`:                   `{"output":"\"\\ud83d\\n\\ude00\""}`,
		`"\ud83d\ude00 \\ud83d"`:             `"\ud83d\ude00 \\ud83d"`, // a pair, and a backslash before letters
	} {
		file := writeFile(t, t.TempDir(), "content", 0o600, content)
		id := start(t, s, jobs.Spec{Argv: []string{"sh", "-c", `cat "$0" >"$LLM_OUTPUT"`, file}}).ID
		r := ask(t, tools, "job__collect", idArgs(id))
		requireStrict(t, r.text)
		assert.Equal(t, result, string(r.Result))
	}
}

// Like RW-051: names of processes are as free as output.
func TestTheNameOfALeftoverIsStrictToo(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	tools := s.Toolset(jobs.ToolsetOptions{})
	spec := bash(`name=$(printf '\033[31m\xff\x07\xe2\x80\xae'); ln -s "$(command -v sleep)" "$D/$name"
		"$D/$name" 300 >/dev/null 2>&1 & until [ "$(</proc/$!/comm)" != bash ]; do :; done`)
	spec.Env = []string{"D=" + t.TempDir()}
	id := start(t, s, spec).ID
	r := ask(t, tools, "job__collect", idArgs(id))
	require.Len(t, r.Leftovers, 1)
	requireStrict(t, r.text)
}

// Like RW-117: an error is for a log, and for a model.
func TestAnErrorIsBoundedWhateverTheNames(t *testing.T) {
	s, tempDir := newWarmSupervisor(t, jobs.Config{})
	for _, r := range []refusal{
		{
			name: "like RW-117: a program name of 300 KiB", spec: jobs.Spec{Argv: []string{strings.Repeat("p", 300<<10)}},
			stage: jobs.StagePath,
		},
		{
			name: "like RW-117: a variable name of 300 KiB", stage: jobs.StageArgs, cause: syscall.E2BIG,
			spec: jobs.Spec{Argv: []string{"true"}, Env: []string{strings.Repeat("K", 300<<10) + "=x"}},
		},
	} {
		t.Run(r.name, func(t *testing.T) {
			assert.Less(t, len(r.require(t, s, tempDir).Error()), 10_000)
		})
	}
}

// Like RW-010 and RW-126: a host that has no descriptor to spare kills what it
// must, or says what it could not.
func TestAStopWithoutFreeDescriptorsIsHonest(t *testing.T) {
	runHelper(t, "host that stops a job without descriptors", "DIR="+t.TempDir())
}

func init() {
	hostHelper("host that stops a job without descriptors", func() {
		ctx := context.Background()
		s := orExit(jobs.New(jobs.Config{TempDir: os.Getenv("DIR"), KillGrace: 200 * time.Millisecond}))
		warmUp(s)
		for _, leaderEnds := range []bool{false, true} {
			spec, mark := markedScript(`setsid sleep 300 >/dev/null 2>&1 & sleep 300; true`)
			job := orExit(s.Start(ctx, spec))
			check(eventually(func() bool {
				sleeping := 0
				for _, pid := range marked(mark) {
					if comm(pid) == "sleep" {
						sleeping++
					}
				}
				return sleeping == 2
			}), "no children")
			var usual unix.Rlimit
			check(unix.Getrlimit(unix.RLIMIT_NOFILE, &usual) == nil, "getrlimit")
			check(unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: lowestFree(), Max: usual.Max}) == nil, "setrlimit")
			var r jobs.Result
			if leaderEnds {
				unix.Kill(job.PID, unix.SIGKILL)
				r = orExit(s.Collect(ctx, job.ID))
			} else {
				r = orExit(s.Cancel(ctx, job.ID))
			}
			check(unix.Setrlimit(unix.RLIMIT_NOFILE, &usual) == nil, "setrlimit")
			left := marked(mark)
			for _, pid := range left {
				unix.Kill(pid, unix.SIGKILL)
			}
			check(len(left) == 0 || len(r.Survivors) > 0 || r.Err != nil, "%s leaves %v, and tells nobody", r.Outcome(), left)
		}
		orExit(s.Close(ctx))
	})
}

// Like RW-010 and RW-126: it takes a descriptor to hold each stray, and there
// are not that many.
func TestMoreStraysThanDescriptorsAllDie(t *testing.T) {
	runHelper(t, "host of more strays than descriptors", "DIR="+t.TempDir())
}

func init() {
	hostHelper("host of more strays than descriptors", func() {
		const free, strays = 64, 200
		ctx := context.Background()
		s := orExit(jobs.New(jobs.Config{TempDir: os.Getenv("DIR"), KillGrace: 200 * time.Millisecond}))
		warmUp(s)
		var usual unix.Rlimit
		check(unix.Getrlimit(unix.RLIMIT_NOFILE, &usual) == nil, "getrlimit")
		check(unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: lowestFree() + free, Max: usual.Max}) == nil, "setrlimit")
		for _, end := range []string{`sleep 300; true`, `exit 0`} {
			spec, mark := markedScript(fmt.Sprintf(`for i in {1..%d}; do setsid sleep 300 >/dev/null 2>&1 & done; echo up; %s`, strays, end))
			job := orExit(s.Start(ctx, spec))
			check(eventually(func() bool { return orExit(s.Check(job.ID)).OutputTotal > 0 }), "no strays")
			r := orExit(s.Cancel(ctx, job.ID))
			left := marked(mark)
			for _, pid := range left {
				unix.Kill(pid, unix.SIGKILL)
			}
			check(len(left) == 0, "%s leaves %d of %d, and names %d", r.Outcome(), len(left), strays, len(r.Survivors))
			check(r.Survivors == nil && r.Err == nil, "survivors %v, %v", r.Survivors, r.Err)
		}
		orExit(s.Close(ctx))
	})
}
