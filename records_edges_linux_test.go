package jobs_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A Start that Close overtakes is refused after its process began. Nobody has
// its id, so nobody must hear of it later.
func TestARefusedStartIsNotToldByTheNextHost(t *testing.T) {
	dir := t.TempDir()
	var s *jobs.Supervisor
	over := make(chan error, 1)
	s = newSupervisor(t, jobs.Config{Dir: dir, Wrap: func(argv []string) ([]string, error) {
		go func() {
			_, err := s.Close(testContext(t))
			over <- err
		}()
		require.True(t, eventually(func() bool {
			_, err := s.Child(jobs.ChildConfig{})
			return errors.Is(err, jobs.ErrClosed)
		}))
		return argv, nil
	}})
	_, err := s.Start(t.Context(), bash("sleep 300"))
	require.ErrorIs(t, err, jobs.ErrClosed)
	require.NoError(t, <-over)

	next := withRecords(t, dir)
	require.Zero(t, next.Recovered())
	require.Empty(t, next.Drain())
}

// Processes that are on their way to their exec hold what the host holds.
func TestADirectoryCanBeOpenedAgainAtOnce(t *testing.T) {
	dir := t.TempDir()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				exec.Command("true").Run()
			}
		}
	}()
	for range 300 {
		s, err := jobs.New(jobs.Config{Dir: dir})
		if !assert.NoError(t, err) {
			break
		}
		closed(t, s)
	}
	close(stop)
	<-stopped
}

func TestAnOwnerOfTheSameNameGetsItsJobsBackAndNobodyElseDoes(t *testing.T) {
	dir := t.TempDir()
	v := opened(t, dir, freshMark())
	ofA := v.do("child", "a", "true")
	ofB := v.do("child", "b", "exec sleep 300")
	ofTop := v.do("start", "exec sleep 300")
	v.kill()
	s := withRecords(t, dir)
	b, err := s.Child(jobs.ChildConfig{Name: "b"})
	require.NoError(t, err)
	a, err := s.Child(jobs.ChildConfig{Name: "a"})
	require.NoError(t, err)
	nameless, err := s.Child(jobs.ChildConfig{})
	require.NoError(t, err)
	for _, x := range []struct {
		s   *jobs.Supervisor
		own string
	}{{a, ofA}, {b, ofB}, {s, ofTop}} {
		snap, err := x.s.Check(x.own)
		require.NoError(t, err)
		require.Equal(t, x.s.Name(), snap.Owner)
		require.Equal(t, []string{x.own}, noticed(x.s))
		for _, id := range []string{ofA, ofB, ofTop} {
			if id != x.own {
				_, err := x.s.Check(id)
				assert.ErrorIs(t, err, jobs.ErrForeign, "%q asks", x.s.Name())
			}
		}
	}
	for _, id := range []string{ofA, ofB, ofTop} {
		_, err := nameless.Check(id)
		assert.ErrorIs(t, err, jobs.ErrForeign)
	}
	require.Empty(t, nameless.Drain())
	// A second one of the name finds what the first took to be the first's.
	second, err := s.Child(jobs.ChildConfig{Name: "a"})
	require.NoError(t, err)
	_, err = second.Check(ofA)
	assert.ErrorIs(t, err, jobs.ErrForeign)
}

// A child of this life must not be taken for that of an earlier one which was
// made at the same turn.
func TestAForgottenJobOfAnEarlierOwnerIsForeignToTheNext(t *testing.T) {
	dir := t.TempDir()
	v := opened(t, dir, freshMark())
	ofA := v.do("child", "a", "exec sleep 300")
	v.kill()
	s := withRecords(t, dir)
	b, err := s.Child(jobs.ChildConfig{Name: "b"})
	require.NoError(t, err)
	_, err = b.Check(ofA)
	require.ErrorIs(t, err, jobs.ErrForeign)
}

func TestRestoredJobsAreForgottenLikeOthers(t *testing.T) {
	dir := t.TempDir()
	s := newSupervisor(t, jobs.Config{Dir: dir, MaxRetained: 10})
	var ids []string
	for n := range 10 {
		ids = append(ids, start(t, s, returning(strings.Repeat("long ", 1000))).ID) // in a file
		awaitEnd(t, s, ids[n])
	}
	closed(t, s)
	s = newSupervisor(t, jobs.Config{Dir: dir, MaxRetained: 4})
	requireKnown(t, s, ids[6:], ids[:6])
	require.Len(t, s.Recovered().Ended, 4)
	require.Len(t, s.List().Jobs, 4)
	closed(t, s)
	s = newSupervisor(t, jobs.Config{Dir: dir, MaxRetained: 10})
	requireKnown(t, s, ids[6:], ids[:6])
	results, err := os.ReadDir(filepath.Join(dir, "results"))
	require.NoError(t, err)
	require.Len(t, results, 4)
}

// A lost job of which nobody has heard is told by the Close of its owner, or
// else by nobody.
func TestAClosedOwnerReportsTheLostJobsOfWhichNobodyWasTold(t *testing.T) {
	for _, name := range []string{"", "a"} {
		t.Run("owner "+name, func(t *testing.T) {
			dir := t.TempDir()
			v := opened(t, dir, freshMark())
			var id string
			if name == "" {
				id = v.do("start", "exec sleep 300")
			} else {
				id = v.do("child", name, "exec sleep 300")
			}
			v.kill()
			s := withRecords(t, dir)
			owner := s
			if name != "" {
				var err error
				owner, err = s.Child(jobs.ChildConfig{Name: name})
				require.NoError(t, err)
			}
			report := closed(t, owner)
			told := len(noticed(owner))
			for _, snap := range slices.Concat(report.Stopped, report.Uncollected, report.Kept) {
				require.Equal(t, id, snap.ID)
				told++
			}
			closed(t, s)
			told += len(noticed(withRecords(t, dir)))
			require.Equal(t, 1, told)
		})
	}
}

func TestMoreUntoldEndsThanAreRememberedSurviveAnotherCrash(t *testing.T) {
	dir := t.TempDir()
	v := opened(t, dir, freshMark())
	var ids []string
	for range 40 {
		ids = append(ids, v.do("start", "exec sleep 300"))
	}
	v.kill()
	runHelper(t, "host that dies with little memory", "RECORDS="+dir)
	require.Equal(t, ids, toldNext(t, dir))
}

// A host can die before it has written that a process runs. Nobody has the id
// then, so nobody could ever end what was to be kept.
func TestAProcessWhoseIDNobodyHasIsKilledEvenIfItWasToBeKept(t *testing.T) {
	for _, verb := range []string{"start", "keep"} {
		t.Run(verb, func(t *testing.T) {
			dir, mark := t.TempDir(), freshMark()
			v := opened(t, dir, mark)
			id := v.do(verb, "exec sleep 300 >/dev/null 2>&1")
			for _, pid := range awaitSleepers(t, mark, 1) {
				endProcess(t, pid)
			}
			v.kill()
			editRecords(t, dir, func(r map[string]any) bool { return r["k"] != "start" })
			s := withRecords(t, dir)
			require.Empty(t, marked(mark))
			require.Zero(t, s.Recovered())
			require.Empty(t, s.Drain())
			_, err := s.Check(id)
			require.ErrorIs(t, err, jobs.ErrExpired)
		})
	}
}

func TestAFullDiskCostsRecordsOnlyForAsLongAsItIsFull(t *testing.T) {
	runMounting(t, "host with records on a full disk", "DIR="+t.TempDir())
}

func TestALimitOnTheSizeOfFilesCostsRecordsOnly(t *testing.T) {
	runHelper(t, "host with records and small files", "DIR="+t.TempDir())
}

func TestAnEndOnAFullDiskIsOnRecordOnceClosedWithRoom(t *testing.T) {
	runMounting(t, "host with records that is closed after a full disk", "DIR="+t.TempDir())
}

func TestADirectoryThatIsRemovedCostsRecordsOnlyAndIsTold(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "records")
	s := newSupervisor(t, jobs.Config{Dir: dir, LogLimit: 1 << 20})
	runScript(t, s, "true")
	require.NoError(t, os.RemoveAll(dir))
	for range 3 {
		r := runScript(t, s, "echo hi; echo 1 >$LLM_OUTPUT; exit 3")
		require.Equal(t, "failed, exit 3", r.Outcome())
		require.Equal(t, "1\n", string(r.File.Data))
		require.Equal(t, "hi\n1\n", string(r.Output.Bytes()))
	}
	told := make(map[string]int)
	for _, n := range s.Drain() {
		told[n.Event]++
	}
	require.Equal(t, map[string]int{jobs.EventUnrecorded: 1}, told)
}

func TestResultFilesOfForgottenJobsGoWithTheirNotices(t *testing.T) {
	dir := t.TempDir()
	s := newSupervisor(t, jobs.Config{Dir: dir, MaxRetained: 1})
	for range 3 {
		start(t, s, jobs.Spec{Func: func(context.Context, io.Writer) (any, error) { return strings.Repeat("x", 10000), nil }})
		require.True(t, eventually(func() bool { return s.List().Running == 0 }))
	}
	require.Len(t, s.Drain(), 3)
	files, err := os.ReadDir(filepath.Join(dir, "results"))
	require.NoError(t, err)
	assert.Len(t, files, 1)
}

func TestTheEndOfAnEarlierResultIsKept(t *testing.T) {
	dir := t.TempDir()
	s := newSupervisor(t, jobs.Config{Dir: dir})
	id := start(t, s, bash(`(head -c 9000 /dev/zero | tr '\0' a; printf END) >"$LLM_OUTPUT"`)).ID
	awaitEnd(t, s, id)
	closed(t, s)
	r := collect(t, newSupervisor(t, jobs.Config{Dir: dir, ResultBytes: 6000}), id)
	assert.True(t, bytes.HasSuffix(r.File.Data, []byte("END")))
	assert.True(t, r.File.Truncated)
}
