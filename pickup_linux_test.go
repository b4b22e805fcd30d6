package jobs_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A namedShell is one that only Config.FindShell knows.
type namedShell struct{ jobs.Shell }

func (namedShell) String() string { return "a machine of mine" }

// A host with detached jobs that runs until it is killed. Each job goes on until
// its file goes.
func init() {
	hostHelper("host with detached jobs", func() {
		ctx := context.Background()
		dir := os.Getenv("RECORDS")
		s := orExit(jobs.New(jobs.Config{Dir: filepath.Join(dir, "records"), MaxRunning: 20, LogLimit: 1 << 20}))
		owner := orExit(s.Child(jobs.ChildConfig{Name: "ann"}))
		shell := shellIn(dir)
		start := func(s *jobs.Supervisor, spec jobs.Spec) {
			spec.Argv, spec.Key = untilGone(dir, spec.Tool), spec.Tool
			if spec.Shell == nil {
				spec.Shell = shell
			}
			id := orExit(s.Start(ctx, spec)).ID
			check(eventually(func() bool { return orExit(s.Check(id)).OutputTotal > 0 }), "no output")
			fmt.Println(id)
		}
		start(s, jobs.Spec{Tool: "plain", Tag: "a tag"})
		start(owner, jobs.Spec{Tool: "owned"})
		start(s, jobs.Spec{Tool: "named", Shell: namedShell{shell}})
		start(s, jobs.Spec{Tool: "killed", OnOwnerEnd: jobs.KillWithOwner})
		io.Copy(io.Discard, os.Stdin)
	})
}

func shellIn(dir string) jobs.Shell { return jobs.ShellCommand("env", "HOME="+dir, "sh") }

// untilGone is a command that prints, and goes on until its file is removed; then
// it fails with 7.
func untilGone(dir, name string) []string {
	file := filepath.Join(dir, name)
	return []string{"sh", "-c", `: >"$0"; echo begun; while [ -e "$0" ]; do sleep 0.05; done; echo over; exit 7`, file}
}

// detachedAndKilled returns a directory where a host with detached jobs was
// killed, and the ids of its jobs.
func detachedAndKilled(t *testing.T) (dir string, ids []string) {
	dir = t.TempDir()
	c := helper(t, "host with detached jobs")
	c.Env = append(c.Env, "RECORDS="+dir)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	_, err = c.StdinPipe()
	require.NoError(t, err)
	launch(t, c)
	for lines := bufio.NewReader(out); len(ids) < 4; {
		ids = append(ids, strings.TrimSpace(lineOf(t, lines)))
	}
	require.NoError(t, c.Process.Kill())
	c.Wait()
	return dir, ids
}

func endDetached(t *testing.T, dir, name string) {
	require.NoError(t, os.Remove(filepath.Join(dir, name)))
}

func TestDetachedJobsOfAKilledHostArePickedUpByTheNext(t *testing.T) {
	dir, ids := detachedAndKilled(t)
	cfg := jobs.Config{Dir: filepath.Join(dir, "records"), MaxRunning: 20, LogLimit: 1 << 20}
	cfg.FindShell = func(name string) jobs.Shell {
		if name == "a machine of mine" {
			return namedShell{shellIn(dir)}
		}
		return nil
	}
	s := newSupervisor(t, cfg)
	require.Len(t, s.Recovered().Running, 4)
	require.Empty(t, s.Recovered().Lost)
	require.Empty(t, s.Drain(), "they run as if nothing had happened")
	assert.Equal(t, 4, s.List().Running)
	snap, err := s.Check(ids[0])
	require.NoError(t, err)
	assert.Equal(t, jobs.Running, snap.State)
	assert.Equal(t, "a tag", snap.Tag)
	assert.True(t, snap.Recovered)

	ann, err := s.Child(jobs.ChildConfig{Name: "ann"})
	require.NoError(t, err)
	require.Len(t, ann.List().Jobs, 1)
	require.Equal(t, ids[1], ann.List().Jobs[0].ID)
	_, err = s.Check(ids[1])
	require.ErrorIs(t, err, jobs.ErrForeign)

	same, err := s.Start(t.Context(), jobs.Spec{Key: "plain", Argv: []string{"true"}})
	require.NoError(t, err)
	require.Equal(t, ids[0], same.ID, "its key is its own again")

	for i, name := range []string{"plain", "owned", "named"} {
		endDetached(t, dir, name)
		owner := s
		if name == "owned" {
			owner = ann
		}
		w, err := owner.Wait(t.Context(), jobs.WaitSpec{IDs: []string{ids[i]}, Pattern: regexp.MustCompile("^over$"), Timeout: patience})
		require.NoError(t, err)
		require.NotNil(t, w.Match, name)
		r, err := owner.Collect(t.Context(), ids[i])
		require.NoError(t, err)
		assert.Equal(t, "failed, exit 7", r.Outcome())
		assert.Equal(t, "begun\nover\n", string(r.Output.Bytes()))
		text, err := os.ReadFile(r.LogPath)
		require.NoError(t, err)
		assert.Contains(t, string(text), "\nbegun\nover\n")
	}
	r, err := s.Cancel(t.Context(), ids[3])
	require.NoError(t, err)
	assert.Equal(t, jobs.Cancelled, r.State)
}

func TestAnEndBetweenTwoHostsIsToldByTheSecond(t *testing.T) {
	dir, ids := detachedAndKilled(t)
	for _, name := range []string{"plain", "owned", "named", "killed"} {
		endDetached(t, dir, name)
	}
	s := newSupervisor(t, jobs.Config{Dir: filepath.Join(dir, "records"), MaxRunning: 20})
	told := make(map[string]jobs.Notice)
	require.True(t, eventually(func() bool {
		for _, n := range s.Drain() {
			told[n.ID] = n
		}
		return len(told) == 4
	}))
	assert.Equal(t, 7, told[ids[0]].ExitCode)
	assert.Equal(t, jobs.Lost, told[ids[2]].State, "nobody knows its machine")
	assert.Equal(t, 7, told[ids[3]].ExitCode)
}

func TestDetachedJobsAreLetGoAndPickedUpAgainAndAgain(t *testing.T) {
	dir, ids := detachedAndKilled(t)
	cfg := jobs.Config{Dir: filepath.Join(dir, "records"), MaxRunning: 20}
	cfg.FindShell = func(string) jobs.Shell { return shellIn(dir) }
	for life := range 3 {
		s, err := jobs.New(cfg)
		require.NoError(t, err)
		want := 4
		if life > 0 {
			want = 3 // one was to end with its owner
		}
		require.Len(t, s.Recovered().Running, want)
		report, err := s.Close(t.Context())
		require.NoError(t, err)
		require.Len(t, report.Kept, 3)
		require.Len(t, report.Stopped, want-3)
	}
	s := newSupervisor(t, cfg)
	for i, name := range []string{"plain", "owned", "named"} {
		endDetached(t, dir, name)
		r, err := s.Collect(t.Context(), ids[i])
		require.NoError(t, err)
		assert.Equal(t, "failed, exit 7", r.Outcome())
	}
	require.True(t, eventually(func() bool {
		left, err := filepath.Glob(filepath.Join(dir, ".agentjobs", "job_*"))
		return err == nil && len(left) <= 2 // of the one that was stopped, until it is collected
	}))
}

func TestTheTimeOfADetachedJobRunsOnWithoutAHost(t *testing.T) {
	dir := t.TempDir()
	cfg := jobs.Config{Dir: filepath.Join(dir, "records")}
	first, err := jobs.New(cfg)
	require.NoError(t, err)
	snap, err := first.Start(t.Context(), jobs.Spec{Argv: untilGone(dir, "slow"), Shell: shellIn(dir), Timeout: 2 * time.Second})
	require.NoError(t, err)
	_, err = first.Close(t.Context())
	require.NoError(t, err)
	second := newSupervisor(t, cfg)
	r, err := second.Collect(t.Context(), snap.ID)
	require.NoError(t, err)
	assert.Equal(t, jobs.ReasonTimeout, r.Reason)
	assert.GreaterOrEqual(t, r.Elapsed, 2*time.Second)
	assert.Less(t, r.Elapsed, patience)
}
