package jobs_test

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// loopEnv is how often the loop kills its host.
const loopEnv = "JOBS_KILL_LOOP"

// A host that starts one job of each kind, says so at once, collects one of
// them, and waits for its end.
func init() {
	hostHelper("host of the kill loop", func() {
		ctx := context.Background()
		s := orExit(jobs.New(victimConfig()))
		fmt.Println("open")
		tell := func(kind string, spec jobs.Spec) string {
			if spec.Func == nil {
				spec.Env = []string{os.Getenv("MARK")}
			}
			id := orExit(s.Start(ctx, spec)).ID
			fmt.Println(kind, id)
			return id
		}
		quick := tell("collected", bash("true"))
		tell("left", bash("exec sleep 300"))
		tell("left", returning("value"))
		tell("left", bash("setsid sleep 300 >/dev/null 2>&1 & exec sleep 300"))
		keep := bash("exec sleep 300 >/dev/null 2>&1")
		keep.OnOwnerEnd = jobs.KeepRunning
		tell("kept", keep)
		fmt.Println("collecting", quick)
		orExit(s.Collect(ctx, quick))
		fmt.Println("gone", quick)
		tell("left", bash("echo end"))
		select {}
	})
}

// A lifeBook is what a test knows of the jobs of hosts that were killed.
type lifeBook struct {
	kind map[string]string // by id: left, kept, collected, collecting, gone
	told map[string]int
}

func TestKilledAgainAndAgainAHostAccountsForEachJobOnce(t *testing.T) {
	lives, err := strconv.Atoi(cmp.Or(os.Getenv(loopEnv), "10"))
	require.NoError(t, err)
	dir := t.TempDir()
	l := lifeBook{kind: make(map[string]string), told: make(map[string]int)}
	states := make(map[jobs.State]int)
	for range lives {
		mark := freshMark()
		printed := l.killOne(t, dir, mark)
		l.settle(t, dir, mark, printed, states)
	}
	ends := make(map[string]int)
	for id, kind := range l.kind {
		ends[kind]++
		switch kind {
		case "gone":
			assert.Zero(t, l.told[id], "%s: collected and told", id)
		case "collecting":
			assert.LessOrEqual(t, l.told[id], 1, "%s: told twice", id)
		default:
			assert.Equal(t, 1, l.told[id], "%s (%s): times told", id, kind)
		}
	}
	t.Logf("%d lives, %d jobs, by what became of them %v, told as %v", lives, len(l.kind), ends, states)
}

// killOne runs a host, kills it at some moment and returns the ids it gave out.
func (l lifeBook) killOne(t *testing.T, dir, mark string) (ids []string) {
	v := launchVictim(t, helper(t, "host of the kill loop", "RECORDS="+dir, "MARK="+mark))
	require.Equal(t, "open", v.line())
	<-time.After(rand.N(40 * time.Millisecond))
	v.cmd.Process.Kill() // what it printed stays in the pipe
	for lines := bufio.NewScanner(v.out); lines.Scan(); {
		kind, id, _ := strings.Cut(lines.Text(), " ")
		if l.kind[id] == "" {
			ids = append(ids, id)
		}
		l.kind[id] = kind
	}
	v.cmd.Wait()
	return ids
}

// settle opens the directory as the next host and notes what it is told.
func (l lifeBook) settle(t *testing.T, dir, mark string, ids []string, states map[jobs.State]int) {
	s, err := jobs.New(jobs.Config{Dir: dir, KillGrace: time.Second, MaxRetained: 10_000})
	require.NoError(t, err)
	defer closed(t, s)
	require.Empty(t, s.Recovered().Quarantine)
	for _, n := range s.Drain() {
		l.told[n.ID]++
		states[n.State]++
	}
	for _, id := range ids {
		snap, err := s.Check(id)
		if err != nil {
			assert.ErrorIs(t, err, jobs.ErrExpired)
			assert.Contains(t, []string{"collecting", "gone"}, l.kind[id])
			continue
		}
		assert.True(t, snap.Ended() && snap.Recovered, "%s %s", id, snap.Outcome())
	}
	var kept []int
	for _, snap := range s.Recovered().Lost {
		for _, p := range snap.Survivors {
			kept = append(kept, p.PID)
		}
	}
	left := marked(mark)
	for _, pid := range left {
		assert.Contains(t, kept, pid, "nobody knows of this process, %s", comm(pid))
		unix.Kill(pid, unix.SIGKILL)
	}
	require.True(t, eventually(func() bool { return !slices.ContainsFunc(left, alive) }))
}
