package jobs_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// endedThere waits until a job that nobody looks at has ended on its machine.
func endedThere(t *testing.T, home, id string) {
	t.Helper()
	require.True(t, eventually(func() bool {
		codes, _ := filepath.Glob(filepath.Join(home, ".agentjobs", id, "rc-*"))
		return len(codes) == 1
	}))
}

func TestALongOutputOfADetachedJobIsAllInItsLogFile(t *testing.T) {
	dir := t.TempDir()
	s := newSupervisor(t, jobs.Config{Dir: filepath.Join(dir, "records"), LogLimit: 8 << 20})
	id := start(t, s, jobs.Spec{Argv: []string{"sh", "-c", "head -c 900000 /dev/zero | tr '\\0' x"}, Shell: shellIn(dir)}).ID
	r := collect(t, s, id)
	require.NoError(t, r.LogErr)
	data, err := os.ReadFile(r.LogPath)
	require.NoError(t, err)
	require.True(t, bytes.Contains(data, bytes.Repeat([]byte("x"), 900000)))
}

func TestADetachedJobThatEndedInTimeWithoutAHostIsNotTimedOut(t *testing.T) {
	dir := t.TempDir()
	cfg := jobs.Config{Dir: filepath.Join(dir, "records")}
	first, err := jobs.New(cfg)
	require.NoError(t, err)
	id := start(t, first, jobs.Spec{Argv: untilGone(dir, "short"), Shell: shellIn(dir)}).ID
	awaitOutput(t, first, id, "begun")
	closed(t, first)
	endDetached(t, dir, "short")
	endedThere(t, dir, id)

	journal := filepath.Join(cfg.Dir, "journal")
	data, err := os.ReadFile(journal)
	require.NoError(t, err)
	overdue := regexp.MustCompile(`"timeout":\d+`).ReplaceAll(data, []byte(`"timeout":1`))
	overdue = bytes.Replace(overdue, []byte(`"timeout":1`), []byte(`"timeout":1,"output_limit":3`), 1)
	require.NotEqual(t, data, overdue)
	require.NoError(t, os.WriteFile(journal, overdue, 0o600))
	require.Equal(t, "failed, exit 7", collect(t, newSupervisor(t, cfg), id).Outcome())
}

func TestTheKeyOfAnotherOwnersPickedUpJobIsNotTheTops(t *testing.T) {
	dir, ids := detachedAndKilled(t)
	s := newSupervisor(t, jobs.Config{
		Dir: filepath.Join(dir, "records"), MaxRunning: 20,
		FindShell: func(string) jobs.Shell { return shellIn(dir) },
	})
	own := start(t, s, jobs.Spec{Key: "owned", Argv: []string{"true"}})
	require.NotEqual(t, ids[1], own.ID)
	collect(t, s, own.ID)
	ann, err := s.Child(jobs.ChildConfig{Name: "ann"})
	require.NoError(t, err)
	require.Equal(t, ids[1], start(t, ann, jobs.Spec{Key: "owned", Argv: []string{"true"}}).ID)
	for i, name := range []string{"plain", "owned", "named", "killed"} {
		endDetached(t, dir, name)
		endedThere(t, dir, ids[i])
	}
}

func TestTheLogFileOfAPickedUpJobTakesItsPlaceOnce(t *testing.T) {
	dir := t.TempDir()
	cfg := jobs.Config{Dir: filepath.Join(dir, "records"), LogLimit: 64 << 10, LogBudget: 50 << 10}
	first, err := jobs.New(cfg)
	require.NoError(t, err)
	spec := jobs.Spec{Argv: untilGone(dir, "loud"), Shell: shellIn(dir)}
	spec.Argv[2] = "head -c 30000 /dev/zero | tr '\\0' x; " + spec.Argv[2]
	id := start(t, first, spec).ID
	awaitOutput(t, first, id, "begun")
	closed(t, first)
	second := newSupervisor(t, cfg)
	endDetached(t, dir, "loud")
	r := collect(t, second, id)
	data, err := os.ReadFile(r.LogPath)
	require.NoError(t, err)
	require.Contains(t, string(data), strings.Repeat("x", 30000)+"begun\nover\n")
}

func TestALastLineInALogFileIsNoOutputOfAJobThatWasLetGo(t *testing.T) {
	dir := t.TempDir()
	cfg := jobs.Config{Dir: filepath.Join(dir, "records"), LogLimit: 64 << 10}
	first, err := jobs.New(cfg)
	require.NoError(t, err)
	id := start(t, first, jobs.Spec{Argv: untilGone(dir, "kept"), Shell: namedShell{shellIn(dir)}}).ID
	awaitOutput(t, first, id, "begun\n")
	require.Len(t, closed(t, first).Kept, 1)
	second := newSupervisor(t, cfg) // which does not know the machine
	r := collect(t, second, id)
	assert.Equal(t, jobs.Lost, r.State)
	assert.Equal(t, "begun\n", string(r.Output.Bytes()))
	assert.EqualValues(t, len("begun\n"), r.OutputTotal)
	endDetached(t, dir, "kept")
	endedThere(t, dir, id)
}

func TestAResultCollectedFromAClosedHostIsNotTakenFromTheRecords(t *testing.T) {
	dir, long := t.TempDir(), strings.Repeat("y", 10<<10)
	first, err := jobs.New(jobs.Config{Dir: dir})
	require.NoError(t, err)
	id := start(t, first, returning(long)).ID
	awaitEnd(t, first, id)
	closed(t, first)
	collect(t, first, id)
	r := collect(t, withRecords(t, dir), id)
	assert.Empty(t, r.File.Problem)
	assert.Contains(t, string(r.File.Data), long)
}

// As a stop makes it on a machine that has lost all: its Cancel hung.
func TestAFarJobWithAnEmptyDirectoryIsLost(t *testing.T) {
	f := fars[0].make(t)
	s := newSupervisor(t, jobs.Config{})
	id := "job_0123456789abcdef0123"
	require.NoError(t, os.MkdirAll(f.state(id), 0o700))
	require.NoError(t, s.Resume(f.shell, id))
	assert.Equal(t, jobs.ReasonLost, awaitEnd(t, s, id).Reason)
}
