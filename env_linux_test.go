package jobs_test

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/require"
)

// seenBy returns the environment that a job sees, by name.
func seenBy(t testing.TB, s *jobs.Supervisor, spec jobs.Spec) map[string]string {
	t.Helper()
	spec.Argv = []string{"/usr/bin/env", "-0"}
	r := collect(t, s, start(t, s, spec).ID)
	require.Equal(t, jobs.Completed, r.State)
	seen := map[string]string{}
	for kv := range strings.SplitSeq(strings.TrimSuffix(string(r.Output.Bytes()), "\x00"), "\x00") {
		name, value, _ := strings.Cut(kv, "=")
		require.NotContains(t, seen, name, "twice")
		seen[name] = value
	}
	return seen
}

func TestAJobSeesWhatTheFilterPassesAndWhatItsSpecSays(t *testing.T) {
	t.Setenv("GITHUB_TOKEN", "s3cret")
	t.Setenv("SOME_FLAG", "1")
	t.Setenv("HOME", "/home/x")
	own := []string{"NPM_TOKEN=of the spec", "OTHER_FLAG=2"}
	for _, tt := range []struct {
		name       string
		filter     func(string) bool
		seen, gone []string
	}{
		{"none", nil, []string{"GITHUB_TOKEN", "SOME_FLAG", "HOME"}, nil},
		{"StripSecrets", jobs.StripSecrets, []string{"SOME_FLAG", "HOME"}, []string{"GITHUB_TOKEN"}},
		{"AllowEnv", jobs.AllowEnv(), []string{"HOME", "PATH"}, []string{"GITHUB_TOKEN", "SOME_FLAG"}},
		{"AllowEnv of some", jobs.AllowEnv("SOME_*", "GITHUB_TOKEN"), []string{"HOME", "GITHUB_TOKEN", "SOME_FLAG"}, nil},
		{"nothing", func(string) bool { return false }, nil, []string{"HOME", "PATH", "GITHUB_TOKEN", "SOME_FLAG"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSupervisor(t, jobs.Config{EnvFilter: tt.filter})
			seen := seenBy(t, s, jobs.Spec{Env: own})
			for _, name := range append(tt.seen, jobs.EnvResult, jobs.EnvJob, "PAGER", "NPM_TOKEN", "OTHER_FLAG") {
				require.Contains(t, seen, name)
			}
			for _, name := range tt.gone {
				require.NotContains(t, seen, name)
			}
			require.Equal(t, "of the spec", seen["NPM_TOKEN"], "the filter is not for what the Spec says")
		})
	}
}

func TestTheFilterSeesTheNamesOfTheEnvironmentOfTheConfig(t *testing.T) {
	t.Setenv("OF_THE_HOST", "1")
	var asked []string
	s := newSupervisor(t, jobs.Config{
		Env:       []string{"ONE=a=b", "TWO=", "DB_PASSWORD=s3cret"},
		EnvFilter: func(name string) bool { asked = append(asked, name); return jobs.StripSecrets(name) },
	})
	seen := seenBy(t, s, jobs.Spec{})
	require.Equal(t, []string{"ONE", "TWO", "DB_PASSWORD"}, asked)
	require.Equal(t, "a=b", seen["ONE"])
	require.Contains(t, seen, "TWO")
	require.NotContains(t, seen, "DB_PASSWORD")
	require.NotContains(t, seen, "OF_THE_HOST")
	asked = nil
	seenBy(t, s, jobs.Spec{})
	require.Equal(t, []string{"ONE", "TWO", "DB_PASSWORD"}, asked, "asked at each start")
}

func TestAFilterThatPanicsRefusesTheStart(t *testing.T) {
	s, tempDir := newWarmSupervisor(t, jobs.Config{MaxRunning: 1, EnvFilter: func(name string) bool {
		if slices.Contains([]string{"BAD_NAME"}, name) {
			panic("no such name")
		}
		return true
	}})
	before := settledFootprint(s, tempDir)
	t.Setenv("BAD_NAME", "s3cret")
	for range 3 {
		_, err := s.Start(testContext(t), bash("true"))
		var se *jobs.StartError
		require.ErrorAs(t, err, &se)
		require.Equal(t, jobs.StageEnv, se.Stage)
		require.ErrorContains(t, err, "no such name")
		require.NotContains(t, err.Error(), "s3cret")
	}
	require.True(t, staysWithin(before, s, tempDir))
	require.Zero(t, s.List().Running)
}

func TestAFunctionIsNotAskedForItsEnvironment(t *testing.T) {
	s := newSupervisor(t, jobs.Config{EnvFilter: func(string) bool { panic("asked") }})
	require.Equal(t, jobs.Completed, collect(t, s, start(t, s, function(func(context.Context, io.Writer) (any, error) { return 1, nil })).ID).State)
}

func TestWhatModelEnvMakesReachesTheJob(t *testing.T) {
	env, err := jobs.ModelEnv(map[string]string{"DEBUG": "1", "TEXT": "a b\n'c'"})
	require.NoError(t, err)
	seen := seenBy(t, newSupervisor(t, jobs.Config{}), jobs.Spec{Env: env})
	require.Equal(t, "1", seen["DEBUG"])
	require.Equal(t, "a b\n'c'", seen["TEXT"])
}
