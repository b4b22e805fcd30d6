//go:build unix

// Package looptest tests the agent loops of the framework examples. The fake
// model replies through the framework; what is checked is the conversation that
// it was sent.
package looptest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/agentjobs/jobs"
	"github.com/agentjobs/jobs/examples/internal/fakemodel"
	"github.com/agentjobs/jobs/examples/internal/host"
)

// patience is for what happens at once unless something is broken.
const patience = 20 * time.Second

// Where an example tells the model of an end that came while it worked.
const (
	AfterResults = "user" // a message after the results of tools
	InResult     = "tool" // a member of a result
)

// Conversation runs a loop to its answer. The first job ends while the model
// works, the second one while it is waited for. It is a test of the order of
// messages, of what is told, and of what is handed out.
func Conversation(t *testing.T, seam string, loop func(context.Context, *jobs.Supervisor, *fakemodel.Model) (string, error)) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := host.New()
	require.NoError(t, err)
	defer s.Close(context.WithoutCancel(ctx))

	build, openBuild := gate(t)
	test, openTest := gate(t)
	m := &fakemodel.Model{
		// The commands do not hold what they print: it is looked for below.
		Build: build + "; echo built-$((6*7))",
		Test:  test + "; echo failed-$((6*8)); exit 3",
		Work:  "echo worked-$((6*9))",
		Before: func(request int) {
			switch request {
			case 2: // while the model thinks what to do meanwhile
				openBuild()
				select {
				case <-s.Ready():
				case <-ctx.Done():
				}
			case 5: // when it has been reminded, before it waits
				openTest()
			}
		},
	}
	answer, err := loop(ctx, s, m)
	require.NoError(t, err, "nothing that a tool answers ends the run")

	conversation, requests := m.Seen()
	c := transcript{t, conversation}
	require.Equal(t, 6, requests, "start, work, collect, end too early, collect, answer:\n%s", c)
	require.Contains(t, answer, "The build ended with exit code 0 (built-42), the tests with exit code 3 (failed-48).")
	require.Equal(t, conversation[len(conversation)-1].Text, answer)

	require.LessOrEqual(t, len(c.with("system", "")), 1)

	started := c.results("job__start")
	require.Len(t, started, 3)
	require.Contains(t, started[2].Text, `"status":"error"`)
	require.Contains(t, started[2].Text, "cannot run as a job", "a refusal reaches the model as data")
	require.Contains(t, c.results("fetch")[0].Text, "fetch", "so does that there is no such tool")
	worked := c.results("shell")
	require.Len(t, worked, 2)
	require.Contains(t, worked[0].Text, "worked-54")
	require.Contains(t, worked[1].Text, "the shell needs a", "an error of a tool of the host reaches the model as data")

	for i, result := range []string{"built-42", "failed-48"} {
		handedOut := append(c.with("tool", result), c.with("user", result)...)
		require.Len(t, handedOut, 1, "each result reaches the model once:\n%s", c)
		require.Equal(t, c.results("job__collect")[i], handedOut[0])
	}

	id := jobID(t, started[0].Text)
	c.tellsOf(id, seam)
	other := jobID(t, started[1].Text)
	require.Empty(t, c.notices(other), "the end that was waited for is told by the answer alone")
	reminders := c.with("user", "Before your turn ends")
	require.Len(t, reminders, 1)
	require.Contains(t, reminders[0].Text, other)
	require.NotContains(t, reminders[0].Text, id, "what is collected is not open")

	require.Empty(t, s.List().Jobs)
	require.Empty(t, s.Drain())
	sameTools(t, append(host.Toolset(s).Declarations(), host.ShellTool), m.Tools())
}

// Interrupted ends the context of a run in which two jobs and a call in the
// foreground are at work. No process may be left when run returns.
func Interrupted(t *testing.T, run func(context.Context, *fakemodel.Model) error) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	path := filepath.Join(t.TempDir(), "alive")
	require.NoError(t, unix.Mkfifo(path, 0o600))
	// Each process holds the writing end, those too that the shells start.
	alive := fmt.Sprintf("exec 3>'%s'; sleep 600 & echo up >&3; wait", path)
	m := &fakemodel.Model{Build: alive, Test: alive, Work: alive}

	up, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer up.Close()
	interrupted := make(chan time.Time, 1)
	go func() {
		lines := bufio.NewScanner(up)
		for range 3 {
			lines.Scan()
		}
		interrupted <- time.Now()
		cancel()
	}()
	require.Error(t, run(ctx, m))
	require.ErrorIs(t, ctx.Err(), context.Canceled, "all three were at work")
	require.Less(t, time.Since(<-interrupted), host.Foreground, "nothing was waited for")

	left, err := os.OpenFile(path, os.O_RDONLY, 0)
	require.NoError(t, err)
	defer left.Close()
	up.Close()
	require.NoError(t, left.SetReadDeadline(time.Now().Add(time.Second)))
	_, err = io.ReadAll(left)
	require.NoError(t, err, "a process still holds the pipe")
}

// Progress requires that the steps of the conversation were shown.
func Progress(t *testing.T, out string, others ...string) {
	for _, step := range append([]string{
		"user      go\n",
		"model     I start the build",
		"call      job__start {",
		"result    {\"status\":\"ok\",\"job_id\":",
		"told      Before your turn ends",
		"model     The build ended",
	}, others...) {
		require.Contains(t, out, step)
	}
}

// gate returns a command that waits until open is called.
func gate(t *testing.T) (command string, open func()) {
	path := filepath.Join(t.TempDir(), "gate")
	require.NoError(t, unix.Mkfifo(path, 0o600))
	f, err := os.OpenFile(path, os.O_RDWR, 0) // both ends, so that neither side waits to open it
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return fmt.Sprintf("read -r go <'%s'", path), func() { f.WriteString("go\n") }
}

func jobID(t *testing.T, text string) string {
	var a struct {
		JobID string `json:"job_id"`
	}
	require.NoError(t, json.Unmarshal([]byte(text), &a))
	require.NotEmpty(t, a.JobID)
	return a.JobID
}

// sameTools requires that an adapter has passed on the tools as they are. Some
// frameworks drop what they have no field for; names, types and what is required
// must come through.
func sameTools(t *testing.T, want, got []jobs.Declaration) {
	require.Len(t, got, len(want))
	for i := range want {
		require.Equal(t, want[i].Name, got[i].Name)
		require.Equal(t, want[i].Description, got[i].Description)
		require.Equal(t, schemaOf(t, want[i]), schemaOf(t, got[i]), want[i].Name)
	}
}

func schemaOf(t *testing.T, d jobs.Declaration) (lines []string) {
	var s struct {
		Type       string
		Required   []string
		Properties map[string]struct{ Type, Description string }
	}
	require.NoError(t, json.Unmarshal(d.Parameters, &s), "%s", d.Parameters)
	if len(s.Required) == 0 {
		s.Required = nil // left out or empty means the same
	}
	text, err := json.MarshalIndent(s, "", " ")
	require.NoError(t, err)
	return strings.Split(string(text), "\n")
}
