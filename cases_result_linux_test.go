package jobs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// RW-078: TestJobsRunOnAFullDisk, TestALimitOnFileSizesTouchesOnlyResults
// RW-166: TestAHugeSparseResultIsReadByItsEnd
// RW-170: TestAResultIsFrozenAtTheEnd
// RW-174: TestResultIsOneValidJSONValueWhateverTheFileHolds
// RW-176: TestResultIsOneValidJSONValueWhateverTheFileHolds
func TestTheResultFileMayBeAnything(t *testing.T) {
	const done = "completed, exit 0"
	strange := func(problem string) func(*testing.T, jobs.Result, trial) {
		return func(t *testing.T, r jobs.Result, _ trial) {
			assert.Regexp(t, problem, r.File.Problem)
			assert.Equal(t, `"DONE"`, string(r.File.JSON()))
			assert.Empty(t, r.Output.Bytes())
		}
	}
	content := func(want string) func(*testing.T, jobs.Result, trial) {
		return func(t *testing.T, r jobs.Result, _ trial) {
			assert.Equal(t, want, string(r.File.Data))
			assert.Empty(t, r.File.Problem)
		}
	}
	requireFaults(t, []fault{
		{
			id: "RW-160", claim: "a FIFO",
			script: `rm -f "$LLM_OUTPUT"; mkfifo "$LLM_OUTPUT"`,
			want:   done, see: strange("not? .*regular file|no longer a regular file"),
		},
		{
			id: "RW-162", claim: "a link to an endless device",
			script: `ln -sf /dev/zero "$LLM_OUTPUT"`,
			want:   done, see: strange("regular file"),
		},
		{
			id: "RW-162", claim: "a link to a terminal",
			script: `ln -sf /dev/tty "$LLM_OUTPUT"`,
			want:   done, see: strange("regular file"),
		},
		{
			id: "RW-162", claim: "a loop of links",
			script: `ln -sf "$LLM_OUTPUT" "$LLM_OUTPUT.b"; ln -sf "$LLM_OUTPUT.b" "$LLM_OUTPUT"`,
			want:   done, see: strange("regular file"),
		},
		{
			id: "RW-164", claim: "nothing, but words beside it",
			script: `rm -f "$LLM_OUTPUT"; echo text`,
			want:   done, text: "text\n",
		},
		{
			id: "RW-168", claim: "what was written last, after a new beginning",
			script: `echo aaaaaaaaaa >>"$LLM_OUTPUT"; sleep 0.6; : >"$LLM_OUTPUT"; echo b >>"$LLM_OUTPUT"; sleep 0.6`,
			do: func(t *testing.T, job trial) jobs.Result {
				// Looks on the way remember how far the file had been read.
				awaitOutput(t, job.s, job.id, "aaaaaaaaaa\n")
				assert.Equal(t, "aaaaaaaaaa\nb\n", awaitOutput(t, job.s, job.id, "b\n"))
				return collected(t, job)
			},
			want: done, see: content("b\n"),
		},
		{
			id: "RW-178", claim: "half a document of a job that was killed",
			script: `printf '{"a": [1, 2' >"$LLM_OUTPUT"; kill -9 $$`,
			want:   "failed, signal, SIGKILL", text: `{"a": [1, 2`,
		},
		{
			id: "like RW-160", claim: "a socket",
			script: `rm -f "$LLM_OUTPUT"; perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new(Local => $ENV{LLM_OUTPUT}, Listen => 1) or die'`,
			want:   done, see: strange("regular file"),
		},
		{
			id: "like RW-160", claim: "a directory that may not be entered",
			script: `rm -f "$LLM_OUTPUT"; mkdir -p "$LLM_OUTPUT/a"; touch "$LLM_OUTPUT/a/b"; chmod 0 "$LLM_OUTPUT/a"`,
			want:   done, see: strange("regular file"),
		},
		{
			id: "like RW-162", claim: "a hard link to a file of somebody else",
			script: `echo theirs >"$D/theirs"; ln -f "$D/theirs" "$LLM_OUTPUT" 2>/dev/null || cp "$D/theirs" "$LLM_OUTPUT"`,
			want:   done,
			see: func(t *testing.T, r jobs.Result, job trial) {
				content("theirs\n")(t, r, job)
				seeFile("theirs", "theirs\n")(t, r, job)
				runScript(t, job.s, `echo mine >"$LLM_OUTPUT"`)
				seeFile("theirs", "theirs\n")(t, r, job)
			},
		},
		{
			id: "like RW-164", claim: "a file for writing only",
			script: `echo x >"$LLM_OUTPUT"; chmod 0200 "$LLM_OUTPUT"; echo text`,
			want:   done,
			see: func(t *testing.T, r jobs.Result, _ trial) {
				if os.Geteuid() != 0 { // root may read it
					assert.NotEmpty(t, r.File.Problem)
				}
				assert.EqualValues(t, 2, r.File.Size)
				assert.Contains(t, string(r.Output.Bytes()), "text\n")
			},
		},
		{
			id: "like RW-168", claim: "a file that is rewritten all the time",
			script: `for i in {1..300}; do echo "$i" >"$LLM_OUTPUT.new"; mv "$LLM_OUTPUT.new" "$LLM_OUTPUT"; done; echo last`,
			do: func(t *testing.T, job trial) jobs.Result {
				awaitOutput(t, job.s, job.id, "last\n")
				return collected(t, job)
			},
			want: done, see: content("300\n"),
		},
	})
}

// RW-172
func TestNothingIsWrittenThroughAPlantedLink(t *testing.T) {
	temp, victim := t.TempDir(), writeFile(t, t.TempDir(), "victim", 0o600, secret)
	s := newSupervisor(t, jobs.Config{TempDir: temp})
	seen := make(map[string]bool)
	for range 100 {
		r := runScript(t, s, `echo "$LLM_OUTPUT"; echo result >"$LLM_OUTPUT"; ls -ld "$(dirname "$LLM_OUTPUT")" >&2`)
		path, rest, _ := strings.Cut(string(r.Output.Bytes()), "\n")
		require.Regexp(t, `^drwx------`, rest)
		require.False(t, seen[path], "used again")
		seen[path] = true
		require.NoError(t, os.Symlink(victim, path), "the name is not taken")
	}
	content, err := os.ReadFile(victim)
	require.NoError(t, err)
	require.Equal(t, secret, string(content))
}

// RW-080, but for the records of Config.Dir.
func TestAThousandJobsLeaveNoFile(t *testing.T) {
	temp := t.TempDir()
	s := newSupervisor(t, jobs.Config{TempDir: temp, MaxRunning: 8})
	inParallel(many(1000), 8, func(int) {
		snap, err := s.Start(testContext(t), jobs.Spec{Argv: []string{"echo", "hi"}})
		if assert.NoError(t, err) {
			_, err = s.Collect(testContext(t), snap.ID)
			assert.NoError(t, err)
		}
	})
	// A few empty files wait for the next jobs, each under two names.
	require.True(t, eventually(func() bool { return len(filesUnder(temp)) <= 100 && sizeUnder(temp) == 0 }), "%v", filesUnder(temp))
	_, err := s.Close(testContext(t))
	require.NoError(t, err)
	entries, err := os.ReadDir(temp)
	require.NoError(t, err)
	require.Empty(t, entries)
}

// RW-178, and like RW-174 and RW-176: what a model gets as a result is JSON
// that the strictest reader takes.
func TestAnyResultIsHandedOnAsStrictJSON(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	tools := s.Toolset(jobs.ToolsetOptions{})
	for _, c := range []struct{ id, content, result string }{
		{"RW-174", `{"id":9007199254740993,"big":123456789012345678901234567890}`, `{"id":9007199254740993,"big":123456789012345678901234567890}`},
		{"RW-176", `42`, `42`},
		{"RW-176", `-0`, `-0`},
		{"RW-176", `1e400`, `1e400`},
		{"RW-176", `"str"`, `"str"`},
		{"RW-176", `null`, `null`},
		{"RW-176", `true`, `true`},
		{"RW-176", `[1,2]`, `[1,2]`},
		{"RW-176", `{}`, `{}`},
		{"RW-176", ``, `"DONE"`},
		{"RW-176", " \n\t", `"DONE"`},
		{"RW-176", `{} {}`, `{"output":"{} {}"}`},
		{"RW-176", `{"a":1} x`, `{"output":"{\"a\":1} x"}`},
		{"RW-176", "\xef\xbb\xbf{}", `{}`},
		{"RW-178", `{"a": [1, 2`, `{"output":"{\"a\": [1, 2"}`},
		{"like RW-174", `{"a":1,"a":2}`, `{"a":1,"a":2}`},
		{"like RW-174", `0.1234567890123456789012345678901234567890`, `0.1234567890123456789012345678901234567890`},
		{"like RW-176", strings.Repeat("[", 9000) + strings.Repeat("]", 9000), ""},
		{"like RW-176", strings.Repeat("[", 100_000), ""},
		{"like RW-176", `"` + "\x01\x1b" + `"`, ""},
		{"like RW-176", "\xff\xfe{\x00}\x00", ""},
		{"like RW-176", `{"status":"completed","id":"job_00000000000000000000"}`, `{"status":"completed","id":"job_00000000000000000000"}`},
	} {
		t.Run(fmt.Sprintf("%.40q", c.content), func(t *testing.T) {
			file := writeFile(t, t.TempDir(), "content", 0o600, c.content)
			id := start(t, s, jobs.Spec{Argv: []string{"sh", "-c", `cat "$0" >"$LLM_OUTPUT"`, file}}).ID
			r := ask(t, tools, "job__collect", idArgs(id))
			assert.Equal(t, "completed", r.Status, c.id)
			requireStrict(t, r.text)
			if c.result != "" {
				assert.Equal(t, c.result, string(r.Result), c.id)
			}
			assert.NotEmpty(t, r.Result, c.id)
		})
	}
	r := ask(t, tools, "job__collect", idArgs(start(t, s, bash(`printf '{"a": [1, 2' >"$LLM_OUTPUT"; kill -9 $$`)).ID))
	assert.Equal(t, "failed", r.Status)
	assert.Equal(t, "SIGKILL", r.Signal)
	var result struct {
		Error  string `json:"tool_call_error"`
		Output any
	}
	require.NoError(t, json.Unmarshal(r.Result, &result))
	assert.Contains(t, result.Error, "SIGKILL")
	assert.Equal(t, map[string]any{"output": `{"a": [1, 2`}, result.Output, "a half-written result is a text")
}

// Like RW-168: looking does not disturb, however often.
func TestAResultIsWholeHoweverOftenSomebodyLooks(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	id := start(t, s, bash(`for i in {1..200}; do echo $i >>"$LLM_OUTPUT"; sleep 0.002; done`)).ID
	ctx, stop := context.WithCancel(testContext(t))
	defer stop()
	looking := make(chan struct{})
	go func() {
		defer close(looking)
		for ctx.Err() == nil {
			s.Check(id)
			s.Output(id, 0, 0)
			time.Sleep(time.Millisecond) // a pace, not a wait
		}
	}()
	awaitEnd(t, s, id)
	stop()
	<-looking
	r := collect(t, s, id)
	assert.Equal(t, seq(1, 200), string(r.File.Data))
	assert.Equal(t, seq(1, 200), string(r.Output.Bytes()))
}
