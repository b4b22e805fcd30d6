package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// eras are the ways the outside client finds a protocol: as clients of 2025
// did, and with the negotiation of 2026.
var eras = []string{"legacy", "auto"}

// clientDir is where the outside client is installed, once it is.
var clientDir string

// install installs the outside client from its lock file, once.
var install = sync.OnceValue(func() error {
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			return errors.New("the tests run a real MCP client and need node (20 or later) and npm: " + err.Error())
		}
	}
	var err error
	if clientDir, err = os.MkdirTemp("", "jobs-mcp-client-"); err != nil {
		return err
	}
	if err := os.CopyFS(clientDir, os.DirFS("testdata/client")); err != nil {
		return err
	}
	npm := exec.Command("npm", "ci", "--prefer-offline", "--no-audit", "--no-fund", "--ignore-scripts")
	npm.Dir = clientDir
	if out, err := npm.CombinedOutput(); err != nil {
		return errors.New("npm ci in testdata/client: " + err.Error() + "\n" + string(out))
	}
	return nil
})

// An outside is a run of the client against a server.
type outside struct {
	*exec.Cmd
	dir      string // where the server runs commands
	out, err bytes.Buffer
}

// newOutside prepares a run. Its output is complete once the client and the
// server have both ended, since they share it.
func newOutside(t *testing.T, role, era, scenario string, flags ...string) *outside {
	t.Helper()
	require.NoError(t, install())
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	self, err := os.Executable()
	require.NoError(t, err)
	o := &outside{dir: t.TempDir()}
	args := []string{filepath.Join(clientDir, "client.mjs"), era, scenario, o.dir, self, "-allow", "sh,cat", "-max", "60", "-dir", o.dir}
	o.Cmd = exec.CommandContext(ctx, "node", append(args, flags...)...)
	o.Env = append(os.Environ(), "HOME="+home, roleEnv+"="+role)
	o.Stdout, o.Stderr = &o.out, &o.err
	return o
}

func (o *outside) setenv(name, value string) { o.Env = append(o.Env, name+"="+value) }

func inBothEras(t *testing.T, test func(t *testing.T, era string)) {
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			test(t, era)
		})
	}
}

// scenario runs the client through a scenario that must go well.
func scenario(t *testing.T, name string) {
	t.Parallel()
	inBothEras(t, func(t *testing.T, era string) {
		o := newOutside(t, "proxy", era, name)
		require.NoError(t, o.Run(), "%s%s", &o.out, &o.err)
	})
}

func TestAnOutsideClientStartsChecksCollectsAndCancels(t *testing.T) { scenario(t, "verbs") }

func TestRecordsChangeNothingForAClient(t *testing.T) {
	t.Parallel()
	inBothEras(t, func(t *testing.T, era string) {
		o := newOutside(t, "proxy", era, "verbs", "-state", filepath.Join(t.TempDir(), "state"), "-v")
		require.NoError(t, o.Run(), "%s%s", &o.out, &o.err)
	})
}

func TestProgressKeepsAClientsShortTimeoutAlive(t *testing.T) { scenario(t, "progress") }

func TestAClientThatTimesOutOrCancelsLeavesTheJobRunning(t *testing.T) { scenario(t, "timeout") }

func TestFiftyCallsAtOnceEachGetTheirOwnAnswer(t *testing.T) { scenario(t, "parallel") }

func TestSubscribersAreToldOfJobsOutputAndEnds(t *testing.T) { scenario(t, "resources") }

func TestTheOutsideClientFailsWhenTheServerLies(t *testing.T) {
	t.Parallel()
	for what, lie := range map[string]string{
		"exit code": `(exit_code\\*":)3=>${1}0`,
		"state":     `(status\\*":\\*")failed=>${1}completed`,
		"text":      `hello from the job=>hello`,
		"refusal":   `("isError":)true=>${1}false`,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			o := newOutside(t, "proxy", "legacy", "verbs")
			o.setenv(lieEnv, lie)
			var exit *exec.ExitError
			require.ErrorAs(t, o.Run(), &exit)
			require.Equal(t, 1, exit.ExitCode())
			require.Contains(t, o.err.String(), "AssertionError")
		})
	}
}

func TestWhatIsPrintedBesideTheProtocolIsNoticed(t *testing.T) {
	t.Parallel()
	o := newOutside(t, "proxy", "legacy", "verbs")
	o.setenv(behindEnv, "noisy")
	require.Error(t, o.Run())
	require.Contains(t, o.err.String(), `no JSON-RPC: "hello\n"`)
}

// withJob prepares a run of the client with a job that has a pipe to us as its
// third descriptor, and says so in it.
func withJob(t *testing.T, era, scenario, script string, flags ...string) (o *outside, life *lifeline) {
	t.Helper()
	o = newOutside(t, "server", era, scenario, flags...)
	life = newLifeline(t, o.dir)
	o.setenv("JOBS_MCP_SCRIPT", "exec 3>"+life.path+"; echo ready >&3; "+script)
	return o, life
}

// kill kills the client once the job is ready.
func (o *outside) kill(t *testing.T, life *lifeline) {
	t.Helper()
	require.NoError(t, o.Start())
	require.Equal(t, "ready", life.next(t))
	require.NoError(t, o.Process.Kill())
	require.Error(t, o.Wait())
}

// stubborn is a script that only SIGKILL ends.
const stubborn = `trap "" TERM; echo up; while :; do sleep 0.1; done`

func TestJobsEndWhenTheirClientIsKilled(t *testing.T) {
	t.Parallel()
	inBothEras(t, func(t *testing.T, era string) {
		o, life := withJob(t, era, "killed", stubborn, "-v")
		// The server then logs to nobody.
		o.setenv("JOBS_MCP_STDERR", "pipe")
		o.kill(t, life)
		life.ended(t)
	})
}

func TestJobsEndBeforeAClientThatClosesKillsTheServer(t *testing.T) {
	t.Parallel()
	inBothEras(t, func(t *testing.T, era string) {
		o, life := withJob(t, era, "closed", stubborn)
		require.NoError(t, o.Run(), "%s%s", &o.out, &o.err)
		require.Equal(t, "ready", life.next(t))
		life.ended(t)
	})
}

func TestJobsAreKeptWhenTheirClientIsKilledIfTheOperatorSaysSo(t *testing.T) {
	t.Parallel()
	inBothEras(t, func(t *testing.T, era string) {
		o, life := withJob(t, era, "killed", gated("echo done >&3"), "-on-exit", "keep")
		o.kill(t, life) // and the server has ended too: it has our pipe as its standard error
		require.NoError(t, os.WriteFile(filepath.Join(o.dir, "go"), nil, 0o600))
		require.Equal(t, "done", life.next(t))
		life.ended(t)
		require.Contains(t, o.err.String(), "left running")
	})
}
