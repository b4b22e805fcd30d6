//go:build linux

package jobs_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// script writes an executable shell script into dir.
func script(t testing.TB, dir, name, body string) {
	t.Helper()
	writeFile(t, dir, name, 0o755, "#!/bin/bash\n"+body+"\n")
}

// scripts returns a Toolset of the scripts in dirs, of which the named ones
// are declared.
func scripts(s *jobs.Supervisor, st jobs.ScriptTools, declared ...string) *jobs.Toolset {
	return s.Toolset(jobs.ToolsetOptions{Declared: declared, Resolve: st.Resolve})
}

// runTool starts a tool with arguments and collects it.
func runTool(t testing.TB, tools *jobs.Toolset, tool, arguments string) reply {
	t.Helper()
	r := ask(t, tools, "job__start", fmt.Sprintf(`{"tool":%q,"arguments":%q}`, tool, arguments))
	require.Equal(t, "ok", r.Status, r.text)
	return ask(t, tools, "job__collect", idArgs(r.JobID))
}

func TestAScriptToolTakesItsArgumentsAsOneJSONTextInTheLastPlace(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	dir := t.TempDir()
	script(t, dir, "show", `printf '%s\n' "$#" "$@"`)
	const arguments = `{"path": "a b", "n": 9007199254740993, "quote": "'\"$(id)"}`
	r := runTool(t, scripts(s, jobs.ScriptTools{Dirs: []string{dir}}, "show"), "show", arguments)
	require.Equal(t, "completed", r.Status)
	require.Equal(t, "1\n"+arguments+"\n", r.tail())
	require.Equal(t, `"DONE"`, string(r.Result))
	require.Equal(t, 0, *r.ExitCode)
	require.Regexp(t, `^`+anyID.String()+`$`, r.ID)

	r = runTool(t, scripts(s, jobs.ScriptTools{Dirs: []string{dir}, Args: []string{"run", "show"}}, "show"), "show", "")
	require.Equal(t, "3\nrun\nshow\n{}\n", r.tail())
}

func TestAScriptToolWritesItsResultToAFile(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	dir := t.TempDir()
	script(t, dir, "count", `echo counting; echo '{"n": 9007199254740993}' >"$LLM_OUTPUT"`)
	tools := scripts(s, jobs.ScriptTools{Dirs: []string{dir}}, "count")
	r := runTool(t, tools, "count", "")
	require.Equal(t, `{"n":9007199254740993}`, string(r.Result))
	require.Contains(t, r.tail(), "counting\n")
}

func TestScriptToolsLookInTheirDirectoriesOnlyInTheirOrder(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	first, second, third := t.TempDir(), t.TempDir(), t.TempDir()
	script(t, second, "both", "echo second")
	script(t, third, "both", "echo third")
	script(t, third, "one", "echo one")
	require.NoError(t, os.Mkdir(filepath.Join(first, "both"), 0o755)) // no executable
	st := jobs.ScriptTools{Dirs: []string{first, filepath.Join(first, "missing"), second, third}}
	// Programs that PATH has, or the working directory, are no tools.
	t.Chdir(t.TempDir())
	script(t, ".", "here", "echo here")
	tools := scripts(s, st, "both", "one", "ls", "bash", "here")
	require.Equal(t, "second\n", runTool(t, tools, "both", "").tail())
	require.Equal(t, "one\n", runTool(t, tools, "one", "").tail())
	for _, tool := range []string{"ls", "bash", "here"} {
		r := ask(t, tools, "job__start", fmt.Sprintf(`{"tool":%q}`, tool))
		require.True(t, r.failed(), r.text)
		require.Contains(t, r.Message, "no executable for the tool")
		require.Contains(t, r.Message, tool)
	}
	require.Empty(t, s.List().Jobs)
}

func TestAScriptToolIsAPlainFileName(t *testing.T) {
	outer := t.TempDir()
	dir := filepath.Join(outer, "bin")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "sub"), 0o755))
	for _, path := range []string{"bin/tool", "bin/.hidden", "bin/sub/tool", "outside"} {
		script(t, outer, path, "true")
	}
	st := jobs.ScriptTools{Dirs: []string{dir}}
	for _, name := range []string{
		"", ".", "..", "/", "./tool", "../outside", "sub/tool", "/usr/bin/env", dir + "/tool", "tool/", "tool/.", "bin//tool",
		".hidden", "~", "~/tool", `sub\tool`, "tool\x00", "tool ", "Tool", "tool;id", "tool --help", "$(tool)",
	} {
		_, err := st.Resolve(t.Context(), name, json.RawMessage(`{}`))
		require.Error(t, err, "%q", name)
	}
	spec, err := st.Resolve(t.Context(), "tool", json.RawMessage(`{}`))
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(dir, "tool"), "{}"}, spec.Argv)
	require.Equal(t, "tool", spec.Tool)
}

// A name of a shell or a path that the model makes up never starts anything,
// though the system has such a program.
func TestRefusedNamesOfRealProgramsLeaveNoProcess(t *testing.T) {
	s, tempDir := newWarmSupervisor(t, jobs.Config{})
	dir := t.TempDir()
	script(t, dir, "script.sh", "exec sleep 300")
	declared := make([]string, 1, 2)
	declared[0] = "other"
	st := jobs.ScriptTools{Dirs: []string{dir, "/bin", "/usr/bin"}, Env: []string{"REFUSED=" + dir}}
	tools := scripts(s, st, declared...)
	_ = append(declared, "script.sh")
	before := settledFootprint(s, tempDir)
	for _, tool := range []string{"bash", "sh", "ls", "/usr/bin/env", "./script.sh", "script.sh", filepath.Join(dir, "script.sh")} {
		r := ask(t, tools, "job__start", fmt.Sprintf(`{"tool":%q}`, tool))
		require.True(t, r.failed(), "%s: %s", tool, r.text)
		require.Contains(t, r.Message, "no tool of this name was declared")
	}
	require.Empty(t, marked("REFUSED="+dir))
	require.Empty(t, s.List().Jobs)
	require.True(t, staysWithin(before, s, tempDir))
	// Declared, the very same name starts.
	require.Equal(t, "ok", ask(t, scripts(s, st, "script.sh"), "job__start", `{"tool":"script.sh"}`).Status)
	require.True(t, eventually(func() bool { return len(marked("REFUSED="+dir)) == 1 }))
}

func TestTheDirectoriesOfScriptToolsComeFirstInTheirPath(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	first, second := t.TempDir(), t.TempDir()
	script(t, first, "path", `echo "$PATH"; helper`)
	script(t, second, "helper", "echo helped")
	t.Setenv("PATH", "/usr/bin:/bin")
	st := jobs.ScriptTools{Dirs: []string{first, second}}
	r := runTool(t, scripts(s, st, "path"), "path", "")
	require.Equal(t, first+":"+second+":/usr/bin:/bin\nhelped\n", r.tail())

	t.Setenv("PATH", "")
	r = runTool(t, scripts(s, st, "path"), "path", "")
	require.Equal(t, first+":"+second+"\nhelped\n", r.tail(), "an empty entry would be the working directory")
}

// The tool may work elsewhere, where a relative entry of PATH names another
// directory than the host meant.
func TestRelativeDirectoriesOfScriptToolsAreTheHosts(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	t.Chdir(t.TempDir())
	elsewhere := t.TempDir()
	for dir, says := range map[string]string{"bin": "right", filepath.Join(elsewhere, "bin"): "planted"} {
		require.NoError(t, os.Mkdir(dir, 0o755))
		script(t, dir, "helper", "echo "+says)
	}
	script(t, "bin", "tool", "helper")
	tools := scripts(s, jobs.ScriptTools{Dirs: []string{"bin"}, Dir: elsewhere}, "tool")
	require.Equal(t, "right\n", runTool(t, tools, "tool", "").tail())
}

func TestColorIsAskedForOnlyIfWanted(t *testing.T) {
	t.Setenv("CLICOLOR_FORCE", "")
	t.Setenv("FORCE_COLOR", "")
	s := newSupervisor(t, jobs.Config{})
	dir := t.TempDir()
	script(t, dir, "color", `echo "<$CLICOLOR_FORCE><$FORCE_COLOR>"; printf '\033[31mred\033[0m\n'`)
	r := runTool(t, scripts(s, jobs.ScriptTools{Dirs: []string{dir}}, "color"), "color", "")
	require.Equal(t, "<><>\nred\n", r.tail())

	start := ask(t, scripts(s, jobs.ScriptTools{Dirs: []string{dir}, Color: true}, "color"), "job__start", `{"tool":"color"}`)
	endOf(t, s, start.JobID)
	raw, err := s.Output(start.JobID, 0, 0)
	require.NoError(t, err)
	require.Equal(t, "<1><1>\n\x1b[31mred\x1b[0m\n", string(raw.Data))
	r = ask(t, scripts(s, jobs.ScriptTools{}), "job__collect", idArgs(start.JobID))
	require.Equal(t, "<1><1>\nred\n", r.tail(), "a model reads no colours")
}

func TestScriptToolsWorkInTheirDirectoryWithTheirEnvironment(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	dir, work := t.TempDir(), t.TempDir()
	script(t, dir, "where", `pwd; echo "$TOKEN"`)
	st := jobs.ScriptTools{Dirs: []string{dir}, Dir: work, Env: []string{"TOKEN=abc"}}
	require.Equal(t, work+"\nabc\n", runTool(t, scripts(s, st, "where"), "where", "").tail())
}

func TestAScriptToolThatCannotBeExecutedSaysWhy(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	dir := t.TempDir()
	writeFile(t, dir, "plain", 0o644, "#!/bin/sh\necho no\n")
	writeFile(t, dir, "lost", 0o755, "#!/no/such/interpreter\n")
	writeFile(t, dir, "text", 0o755, "echo no\n")
	tools := scripts(s, jobs.ScriptTools{Dirs: []string{dir}}, "plain", "lost", "text", "missing")
	for tool, says := range map[string]string{
		"plain":   "not executable",
		"lost":    "/no/such/interpreter does not",
		"text":    "interpreter",
		"missing": "no executable for the tool",
	} {
		r := ask(t, tools, "job__start", fmt.Sprintf(`{"tool":%q}`, tool))
		require.True(t, r.failed(), r.text)
		require.Contains(t, r.Message, says)
		require.Contains(t, r.Message, tool)
		require.Contains(t, r.Message, "Not started")
	}
	require.Empty(t, s.List().Jobs)
	require.Zero(t, s.List().Running)
}

// What the tools say of processes.

func TestTheAnswerOfAProcessTellsItsExitWordForWord(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	dir := t.TempDir()
	script(t, dir, "three", `echo before; echo partial >"$LLM_OUTPUT"; exit 3`)
	script(t, dir, "killed", `echo before; kill -KILL $$`)
	script(t, dir, "json", `echo '{"errors":2}' >"$LLM_OUTPUT"; exit 1`)
	script(t, dir, "removes", `rm "$LLM_OUTPUT"`)
	tools := scripts(s, jobs.ScriptTools{Dirs: []string{dir}}, "three", "killed", "json", "removes")
	for tool, want := range map[string]string{
		"three": `{"status":"failed","id":"job_1","tool":"three","exit_code":3,` +
			`"result":{"tool_call_error":"It failed with exit code 3.","output":{"output":"partial\n"}},` +
			`"output_tail":"before\npartial\n","output_bytes_captured":15}`,
		"killed": `{"status":"failed","id":"job_1","tool":"killed","reason":"signal","signal":"SIGKILL",` +
			`"result":{"tool_call_error":"It was killed by SIGKILL."},` +
			`"output_tail":"before\n","output_bytes_captured":7}`,
		"json": `{"status":"failed","id":"job_1","tool":"json","exit_code":1,` +
			`"result":{"tool_call_error":"It failed with exit code 1.","output":{"errors":2}},` +
			`"output_tail":"{\"errors\":2}\n","output_bytes_captured":13}`,
		"removes": `{"status":"completed","id":"job_1","tool":"removes","exit_code":0,"result":"DONE",` +
			`"result_note":"the job removed its result file","output_tail":"","output_bytes_captured":0}`,
	} {
		r := runTool(t, tools, tool, "")
		require.Equal(t, want, withoutChance(r.text, r.ID))
	}
}

func TestANoticeTellsTheExitCodeAndTheSignal(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	for shell, want := range map[string]string{
		`exit 0`:        `{"event":"job_completed","id":"job_1","tool":"script","status":"completed","reason":"exit","exit_code":0,"next_action":"job__collect {\"id\":\"job_1\"}"}`,
		`exit 3`:        `{"event":"job_failed","id":"job_1","tool":"script","status":"failed","reason":"exit","exit_code":3,"next_action":"job__collect {\"id\":\"job_1\"}"}`,
		`kill -TERM $$`: `{"event":"job_failed","id":"job_1","tool":"script","status":"failed","reason":"signal","signal":"SIGTERM","next_action":"job__collect {\"id\":\"job_1\"}"}`,
	} {
		id := start(t, s, bash(shell)).ID
		endOf(t, s, id)
		notices := s.Drain()
		require.Len(t, notices, 1)
		data, err := json.Marshal(notices[0])
		require.NoError(t, err)
		require.Equal(t, want, withoutChance(string(data), id))
	}
}

func TestTheTimeoutOfAJobIsNamedAsTheCause(t *testing.T) {
	s := newSupervisor(t, jobs.Config{Timeout: 1})
	tools := s.Toolset(jobs.ToolsetOptions{})
	r := ask(t, tools, "job__collect", idArgs(start(t, s, bash("sleep 300")).ID))
	require.Equal(t, "failed", r.Status)
	require.Equal(t, "timeout", r.Reason)
	require.Contains(t, string(r.Result), "timeout")
}

func TestTheAnswersNameLeftovers(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	tools := s.Toolset(jobs.ToolsetOptions{})
	r := ask(t, tools, "job__collect", idArgs(start(t, s, bash(asleep+`sleep 300 >/dev/null 2>&1 & asleep $!; echo $!`)).ID))
	require.Equal(t, "completed", r.Status)
	require.Equal(t, []jobs.Process{{PID: pids(t, r.tail())[0], Name: "sleep"}}, r.Leftovers)
}

func TestCancelStopsTheProcessesOfAJob(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	tools := s.Toolset(jobs.ToolsetOptions{})
	id := start(t, s, bash(`sleep 300 & echo $$ $!; wait`)).ID
	all := pids(t, awaitOutput(t, s, id, "\n"))
	r := ask(t, tools, "job__cancel", idArgs(id))
	require.Equal(t, "cancelled", r.Status)
	requireDead(t, all...)
}

func TestStandardErrorOfItsOwnIsShownApart(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	tools := s.Toolset(jobs.ToolsetOptions{Wait: 1})
	spec := bash(`echo out; echo err >&2; read -r _ <"$GATE"`)
	g := newGate(t)
	spec.Env, spec.SplitStderr = []string{g.env()}, true
	id := start(t, s, spec).ID
	require.True(t, eventually(func() bool { snap, _ := s.Check(id); return snap.OutputTotal+snap.StderrTotal == 8 }))
	const shown = "out\n\n--- standard error ---\nerr\n"
	r := ask(t, tools, "job__check", idArgs(id))
	require.Equal(t, shown, r.tail())
	require.EqualValues(t, 8, *r.Captured)
	r = ask(t, tools, "job__collect", idArgs(id))
	require.Equal(t, "running", r.Status)
	require.EqualValues(t, 8, *r.Captured)
	g.open(t)
	endOf(t, s, id)
	r = ask(t, tools, "job__collect", idArgs(id))
	require.Equal(t, shown, r.tail())
	require.EqualValues(t, 8, *r.Captured)
}

// Results that are too large.

// bigScript prints count times a text to the result file.
func bigScript(text string, count int, exit string) jobs.Spec {
	return jobs.Spec{Tool: "big", Argv: []string{"bash", "-c",
		`for ((i = 0; i < ` + fmt.Sprint(count) + `; i++)); do printf '%s\n' "$0"; done >"$LLM_OUTPUT"; ` + exit, text}}
}

func TestAResultOfFiftyThousandWideCharactersFits(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	tools := s.Toolset(jobs.ToolsetOptions{})
	line := strings.Repeat("界", 99) // and a newline: 500 lines are 50,000 characters, of three bytes each
	r := ask(t, tools, "job__collect", idArgs(start(t, s, bigScript(line, 500, "")).ID))
	require.Equal(t, "completed", r.Status)
	require.True(t, r.ResultTruncated)

	r = ask(t, tools, "job__collect", idArgs(start(t, s, bigScript(line, 500, "")).ID, `"full_result":true`))
	require.False(t, r.ResultTruncated)
	var result struct{ Output string }
	require.NoError(t, json.Unmarshal(r.Result, &result))
	require.Equal(t, strings.Repeat(line+"\n", 500), result.Output)
}

// A result is handed out once, so a hint can only say what would have shown
// more, and that must be true.
func TestTheHintOfACutResultBlamesFullResultOnlyWhereThatWouldHaveHelped(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	tools := s.Toolset(jobs.ToolsetOptions{})
	for _, c := range []struct {
		lines int
		args  []string
	}{
		{2_000, nil},
		{2_000, []string{`"tail_lines":1500`}}, // cut by the cap
		{10, []string{`"tail_lines":2`}},       // cut by tail_lines, which full_result does not lift
	} {
		take := func(more ...string) reply {
			id := start(t, s, bigScript(strings.Repeat("x", 99), c.lines, "")).ID
			return ask(t, tools, "job__collect", idArgs(id, append(more, c.args...)...))
		}
		cut := take()
		require.True(t, cut.ResultTruncated)
		require.NotEmpty(t, cut.Hint)
		helps := len(take(`"full_result":true`).Result) > len(cut.Result)
		require.Equal(t, helps, strings.Contains(cut.Hint, "full_result"), "%v: %s", c.args, cut.Hint)
	}
}

// Cutting a result to fit must not cut its JSON into pieces: a text stays a
// text, without escapes that nobody can read.
func TestATextThatIsCutToFitIsStillAText(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	tools := s.Toolset(jobs.ToolsetOptions{})
	line := `a "quoted" text \ ` + strings.Repeat("界", 80)
	r := ask(t, tools, "job__collect", idArgs(start(t, s, bigScript(line, 400, "")).ID))
	require.True(t, r.ResultTruncated)
	var text string
	var object struct{ Output string }
	if json.Unmarshal(r.Result, &text) != nil {
		require.NoError(t, json.Unmarshal(r.Result, &object))
		text = object.Output
	}
	end := line + "\n" + line + "\n"
	require.True(t, strings.HasSuffix(text, end), "it ends with %q", text[max(0, len(text)-100):])
	require.Greater(t, utf8.RuneCountInString(text), 10_000, "much less than would fit")
}

func TestALargeResultOfAFailedJobDoesNotPushOutWhatWentWrong(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	tools := s.Toolset(jobs.ToolsetOptions{})
	line := strings.Repeat("界", 99)
	r := ask(t, tools, "job__collect", idArgs(start(t, s, bigScript(line, 500, "exit 3")).ID))
	require.Equal(t, "failed", r.Status)
	require.True(t, r.ResultTruncated)
	assert.Contains(t, string(r.Result), "exit code 3")
	var result struct {
		Error string `json:"tool_call_error"`
	}
	require.NoError(t, json.Unmarshal(r.Result, &result), "a failed result is an object: %.100s", r.Result)
}
