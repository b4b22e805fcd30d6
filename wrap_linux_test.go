package jobs_test

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// wrapIn is a Config.Wrap that puts a command in front of all that runs.
func wrapIn(command ...string) func([]string) ([]string, error) {
	return func(argv []string) ([]string, error) { return append(slices.Clone(command), argv...), nil }
}

// wrappers are commands that run their arguments, in several ways.
var wrappers = map[string][]string{
	"nice":                 {"nice", "-n", "1"},
	"env":                  {"env", "WRAPPED=1"},
	"a shell that execs":   {"sh", "-c", `exec "$@"`, "sh"},
	"a shell that forks":   {"sh", "-c", `"$@"; exit $?`, "sh"},
	"a session of its own": {"setsid", "-w"},
	"timeout":              {"timeout", "300"},
}

func TestAWrapperHandsArgumentsAndExitCodesOn(t *testing.T) {
	argv := []string{"bash", "-c", `printf '<%s>' "$@"; exit 7`, "-x", "a b", "", "c\nd", `'"$HOME`, "--", "-n"}
	want := "<a b><><c\nd><'\"$HOME><--><-n>"
	for name, command := range wrappers {
		t.Run(name, func(t *testing.T) {
			s := newSupervisor(t, jobs.Config{Wrap: wrapIn(command...)})
			r := collect(t, s, start(t, s, jobs.Spec{Argv: argv}).ID)
			require.Equal(t, want, string(r.Output.Bytes()))
			require.Equal(t, 7, r.ExitCode)
			require.Equal(t, jobs.Failed, r.State)
			require.Equal(t, jobs.ReasonExit, r.Reason)
			require.Equal(t, "bash", r.Tool, "the tool is what was asked for, not its wrapper")
		})
	}
}

func TestACancelReachesTheInsideOfAWrapper(t *testing.T) {
	for name, command := range wrappers {
		t.Run(name, func(t *testing.T) {
			s := newSupervisor(t, jobs.Config{Wrap: wrapIn(command...)})
			spec, mark := markedScript("sleep 300 & setsid sleep 300 & exec sleep 300")
			id := start(t, s, spec).ID
			sleepers := awaitSleepers(t, mark, 3)
			r := cancel(t, s, id)
			require.Equal(t, jobs.Cancelled, r.State)
			require.Nil(t, r.Survivors)
			require.Empty(t, marked(mark))
			requireDead(t, sleepers...)
		})
	}
}

func TestAWrappedJobHasAllThatAJobHas(t *testing.T) {
	s := newSupervisor(t, jobs.Config{Wrap: wrapIn("nice", "-n", "3")})
	dir := t.TempDir()
	spec := listening(`read -r x; nice; pwd; echo "$x"; echo '{"a":1}' >"$LLM_OUTPUT"; ulimit -n`)
	spec.Dir, spec.Limits = dir, jobs.Limits{OpenFiles: 77}
	id := start(t, s, spec).ID
	typeInto(t, s, id, "typed")
	r := collect(t, s, id)
	require.Equal(t, fmt.Sprintf("3\n%s\ntyped\n77\n{\"a\":1}\n", dir), string(r.Output.Bytes()))
	require.Equal(t, `{"a":1}`, string(r.File.JSON()))
}

func TestAWrapperIsAskedAtEachStartAndGetsItsOwnCopy(t *testing.T) {
	var asked [][]string
	s := newSupervisor(t, jobs.Config{Wrap: func(argv []string) ([]string, error) {
		asked = append(asked, slices.Clone(argv))
		argv[1] = "changed"
		return argv, nil
	}})
	argv := []string{"echo", "text"}
	for range 2 {
		require.Equal(t, "changed\n", string(collect(t, s, start(t, s, jobs.Spec{Argv: argv}).ID).Output.Bytes()))
	}
	require.Equal(t, []string{"echo", "text"}, argv)
	require.Equal(t, [][]string{argv, argv}, asked)
	collect(t, s, start(t, s, returning(nil)).ID)
	require.Len(t, asked, 2, "a function has no command")
}

func TestAWrapperThatFailsRefusesTheStart(t *testing.T) {
	cause := errors.New("no sandbox here")
	for _, tt := range []struct {
		name  string
		wrap  func([]string) ([]string, error)
		stage jobs.Stage
		want  string
	}{
		{"error", func([]string) ([]string, error) { return nil, cause }, jobs.StageWrap, "no sandbox here"},
		{"error beside a command", func(argv []string) ([]string, error) { return argv, cause }, jobs.StageWrap, "no sandbox here"},
		{"panic", func([]string) ([]string, error) { panic("boom") }, jobs.StageWrap, "boom"},
		{"nothing", func([]string) ([]string, error) { return nil, nil }, jobs.StageWrap, "empty"},
		{"an empty program", func([]string) ([]string, error) { return []string{"", "x"}, nil }, jobs.StageWrap, "empty"},
		{"a NUL byte", func([]string) ([]string, error) { return []string{"echo", "a\x00b"}, nil }, jobs.StageWrap, "NUL"},
		{"not found", wrapIn("no-such-wrapper"), jobs.StagePath, "no-such-wrapper"},
		{"not found by path", wrapIn("/nowhere/wrapper"), jobs.StagePath, "/nowhere/wrapper"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var failing atomic.Bool
			s, tempDir := newWarmSupervisor(t, jobs.Config{MaxRunning: 1, Wrap: func(argv []string) ([]string, error) {
				if failing.Load() {
					return tt.wrap(argv)
				}
				return argv, nil
			}})
			untouched := settledFootprint(s, tempDir)
			failing.Store(true)
			for range 3 {
				_, err := s.Start(testContext(t), bash("true"))
				var se *jobs.StartError
				require.ErrorAs(t, err, &se)
				assert.Equal(t, tt.stage, se.Stage)
				assert.Equal(t, "script", se.Tool)
				assert.ErrorContains(t, err, tt.want)
				if tt.want == cause.Error() {
					assert.ErrorIs(t, err, cause)
				}
			}
			require.True(t, staysWithin(untouched, s, tempDir))
			failing.Store(false)
			require.Equal(t, jobs.Completed, runScript(t, s, "true").State, "the slot is free")
		})
	}
}

// What the wrapper is to run is not ours to find.
func TestAProgramThatOnlyItsWrapperMissesFailsInTheJob(t *testing.T) {
	s := newSupervisor(t, jobs.Config{Wrap: wrapIn("env")})
	// A directory in PATH that may not be entered would make it another error.
	spec := jobs.Spec{Argv: []string{"no-such-program"}, Env: []string{"PATH=/usr/bin:/bin"}}
	r := collect(t, s, start(t, s, spec).ID)
	require.Equal(t, jobs.Failed, r.State)
	require.Equal(t, 127, r.ExitCode)
	require.Contains(t, string(r.Output.Bytes()), "no-such-program")
}
