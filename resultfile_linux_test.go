package jobs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func init() {
	helpers["result on a full disk"] = resultOnAFullDisk
	helpers["result under a limit on files"] = resultUnderALimitOnFiles
	helpers["result that cannot be read"] = resultThatCannotBeRead
}

func TestResultIsOneValidJSONValueWhateverTheFileHolds(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	for _, c := range []struct {
		name, content, want string
	}{
		{"integer", "42", "42"},
		{"negative zero", "-0", "-0"},
		{"beyond a float", "1e400", "1e400"},
		{"string", `"str"`, `"str"`},
		{"null", "null", "null"},
		{"true", "true", "true"},
		{"array", "[1,2]", "[1,2]"},
		{"object", "{}", "{}"},
		{"spacing inside", `{"a" :  1}`, `{"a" :  1}`},
		{"spacing around", "\n {\"a\":1}\r\n\t", `{"a":1}`},
		{"large integers", `{"id":9007199254740993,"big":123456789012345678901234567890}`, `{"id":9007199254740993,"big":123456789012345678901234567890}`},
		{"markup", `{"html":"<b>&</b>"}`, `{"html":"<b>&</b>"}`},
		{"byte order mark", "\xef\xbb\xbf{}", "{}"},
		{"byte order mark alone", "\xef\xbb\xbf", `"DONE"`},
		{"empty", "", `"DONE"`},
		{"blank", " \n\t\r\n", `"DONE"`},
		{"two documents", "{} {}", `{"output":"{} {}"}`},
		{"trailing garbage", `{"a":1} x`, `{"output":"{\"a\":1} x"}`},
		{"half a document", `{"a": [1, 2`, `{"output":"{\"a\": [1, 2"}`},
		{"not a number", "NaN", `{"output":"NaN"}`},
		{"leading zero", "007", `{"output":"007"}`},
		{"text", "all is well\n", `{"output":"all is well\n"}`},
		{"text with markup", "<b> & </b>", `{"output":"<b> & </b>"}`},
		{"text that is not UTF-8", "caf\xe9 \xff\xfe end", "{\"output\":\"caf\uFFFD \uFFFD end\"}"},
		{"JSON that is not UTF-8", "\"caf\xe9\"", "{\"output\":\"\\\"caf\uFFFD\\\"\"}"},
		{"NUL", "a\x00b", `{"output":"a\u0000b"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			content := writeFile(t, t.TempDir(), "content", 0o600, c.content)
			spec := jobs.Spec{Argv: []string{"sh", "-c", `cat "$0" >"$LLM_OUTPUT"`, content}}
			r := collect(t, s, start(t, s, spec).ID)
			require.Equal(t, jobs.Completed, r.State)
			require.Equal(t, c.want, string(r.File.JSON()))
			require.True(t, json.Valid(r.File.JSON()))
			require.Equal(t, c.content, string(r.File.Data), "the raw bytes stay as they are")
			require.EqualValues(t, len(c.content), r.File.Size)
			require.False(t, r.File.Truncated)
			require.Empty(t, r.File.Problem)
		})
	}
}

func TestAJobThatWritesNoResultIsDone(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	r := runScript(t, s, "true")
	require.Equal(t, jobs.Completed, r.State)
	require.Equal(t, `"DONE"`, string(r.File.JSON()))
	require.Equal(t, jobs.ResultFile{}, r.File)
}

func TestStrangeResultFilesNeitherFailNorHangAJob(t *testing.T) {
	dir := t.TempDir()
	s := newSupervisor(t, jobs.Config{TempDir: dir})
	elsewhere := writeFile(t, t.TempDir(), "elsewhere", 0o600, secret)
	const remove = `rm -f "$LLM_OUTPUT"; `
	for _, c := range []struct {
		name, script, problem string
	}{
		{"removed", remove, "removed"},
		{"FIFO", remove + `mkfifo "$LLM_OUTPUT"`, "regular file"},
		{"FIFO with a writer", remove + `mkfifo "$LLM_OUTPUT"; (exec 8<>"$LLM_OUTPUT"; echo x >&8)`, "regular file"},
		{"link to an endless device", `ln -sf /dev/zero "$LLM_OUTPUT"`, "regular file"},
		{"link to the terminal", `ln -sf /dev/tty "$LLM_OUTPUT"`, "regular file"},
		{"link to the kernel's log", `ln -sf /proc/kmsg "$LLM_OUTPUT"`, "regular file"},
		{"link to a file", `ln -sf ` + elsewhere + ` "$LLM_OUTPUT"`, "regular file"},
		{"link to itself", remove + `ln -s "$LLM_OUTPUT" "$LLM_OUTPUT"`, "regular file"},
		{"empty directory", remove + `mkdir "$LLM_OUTPUT"`, "regular file"},
		{"full directory", remove + `mkdir -p "$LLM_OUTPUT/a/b"; echo x >"$LLM_OUTPUT/a/b/c"`, "regular file"},
		{"private directory gone", `rm -rf "$(dirname "$LLM_OUTPUT")"`, "removed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			gate := newGate(t)
			id := start(t, s, gate.gated(c.script+"\n"+`echo "$LLM_OUTPUT"; read -r _ <"$GATE"`)).ID
			path := strings.TrimSpace(awaitOutput(t, s, id, "\n"))
			gate.open(t)
			r := collect(t, s, id)
			require.Equal(t, jobs.Completed, r.State, "it printed %q", r.Output.Bytes())
			require.Regexp(t, c.problem, r.File.Problem)
			require.Empty(t, r.File.Data)
			require.Equal(t, `"DONE"`, string(r.File.JSON()))
			require.Equal(t, path+"\n", string(r.Output.Bytes()), "nothing of it joins the output")
			require.Less(t, r.Elapsed, patience)
			_, err := os.Lstat(path)
			require.ErrorIs(t, err, fs.ErrNotExist)
		})
	}
	require.Equal(t, "1", string(runResult(t, s, `echo 1 >"$LLM_OUTPUT"`)), "the next job has a file again")
	content, err := os.ReadFile(elsewhere)
	require.NoError(t, err)
	require.Equal(t, secret, string(content), "what a link named is untouched")
}

func TestAResultThatCannotBeReadIsSaidToBe(t *testing.T) {
	dir := publicDir(t)
	temp := filepath.Join(dir, "temp")
	outsidersDir(t, temp)
	out, err := asOutsider(t, helper(t, "result that cannot be read", "DIR="+temp)).Output()
	require.NoError(t, err, "%s", out)
}

func resultThatCannotBeRead() {
	dir := os.Getenv("DIR")
	s, err := jobs.New(jobs.Config{TempDir: dir})
	check(err == nil, "%v", err)
	r := runIn(s, jobs.Spec{Argv: []string{"/bin/sh", "-c", `echo x >"$LLM_OUTPUT"; chmod 0 "$LLM_OUTPUT"`}})
	check(r.State == jobs.Completed, "%s", r.Outcome())
	check(r.File.Problem != "" && len(r.File.Data) == 0 && r.File.Size == 2, "%+v", r.File)
	warmUp(s)
	s.Close(context.Background())
	left := filesUnder(dir)
	check(len(left) == 0, "left behind: %v", left)
}

func TestAHugeSparseResultIsReadByItsEnd(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	r := runScript(t, s, `truncate -s 1T "$LLM_OUTPUT" || exit 77; echo tail >>"$LLM_OUTPUT"`)
	if r.ExitCode == 77 {
		t.Skip("the file system has no files that large")
	}
	require.Equal(t, jobs.Completed, r.State, "space that is not taken does not count")
	require.EqualValues(t, 1<<40+5, r.File.Size)
	require.True(t, r.File.Truncated)
	require.LessOrEqual(t, len(r.File.Data), 64<<10, "the hole before it is passed over")
	require.True(t, strings.HasSuffix(string(r.File.Data), "tail\n"))
	require.EqualValues(t, 1<<40+5, r.OutputTotal)
	require.True(t, strings.HasSuffix(string(r.Output.Bytes()), "tail\n"))
}

func TestOnlyTheEndOfALargeResultIsRead(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	r := runScript(t, s, `{ echo BEGIN; head -c 3145728 /dev/zero | tr '\0' x; echo END; } >"$LLM_OUTPUT"`)
	require.Equal(t, jobs.Completed, r.State)
	require.EqualValues(t, 3<<20+10, r.File.Size)
	require.True(t, r.File.Truncated)
	require.Len(t, r.File.Data, 1<<20)
	require.True(t, strings.HasSuffix(string(r.File.Data), "xxEND\n"))
	var text struct{ Output string }
	require.NoError(t, json.Unmarshal(r.File.JSON(), &text))
	require.Equal(t, string(r.File.Data), text.Output)
}

func TestTheBorderOfWhatIsReadOfAResultIsExact(t *testing.T) {
	s := newSupervisor(t, jobs.Config{ResultBytes: 10})
	for _, c := range []struct {
		content, data, json string
		truncated           bool
	}{
		{"123456789", "123456789", "123456789", false},
		{"1234567890", "1234567890", "1234567890", false},
		// The rest of a cut number is not that number.
		{"12345678901", "2345678901", `{"output":"2345678901"}`, true},
	} {
		r := runScript(t, s, `printf `+c.content+` >"$LLM_OUTPUT"`)
		require.Equal(t, c.data, string(r.File.Data))
		require.Equal(t, c.json, string(r.File.JSON()))
		require.Equal(t, c.truncated, r.File.Truncated)
		require.EqualValues(t, len(c.content), r.File.Size)
	}
}

func TestAFailedJobKeepsThePartialResult(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	r := runScript(t, s, `echo half >"$LLM_OUTPUT"; exit 3`)
	require.Equal(t, jobs.Failed, r.State)
	require.Equal(t, 3, r.ExitCode)
	require.Equal(t, `{"output":"half\n"}`, string(r.File.JSON()))

	r = runScript(t, s, `printf '{"a": [1, 2' >"$LLM_OUTPUT"; kill -9 $$`)
	require.Equal(t, jobs.ReasonSignal, r.Reason)
	require.Equal(t, `{"output":"{\"a\": [1, 2"}`, string(r.File.JSON()))

	id := start(t, s, bash(`echo half >"$LLM_OUTPUT"; echo written; exec sleep 60`)).ID
	awaitOutput(t, s, id, "written")
	require.Equal(t, `{"output":"half\n"}`, string(cancel(t, s, id).File.JSON()))
	require.Equal(t, `{"output":"half\n"}`, string(collect(t, s, id).File.JSON()))
}

func TestResultFileJoinsTheOutputAndCountsAsOutput(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	r := runScript(t, s, `echo hello; echo from >"$LLM_OUTPUT"`)
	require.Equal(t, "hello\nfrom\n", string(r.Output.Bytes()))
	require.EqualValues(t, 11, r.OutputTotal)
	require.EqualValues(t, 0, r.OutputDropped)
}

func TestResultFileIsVisibleWhileTheJobRuns(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	gate := newGate(t)
	id := start(t, s, gate.gated(`
		echo one >"$LLM_OUTPUT"; read -r _ <"$GATE"
		echo two >>"$LLM_OUTPUT"; read -r _ <"$GATE"`)).ID
	awaitOutput(t, s, id, "one\n")
	gate.open(t)
	require.True(t, eventually(func() bool {
		snap, err := s.Check(id)
		require.NoError(t, err)
		return snap.OutputTotal == 8
	}), "a Check looks too")
	gate.open(t)
	r := collect(t, s, id)
	require.Equal(t, "one\ntwo\n", string(r.Output.Bytes()), "each byte joins once")
	require.Equal(t, "one\ntwo\n", string(r.File.Data))
}

func TestARewrittenResultIsReadFromItsBeginning(t *testing.T) {
	for name, rewrite := range map[string]string{
		"truncated": `: >"$LLM_OUTPUT"; echo b >>"$LLM_OUTPUT"`,
		"replaced":  `echo b >"$LLM_OUTPUT.new"; mv "$LLM_OUTPUT.new" "$LLM_OUTPUT"`,
		"recreated": `rm "$LLM_OUTPUT"; echo b >"$LLM_OUTPUT"`,
		"replaced by a longer one": `echo b >"$LLM_OUTPUT.new"; printf '%01000d' 0 >>"$LLM_OUTPUT.new"
			mv "$LLM_OUTPUT.new" "$LLM_OUTPUT"`,
	} {
		t.Run(name, func(t *testing.T) {
			s := newSupervisor(t, jobs.Config{})
			gate := newGate(t)
			id := start(t, s, gate.gated(`
				echo aaaaaaaaaa >>"$LLM_OUTPUT"; read -r _ <"$GATE"
				`+rewrite+`; read -r _ <"$GATE"`)).ID
			awaitOutput(t, s, id, "aaaaaaaaaa\n")
			gate.open(t)
			awaitOutput(t, s, id, "aaaaaaaaaa\nb\n")
			gate.open(t)
			r := collect(t, s, id)
			want := "b\n"
			if strings.Contains(name, "longer") {
				want += strings.Repeat("0", 1000)
			}
			require.Equal(t, want, string(r.File.Data))
			require.Equal(t, "aaaaaaaaaa\n"+want, string(r.Output.Bytes()))
			require.Empty(t, r.File.Problem)
		})
	}
}

func TestALargeResultDoesNotFlushTheLog(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	gate := newGate(t)
	id := start(t, s, gate.gated(`
		echo first; seq 1 500
		head -c 1000000 /dev/zero | tr '\0' a >"$LLM_OUTPUT"; echo written; read -r _ <"$GATE"
		head -c 1000000 /dev/zero | tr '\0' b >>"$LLM_OUTPUT"; echo last`)).ID
	awaitOutput(t, s, id, "\n500\n")
	require.True(t, eventually(func() bool {
		snap, err := s.Check(id)
		require.NoError(t, err)
		return snap.OutputTotal >= 1_000_000
	}))
	gate.open(t)
	r := collect(t, s, id)
	text := string(r.Output.Bytes())
	require.Contains(t, text, "first\n"+seq(1, 500))
	require.Contains(t, text, "written\n")
	require.Contains(t, text, "last\n")
	// Looks may have found the file half written, so the joins are not just
	// two; what matters is that they are few and counted.
	require.Contains(t, text, strings.Repeat("b", 1000))
	require.EqualValues(t, 2_000_000+len("first\n")+len(seq(1, 500))+len("written\nlast\n"), r.OutputTotal)
	require.EqualValues(t, r.OutputTotal, int64(len(text))+r.OutputDropped)
	require.Equal(t, r.Output.Dropped, r.OutputDropped)
}

func TestOneJoinAddsAtMost8KiB(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	for size, joined := range map[int]int{8191: 8191, 8192: 8192, 8193: 8192, 1_000_000: 8192} {
		r := runScript(t, s, fmt.Sprintf(`head -c %d /dev/zero | tr '\0' a >"$LLM_OUTPUT"`, size))
		require.EqualValues(t, size, r.OutputTotal)
		require.EqualValues(t, size-joined, r.OutputDropped)
		require.Equal(t, strings.Repeat("a", joined), string(r.Output.Bytes()))
	}
}

// seq is what seq(1) prints.
func seq(from, to int) string {
	var b strings.Builder
	for n := from; n <= to; n++ {
		fmt.Fprintln(&b, n)
	}
	return b.String()
}

func TestAResultFileThatTakesTooMuchDiskStopsItsJob(t *testing.T) {
	// What is written between two looks of the watcher is beyond the limit.
	const limit, slack = 1 << 20, 1 << 30
	// It writes slowly enough to spare the machine.
	const write = `while :; do head -c 65536 /dev/zero; done`
	for name, script := range map[string]string{
		"flood":          `exec yes >"$LLM_OUTPUT"`,
		"appended":       write + ` >>"$LLM_OUTPUT"`,
		"unlinked":       `exec 9>"$LLM_OUTPUT"; rm "$LLM_OUTPUT"; ` + write + ` >&9`,
		"replaced":       `echo x >"$LLM_OUTPUT.new"; mv "$LLM_OUTPUT.new" "$LLM_OUTPUT"; ` + write + ` >>"$LLM_OUTPUT"`,
		"recreated":      `rm "$LLM_OUTPUT"; ` + write + ` >"$LLM_OUTPUT"`,
		"linked":         `ln "$LLM_OUTPUT" "$LLM_OUTPUT.mine"; rm "$LLM_OUTPUT"; ` + write + ` >"$LLM_OUTPUT"`,
		"directory gone": `exec 9>"$LLM_OUTPUT"; rm -rf "$(dirname "$LLM_OUTPUT")"; ` + write + ` >&9`,
	} {
		t.Run(name, func(t *testing.T) {
			s := newSupervisor(t, jobs.Config{ResultFileLimit: limit})
			spec := bash(script)
			spec.Timeout = 4 * time.Second // only where the limit does not hold
			r := collect(t, s, start(t, s, spec).ID)
			require.Equal(t, jobs.Failed, r.State)
			require.Equal(t, jobs.ReasonOutputLimit, r.Reason)
			require.Less(t, r.File.Size, int64(limit+slack))
			require.Empty(t, r.Survivors)
		})
	}
}

func TestAResultFileWithinItsLimitIsNobodysConcern(t *testing.T) {
	s := newSupervisor(t, jobs.Config{ResultFileLimit: 1 << 20})
	gate := newGate(t)
	id := start(t, s, gate.gated(`
		head -c 1000000 /dev/zero >"$LLM_OUTPUT"; truncate -s 1G "$LLM_OUTPUT"
		echo written; read -r _ <"$GATE"`)).ID
	awaitOutput(t, s, id, "written")
	// A job that is over its limit meanwhile shows that the watcher came by.
	other := collect(t, s, start(t, s, bash(`head -c 2000000 /dev/zero >"$LLM_OUTPUT"; exec sleep 60`)).ID)
	require.Equal(t, jobs.ReasonOutputLimit, other.Reason)
	gate.open(t)
	require.Equal(t, jobs.Completed, collect(t, s, id).State)
}

func TestANegativeResultFileLimitIsNone(t *testing.T) {
	limited := newSupervisor(t, jobs.Config{ResultFileLimit: 1})
	free := newSupervisor(t, jobs.Config{ResultFileLimit: -1})
	gate := newGate(t)
	const write = `head -c 2000000 /dev/zero >"$LLM_OUTPUT"; `
	id := start(t, free, gate.gated(write+`echo written; read -r _ <"$GATE"`)).ID
	awaitOutput(t, free, id, "written")
	require.Equal(t, jobs.ReasonOutputLimit, collect(t, limited, start(t, limited, bash(write+"exec sleep 60")).ID).Reason)
	gate.open(t)
	require.Equal(t, jobs.Completed, collect(t, free, id).State)
}

func TestAResultIsFrozenAtTheEnd(t *testing.T) {
	dir := t.TempDir()
	s := newSupervisor(t, jobs.Config{TempDir: dir})
	gate := newGate(t)
	spec := gate.gated(`
		exec 9>>"$LLM_OUTPUT"; echo early >&9
		(read -r _ <"$GATE"; echo late >&9; echo late >"$LLM_OUTPUT"; echo done >"$DONE") </dev/null >/dev/null 2>&1 &
		exit 0`)
	done := filepath.Join(t.TempDir(), "done")
	spec.Env = append(spec.Env, "DONE="+done)
	spec.Leftovers = jobs.KeepLeftovers
	id := start(t, s, spec).ID
	require.Equal(t, jobs.Completed, awaitEnd(t, s, id).State)
	require.Equal(t, "early\n", string(cancel(t, s, id).File.Data), "a finished job is only looked at")
	gate.open(t)
	require.True(t, eventually(func() bool { return len(filesUnder(filepath.Dir(done))) > 0 }))
	r := collect(t, s, id)
	require.Equal(t, "early\n", string(r.File.Data))
	require.Equal(t, "early\n", string(r.Output.Bytes()))
	require.Equal(t, "1", string(runResult(t, s, `echo 1 >"$LLM_OUTPUT"`)))
}

func TestAKeptLeftoverHasNoHoldOnTheResultOfALaterJob(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	gate, later := newGate(t), newGate(t)
	seen := filepath.Join(t.TempDir(), "seen")
	spec := gate.gated(`
		exec 8<"$LLM_OUTPUT" 9>>"$LLM_OUTPUT"
		(read -r _ <"$GATE"; echo late >&9; cat <&8 >"$SEEN.part"; mv "$SEEN.part" "$SEEN") </dev/null >/dev/null 2>&1 &
		exit 0`)
	spec.Env = append(spec.Env, "SEEN="+seen)
	spec.Leftovers = jobs.KeepLeftovers
	require.Equal(t, jobs.Completed, collect(t, s, start(t, s, spec).ID).State)

	// One of these has the file of the job that ended, if it is used again.
	var ids []string
	for range 5 {
		ids = append(ids, start(t, s, later.gated(`echo '"mine"' >"$LLM_OUTPUT"; echo ready; read -r _ <"$GATE"`)).ID)
		awaitOutput(t, s, ids[len(ids)-1], "ready")
	}
	gate.open(t)
	var content []byte
	require.True(t, eventually(func() bool {
		var err error
		content, err = os.ReadFile(seen)
		return err == nil
	}))
	require.Equal(t, "late\n", string(content), "the leftover reads only what it wrote itself")
	for range ids {
		later.open(t)
	}
	for _, id := range ids {
		require.Equal(t, "\"mine\"\n", string(collect(t, s, id).File.Data))
	}
}

func TestResultFilesArePrivateFreshAndEmpty(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	dir := t.TempDir()
	s := newSupervisor(t, jobs.Config{TempDir: dir})
	var paths []string
	for n := range 20 {
		r := runScript(t, s, `echo "$LLM_OUTPUT"; stat -c '%F %a %u' "$LLM_OUTPUT" "$(dirname "$LLM_OUTPUT")"
			echo x >&2; [ `+fmt.Sprint(n%2)+` = 0 ] || echo 1 >"$LLM_OUTPUT"`)
		lines := strings.Split(string(r.Output.Bytes()), "\n")
		uid := os.Getuid()
		require.Equal(t, fmt.Sprintf("regular empty file 600 %d", uid), lines[1])
		require.Equal(t, fmt.Sprintf("directory 700 %d", uid), lines[2])
		path := lines[0]
		require.True(t, filepath.IsAbs(path))
		require.True(t, strings.HasPrefix(path, dir+"/"), path)
		require.NotContains(t, paths, path)
		paths = append(paths, path)
		_, err := os.Lstat(path)
		require.ErrorIs(t, err, fs.ErrNotExist, "it is gone when the end is told")
	}
	_, err := s.Close(t.Context())
	require.NoError(t, err)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestResultFilesAreRemovedHoweverTheirJobsEnd(t *testing.T) {
	dir := t.TempDir()
	s := newSupervisor(t, jobs.Config{TempDir: dir, ResultFileLimit: 1 << 20, KillGrace: 100 * time.Millisecond})
	const write = `echo x >"$LLM_OUTPUT"; `
	ends := map[string]struct {
		script string
		timely bool // ends by itself
	}{
		"exit":         {write + `exit 0`, true},
		"failure":      {write + `exit 1`, true},
		"signal":       {write + `kill -9 $$`, true},
		"leftover":     {write + `sleep 60 & exit 0`, true},
		"directory":    {`rm "$LLM_OUTPUT"; mkdir -p "$LLM_OUTPUT/a"; ` + write + `: >"$LLM_OUTPUT/a/b"`, true},
		"output limit": {`head -c 2000000 /dev/zero >"$LLM_OUTPUT"; exec sleep 60`, true},
		"timeout":      {write + `exec sleep 60`, true},
		"cancel":       {write + `exec sleep 60`, false},
		"defiance":     {`trap '' TERM; ` + write + `while :; do sleep 60; done`, false},
	}
	for range 2 {
		for name, end := range ends {
			spec := bash(end.script)
			if name == "timeout" {
				spec.Timeout = 50 * time.Millisecond
			}
			id := start(t, s, spec).ID
			if !end.timely {
				cancel(t, s, id)
			}
			collect(t, s, id)
			_, err := refused(s, dir, jobs.Spec{Argv: []string{"/no/such/program"}})
			require.NoError(t, err)
		}
	}
	requireNoResults(t, dir)
	id := start(t, s, bash(write+`exec sleep 60`)).ID
	awaitOutput(t, s, id, "x")
	_, err := s.Close(t.Context())
	require.NoError(t, err)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

// requireNoResults fails unless dir holds, or soon holds, nothing but a few
// empty files that wait for the next jobs.
func requireNoResults(t testing.TB, dir string) {
	t.Helper()
	require.True(t, eventually(func() bool {
		return len(filesUnder(dir)) <= spareNames && sizeUnder(dir) == 0
	}), "%v", filesUnder(dir))
}

func TestADeletedPrivateDirectoryIsMadeAgain(t *testing.T) {
	dir := t.TempDir()
	s := newSupervisor(t, jobs.Config{TempDir: dir})
	for n, script := range []string{
		`dirname "$LLM_OUTPUT"; echo 1 >"$LLM_OUTPUT"`,
		`dirname "$LLM_OUTPUT"`, // the next job could have the same file
		`dirname "$LLM_OUTPUT"; rm -rf "$(dirname "$LLM_OUTPUT")"`,
		`dirname "$LLM_OUTPUT"; rm -rf "$(dirname "$LLM_OUTPUT")"/*`,
	} {
		r := runScript(t, s, script)
		settledFootprint(s, dir)
		private := strings.Fields(string(r.Output.Bytes()))[0]
		require.NoError(t, os.RemoveAll(private))
		r = runScript(t, s, fmt.Sprintf(`echo %d >"$LLM_OUTPUT"`, n))
		require.Equal(t, strconv.Itoa(n), string(r.File.JSON()), "after %s it printed %q", script, r.Output.Bytes())
	}
	_, err := s.Close(t.Context())
	require.NoError(t, err)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestOutputLimitDoesNotCountTheResultFile(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	gate := newGate(t)
	spec := gate.gated(`
		printf '%01000d' 0 >"$LLM_OUTPUT"; read -r _ <"$GATE"
		echo printed; read -r _ <"$GATE"`)
	spec.OutputLimit = 100
	id := start(t, s, spec).ID
	awaitOutput(t, s, id, "000")
	gate.open(t)
	require.True(t, eventually(func() bool {
		snap, err := s.Check(id)
		require.NoError(t, err)
		return snap.OutputTotal == 1008 || snap.Ended()
	}))
	gate.open(t)
	r := collect(t, s, id)
	require.Equal(t, jobs.Completed, r.State, "%s", r.Outcome())
	require.EqualValues(t, 1008, r.OutputTotal)
}

func TestJobsRunOnAFullDisk(t *testing.T) {
	c := helper(t, "result on a full disk", "DIR="+t.TempDir())
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	out, err := c.Output()
	if err != nil && strings.Contains(err.Error(), "operation not permitted") {
		t.Skip("no mount namespace here:", err)
	}
	require.NoError(t, err, "%s", out)
}

func resultOnAFullDisk() {
	dir := os.Getenv("DIR")
	check(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") == nil, "cannot make mounts private")
	err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k")
	check(err == nil, "mount: %v", err)
	s, err := jobs.New(jobs.Config{TempDir: dir})
	check(err == nil, "%v", err)
	sh := func(script string) jobs.Result {
		return runIn(s, jobs.Spec{Argv: []string{"bash", "-c", script}})
	}

	// The job itself fills the disk.
	r := sh(`head -c 200000 /dev/zero | tr '\0' z; echo tail; head -c 200000 /dev/zero >"$LLM_OUTPUT"; exit 7`)
	check(r.ExitCode == 7, "%s", r.Outcome())
	check(r.File.Size > 0 && r.File.Size <= 64<<10, "%d bytes of result", r.File.Size)
	check(strings.Contains(string(r.Output.Bytes()), "zztail\n"), "the output is not complete")
	check(r.OutputTotal >= 200_005+r.File.Size, "%d bytes of output", r.OutputTotal)
	// The space is free soon after the end is told.
	emptied := func() bool { free, all := blocks(dir); return free == all }
	check(eventually(emptied), "%v", filesUnder(dir))
	r = sh(`echo 1 >"$LLM_OUTPUT"`)
	check(string(r.File.JSON()) == "1", "%s", r.File.JSON())

	// Somebody else has filled it.
	check(eventually(emptied), "%v", filesUnder(dir))
	ballast := filepath.Join(dir, "ballast")
	check(fill(ballast), "cannot fill the disk")
	r = sh(`head -c 200000 /dev/zero | tr '\0' z; echo tail; echo lost >"$LLM_OUTPUT"; exit 7`)
	check(r.ExitCode == 7, "%s", r.Outcome())
	check(strings.Contains(string(r.Output.Bytes()), "zztail\n"), "the output is not complete")
	check(string(r.File.JSON()) == `"DONE"`, "%s", r.File.JSON())
	warmUp(s)

	check(os.Remove(ballast) == nil, "cannot free the disk")
	r = sh(`echo 2 >"$LLM_OUTPUT"`)
	check(string(r.File.JSON()) == "2", "%s", r.File.JSON())
	s.Close(context.Background())
}

// fill writes a file until its disk is full.
func fill(path string) (full bool) {
	f, err := os.Create(path)
	if err != nil {
		return false
	}
	defer f.Close()
	block := make([]byte, 4096)
	return eventually(func() bool {
		for err := error(nil); err == nil; {
			_, err = f.Write(block)
		}
		free, _ := blocks(path)
		return free == 0
	})
}

// blocks returns how many blocks the file system of path has.
func blocks(path string) (free, all uint64) {
	var st unix.Statfs_t
	check(unix.Statfs(path, &st) == nil, "statfs")
	return st.Bfree, st.Blocks
}

func TestALimitOnFileSizesTouchesOnlyResults(t *testing.T) {
	c := helper(t, "result under a limit on files", "DIR="+t.TempDir())
	c.Args = []string{"bash", "-c", `ulimit -f 64; exec "$0"`, c.Path}
	c.Path = "/bin/bash"
	out, err := c.Output()
	require.NoError(t, err, "%s", out)
}

func resultUnderALimitOnFiles() {
	s, err := jobs.New(jobs.Config{TempDir: os.Getenv("DIR")})
	check(err == nil, "%v", err)
	sh := func(script string) jobs.Result {
		return runIn(s, jobs.Spec{Argv: []string{"bash", "-c", script}})
	}
	r := sh(`head -c 200000 /dev/zero | tr '\0' z; echo tail`)
	check(r.State == jobs.Completed && r.OutputTotal == 200_005, "%s, %d bytes", r.Outcome(), r.OutputTotal)
	r = sh(`exec head -c 200000 /dev/zero >"$LLM_OUTPUT"`)
	check(r.Reason == jobs.ReasonResourceLimit && r.Signal == jobs.Signal(syscall.SIGXFSZ), "%s", r.Outcome())
	check(r.File.Size == 64<<10 && len(r.File.Data) == 64<<10, "%d bytes of result", r.File.Size)
	warmUp(s)
	s.Close(context.Background())
}

func TestManyJobsLeaveNoFileBehind(t *testing.T) {
	dir := t.TempDir()
	s := newSupervisor(t, jobs.Config{TempDir: dir})
	for n := range 100 {
		require.Equal(t, fmt.Sprint(n), string(runResult(t, s, fmt.Sprintf(`echo %d >"$LLM_OUTPUT"`, n))))
	}
	requireNoResults(t, dir)
	_, err := s.Close(testContext(t))
	require.NoError(t, err)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestAResultLimitBeyondMemoryAllocatesNothing(t *testing.T) {
	s := newSupervisor(t, jobs.Config{ResultBytes: math.MaxInt64})
	require.Equal(t, "1", string(runResult(t, s, `echo 1 >"$LLM_OUTPUT"`)))
}
