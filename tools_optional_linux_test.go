package jobs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const allOptional = jobs.WaitTool | jobs.OutputTool | jobs.WriteTool

// specs are tools by name.
type specs map[string]jobs.Spec

func (p specs) resolve(_ context.Context, tool string, _ json.RawMessage) (jobs.Spec, error) {
	return p[tool], nil
}

// toolset returns a Toolset of them that has all the optional tools.
func (p specs) toolset(s *jobs.Supervisor) *jobs.Toolset {
	var declared []string
	for name := range p {
		declared = append(declared, name)
	}
	return s.Toolset(jobs.ToolsetOptions{Declared: declared, Resolve: p.resolve, Optional: allOptional})
}

// moreTools returns a Toolset that only looks at jobs and has all the optional
// tools.
func moreTools(s *jobs.Supervisor) *jobs.Toolset { return specs{}.toolset(s) }

// declaredNames returns the names of the tools.
func declaredNames(tools *jobs.Toolset) []string {
	var names []string
	for _, d := range tools.Declarations() {
		names = append(names, d.Name)
	}
	return names
}

var plainTools = []string{"job__start", "job__check", "job__collect", "job__cancel", "job__list"}

func TestOptionalToolsAreDeclaredOnlyWhereAsked(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	for optional, more := range map[jobs.OptionalTools][]string{
		0:                              nil,
		jobs.WaitTool:                  {"job__wait"},
		jobs.OutputTool:                {"job__output"},
		jobs.WriteTool:                 {"job__write"},
		jobs.WriteTool | jobs.WaitTool: {"job__wait", "job__write"},
		allOptional:                    {"job__wait", "job__output", "job__write"},
		^jobs.OptionalTools(0):         {"job__wait", "job__output", "job__write"},
		^allOptional:                   nil,
	} {
		tools := s.Toolset(jobs.ToolsetOptions{Optional: optional})
		want := append(append([]string{}, plainTools...), more...)
		require.Equal(t, want, declaredNames(tools), "%b", optional)
		for _, name := range []string{"job__wait", "job__output", "job__write", "job__other"} {
			r := ask(t, tools, name, "{}")
			declared := strings.Contains(strings.Join(want, " "), name)
			require.Equal(t, !declared, strings.Contains(r.Message, "There is no tool"), "%s: %s", name, r.text)
			if !declared {
				require.Contains(t, r.Message, strings.Join(want, ", ")+".")
			}
		}
	}
}

func TestTheSchemasOfOptionalToolsAreOfTheCommonSubset(t *testing.T) {
	fields := map[string]string{
		"job__wait":   `{"all":"boolean","ids":"string","pattern":"string","timeout_secs":"integer"}`,
		"job__output": `{"from":"integer","id":"string","max_bytes":"integer"}`,
		"job__write":  `{"close":"boolean","id":"string","text":"string"}`,
	}
	required := map[string][]string{"job__wait": {}, "job__output": {"id"}, "job__write": {"id"}}
	for _, d := range moreTools(newSupervisor(t, jobs.Config{})).Declarations()[len(plainTools):] {
		require.NotEmpty(t, d.Description)
		var schema struct {
			Type       string
			Properties map[string]struct{ Type, Description string }
			Required   []string
			Additional *bool `json:"additionalProperties"`
		}
		dec := json.NewDecoder(strings.NewReader(string(d.Parameters)))
		dec.DisallowUnknownFields()
		require.NoError(t, dec.Decode(&schema), d.Name)
		require.Equal(t, "object", schema.Type)
		require.Equal(t, false, *schema.Additional)
		require.Equal(t, required[d.Name], schema.Required, d.Name)
		types := map[string]string{}
		for name, p := range schema.Properties {
			require.NotEmpty(t, p.Description, "%s.%s", d.Name, name)
			types[name] = p.Type
		}
		text, err := json.Marshal(types)
		require.NoError(t, err)
		require.Equal(t, fields[d.Name], string(text), d.Name)
	}
}

func TestOptionalToolsAreRenamedLikeTheOthers(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	tools := s.Toolset(jobs.ToolsetOptions{Optional: allOptional, Rename: func(name string) string { return strings.Replace(name, "job__", "bg-", 1) }})
	require.Equal(t, []string{"bg-wait", "bg-output", "bg-write"}, declaredNames(tools)[len(plainTools):])
	id := start(t, s, listening("exec sleep 300")).ID
	for name, args := range map[string]string{
		"bg-wait": `{"timeout_secs":0}`, "bg-output": idArgs(id), "bg-write": idArgs(id), "job__wait": "{}", "bg-list": "{}",
	} {
		r := ask(t, tools, name, args)
		require.NotContains(t, r.text, "job__"+strings.TrimPrefix(name, "bg-")+" ", name)
		if name != "job__wait" {
			require.NotContains(t, r.text, "job__", name)
		}
	}
}

// job__wait.

// A waitReply is an answer of job__wait.
type waitReply struct {
	reply
	Match *struct {
		ID, Line string
		Next     int64
	}
	PendingSummary string `json:"pending_summary"`
}

func askWait(t testing.TB, tools *jobs.Toolset, args string) (r waitReply) {
	t.Helper()
	r.reply = ask(t, tools, "job__wait", args)
	text := r.text
	require.NoError(t, json.Unmarshal([]byte(text), &r), text)
	r.text = text
	return r
}

// waitedFor returns the ids of the jobs that the answer shows.
func (r waitReply) waitedFor() []string {
	var names []string
	for _, job := range r.Jobs {
		names = append(names, job.ID)
	}
	return names
}

func TestAModelMayWriteTheIDsToWaitForInSeveralWays(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	tools := moreTools(s)
	a, b, c := start(t, s, gated(nil, "")).ID, start(t, s, gated(nil, "")).ID, start(t, s, gated(nil, "")).ID
	for _, tt := range []struct {
		ids  string
		want []string
	}{
		{fmt.Sprintf("%q", b), []string{b}},
		{fmt.Sprintf("%q", c+" "+a), []string{c, a}},
		{fmt.Sprintf("%q", c+","+a), []string{c, a}},
		{fmt.Sprintf("%q", " "+b+" ,\n\t"+c+", "+a+",, "), []string{b, c, a}},
		{fmt.Sprintf("[%q,%q]", b, a), []string{b, a}},
		{fmt.Sprintf("%q", a+" "+a), []string{a}},
		{"null", []string{a, b, c}},
	} {
		r := askWait(t, tools, `{"timeout_secs":0,"ids":`+tt.ids+`}`)
		require.Equal(t, "ok", r.Status, r.text)
		require.Equal(t, tt.want, r.waitedFor(), tt.ids)
	}
	require.Equal(t, []string{a, b, c}, askWait(t, tools, `{"timeout_secs":0}`).waitedFor())
	for _, ids := range []string{"7", "[7]", "true", `{"a":1}`, `[["` + a + `"]]`} {
		r := askWait(t, tools, `{"timeout_secs":0,"ids":`+ids+`}`)
		require.True(t, r.failed(), ids)
		require.Contains(t, r.Message, `"ids"`)
	}
	for _, wrong := range []string{noJob, "nonsense", a + ";" + b} {
		r := askWait(t, tools, fmt.Sprintf(`{"timeout_secs":0,"ids":%q}`, a+" "+wrong))
		require.True(t, r.failed(), "one wrong id is wrong")
		require.Contains(t, r.Message, "job__list")
	}
}

func TestAWaitForTheFirstOrForAll(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	tools := moreTools(s)
	p, q := newPuppet(), newPuppet()
	a, b := start(t, s, jobs.Spec{Func: p.run}).ID, start(t, s, jobs.Spec{Func: q.run}).ID
	go p.finish(fmt.Errorf("no"))
	r := askWait(t, tools, "{}")
	require.Equal(t, []string{a, b}, r.waitedFor())
	require.Equal(t, "failed", r.Jobs[0].Status)
	require.Equal(t, "running", r.Jobs[1].Status)
	require.Contains(t, r.Message, "1 of 2")
	require.Contains(t, r.Message, "job__collect")

	both := fmt.Sprintf(`{"all":true,"ids":%q`, a+" "+b)
	require.Contains(t, askWait(t, tools, both+`,"timeout_secs":0}`).Message, "1 of 2 have ended")
	go q.finish(1)
	r = askWait(t, tools, both+"}")
	require.Contains(t, r.Message, "2 of 2")
	require.Equal(t, "completed", r.Jobs[1].Status)

	require.Nil(t, s.Drain(), "the answers have told both")
	require.Empty(t, askWait(t, tools, both+"}").Notices)
	require.Contains(t, askWait(t, tools, "{}").Message, "No job runs")
	require.Contains(t, askWait(t, tools, "{}").text, `"jobs":[]`)
}

func TestAWaitTellsHowAProcessEnded(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	id := start(t, s, bash("exit 7")).ID
	killed := start(t, s, bash("kill -TERM $$")).ID
	r := askWait(t, moreTools(s), fmt.Sprintf(`{"all":true,"ids":%q}`, id+" "+killed))
	require.Contains(t, r.text, `"exit_code":7`)
	require.Contains(t, r.text, `"signal":"SIGTERM"`)
	require.Contains(t, r.text, `"reason":"signal"`)
}

func TestThatTheTimeOfAWaitIsOverIsNoError(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	p := newPuppet()
	id := start(t, s, jobs.Spec{Func: p.run}).ID
	tools := s.Toolset(jobs.ToolsetOptions{Optional: jobs.WaitTool, Wait: 20 * time.Millisecond})
	for _, args := range []string{"{}", `{"timeout_secs":0}`, `{"timeout_secs":1}`, `{"timeout_secs":100000}`, `{"timeout_secs":1e300}`, `{"timeout_secs":0.0}`} {
		r := askWait(t, tools, args)
		require.Equal(t, "ok", r.Status, r.text)
		require.Contains(t, r.Message, "0 of 1", args)
	}
	for _, secs := range []string{"-1", "0.5", `"5"`, "true", "[]"} {
		r := askWait(t, tools, `{"timeout_secs":`+secs+`}`)
		require.True(t, r.failed(), secs)
		require.Contains(t, r.Message, "whole number of at least 0")
	}
	require.Equal(t, jobs.Running, checkJob(t, s, id).State)
	p.finish(1)
	endOf(t, s, id)
	require.Equal(t, []string{id}, noticeIDs(s.Drain()), "a wait that was over has told no end")
}

func TestAWaitForALine(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	tools := moreTools(s)
	p := newPuppet()
	id := start(t, s, jobs.Spec{Func: p.run}).ID
	p.print("starting\nlistening on port 8080\nready\n")
	r := askWait(t, tools, `{"pattern":"port \\d+$"}`)
	require.Equal(t, "ok", r.Status, r.text)
	require.NotNil(t, r.Match, r.text)
	require.Equal(t, id, r.Match.ID)
	require.Equal(t, "listening on port 8080", r.Match.Line)
	require.Equal(t, int64(len("starting\nlistening on port 8080\n")), r.Match.Next)
	require.Equal(t, []string{id}, r.waitedFor())
	require.Nil(t, askWait(t, tools, `{"pattern":"never","timeout_secs":0}`).Match)

	for _, pattern := range []string{`(?=x)`, `[`, `(a)\\1`, `a{2000}`} {
		r := askWait(t, tools, `{"pattern":"`+pattern+`"}`)
		require.True(t, r.failed(), pattern)
		require.Contains(t, r.Message, "RE2", pattern)
		require.Contains(t, r.Message, `"pattern"`)
	}
	for _, pattern := range []string{`a{1000}`, `(a?){400}b$`, `(\\w{9}){90}`, strings.Repeat("a", 1001)} {
		r := askWait(t, tools, `{"pattern":"`+pattern+`"}`)
		require.True(t, r.failed(), pattern)
		require.Contains(t, r.Message, "simpler", pattern)
	}
	for _, pattern := range []string{`""`, "7", "[]"} {
		require.True(t, askWait(t, tools, `{"pattern":`+pattern+`}`).failed(), pattern)
	}
}

func TestALongMatchFitsTheAnswer(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	endedFunc(t, s, prints(strings.Repeat(`"\`, 30_000)+"end\n"))
	gate := make(chan struct{})
	start(t, s, gated(gate, strings.Repeat(`"\`, 30_000)+"end\n"))
	r := askWait(t, moreTools(s), `{"pattern":"end$"}`)
	require.NotNil(t, r.Match)
	require.Equal(t, int64(60_004), r.Match.Next)
	close(gate)
}

func TestAWaitOverManyJobsFitsTheAnswer(t *testing.T) {
	s := newSupervisor(t, jobs.Config{MaxRunning: 600})
	for range 600 {
		spec := gated(nil, "")
		spec.Tool = strings.Repeat("long name ", 30)
		start(t, s, spec)
	}
	r := askWait(t, moreTools(s), `{"timeout_secs":0}`)
	require.Equal(t, "ok", r.Status)
	require.Less(t, len(r.Jobs), 600)
	require.NotEmpty(t, r.Hint)
	require.Contains(t, r.Message, "0 of 600")
}

func TestAWaitEndsForWhatIsMoreUrgent(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	id := start(t, s, gated(nil, "")).ID
	s.SetPending("a sub-agent asks something")
	r := askWait(t, moreTools(s), "{}")
	require.Equal(t, "pending", r.Status)
	require.Equal(t, "a sub-agent asks something", r.PendingSummary)
	require.Equal(t, []string{id}, r.waitedFor())
	s.SetPending("")
	require.Equal(t, "ok", askWait(t, moreTools(s), `{"timeout_secs":0}`).Status)
}

func TestAWaitWhoseContextEndsSaysSo(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	id := start(t, s, gated(nil, "")).ID
	r := askContext(doneContext(), t, moreTools(s), "job__wait", "{}")
	require.Contains(t, r.Message, "interrupted")
	require.Equal(t, jobs.Running, checkJob(t, s, id).State)
}

// job__output.

// A pieceReply is an answer of job__output.
type pieceReply struct {
	reply
	Output     *string
	From, Next *int64
	Dropped    int64
}

func askOutput(t testing.TB, tools *jobs.Toolset, args string) (r pieceReply) {
	t.Helper()
	r.reply = ask(t, tools, "job__output", args)
	text := r.text
	require.NoError(t, json.Unmarshal([]byte(text), &r), text)
	r.text = text
	if !r.failed() {
		require.NotNil(t, r.Output, text)
		require.NotNil(t, r.From, text)
		require.NotNil(t, r.Next, text)
	}
	return r
}

// walk reads the output of an ended job as a model does, by next, and returns
// it and the count of what was dropped. more is further arguments.
func walk(t testing.TB, tools *jobs.Toolset, id string, more ...string) (text string, dropped int64) {
	t.Helper()
	var b strings.Builder
	for next := int64(0); ; {
		r := askOutput(t, tools, idArgs(id, append(more, fmt.Sprintf(`"from":%d`, next))...))
		require.False(t, r.failed(), "from %d: %.300s", next, r.text)
		require.Equal(t, next+r.Dropped, *r.From)
		b.WriteString(*r.Output)
		dropped += r.Dropped
		if *r.Next == *r.Captured {
			require.Equal(t, "That was the end of it.", r.Message)
			return b.String(), dropped
		}
		require.Greater(t, *r.Next, *r.From, "no progress")
		require.Empty(t, r.Message, "at %d of %d", *r.Next, *r.Captured)
		next = *r.Next
	}
}

func TestReadingByNextGivesEveryByteOnce(t *testing.T) {
	s := newSupervisor(t, jobs.Config{TailBytes: 1 << 20})
	tools := moreTools(s)
	line := "päivää 日本語 🙂 <&> \"quoted\" \\ tab\t.\n"
	long := strings.Repeat("é🙂日x", 5000) // 55 KB without a newline
	large := strings.Repeat(strings.Repeat(line, 1000)+long, 4) + "no newline at the end"
	small := strings.Repeat(line, 40) + long[:len("é🙂日x")*200]
	plain := strings.Repeat("one line\n\n", 20) + strings.Repeat("x", 500)
	require.Greater(t, len(large), 300_000)
	for _, tt := range []struct {
		text  string
		sizes []int
	}{
		{plain, []int{1, 2, 3}},
		{small, []int{4, 5, 6, 7, 10, 100}},
		{large, []int{5000, 16 << 10, 40_000}},
	} {
		id := endedFunc(t, s, prints(tt.text))
		for _, size := range tt.sizes {
			got, dropped := walk(t, tools, id, fmt.Sprintf(`"max_bytes":%d`, size))
			require.Zero(t, dropped)
			require.True(t, tt.text == got, "by %d: %d bytes of %d", size, len(got), len(tt.text))
		}
		got, _ := walk(t, tools, id)
		require.True(t, tt.text == got, "by default")
	}
}

// However much longer an answer is than what it tells, the model can go on.
func TestOutputOfAnyKindCanBeReadToItsEnd(t *testing.T) {
	s := newSupervisor(t, jobs.Config{TailBytes: 1 << 20})
	tools := moreTools(s)
	for _, unit := range []string{`"`, `\`, "\n", "\t", "\u2028", "\x00", "\x00a", "\x01", "\x7f", "\xff", "\xffa", "<", "\x1b[31m", "🙂", "\u200d", "\r"} {
		t.Run(fmt.Sprintf("%q", unit), func(t *testing.T) {
			id := endedFunc(t, s, prints(strings.Repeat(unit, 40_000/len(unit))))
			walk(t, tools, id)
			walk(t, tools, id, `"max_bytes":40000`)
		})
	}
}

func TestOutputThatWasDroppedIsCounted(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	text := strings.Repeat("0123456789abcde\n", 20_000)
	id := endedFunc(t, s, prints(text))
	for _, size := range []int{1000, 20_000} {
		got, dropped := walk(t, moreTools(s), id, fmt.Sprintf(`"max_bytes":%d`, size))
		require.Equal(t, int64(len(text)-headKept-tailKept), dropped)
		require.True(t, text[:headKept]+text[len(text)-tailKept:] == got)
	}
}

func TestOutputCountsBackFromTheEnd(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	tools := moreTools(s)
	id := endedFunc(t, s, prints("one\ntwo\nthree\n"))
	for _, tt := range []struct {
		from       int64
		want       string
		begins, on int64
	}{
		{-6, "three\n", 8, 14}, {-1, "\n", 13, 14}, {-1000, "one\ntwo\nthree\n", 0, 14}, {0, "one\ntwo\nthree\n", 0, 14},
		{8, "three\n", 8, 14}, {14, "", 14, 14}, {1000, "", 14, 14}, {1 << 60, "", 14, 14}, {-1 << 60, "one\ntwo\nthree\n", 0, 14},
	} {
		r := askOutput(t, tools, idArgs(id, fmt.Sprintf(`"from":%d`, tt.from)))
		require.False(t, r.failed(), r.text)
		require.Equal(t, tt.want, *r.Output, "from %d", tt.from)
		require.Equal(t, tt.begins, *r.From, "from %d", tt.from)
		require.Equal(t, tt.on, *r.Next, "from %d", tt.from)
		require.Equal(t, "That was the end of it.", r.Message)
	}
	for _, arg := range []string{`"from":0.5`, `"from":"0"`, `"max_bytes":0`, `"max_bytes":-1`, `"max_bytes":1.5`} {
		require.True(t, askOutput(t, tools, idArgs(id, arg)).failed(), arg)
	}
}

func TestReadingOutputGoesOnWhileAJobRuns(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	tools := moreTools(s)
	p := newPuppet()
	id := start(t, s, jobs.Spec{Func: p.run}).ID
	r := askOutput(t, tools, idArgs(id))
	require.Equal(t, "", *r.Output)
	require.Equal(t, "running", r.Status)
	require.Equal(t, "That is all so far.", r.Message)
	p.print("one\ntw")
	r = askOutput(t, tools, idArgs(id, `"from":0`))
	require.Equal(t, "one\ntw", *r.Output)
	require.Equal(t, "That is all so far.", r.Message)
	p.print("o\n")
	r = askOutput(t, tools, idArgs(id, fmt.Sprintf(`"from":%d`, *r.Next)))
	require.Equal(t, "o\n", *r.Output)
	p.finish(1)
	endOf(t, s, id)
	require.Equal(t, "That was the end of it.", askOutput(t, tools, idArgs(id)).Message)
	require.Contains(t, s.List().Jobs[0].ID, id, "reading uses nothing up")
}

func TestOutputThatIsNotThereIsSaidToBe(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	tools := moreTools(s)
	id := endedFunc(t, s, prints("x"))
	collect(t, s, id)
	r := askOutput(t, tools, idArgs(id))
	require.True(t, r.failed())
	require.Contains(t, r.Message, "handed out before")
	require.Contains(t, askOutput(t, tools, idArgs(noJob)).Message, "There is no job")
	require.Contains(t, askOutput(t, tools, idArgs("x")).Message, "is not a job id")
}

// job__write.

func TestAModelTypesIntoAJob(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	tools := specs{"cat": listening("exec cat")}.toolset(s)
	id := begin(t, tools, "cat")
	r := ask(t, tools, "job__write", idArgs(id, `"text":"é <x>\n"`))
	require.Equal(t, "running", r.Status)
	require.Equal(t, "7 bytes written.", r.Message)
	awaitOutput(t, s, id, "é <x>\n")
	r = ask(t, tools, "job__write", idArgs(id, `"text":"last","close":true`))
	require.Equal(t, "4 bytes written, and the input closed.", r.Message)
	require.Contains(t, string(ask(t, tools, "job__collect", idArgs(id)).tail()), "é <x>\nlast")

	id = begin(t, tools, "cat")
	require.Equal(t, "0 bytes written, and the input closed.", ask(t, tools, "job__write", idArgs(id, `"close":true`)).Message)
	require.Equal(t, "completed", ask(t, tools, "job__collect", idArgs(id)).Status)
}

func TestAWriteThatCannotBeDoneSaysWhatToDo(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	tools := moreTools(s)
	open, closed := start(t, s, listening("exec sleep 300")).ID, start(t, s, listening("exec sleep 300")).ID
	require.NoError(t, inputOf(t, s, closed).Close())
	ended, collected := start(t, s, listening("exit 7")).ID, start(t, s, listening("exit 7")).ID
	awaitEnd(t, s, ended)
	collect(t, s, collected)
	none := start(t, s, bash("exec sleep 300")).ID
	for _, tt := range []struct{ args, want string }{
		{idArgs(open), "close set to true"},
		{idArgs(open, `"text":""`), "close set to true"},
		{idArgs(open, `"text":"","close":false`), "close set to true"},
		{idArgs(open, `"text":7`), `"text"`},
		{idArgs(open, `"close":"yes"`), `"close"`},
		{idArgs(closed, `"text":"x"`), "closed before"},
		{idArgs(ended, `"text":"x"`), "has ended (failed, exit 7)"},
		{idArgs(ended, `"close":true`), "has ended (failed, exit 7)"},
		{idArgs(collected, `"text":"x"`), "has ended (failed, exit 7)"},
		{idArgs(none, `"text":"x"`), "started without input"},
		{idArgs(noJob, `"text":"x"`), "There is no job"},
		{`{"text":"x"}`, `"id"`},
	} {
		r := ask(t, tools, "job__write", tt.args)
		require.True(t, r.failed(), r.text)
		require.Contains(t, r.Message, tt.want, tt.args)
	}
}

func TestAWriteOfMoreThanTheJobTakesSaysHowMuchItTook(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	tools := moreTools(s)
	g := newGate(t)
	spec := g.gated(`read -ru 3 _ 3<"$GATE"; exec wc -c`)
	spec.Input = true
	id := start(t, s, spec).ID
	r := ask(t, tools, "job__write", idArgs(id, fmt.Sprintf(`"text":%q`, strings.Repeat("x", 200_000))))
	require.True(t, r.failed())
	require.Contains(t, r.Message, "Only 65536 of 200000 bytes")
	require.Contains(t, r.Message, "job__check")

	g.open(t)
	r = ask(t, tools, "job__write", idArgs(id, fmt.Sprintf(`"text":%q,"close":true`, strings.Repeat("x", 200_000-pipeSize))))
	require.False(t, r.failed(), r.text)
	require.Equal(t, "200000\n", string(collect(t, s, id).Output.Bytes()))
}

func TestAModelIsToldThatAJobWaitsForInput(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	id := start(t, s, listening(`printf 'name? '; read -r x; exec sleep 300`)).ID
	quiet := start(t, s, bash(`printf 'working'; exec sleep 300`)).ID
	awaitPrompt(t, s, id)
	for optional, writes := range map[jobs.OptionalTools]bool{0: false, jobs.WaitTool | jobs.OutputTool: false, jobs.WriteTool: true} {
		tools := s.Toolset(jobs.ToolsetOptions{Optional: optional})
		for range 5 { // the hint for looks without news does not take its place
			r := ask(t, tools, "job__check", idArgs(id))
			require.Equal(t, "true", string(r.fields["waiting_for_input"]))
			require.Contains(t, r.Hint, "wait for input")
			require.Contains(t, r.Hint, "job__cancel")
			require.Equal(t, writes, strings.Contains(r.text, "job__write"), r.text)
			assert.NotContains(t, ask(t, tools, "job__check", idArgs(quiet)).fields, "waiting_for_input")
		}
	}
}
