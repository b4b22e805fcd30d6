package jobs_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A host with records that runs jobs until it is killed.
func init() {
	hostHelper("host with records", func() {
		ctx := context.Background()
		s := orExit(jobs.New(jobs.Config{Dir: os.Getenv("RECORDS"), LogLimit: 1 << 20, MaxRunning: 20}))
		fmt.Println(orExit(s.Start(ctx, bash("echo out; (setsid sleep 300 &); exec sleep 300"))).ID)
		keep := bash("exec sleep 300 >/dev/null 2>&1")
		keep.OnOwnerEnd = jobs.KeepRunning
		fmt.Println(orExit(s.Start(ctx, keep)).ID)
		ended := orExit(s.Start(ctx, bash(`seq 100000; echo '{"a":1}' > $LLM_OUTPUT; exit 3`))).ID
		check(eventually(func() bool { return orExit(s.Check(ended)).Ended() }), "no end")
		fmt.Println(ended)
		told := orExit(s.Start(ctx, bash("true"))).ID
		orExit(s.Wait(ctx, jobs.WaitSpec{IDs: []string{told}}))
		fmt.Println(told)
		gone := orExit(s.Start(ctx, bash("true"))).ID
		orExit(s.Collect(ctx, gone))
		fmt.Println(gone)
		io.Copy(io.Discard, os.Stdin)
	})
}

func TestAHostThatWasKilledLeavesNothingUnaccounted(t *testing.T) {
	dir := t.TempDir()
	c := helper(t, "host with records")
	c.Env = append(c.Env, "RECORDS="+dir)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	_, err = c.StdinPipe()
	require.NoError(t, err)
	launch(t, c)
	lines := bufio.NewReader(out)
	var ids []string
	for range 5 {
		ids = append(ids, strings.TrimSpace(lineOf(t, lines)))
	}
	_, err = jobs.New(jobs.Config{Dir: dir})
	require.ErrorIs(t, err, jobs.ErrDirInUse)
	require.NoError(t, c.Process.Kill())
	c.Wait()

	s := newSupervisor(t, jobs.Config{Dir: dir})
	states := map[string]string{ids[0]: "lost", ids[1]: "lost", ids[2]: "failed, exit 3", ids[3]: "completed, exit 0"}
	for id, want := range states {
		snap, err := s.Check(id)
		require.NoError(t, err)
		assert.Equal(t, want, snap.Outcome())
		assert.True(t, snap.Recovered)
	}
	_, err = s.Check(ids[4])
	require.ErrorIs(t, err, jobs.ErrExpired)
	var told []string
	for _, n := range s.Drain() {
		told = append(told, n.ID)
	}
	assert.Equal(t, ids[:3], told)
	recovered := s.Recovered()
	require.Len(t, recovered.Lost, 2)
	assert.Empty(t, recovered.Lost[0].Survivors)
	require.Len(t, recovered.Lost[1].Survivors, 1, "a job that was to be kept runs on")
	require.NoError(t, unix.Kill(recovered.Lost[1].Survivors[0].PID, unix.SIGKILL))
	r, err := s.Collect(t.Context(), ids[2])
	require.NoError(t, err)
	assert.Equal(t, `{"a":1}`+"\n", string(r.File.Data))
	assert.EqualValues(t, 588_903, r.Output.Total)
}
