package main

import (
	"encoding/json"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/require"
)

func configFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "jobs.json")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

func TestFlagsCountMoreThanTheFileAndTheFileMoreThanDefaults(t *testing.T) {
	t.Parallel()
	file := configFile(t, `{"allow": ["go", "npm"], "dir": "work", "state": "/var/state", "max": 3, "timeout": "90s", "on-exit": "keep"}`)
	work := filepath.Join(filepath.Dir(file), "work")
	require.NoError(t, os.Mkdir(work, 0o700))
	set, err := parse([]string{"-max", "4", "-config", file, "-allow", "make"}, io.Discard)
	require.NoError(t, err)
	want := defaults()
	want.Allow, want.Dir, want.State, want.Max = []string{"make"}, work, "/var/state", 4
	want.Timeout, want.OnExit = duration(90*time.Second), "keep"
	require.Equal(t, want, set)
}

func TestTheReadmesConfigurationFileIsRead(t *testing.T) {
	t.Parallel()
	text := codeAfter(t, "jobs-mcp.json")
	file := configFile(t, text)
	set, err := parse([]string{"-config", file}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, []string{"go", "npm", "make"}, set.Allow)
	require.Equal(t, 8, set.Max)
}

func TestTheReadmesSnippetsAreWellFormed(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	blocks := strings.Split(string(readme), "```json\n")[1:]
	require.NotEmpty(t, blocks)
	for _, block := range blocks {
		text, _, _ := strings.Cut(block, "```")
		require.True(t, json.Valid([]byte(text)), text)
	}
}

func TestNoLimitOfTimeIsToldToTheLibraryInItsOwnWay(t *testing.T) {
	t.Parallel()
	set := defaults()
	set.Timeout = 0
	require.Equal(t, time.Duration(-1), set.config().Timeout)
}

func TestSettingsThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	for says, args := range map[string][]string{
		"no command is allowed": {},
		"no such file":          {"-allow", "go", "-dir", "/nowhere"},
		"not a directory":       {"-allow", "go", "-dir", os.Args[0]},
		"kill or keep":          {"-allow", "go", "-on-exit", "ask"},
		"1 or more":             {"-allow", "go", "-max", "0"},
		"must not be negative":  {"-allow", "go", "-timeout", "-1s"},
		"invalid value":         {"-allow", "go", "-wait", "long"},
		"what is \"npm\" for":   {"-allow", "go", "npm"},
		"unknown field":         {"-config", configFile(t, `{"allowed": ["go"]}`)},
		"config":                {"-config"},
		"cannot unmarshal":      {"-config", configFile(t, `{"allow": "go"}`)},
	} {
		_, err := parse(args, io.Discard)
		require.ErrorContains(t, err, says)
	}
	_, err := parse([]string{"-h"}, io.Discard)
	require.ErrorIs(t, err, flag.ErrHelp)
}

func TestJobsGetNoSecretsButThoseThatThePassListNames(t *testing.T) {
	t.Parallel()
	set := defaults()
	set.Pass = []string{"NPM_TOKEN"}
	pass := set.config().EnvFilter
	require.True(t, pass("PATH"))
	require.True(t, pass("NPM_TOKEN"))
	require.False(t, pass("GITHUB_TOKEN"))
}

func TestACommandIsAllowedByItsExactNameAlone(t *testing.T) {
	t.Parallel()
	set := defaults()
	set.Allow = []string{"go", "./gradlew"}
	c := newCommands(set)
	for args, argv := range map[string][]string{
		`{"command":"go"}`:                           {"go"},
		`{"command":"go","args":["test","./..."]}`:   {"go", "test", "./..."},
		`{"command":"./gradlew","args":["a b","'"]}`: {"./gradlew", "a b", "'"},
	} {
		spec, err := c.resolve(t.Context(), runTool, []byte(args))
		require.NoError(t, err)
		require.Equal(t, argv, spec.Argv)
	}
	for args, says := range map[string]string{
		`{}`:                                             "not allowed",
		`{"command":""}`:                                 "not allowed",
		`{"command":"sh"}`:                               "not allowed",
		`{"command":"Go"}`:                               "not allowed",
		`{"command":" go"}`:                              "not allowed",
		`{"command":"go test"}`:                          `"go", "./gradlew", alone`,
		`{"command":"/usr/bin/go"}`:                      "not allowed",
		`{"command":"./go"}`:                             "not allowed",
		`{"command":"gradlew"}`:                          "not allowed",
		`{"command":"x/../go"}`:                          "not allowed",
		`{"command":"go\u0000"}`:                         "not allowed",
		`{"command":["go"]}`:                             "command",
		`{"command":"go","args":"-v"}`:                   "args",
		`{"command":"go","dir":"/"}`:                     "dir",
		`{"command":"sh","command":"go","Command":"sh"}`: "not allowed",
	} {
		spec, err := c.resolve(t.Context(), runTool, []byte(args))
		require.ErrorContains(t, err, says, args)
		require.Equal(t, jobs.Spec{}, spec)
	}
}

func TestTheProxyOfTheTestsKnowsJSONRPC(t *testing.T) {
	t.Parallel()
	require.True(t, isMessage([]byte(`{"jsonrpc":"2.0","id":1,"result":{}}`+"\n")))
	for _, line := range []string{"", "\n", "hello\n", "{}\n", `{"jsonrpc":"2.0"}`, `x{"jsonrpc":"2.0"}` + "\n", `[{"jsonrpc":"2.0"}]` + "\n"} {
		require.False(t, isMessage([]byte(line)), line)
	}
}

// codeAfter returns the first block of code in the README after a text.
func codeAfter(t *testing.T, text string) string {
	t.Helper()
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	_, after, ok := strings.Cut(string(readme), text)
	require.True(t, ok, "the README has no %q", text)
	_, block, _ := strings.Cut(after, "```")
	_, block, _ = strings.Cut(block, "\n")
	block, _, _ = strings.Cut(block, "```")
	return block
}
