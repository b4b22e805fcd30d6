package jobs_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/require"
)

// patience bounds every wait of the tests. It is never reached by a test that
// passes, so it is generous: machines are slow and -race is slower.
const patience = 30 * time.Second

// helperEnv makes the test binary act as a small program instead of running
// tests: the helper registered under its value.
const helperEnv = "JOBS_TEST_HELPER"

// noPidfdEnv runs the whole suite in the mode without pidfds.
const noPidfdEnv = "JOBS_TEST_NO_PIDFD"

// helpers are programs that tests run as processes of their own, registered by
// the files that need them.
var helpers = map[string]func(){}

func TestMain(m *testing.M) {
	if os.Getenv(noPidfdEnv) != "" {
		jobs.WithoutPidfd()
	}
	if name := os.Getenv(helperEnv); name != "" {
		helpers[name]()
		os.Exit(0)
	}
	os.Exit(run(m))
}

// run runs the tests and fails if they left anything behind in this process:
// goroutines of the package, descriptors, children.
func run(m *testing.M) int {
	before := descriptors()
	code := m.Run()
	if code != 0 {
		return code
	}
	var leaks string
	settled := eventually(func() bool {
		leaks = leaked(before)
		return leaks == ""
	})
	if !settled {
		fmt.Fprintln(os.Stderr, "left behind by the tests:\n"+leaks)
		return 1
	}
	return 0
}

func leaked(before int) string {
	var b strings.Builder
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		if strings.Contains(stack, "agentjobs/jobs.") && !strings.Contains(stack, "jobs_test.run") {
			fmt.Fprintln(&b, stack)
		}
	}
	// The poller's own descriptors may have come into being meanwhile.
	if now := descriptors(); now > before+3 {
		fmt.Fprintf(&b, "%d descriptors, before %d\n", now, before)
	}
	if kids := children(); len(kids) > 0 {
		fmt.Fprintf(&b, "children %v\n", kids)
	}
	return b.String()
}

// eventually polls cond until it holds, and reports false if it never does.
// For what no channel or pipe tells.
func eventually(cond func() bool) bool {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if cond() {
			return true
		}
		time.Sleep(2 * time.Millisecond)
	}
	return cond()
}

// descriptors counts the open descriptors of this process.
func descriptors() int {
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(names) - 1 // the directory itself
}

// threads counts the threads of this process.
func threads() int {
	names, _ := os.ReadDir("/proc/self/task")
	return len(names)
}

// children returns the children of this process, zombies included.
func children() []int {
	var pids []int
	files, _ := filepath.Glob("/proc/self/task/*/children")
	for _, file := range files {
		data, _ := os.ReadFile(file)
		for field := range strings.FieldsSeq(string(data)) {
			pid, _ := strconv.Atoi(field)
			pids = append(pids, pid)
		}
	}
	return pids
}

// procState returns the state letter of a process, "" if it is gone.
func procState(pid int) string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(data[strings.LastIndexByte(string(data), ')'):]), " ")
	return rest[:1]
}

// alive reports whether a process still runs. A zombie does not: where PID 1
// reaps late, or never, it stays for long.
func alive(pid int) bool {
	state := procState(pid)
	return state != "" && state != "Z" && state != "X"
}

// requireDead fails unless every pid is dead, now.
func requireDead(t testing.TB, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		require.False(t, alive(pid), "process %d is still alive, state %s", pid, procState(pid))
	}
}

// marked returns the live processes, other than this one, whose environment
// holds the entry kv. It finds what a job left wherever it went.
func marked(kv string) []int {
	var pids []int
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		pid, _ := strconv.Atoi(strings.Split(file, "/")[2])
		data, _ := os.ReadFile(file)
		if pid != os.Getpid() && strings.Contains("\x00"+string(data), "\x00"+kv+"\x00") && alive(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// newSupervisor returns a supervisor that is closed when the test ends. A
// KillGrace of 0 becomes one second.
func newSupervisor(t testing.TB, cfg jobs.Config) *jobs.Supervisor {
	t.Helper()
	if cfg.KillGrace == 0 {
		cfg.KillGrace = time.Second
	}
	s, err := jobs.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := s.Close(testContext(t))
		require.NoError(t, err)
	})
	return s
}

// testContext bounds a wait by patience. Unlike t.Context it works in a
// cleanup.
func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// bash is a Spec that runs a script.
func bash(script string) jobs.Spec {
	return jobs.Spec{Tool: "script", Argv: []string{"bash", "-c", script}}
}

// start starts a job.
func start(t testing.TB, s *jobs.Supervisor, spec jobs.Spec) jobs.Snapshot {
	t.Helper()
	snap, err := s.Start(testContext(t), spec)
	require.NoError(t, err)
	return snap
}

// collect waits for a job's end and takes its result.
func collect(t testing.TB, s *jobs.Supervisor, id string) jobs.Result {
	t.Helper()
	r, err := s.Collect(testContext(t), id)
	require.NoError(t, err)
	return r
}

// awaitEnd waits for a job's end and leaves its result where it is.
func awaitEnd(t testing.TB, s *jobs.Supervisor, id string) jobs.Snapshot {
	t.Helper()
	var snap jobs.Snapshot
	require.True(t, eventually(func() bool {
		var err error
		snap, err = s.Check(id)
		require.NoError(t, err)
		return snap.Ended()
	}))
	return snap
}

// cancel stops a job.
func cancel(t testing.TB, s *jobs.Supervisor, id string) jobs.Result {
	t.Helper()
	r, err := s.Cancel(testContext(t), id)
	require.NoError(t, err)
	return r
}

// runScript starts a script, waits and collects.
func runScript(t testing.TB, s *jobs.Supervisor, script string) jobs.Result {
	t.Helper()
	return collect(t, s, start(t, s, bash(script)).ID)
}

// awaitOutput waits until the output of a job holds text and returns it.
func awaitOutput(t testing.TB, s *jobs.Supervisor, id, text string) string {
	t.Helper()
	var got string
	ok := eventually(func() bool {
		c, err := s.Output(id, 0, 0)
		require.NoError(t, err)
		got = string(c.Data)
		return strings.Contains(got, text)
	})
	require.True(t, ok, "no %q in the output %q", text, got)
	return got
}

// pids parses the numbers in a text such as a job's output.
func pids(t testing.TB, text string) []int {
	t.Helper()
	var ps []int
	for field := range strings.FieldsSeq(text) {
		pid, err := strconv.Atoi(field)
		require.NoError(t, err, "in %q", text)
		ps = append(ps, pid)
	}
	return ps
}

// helper returns a command that runs the named helper in a process of its own.
// Its standard error is the test's.
func helper(t testing.TB, name string, env ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	c := exec.Command(self)
	c.Env = append(os.Environ(), helperEnv+"="+name)
	c.Env = append(c.Env, env...)
	c.Stderr = os.Stderr
	return c
}

// runHelper runs the named helper to its end and returns what it printed.
func runHelper(t testing.TB, name string, env ...string) string {
	t.Helper()
	out, err := helper(t, name, env...).Output()
	require.NoError(t, err, "helper %s printed %q", name, out)
	return string(out)
}

// check ends a helper process with an error unless cond holds.
func check(cond bool, format string, args ...any) {
	if !cond {
		fmt.Fprintf(os.Stderr, "helper: "+format+"\n", args...)
		os.Exit(1)
	}
}

// firstLine reads a line from r, the pipe of a helper.
func firstLine(t testing.TB, r io.Reader) string {
	t.Helper()
	line, err := bufio.NewReader(r).ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSpace(line)
}
