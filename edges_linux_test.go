package jobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/require"
)

func TestAFileThatIsNoProgramIsRefusedWithTheReason(t *testing.T) {
	s, dir := newSupervisor(t, jobs.Config{}), t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o755))
		return path
	}
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o755))
	require.NoError(t, os.Symlink("loop", filepath.Join(dir, "loop")))
	for path, reason := range map[string]string{
		dir:                              "it is a directory",
		file("bom", "\ufeff#!/bin/sh\n"): "neither a program",
		file("empty", ""):                "neither a program",
		file("nameless", "#!\n"):         "neither a program",
		file("torn", "\x7fELF\x02"):      "neither a program",
		file("chain", "#!"+file("middle", "#!/no/such\n")+"\n"): "its interpreter",
		file("itself", "#!"+filepath.Join(dir, "itself")+"\n"):  "its interpreter",
		file("relative", "#!sh\n"):                              "its interpreter sh does not",
		filepath.Join(dir, "fifo"):                              "permission denied",
		filepath.Join(dir, "loop"):                              "too many levels",
		"/dev/null":                                             "not executable",
	} {
		_, err := s.Start(t.Context(), jobs.Spec{Argv: []string{path}})
		var start *jobs.StartError
		require.ErrorAs(t, err, &start, path)
		require.Equal(t, jobs.StagePath, start.Stage, path)
		require.ErrorContains(t, err, reason, path)
	}
	// Limits are set by a shell, which would take these for scripts of its own.
	for _, name := range []string{"empty", "nameless", "bom"} {
		_, err := s.Start(t.Context(), jobs.Spec{Argv: []string{filepath.Join(dir, name)}, Limits: jobs.Limits{OpenFiles: 100}})
		require.ErrorContains(t, err, "neither a program", name)
	}
	require.Zero(t, s.List().Running)
}

func TestTheWorkingDirectoryIsTakenLetterForLetter(t *testing.T) {
	s, dir := newSupervisor(t, jobs.Config{}), t.TempDir()
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	for _, wd := range []string{" ", "~", "$HOME", filepath.Join(dir, "fifo"), "/" + strings.Repeat("x", 5000)} {
		_, err := s.Start(t.Context(), jobs.Spec{Argv: []string{"true"}, Dir: wd})
		var start *jobs.StartError
		require.ErrorAs(t, err, &start)
		require.Equal(t, jobs.StageDir, start.Stage, wd)
	}
}

func TestOffsetsAndSizesHaveNoValueThatOverflows(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	job := start(t, s, bash("printf abcdef"))
	awaitEnd(t, s, job.ID)
	for from, want := range map[int64]string{math.MinInt64: "abcdef", -7: "abcdef", -1: "f", 6: "", math.MaxInt64: ""} {
		for _, max := range []int{math.MinInt, 0, math.MaxInt} {
			c, err := s.Output(job.ID, from, max)
			require.NoError(t, err)
			require.Equal(t, want, string(c.Data))
			require.True(t, c.EOF)
		}
		w, err := s.Wait(t.Context(), jobs.WaitSpec{IDs: []string{job.ID}, From: from, StderrFrom: from, Pattern: regexp.MustCompile("f")})
		require.NoError(t, err)
		require.Equal(t, want != "", w.Match != nil)
	}
}

func TestAJobRunsUnderTheLargestAndSmallestOfEveryLimit(t *testing.T) {
	for _, cfg := range []jobs.Config{
		{MaxRunning: math.MaxInt, MaxRetained: math.MaxInt, HeadBytes: math.MaxInt, TailBytes: math.MaxInt, OutputMemory: math.MaxInt64, ResultBytes: math.MaxInt64, ResultFileLimit: math.MaxInt64},
		{MaxRunning: 1, MaxRetained: 1, HeadBytes: 1, TailBytes: 1, OutputMemory: 1, ResultBytes: 1, RetainFor: 1, DrainGrace: 1, WatchFor: 1},
		{HeadBytes: math.MinInt, TailBytes: math.MinInt, OutputMemory: math.MinInt64, ResultFileLimit: math.MinInt64, Timeout: math.MinInt64},
	} {
		s := newSupervisor(t, cfg)
		r, err := s.Run(t.Context(), bash(`seq 1 3000; echo '{"a":1}' >$LLM_OUTPUT; exit 3`), jobs.NoDetach)
		require.NoError(t, err)
		require.Equal(t, "failed, exit 3", r.Outcome())
		require.EqualValues(t, 13901, r.OutputTotal)
		require.EqualValues(t, 8, r.File.Size)
		require.EqualValues(t, r.OutputTotal, int64(len(r.Output.Bytes()))+r.OutputDropped)
	}
}

func TestAGraceOfRunHasNoValueThatOverflows(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	for _, grace := range []time.Duration{math.MinInt64, -2, math.MaxInt64} {
		r, err := s.Run(t.Context(), jobs.Spec{Argv: []string{"false"}, Timeout: math.MinInt64, IdleTimeout: math.MinInt64}, grace)
		require.NoError(t, err)
		require.Equal(t, "failed, exit 1", r.Outcome())
	}
}

func TestAFunctionMayTurnOnItsOwnJob(t *testing.T) {
	s := newSupervisor(t, jobs.Config{KillGrace: 50 * time.Millisecond})
	for name, turn := range map[string]func(string){
		"cancel": func(id string) { s.Cancel(context.Background(), id) },
		"reap":   func(id string) { s.Reap(context.Background(), id) },
		"reset":  func(string) { s.Reset(context.Background()) },
	} {
		own := make(chan string, 1)
		job := start(t, s, jobs.Spec{Func: func(context.Context, io.Writer) (any, error) { turn(<-own); return nil, nil }})
		own <- job.ID
		r, err := s.Collect(testContext(t), job.ID)
		require.True(t, err == nil && r.Reason == jobs.ReasonUnreaped || errors.Is(err, jobs.ErrExpired), "%s: %v %v", name, r.Outcome(), err)
	}
	require.True(t, eventually(func() bool { return s.List().Running == 0 }))
}

func TestAConsumerThatSpoilsItsNoticesIsOfferedThemWhole(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	job := start(t, s, bash("exit 4"))
	ctx, stop := context.WithCancel(testContext(t))
	offers := 0
	err := s.Deliver(ctx, func(_ context.Context, ns []jobs.Notice) error {
		if offers++; offers == 1 {
			clear(ns)
			return errors.New("not yet")
		}
		require.Equal(t, job.ID, ns[0].ID)
		stop()
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, s.Drain())
}

func TestAConsumerMayCloseItsOwner(t *testing.T) {
	c, err := newSupervisor(t, jobs.Config{}).Child(jobs.ChildConfig{})
	require.NoError(t, err)
	start(t, c, bash("sleep 100"))
	start(t, c, bash("exit 3"))
	ctx, stop := context.WithCancel(testContext(t))
	err = c.Deliver(ctx, func(context.Context, []jobs.Notice) error {
		defer stop()
		rep, err := c.Close(testContext(t))
		require.NoError(t, err)
		require.Len(t, rep.Stopped, 1)
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, c.Drain())
}

func TestOneDirectoryUnderManyNamesIsOne(t *testing.T) {
	dir := t.TempDir()
	s := newSupervisor(t, jobs.Config{Dir: dir})
	for _, name := range []string{dir + "/", dir + "/.", "/proc/self/root" + dir} {
		other, err := jobs.New(jobs.Config{Dir: name})
		require.NoError(t, err)
		job := start(t, other, bash("true"))
		collect(t, other, job.ID)
		_, err = s.Check(job.ID)
		require.ErrorIs(t, err, jobs.ErrForeign)
		_, err = other.Close(testContext(t))
		require.NoError(t, err)
	}
}

func TestARelativeDirectoryStaysWhereItWas(t *testing.T) {
	base := t.TempDir()
	t.Chdir(base)
	s := newSupervisor(t, jobs.Config{Dir: "records", TempDir: ".", LogLimit: 1 << 20})
	t.Chdir(t.TempDir())
	r := collect(t, s, start(t, s, bash("echo out; echo 1 >$LLM_OUTPUT")).ID)
	require.Equal(t, "1\n", string(r.File.Data))
	require.NoError(t, r.LogErr)
	require.Equal(t, filepath.Join(base, "records", "logs"), filepath.Dir(r.LogPath))
}

func TestAPatternSeesWhatAModelSees(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 20})
	for script, pattern := range map[string]string{
		`printf 'a\n\nb\n'`:                        `^$`,
		`printf '\033[31mre'; printf 'ady\033[0m'`: `^ready$`,
		`printf '10%%\r20%%\rready\r'`:             `^ready$`,
		`printf 'a\000b\n'`:                        `^a.b$`,
		`printf '\377\376ready\n'`:                 `ready$`,
		`printf '\357\273\277ready\n'`:             `^ready$`,
		`printf '\033]0;title\nready\n'`:           `^ready$`,
		`printf 'A\bB\n'`:                          `^B$`,
		`echo ready >$LLM_OUTPUT`:                  `^ready$`,
	} {
		job := start(t, s, bash(script+"; exec sleep 100"))
		w, err := s.Wait(testContext(t), jobs.WaitSpec{IDs: []string{job.ID}, Pattern: regexp.MustCompile(pattern)})
		require.NoError(t, err)
		require.NotNil(t, w.Match, script)
		s.Reap(testContext(t), job.ID)
	}
}

func TestNoNameOfAProcessHidesItFromAStop(t *testing.T) {
	s := newSupervisor(t, jobs.Config{KillGrace: 100 * time.Millisecond})
	for _, name := range []string{"a\nb", "x) R 1 1 1 1", ") Z 1 1", "a b) ", "\xff\xfe", "-n", "*"} {
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\necho $$\nexec 3<&1\nwhile :; do sleep 100; done\n"), 0o755))
		for _, how := range []string{`setsid "$P" & sleep 100`, `env -i PATH="$PATH" setsid "$P" & sleep 100`} {
			spec := bash(how)
			spec.Env = []string{"P=" + path}
			job := start(t, s, spec)
			stray := pids(t, awaitOutput(t, s, job.ID, "\n"))
			require.Empty(t, cancel(t, s, job.ID).Survivors)
			requireDead(t, stray...)
		}
	}
}

func TestAStrayIsFoundBehindALargeEnvironment(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	spec := bash(`p=$(mktemp -u); mkfifo $p; (setsid sh -c 'echo $$ >$0; exec sleep 100' $p &); read pid <$p; rm $p; echo $pid`)
	for i := range 15 {
		spec.Env = append(spec.Env, fmt.Sprintf("LARGE%d=%s", i, strings.Repeat("v", 100_000)))
	}
	r := collect(t, s, start(t, s, spec).ID)
	requireDead(t, pids(t, string(r.Output.Bytes()))...)
}

func TestTheOutputLimitIsExact(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	for n, state := range map[int]jobs.State{99: jobs.Completed, 100: jobs.Completed, 101: jobs.Failed} {
		job := start(t, s, jobs.Spec{OutputLimit: 100, Func: func(ctx context.Context, out io.Writer) (any, error) {
			io.WriteString(out, strings.Repeat("x", n))
			if n > 100 {
				<-ctx.Done()
			}
			return nil, nil
		}})
		require.Equal(t, state, collect(t, s, job.ID).State)
	}
}

func TestADetachedJobLivesInAnyHome(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	for _, name := range []string{"a b", "a\nb", "*", "-n", "a'b\"c$x`y`", "\xff", "#x"} {
		home := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.Mkdir(home, 0o700))
		t.Setenv("HOME", home)
		spec := bash(`echo out; echo '[1]' >"$LLM_OUTPUT"; exit 3`)
		spec.Shell = jobs.ShellCommand("sh")
		r := collect(t, s, start(t, s, spec).ID)
		require.Equal(t, "failed, exit 3", r.Outcome(), name)
		require.Equal(t, "out\n", string(r.Output.Bytes()))
		require.Equal(t, "[1]\n", string(r.File.Data))
	}
}

func TestArgumentsOfADetachedJobArriveByteForByte(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	s := newSupervisor(t, jobs.Config{})
	args := []string{"", "a'b", "$HOME", "n\nl\n", "\xff\xfe", "-x", `"`, `\`, "`id`", "!", "*", "$(id)", "a=b"}
	job := start(t, s, jobs.Spec{Argv: append([]string{"printf", "%s|"}, args...), Env: []string{"x-y=1"}, Shell: jobs.ShellCommand("sh")})
	require.Equal(t, strings.Join(args, "|")+"|", string(collect(t, s, job.ID).Output.Bytes()))
}

func TestAShellThatIsNoneIsRefused(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	for _, argv := range [][]string{{}, {""}, {"/no/such"}, {"false"}, {"cat"}, {"a\x00"}} {
		_, err := s.Start(testContext(t), jobs.Spec{Argv: []string{"true"}, Shell: jobs.ShellCommand(argv...)})
		var start *jobs.StartError
		require.ErrorAs(t, err, &start, argv)
		require.Equal(t, jobs.StageShell, start.Stage)
	}
	require.Zero(t, s.List().Running)
}

func TestAToolThatIsDeclaredTwiceIsNamedOnce(t *testing.T) {
	tools := newSupervisor(t, jobs.Config{}).Toolset(jobs.ToolsetOptions{Declared: []string{"build", "build"}})
	out, isError := tools.Call(testContext(t), "job__start", json.RawMessage(`{"tool":"rm"}`))
	require.True(t, isError)
	require.Contains(t, string(out), "background: build.")
}

func TestAWrongArgumentIsNamedAndNothingIsDone(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	id := start(t, s, bash("exec sleep 100")).ID
	tools := s.Toolset(jobs.ToolsetOptions{Declared: []string{"build"}, Optional: jobs.WaitTool | jobs.OutputTool | jobs.WriteTool})
	for _, call := range [][3]string{
		{"job__start", `{"Tool":"build"}`, `\"Tool\"`},
		{"job__start", `{"tool":"build","tool":"rm"}`, "rm"},
		{"job__start", `{"tool":"build"} trailing`, "one JSON object"},
		{"job__start", "\ufeff{}", "one JSON object"},
		{"job__start", `{"tool":"build","arguments":"\"{}\""}`, "arguments"},
		{"job__check", `{"id":"` + strings.ToUpper(id) + `"}`, "not a job id"},
		{"job__check", `{"id":" ` + id + `"}`, "not a job id"},
		{"job__check", `{"id":"` + id + `","tail_lines":"5"}`, "tail_lines"},
		{"job__check", `{"id":"` + id + `","tail_lines":1e400}`, "tail_lines"},
		{"job__collect", `{"id":"` + id + `","full_result":"true"}`, "full_result"},
		{"job__wait", `{"ids":{}}`, "ids"},
		{"job__wait", `{"pattern":"(?=x)"}`, "RE2"},
		{"job__output", `{"id":"` + id + `","from":-1e300}`, "from"},
		{"job__cancel", `{"id":"` + id + `","force":true}`, "force"},
	} {
		out, isError := tools.Call(testContext(t), call[0], json.RawMessage(call[1]))
		require.True(t, isError, call[1])
		require.Contains(t, string(out), call[2])
	}
	snap, err := s.Check(id)
	require.NoError(t, err)
	require.Equal(t, jobs.Running, snap.State)
}
