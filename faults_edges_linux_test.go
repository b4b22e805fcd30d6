package jobs_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/require"
)

func TestASummaryAloneLeavesTheNoticesOfAResultAsTheyAre(t *testing.T) {
	for _, value := range []string{`{}`, `[]`, `null`, `"pay by Friday"`, `[1]`} {
		members := merged(t, jobs.Texts{}.Merge(json.RawMessage(`{"notices":`+value+`,"a":1}`), "look", nil))
		require.Equal(t, value, string(members["notices"]))
	}
}

// The moment between the KILL and the death is short, so it is tried for.
func TestAHostThatWasStoppedAsItKilledSaysOfNoDeadLeaderThatItLives(t *testing.T) {
	for _, after := range []time.Duration{-4, -1, 2, 5, 8, 12, 16, 20} {
		t.Run(fmt.Sprint(int(after)), func(t *testing.T) {
			t.Parallel()
			requireTruthAfterStop(t, killGraceOfStopped+after*time.Millisecond)
		})
	}
}
