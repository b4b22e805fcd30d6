package jobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A sleepyHost resolves every tool to a process that carries a mark.
type sleepyHost struct {
	s    *jobs.Supervisor
	spec jobs.Spec
	mark string
}

func newSleepyHost(t testing.TB, cfg jobs.Config) sleepyHost {
	t.Helper()
	spec, mark := markedScript("exec sleep 300")
	return sleepyHost{newSupervisor(t, cfg), spec, mark}
}

// toolset returns a Toolset that declares the tools.
func (h sleepyHost) toolset(declared ...string) *jobs.Toolset {
	return h.s.Toolset(jobs.ToolsetOptions{
		Declared: declared,
		Resolve:  func(context.Context, string, json.RawMessage) (jobs.Spec, error) { return h.spec, nil },
	})
}

// requireNoStart fails unless a start of the tool is refused and leaves neither
// a process nor a record. It returns what the model reads.
func (h sleepyHost) requireNoStart(t testing.TB, tools *jobs.Toolset, tool string) string {
	t.Helper()
	list := h.s.List()
	processes, records := len(awaitSleepers(t, h.mark, list.Running)), len(list.Jobs)
	r := ask(t, tools, "job__start", fmt.Sprintf(`{"tool":%q}`, tool))
	require.True(t, r.failed(), r.text)
	require.Empty(t, r.JobID)
	require.Len(t, marked(h.mark), processes)
	require.Len(t, h.s.List().Jobs, records)
	return r.Message
}

// requireStart fails unless the tool starts a process.
func (h sleepyHost) requireStart(t testing.TB, tools *jobs.Toolset, tool string) {
	t.Helper()
	processes := len(marked(h.mark))
	begin(t, tools, tool)
	require.True(t, eventually(func() bool { return len(marked(h.mark)) == processes+1 }))
}

// Starts that are refused.

func TestAFastToolStartsNoProcess(t *testing.T) {
	h := newSleepyHost(t, jobs.Config{})
	require.Contains(t, h.requireNoStart(t, h.toolset("fs_cat", "build"), "fs_cat"), "done before a job would have started")
}

func TestADeclaredToolThatMayNotRunInTheBackgroundStartsNoProcess(t *testing.T) {
	h := newSleepyHost(t, jobs.Config{})
	tools := h.toolset("user__ask", "memory__store", "agent__spawn", "mcp_search_github", "build")
	for _, tool := range []string{"user__ask", "memory__store", "agent__spawn", "mcp_search_github"} {
		require.Contains(t, h.requireNoStart(t, tools, tool), "in the background: build.")
	}
	h.requireStart(t, tools, "build")
}

func TestAnUndeclaredToolStartsNoProcess(t *testing.T) {
	h := newSleepyHost(t, jobs.Config{})
	require.Contains(t, h.requireNoStart(t, h.toolset("build"), "deploy"), "no tool of this name was declared")
}

func TestADisabledSupervisorStartsNoProcessForATool(t *testing.T) {
	h := newSleepyHost(t, jobs.Config{Disabled: true})
	require.Contains(t, h.requireNoStart(t, h.toolset("build"), "build"), "switched off")
}

func TestAToolStartAtCapacityStartsNoProcessAndSaysHowManyRun(t *testing.T) {
	h := newSleepyHost(t, jobs.Config{MaxRunning: 1})
	tools := h.toolset("build")
	h.requireStart(t, tools, "build")
	require.Contains(t, h.requireNoStart(t, tools, "build"), "1 of 1")
}

func TestACallOfAnMCPServerThatIsNotConnectedIsRefusedByItsStart(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	tools := s.Toolset(jobs.ToolsetOptions{
		Declared: []string{"mcp_invoke_github"},
		Resolve: func(_ context.Context, tool string, _ json.RawMessage) (jobs.Spec, error) {
			return jobs.Spec{}, errors.New("the server github is not connected")
		},
	})
	require.NoError(t, tools.Backgroundable("mcp_invoke_github"), "the policy has nothing against it")
	r := ask(t, tools, "job__start", `{"tool":"mcp_invoke_github"}`)
	require.True(t, r.failed(), r.text)
	require.Contains(t, r.Message, "Not started: the server github is not connected.")
	require.Empty(t, s.List().Jobs)
}

func TestACallOfAnMCPServerThatWasNotDeclaredIsRefused(t *testing.T) {
	h := newSleepyHost(t, jobs.Config{})
	tools := h.toolset("mcp_invoke_github")
	require.Contains(t, h.requireNoStart(t, tools, "mcp_invoke_gitlab"), "no tool of this name was declared")
	h.requireStart(t, tools, "mcp_invoke_github")
}

func TestAToolOfAnotherContextStartsNoProcess(t *testing.T) {
	h := newSleepyHost(t, jobs.Config{})
	filtered := h.toolset("build")
	h.requireStart(t, h.toolset("build", "deploy"), "deploy")
	h.requireNoStart(t, filtered, "deploy")
	h.requireStart(t, filtered, "build")
}

func TestAnAliasOfADeclaredToolStartsNoProcess(t *testing.T) {
	h := newSleepyHost(t, jobs.Config{})
	tools := h.toolset("execute_command")
	for _, alias := range []string{"bash", "shell", "exec", "Execute_Command", "execute_command ", "execute-command"} {
		h.requireNoStart(t, tools, alias)
	}
	h.requireStart(t, tools, "execute_command")
}

func TestAToolThatIsAddedAfterTheRequestStartsNoProcess(t *testing.T) {
	h := newSleepyHost(t, jobs.Config{})
	declared := append(make([]string, 0, 2), "build")
	tools := h.toolset(declared...)
	declared = append(declared, "deploy")
	h.requireNoStart(t, tools, "deploy")
	h.requireStart(t, h.toolset(declared...), "deploy")
}

// From start to collect.

func TestAToolIsStartedCollectedAndThenGone(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	dir := t.TempDir()
	script(t, dir, "show", `printf '%s\n' "$1"`)
	tools := scripts(s, jobs.ScriptTools{Dirs: []string{dir}}, "show")
	r := runTool(t, tools, "show", `{"path": "a b"}`)
	assert.True(t, strings.HasPrefix(r.ID, "job_"), r.ID)
	assert.Equal(t, "completed", r.Status)
	assert.Equal(t, `"DONE"`, string(r.Result))
	assert.Equal(t, 0, *r.ExitCode)
	assert.Equal(t, "{\"path\": \"a b\"}\n", r.tail())
	assert.Empty(t, ask(t, tools, "job__list", "").Jobs)
	assert.True(t, ask(t, tools, "job__collect", idArgs(r.ID)).failed())
}

func TestAScriptWithQuotesRunsAsItIsWritten(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	r := foreground(t, s, bash(`echo 'it'"'"'s "$HOME"' "and 'that'"`), patience)
	require.Equal(t, "it's \"$HOME\" and 'that'\n", string(r.Output.Bytes()))
}

// Looks.

func TestALookBeforeAnyJobWasStartedFindsNone(t *testing.T) {
	tools := funcs{}.toolset(newSupervisor(t, jobs.Config{}), jobs.ToolsetOptions{})
	for _, verb := range []string{"job__check", "job__collect", "job__cancel"} {
		r := ask(t, tools, verb, idArgs(noJob))
		require.True(t, r.failed(), r.text)
		require.Contains(t, r.Message, "There is no job "+noJob)
		require.Contains(t, r.Message, "job__list")
	}
}

func TestALookAtAFinishedJobNeverHints(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	tools := s.Toolset(jobs.ToolsetOptions{})
	id := start(t, s, bash("exit 3")).ID
	endOf(t, s, id)
	for range 10 {
		r := ask(t, tools, "job__check", idArgs(id))
		require.Equal(t, "failed", r.Status)
		require.Empty(t, r.Hint)
		require.False(t, r.Unchanged)
	}
}

func TestNewOutputTakesTheHintAwayUntilThreeMoreLooksFindNothing(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	g := newGate(t)
	tools := s.Toolset(jobs.ToolsetOptions{})
	id := start(t, s, g.gated(`for word in one two three; do echo $word; read -r _ <"$GATE"; done`)).ID
	for _, word := range []string{"one", "two", "three"} {
		awaitOutput(t, s, id, word)
		for look := range 5 {
			r := ask(t, tools, "job__check", idArgs(id))
			require.Equal(t, look >= 3, r.Hint != "", "look %d after %q", look+1, word)
		}
		g.open(t)
	}
}

func TestALookAtADemotedJobShowsBothStreamsWhileItRuns(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	g := newGate(t)
	tools := s.Toolset(jobs.ToolsetOptions{})
	id := demote(t, s, g.gated(`echo out; echo err >&2; read -r _ <"$GATE"`)).ID
	awaitOutput(t, s, id, "err\n")
	r := ask(t, tools, "job__check", idArgs(id))
	assert.Equal(t, "running", r.Status)
	assert.Equal(t, "out\nerr\n", r.tail())
	assert.EqualValues(t, 8, *r.Captured)
	g.open(t)
	collect(t, s, id)
}

// Collecting.

func TestFullResultStillKeepsToTailLines(t *testing.T) {
	s := newSupervisor(t, jobs.Config{TailBytes: 1 << 20})
	tools := s.Toolset(jobs.ToolsetOptions{})
	id := start(t, s, bash("seq 1 20000")).ID
	r := ask(t, tools, "job__collect", idArgs(id, `"full_result":true`, `"tail_lines":2`))
	require.Equal(t, "19999\n20000\n", r.tail())
	require.True(t, r.TailTruncated)
}

func TestFullResultIsWholeAndNotSaidToBeCut(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	tools := s.Toolset(jobs.ToolsetOptions{})
	id := start(t, s, bash(`head -c 200000 /dev/zero | tr '\0' x >"$LLM_OUTPUT"`)).ID
	r := ask(t, tools, "job__collect", idArgs(id, `"full_result":true`))
	require.NotContains(t, r.fields, "result_truncated")
	var result struct{ Output string }
	require.NoError(t, json.Unmarshal(r.Result, &result))
	require.Equal(t, strings.Repeat("x", 200_000), result.Output)
}

func TestACollectOfAJobThatIgnoresTERMReturnsOnceItIsKilled(t *testing.T) {
	const grace = 300 * time.Millisecond
	s := newSupervisor(t, jobs.Config{KillGrace: grace})
	spec, mark := markedScript(`trap '' TERM; echo ready; sleep 300; true`)
	id := start(t, s, spec).ID
	awaitOutput(t, s, id, "ready")
	_, err := s.Cancel(doneContext(), id) // asks for the stop and does not wait
	require.ErrorIs(t, err, context.Canceled)
	r := collect(t, s, id)
	require.Empty(t, marked(mark))
	require.Equal(t, "cancelled, SIGKILL", r.Outcome())
	require.GreaterOrEqual(t, r.Elapsed, grace)
	require.Equal(t, "ready\n", string(r.Output.Bytes()))
}

func TestAPanickedJobIsCollectedAsFailedWithWhatItHadPrinted(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	r := collect(t, s, start(t, s, function(func(_ context.Context, out io.Writer) (any, error) {
		io.WriteString(out, "before")
		panic("out of cheese")
	})).ID)
	require.Equal(t, "failed, internal", r.Outcome())
	require.ErrorContains(t, r.Err, "out of cheese")
	require.Equal(t, "before", string(r.Output.Bytes()))
}

// Ends.

func TestATimeoutIsToldWithItsLengthAndLeavesNoPID(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	spec := bash("exec sleep 300")
	spec.Timeout = 300 * time.Millisecond
	id := start(t, s, spec).ID
	snap := endOf(t, s, id)
	require.Equal(t, jobs.ReasonTimeout, snap.Reason)
	require.Zero(t, snap.PID)
	require.Equal(t, -1, snap.ExitCode)
	r := ask(t, s.Toolset(jobs.ToolsetOptions{}), "job__collect", idArgs(id))
	require.Equal(t, "timeout", r.Reason)
	require.Nil(t, r.ExitCode)
	require.Regexp(t, `"tool_call_error":"It ran longer than its timeout and was stopped after \d+(\.\d+)?m?s\."`, string(r.Result))
}

func TestATimedOutJobWithMuchOutputIsBoundedAndSaysWhatIsMissing(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	spec := bash(`echo first; head -c 200000 /dev/zero | tr '\0' x; echo; echo last; exec sleep 300`)
	spec.Timeout = 2 * time.Second // time enough to print
	id := start(t, s, spec).ID
	endOf(t, s, id)
	r := ask(t, s.Toolset(jobs.ToolsetOptions{}), "job__collect", idArgs(id))
	require.Equal(t, "failed", r.Status)
	require.Equal(t, "timeout", r.Reason)
	require.True(t, r.TailTruncated)
	require.EqualValues(t, len("first\n\nlast\n")+200_000, *r.Captured)
	require.True(t, strings.HasSuffix(r.tail(), "x\nlast\n"))
	require.Less(t, len(r.text), 101_000)
}

func TestTheShellCodeOfAStoppedJobIs143Or137(t *testing.T) {
	s := newSupervisor(t, jobs.Config{KillGrace: 300 * time.Millisecond})
	for script, want := range map[string]int{
		`echo ready; exec sleep 300`:                  143,
		`trap '' TERM; echo ready; sleep 300; exit 1`: 137,
	} {
		id := start(t, s, bash(script)).ID
		awaitOutput(t, s, id, "ready")
		require.Equal(t, want, cancel(t, s, id).ShellCode(), script)
	}
}

func TestAfterACancelTheGroupOfTheJobIsGone(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	job := start(t, s, bash("exec sleep 300"))
	require.NoError(t, unix.Kill(-job.PID, 0))
	cancel(t, s, job.ID)
	require.ErrorIs(t, unix.Kill(-job.PID, 0), unix.ESRCH)
}

func TestALimitIsNamedInTheNoticeAndInTheResult(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	spec := bash(`exec head -c 100000 /dev/zero >file`)
	spec.Dir, spec.Limits = t.TempDir(), jobs.Limits{FileSize: 512}
	id := start(t, s, spec).ID
	n := requireOneEnd(t, s, id)
	require.Equal(t, jobs.EventFailed, n.Event)
	require.Contains(t, jobs.Texts{}.Plain(n), "failed, resource_limit, SIGXFSZ")
	r := ask(t, s.Toolset(jobs.ToolsetOptions{}), "job__collect", idArgs(id))
	require.Equal(t, "failed", r.Status)
	require.Equal(t, "resource_limit", r.Reason)
	require.Contains(t, string(r.Result), "took more than it may of processor time or file size (SIGXFSZ)")
}

func TestAFailedJobShowsItsStandardError(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	r := ask(t, s.Toolset(jobs.ToolsetOptions{}), "job__collect", idArgs(start(t, s, bash("echo no luck >&2; exit 7")).ID))
	require.Equal(t, "failed", r.Status)
	require.Equal(t, 7, *r.ExitCode)
	require.Equal(t, "no luck\n", r.tail())
}

// Demotion.

func TestTheEndOfADemotedJobIsToldByItsExitCode(t *testing.T) {
	for code, event := range map[int]string{0: jobs.EventCompleted, 7: jobs.EventFailed} {
		s := newSupervisor(t, jobs.Config{})
		g := newGate(t)
		id := demote(t, s, g.gated(fmt.Sprintf(`read -r _ <"$GATE"; exit %d`, code))).ID
		g.open(t)
		n := requireOneEnd(t, s, id)
		require.Equal(t, event, n.Event)
		require.Equal(t, code, n.ExitCode)
	}
}

func TestADemotedJobLeavesNothingInItsWorkingDirectory(t *testing.T) {
	s := newSupervisor(t, jobs.Config{TempDir: t.TempDir()})
	g := newGate(t)
	spec := g.gated(`echo out; echo result >"$LLM_OUTPUT"; read -r _ <"$GATE"`)
	spec.Dir = t.TempDir()
	id := demote(t, s, spec).ID
	awaitOutput(t, s, id, "result")
	require.Empty(t, filesUnder(spec.Dir))
	g.open(t)
	collect(t, s, id)
	require.Empty(t, filesUnder(spec.Dir))
}

func TestADemotedJobIsListedBeforeItsDemotionIsAnswered(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	r := demote(t, s, bash("exec sleep 300"))
	require.Regexp(t, `^`+anyID.String()+`$`, r.ID)
	require.Equal(t, []string{r.ID}, ids(s.List().Jobs))
	require.True(t, alive(r.PID), "the answer came before the end")
}

func TestAProcessThatOutlivesTheGraceIsNotKilled(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	g := newGate(t)
	r := foreground(t, s, g.gated(`echo before; read -r _ <"$GATE"; echo after`), 50*time.Millisecond)
	require.Equal(t, jobs.Running, r.State)
	require.True(t, alive(r.PID))
	g.open(t)
	require.Equal(t, "before\nafter\n", string(collect(t, s, r.ID).Output.Bytes()))
}

func TestAWaitWhoseTimeIsOverTellsNoEndOfAProcess(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	g := newGate(t)
	id := demote(t, s, g.gated(`read -r _ <"$GATE"`)).ID
	r := waitOn(t, s, jobs.WaitSpec{IDs: []string{id}, Timeout: 50 * time.Millisecond})
	require.True(t, r.TimedOut)
	require.Equal(t, []jobs.State{jobs.Running}, states(r.Jobs))
	g.open(t)
	requireOneEnd(t, s, id)
}

func TestAWaitThatSawTheEndOfAProcessLeavesNoNoticeOfIt(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	g := newGate(t)
	id := demote(t, s, g.gated(`read -r _ <"$GATE"; exit 7`)).ID
	w := beginWait(t, s, jobs.WaitSpec{IDs: []string{id}})
	g.open(t)
	require.Equal(t, 7, w.answer(t).Jobs[0].ExitCode)
	require.Nil(t, s.Drain())
}

// What a host shows.

func TestATurnNamesTheJobTheToolAndTheExitCode(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	for code, says := range map[int]string{0: "completed, exit 0", 7: "failed, exit 7"} {
		spec := bash(fmt.Sprintf("exit %d", code))
		spec.Tool = "build"
		id := start(t, s, spec).ID
		turn := jobs.Texts{}.Turn(requireOneEnd(t, s, id), "")
		require.Contains(t, turn, "Machine event")
		require.Contains(t, turn, id+" (build) has ended: "+says)
	}
}

func TestAStoppedJobIsNoLongerShownAsRunning(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	tools := s.Toolset(jobs.ToolsetOptions{})
	id := start(t, s, bash("exec sleep 300")).ID
	require.Equal(t, 1, *ask(t, tools, "job__list", "").ActiveJobs)
	ask(t, tools, "job__cancel", idArgs(id))
	r := ask(t, tools, "job__list", "")
	require.Zero(t, *r.ActiveJobs)
	require.Empty(t, r.Jobs)
	require.Equal(t, "cancelled", ask(t, tools, "job__check", idArgs(id)).Status)
}

func TestAnIDWithWordsBehindItFindsNoJob(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	tools := s.Toolset(jobs.ToolsetOptions{})
	id := start(t, s, bash("exec sleep 300")).ID
	for _, words := range []string{"; rm -rf /", "\n", " cancel", "/../" + id, "\x1b[2J"} {
		args, err := json.Marshal(map[string]string{"id": id + words})
		require.NoError(t, err)
		r := ask(t, tools, "job__cancel", string(args))
		require.True(t, r.failed(), r.text)
		require.Contains(t, r.Message, "not a job id")
	}
	require.Equal(t, jobs.Running, checkJob(t, s, id).State)
}

func TestAHostThatWorksOnAReplyIsToldOfTheEndAfterIt(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	g := newGate(t)
	spec := g.gated(`read -r _ <"$GATE"`)
	consume, hands := inHand()
	deliver(t, s, consume)
	first, second := start(t, s, spec).ID, start(t, s, spec).ID
	g.open(t)
	reply := <-hands
	g.open(t)
	require.True(t, eventually(func() bool { return s.List().Running == 0 }))
	select {
	case <-hands:
		t.Fatal("a second reply beside the first")
	default:
	}
	reply.settle <- nil
	next := <-hands
	require.ElementsMatch(t, []string{first, second}, append(reply.ids, next.ids...))
	next.settle <- nil
}

func TestAnIdleHostIsWokenOnceForTwoProcessesThatEndTogether(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	var all []string
	for range 2 {
		all = append(all, start(t, s, bash("exit 0")).ID)
	}
	for _, id := range all {
		endOf(t, s, id)
	}
	<-s.Ready()
	require.Empty(t, s.Ready())
	require.ElementsMatch(t, all, noticeIDs(s.Drain()))
	require.Empty(t, s.Ready())
}

// Somebody else's programs of the same name are nothing to a job's end.
func TestTheEndOfAJobLeavesProcessesOfOthersAlone(t *testing.T) {
	stranger := exec.Command("sleep", "300")
	stranger.Env = append(os.Environ(), freshMark())
	launch(t, stranger)
	s := newSupervisor(t, jobs.Config{})
	id := start(t, s, bash(`sleep 300 & setsid sleep 300 & echo ready; wait`)).ID
	awaitOutput(t, s, id, "ready")
	cancel(t, s, id)
	mustClose(t, s)
	require.True(t, alive(stranger.Process.Pid))
}
