package jobs_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// killMarked kills what a failed test leaves of a job.
func killMarked(t *testing.T, id string) {
	t.Cleanup(func() {
		for _, pid := range marked("AGENT_JOB_ID=" + id) {
			killPID(pid)
		}
	})
}

const runsOn = "echo up; while :; do sleep 1; done"

// startFar starts a job that runs on, and waits until it does.
func startFar(t *testing.T, s *jobs.Supervisor, f far) (id string) {
	t.Helper()
	id = start(t, s, f.spec(runsOn)).ID
	killMarked(t, id)
	awaitOutput(t, s, id, "up\n")
	return id
}

func TestACancelFindsAFarJobWithoutItsDirectory(t *testing.T) {
	f := fars[0].make(t)
	s := newSupervisor(t, jobs.Config{})
	id := startFar(t, s, f)
	require.NoError(t, os.RemoveAll(f.state(id)))
	cancel(t, s, id)
	assert.Empty(t, marked("AGENT_JOB_ID="+id))
}

func TestAStopThatCannotLookHasStoppedNothing(t *testing.T) {
	f := fars[0].make(t)
	s := newSupervisor(t, jobs.Config{})
	id := startFar(t, s, f)
	base, aside := filepath.Join(f.home, ".agentjobs"), filepath.Join(f.home, "aside")
	require.NoError(t, os.Rename(base, aside))
	require.NoError(t, os.Symlink("aside", base)) // which is refused
	short, done := context.WithTimeout(context.Background(), time.Second)
	defer done()
	r, err := s.Cancel(short, id)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Equal(t, jobs.Cancelling, r.State)
	require.NoError(t, os.Remove(base))
	require.NoError(t, os.Rename(aside, base))
	assert.Equal(t, jobs.Cancelled, cancel(t, s, id).State)
	assert.Empty(t, marked("AGENT_JOB_ID="+id))
}

func TestAHomeThatComesLaterHidesNoJob(t *testing.T) {
	top := t.TempDir()
	home, tmp := filepath.Join(top, "home"), filepath.Join(top, "tmp")
	require.NoError(t, os.Mkdir(tmp, 0o700))
	shell := jobs.ShellCommand("/usr/bin/env", "HOME="+home, "TMPDIR="+tmp, "sh")
	s := newSupervisor(t, jobs.Config{})
	snap := start(t, s, jobs.Spec{Shell: shell, Argv: []string{"sh", "-c", runsOn}})
	killMarked(t, snap.ID)
	awaitOutput(t, s, snap.ID, "up\n")
	require.NoError(t, os.Mkdir(home, 0o700))
	collect(t, s, start(t, s, jobs.Spec{Shell: shell, Argv: []string{"true"}}).ID) // makes HOME/.agentjobs
	assert.Equal(t, jobs.Cancelled, cancel(t, s, snap.ID).State)
	assert.Empty(t, marked("AGENT_JOB_ID="+snap.ID))
}

func TestAFarJobCannotForgeItsExitCode(t *testing.T) {
	f := fars[0].make(t)
	gate := farGate(t)
	s := newSupervisor(t, jobs.Config{})
	snap := start(t, s, f.spec(`: >"${LLM_OUTPUT%.result/result}/rc-0"; echo up; read x <`+gate+"; exit 3"))
	killMarked(t, snap.ID)
	awaitOutput(t, s, snap.ID, "up\n")
	require.NoError(t, os.WriteFile(gate, []byte("go\n"), 0))
	assert.Equal(t, 3, collect(t, s, snap.ID).ExitCode)
}

func TestABadLinkCutsNoResult(t *testing.T) {
	f := fars[0].make(t)
	link := &delayed{Shell: f.shell}
	f.shell = link
	gate := farGate(t)
	s := newSupervisor(t, jobs.Config{})
	snap := start(t, s, f.spec("echo one; read x <"+gate+`; head -c 100000 /dev/zero | tr '\0' a >"$LLM_OUTPUT"`))
	awaitOutput(t, s, snap.ID, "one\n")
	link.cut.Store(true)
	before := link.runs.Load()
	require.True(t, eventually(func() bool {
		_, err := s.Check(snap.ID)
		return err == nil && link.runs.Load() > before+3
	}))
	require.NoError(t, os.WriteFile(gate, []byte("go\n"), 0))
	require.True(t, eventually(func() bool {
		ends, _ := filepath.Glob(f.state(snap.ID) + "/rc-*")
		return len(ends) == 1
	}))
	link.cut.Store(false)
	r := collect(t, s, snap.ID)
	assert.Equal(t, 100000, len(r.File.Data))
	assert.False(t, r.File.Truncated)
}

// A quitter is a Shell that ends its second caller's goroutine.
type quitter struct {
	jobs.Shell
	runs atomic.Int64
}

func (q *quitter) Run(ctx context.Context, script string) ([]byte, error) {
	if q.runs.Add(1) == 2 {
		runtime.Goexit()
	}
	return q.Shell.Run(ctx, script)
}

func TestAShellMayEndItsGoroutine(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	snap := start(t, s, jobs.Spec{Shell: &quitter{Shell: fars[0].make(t).shell}, Argv: []string{"true"}})
	assert.Equal(t, jobs.Completed, collect(t, s, snap.ID).State)
}

// A oneWay Shell lets starts through and nothing else.
type oneWay struct {
	jobs.Shell
	started, gate chan struct{}
}

func (o *oneWay) Run(ctx context.Context, script string) ([]byte, error) {
	if !strings.Contains(script, "aj_frame aj_start") {
		return nil, errors.New("down")
	}
	out, err := o.Shell.Run(ctx, script)
	close(o.started)
	<-o.gate
	return out, err
}

func TestARefusedFarJobThatCannotBeStoppedStaysOnRecord(t *testing.T) {
	f, dir := fars[0].make(t), t.TempDir()
	link := &oneWay{Shell: f.shell, started: make(chan struct{}), gate: make(chan struct{})}
	s := newSupervisor(t, jobs.Config{Dir: dir})
	refused := make(chan error)
	go func() {
		_, err := s.Start(context.Background(), jobs.Spec{Shell: link, Argv: []string{"sleep", "1000"}})
		refused <- err
	}()
	<-link.started
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		s.Close(context.Background())
	}()
	require.True(t, eventually(func() bool {
		_, err := s.Start(testContext(t), bash("true"))
		return errors.Is(err, jobs.ErrClosed)
	}))
	close(link.gate)
	assert.ErrorIs(t, <-refused, jobs.ErrClosed)
	<-closed
	next := newSupervisor(t, jobs.Config{Dir: dir, FindShell: func(string) jobs.Shell { return f.shell }})
	require.Len(t, next.Recovered().Running, 1)
	cancel(t, next, next.Recovered().Running[0].ID)
}

func TestNoNameOfAProcessHidesItFromAFarStop(t *testing.T) {
	f := fars[0].make(t)
	s := newSupervisor(t, jobs.Config{MaxRunning: 20, KillGrace: 100 * time.Millisecond})
	var stops sync.WaitGroup
	for _, name := range awkwardNames() {
		spec := f.spec(`setsid bash -c 'printf %s "$NAME" >/proc/self/comm; echo up; while :; do sleep 300; done' & wait`)
		spec.Env = []string{"NAME=" + name}
		id := start(t, s, spec).ID
		killMarked(t, id)
		stops.Go(func() {
			assert.True(t, eventually(func() bool { return checkJob(t, s, id).OutputTotal > 0 }))
			r, err := s.Cancel(testContext(t), id)
			assert.NoError(t, err)
			assert.Equal(t, jobs.Cancelled, r.State)
			assert.Empty(t, r.Survivors)
			assert.Empty(t, marked("AGENT_JOB_ID="+id), "%q", name)
		})
	}
	stops.Wait()
}

// Whatever a job kills of what stays with it, it cannot get away.
func TestAFarJobThatKillsItsWatchersIsKilledItself(t *testing.T) {
	f := fars[0].make(t)
	s := newSupervisor(t, jobs.Config{})
	snap := start(t, s, f.spec("echo up; kill -9 $PPID; exec sleep 300"))
	killMarked(t, snap.ID)
	r := collect(t, s, snap.ID)
	assert.Equal(t, "failed, exit 137", r.Outcome())
	require.Len(t, r.Leftovers, 1)
	assert.Equal(t, "sleep", r.Leftovers[0].Name)
	assert.Empty(t, marked("AGENT_JOB_ID="+snap.ID))
}

func TestAFarJobThatNobodyWatchesRunsUntilItIsStopped(t *testing.T) {
	f := fars[0].make(t)
	link := &delayed{Shell: f.shell}
	f.shell = link
	s := newSupervisor(t, jobs.Config{KillGrace: time.Second})
	id := startFar(t, s, f)
	for _, pid := range f.signers(t, id) {
		killPID(pid)
		require.True(t, eventually(func() bool { return !alive(pid) }))
	}
	before := link.runs.Load()
	require.True(t, eventually(func() bool { checkJob(t, s, id); return link.runs.Load() > before+3 }))
	require.Equal(t, jobs.Running, checkJob(t, s, id).State)
	r := cancel(t, s, id)
	assert.Equal(t, jobs.Cancelled, r.State)
	assert.Empty(t, marked("AGENT_JOB_ID="+id))
}
