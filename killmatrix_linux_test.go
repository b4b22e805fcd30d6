package jobs_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hardToKill are scripts whose processes are hard to find or to stop. Each
// prints "ready" once all of them exist, after the pids of those that hide their
// environment; %[1]s is where those besides the leader print to.
var hardToKill = map[string]string{
	"obeys TERM":         `sleep 600 %[1]s & sleep 600 %[1]s & echo ready; wait`,
	"ignores TERM":       `trap '' TERM; sleep 600 %[1]s & echo ready; while :; do sleep 600 %[1]s; done`,
	"traps and forks":    `trap 'sleep 600 %[1]s & setsid sleep 600 %[1]s &' TERM; sleep 600 %[1]s & echo ready; while :; do wait; done`,
	"stopped":            `sleep 600 %[1]s & echo ready; kill -STOP $$; wait`,
	"setsid":             `setsid sleep 600 %[1]s & echo ready; wait`,
	"double fork":        `(setsid sh -c 'sleep 600 & sleep 600 & :' %[1]s &); sleep 600 %[1]s & echo ready; wait`,
	"job control":        `set -m; sleep 600 %[1]s & sleep 600 %[1]s & echo ready; wait`,
	"timeout":            `echo ready; timeout 600 sleep 600 %[1]s; :`,
	"nohup and disown":   `nohup sleep 600 %[1]s & disown; sleep 600 %[1]s & echo ready; wait`,
	"no environment":     `env -i sleep 600 %[1]s & a=$!; env -i setsid sleep 600 %[1]s & echo $a $! ready; wait`,
	"stopped and hidden": `setsid sh -c 'kill -STOP $$; sleep 600' %[1]s & echo ready; wait`,
}

// A causeOfDeath makes jobs end; they were started with what spec sets.
type causeOfDeath struct {
	name   string
	spec   func(*jobs.Spec)
	strike func(t *testing.T, owner *jobs.Supervisor, ids []string)
	reason jobs.Reason
}

var causesOfDeath = []causeOfDeath{
	{"cancel", nil, func(t *testing.T, owner *jobs.Supervisor, ids []string) {
		for _, id := range ids {
			go owner.Cancel(context.Background(), id)
		}
	}, jobs.ReasonCancelled},
	{"timeout", func(spec *jobs.Spec) { spec.Timeout = 1500 * time.Millisecond }, nil, jobs.ReasonTimeout},
	{"idle", func(spec *jobs.Spec) { spec.IdleTimeout = 1500 * time.Millisecond }, nil, jobs.ReasonIdle},
	{"output limit", func(spec *jobs.Spec) {
		spec.OutputLimit, spec.Input = 1000, true
		spec.Argv[2] = "{ read go; head -c 10000 /dev/zero; } <&0 & " + spec.Argv[2]
	}, func(t *testing.T, owner *jobs.Supervisor, ids []string) {
		for _, id := range ids {
			in, err := owner.Input(id)
			require.NoError(t, err)
			_, err = io.WriteString(in, "go\n")
			require.NoError(t, err)
		}
	}, jobs.ReasonOutputLimit},
	{"owner end", nil, closeOwner, jobs.ReasonOwnerClosed},
	{"close", nil, closeOwner, jobs.ReasonShutdown},
}

func closeOwner(t *testing.T, owner *jobs.Supervisor, _ []string) {
	_, err := owner.Close(testContext(t))
	require.NoError(t, err)
}

// Every way to end, against every program that is hard to kill, whether its
// processes hold the pipe or not: none survives, and the reason is told.
func TestNothingSurvivesWhateverTheCauseAndHoweverItHides(t *testing.T) {
	for _, cause := range causesOfDeath {
		t.Run(cause.name, func(t *testing.T) {
			s := newSupervisor(t, jobs.Config{MaxRunning: 2 * len(hardToKill)})
			owner := s
			if cause.reason == jobs.ReasonOwnerClosed {
				var err error
				owner, err = s.Child(jobs.ChildConfig{})
				require.NoError(t, err)
			}
			names := make(map[string]string)
			var ids []string
			for name, script := range hardToKill {
				for place, to := range map[string]string{"pipe held": "", "redirected": ">/dev/null 2>&1"} {
					spec := bash(fmt.Sprintf(script, to))
					if cause.spec != nil {
						cause.spec(&spec)
					}
					id := start(t, owner, spec).ID
					names[id] = name + ", " + place
					ids = append(ids, id)
				}
			}
			var all []int
			for _, id := range ids {
				hidden, _, _ := strings.Cut(awaitOutput(t, owner, id, "ready"), "ready")
				all = append(all, pids(t, hidden)...)
			}
			for _, id := range ids {
				all = append(all, marked(jobs.EnvJob+"="+id)...)
			}
			if cause.strike != nil {
				cause.strike(t, owner, ids)
			}
			for _, id := range ids {
				snap := awaitEnd(t, owner, id)
				assert.Equal(t, cause.reason, snap.Reason, names[id])
				assert.Empty(t, snap.Survivors, names[id])
				assert.Empty(t, marked(jobs.EnvJob+"="+id), names[id])
			}
			requireDead(t, all...)
		})
	}
}
