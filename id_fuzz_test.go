package jobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/require"
)

// givenIDs are the ids of the jobs of one owner, one in each state, and some
// that this owner must never see.
type givenIDs struct{ mine, foreign map[string]string }

func newIDs(t testing.TB, s *jobs.Supervisor) (*jobs.Supervisor, givenIDs) {
	t.Helper()
	owner, err := s.Child(jobs.ChildConfig{Name: "owner"})
	require.NoError(t, err)
	other, err := s.Child(jobs.ChildConfig{Name: "other"})
	require.NoError(t, err)
	started := func(s *jobs.Supervisor, run jobs.Spec) string { return start(t, s, run).ID }
	ended := func(s *jobs.Supervisor) string { return endedFunc(t, s, returns(1)) }
	collected, forgotten := ended(owner), ended(owner)
	collect(t, owner, collected)
	require.Len(t, owner.Reap(t.Context(), forgotten), 1)
	return owner, givenIDs{
		mine: map[string]string{
			"RUNNING": started(owner, jobs.Spec{Func: waits}), "ENDED": ended(owner), "COLLECTED": collected, "FORGOTTEN": forgotten,
		},
		foreign: map[string]string{
			"OTHER": started(other, jobs.Spec{Func: waits}), "PAST": ended(other), "TOP": started(s, jobs.Spec{Func: waits}),
		},
	}
}

// spell puts the ids in place of the words that stand for them, and flips a bit
// of what comes out if flip is not 0.
func (g givenIDs) spell(text string, flip uint16) string {
	for _, all := range []map[string]string{g.mine, g.foreign} {
		for word, id := range all {
			text = strings.ReplaceAll(text, word, id)
		}
	}
	if flip == 0 || text == "" {
		return text
	}
	b := []byte(text)
	b[int(flip>>3)%len(b)] ^= 1 << (flip & 7)
	return string(b)
}

// verbsByID are all methods that take an id. Each returns what it has found of
// the job, if anything.
var verbsByID = map[string]func(s *jobs.Supervisor, id string) (found string, err error){
	"Check": func(s *jobs.Supervisor, id string) (string, error) {
		snap, err := s.Check(id)
		return snap.ID, err
	},
	"Output": func(s *jobs.Supervisor, id string) (string, error) {
		c, err := s.Output(id, 0, 10)
		return string(c.Data), err
	},
	"ReadOutput": func(s *jobs.Supervisor, id string) (string, error) {
		c, err := s.ReadOutput(id, -1, make([]byte, 1))
		return string(c.Data), err
	},
	"Stderr": func(s *jobs.Supervisor, id string) (string, error) {
		c, err := s.Stderr(id, 0, 10)
		return string(c.Data), err
	},
	"Input": func(s *jobs.Supervisor, id string) (string, error) {
		_, err := s.Input(id)
		return "", err
	},
	"Wait": func(s *jobs.Supervisor, id string) (string, error) {
		r, err := s.Wait(context.Background(), jobs.WaitSpec{IDs: []string{id}, Timeout: -1})
		return strings.Join(ids(r.Jobs), ""), err
	},
	"Watch": func(s *jobs.Supervisor, id string) (string, error) {
		stop, err := s.Watch(id, jobs.WatchSpec{Pattern: regexp.MustCompile("x")})
		if err == nil {
			stop()
		}
		return "", err
	},
	"Collect": func(s *jobs.Supervisor, id string) (string, error) {
		r, err := s.Collect(doneContext(), id)
		return r.ID, err
	},
	"Cancel": func(s *jobs.Supervisor, id string) (string, error) {
		r, err := s.Cancel(context.Background(), id)
		return r.ID, err
	},
}

// documented are the errors that a verb may give for an id.
var documented = []error{
	jobs.ErrNotFound, jobs.ErrForeign, jobs.ErrExpired, jobs.ErrCollected, jobs.ErrEnded, jobs.ErrNoInput, context.Canceled,
}

// FuzzID gives every verb an id that a model has made up, mistyped, or got from
// another owner.
func FuzzID(f *testing.F) {
	for _, id := range []string{
		"", "job_", "job_0123456789abcdef0123", "JOB_0123456789ABCDEF0123", "RUNNING", "ENDED", "COLLECTED", "FORGOTTEN", "OTHER", "PAST", "TOP",
		"RUNNING ", " RUNNING", "RUNNING\n", "RUNNING\x00", "RUNNING,ENDED", "OTHERx", "job_\u0660123456789abcdef0123", "../RUNNING", "\xff\xfe",
		"agent_1", strings.Repeat("job_", 1000), "job_" + strings.Repeat("0", 20),
	} {
		f.Add(id, uint16(0))
		f.Add(id, uint16(1+8*20))
	}
	f.Fuzz(func(t *testing.T, text string, flip uint16) {
		if len(text) > 5000 { // more only costs time
			return
		}
		s, err := jobs.New(jobs.Config{})
		require.NoError(t, err)
		defer func() {
			_, err := s.Close(testContext(t))
			require.NoError(t, err)
		}()
		owner, all := newIDs(t, s)
		id := all.spell(text, flip)
		mine := slices.Contains(slices.Collect(maps.Values(all.mine)), id)
		foreign := slices.Contains(slices.Collect(maps.Values(all.foreign)), id)
		for name, verb := range verbsByID {
			found, err := verb(owner, id)
			if err != nil {
				require.True(t, slices.ContainsFunc(documented, func(d error) bool { return errors.Is(err, d) }), "%s of %q: %v", name, id, err)
				require.LessOrEqual(t, len(err.Error()), 400, "%s: %v", name, err)
			}
			if mine {
				continue
			}
			require.Error(t, err, "%s of %q", name, id)
			require.Empty(t, found, "%s of %q", name, id)
			var je *jobs.JobError
			require.ErrorAs(t, err, &je, "%s of %q", name, id)
			require.Nil(t, je.Job, "%s of %q", name, id)
			require.Equal(t, id, je.ID)
			if foreign {
				require.ErrorIs(t, err, jobs.ErrForeign, "%s of %q", name, id)
			}
		}
		if !mine {
			require.Empty(t, owner.Reap(doneContext(), id))
			for _, known := range []string{"RUNNING", "ENDED"} {
				_, err := owner.Check(all.mine[known])
				require.NoError(t, err, "the owner's own job suffered")
			}
			require.Equal(t, jobs.Running, checkJob(t, owner, all.mine["RUNNING"]).State)
		}
		require.Equal(t, jobs.Running, checkJob(t, s, all.foreign["TOP"]).State)
		other := s.Children()[slices.IndexFunc(s.Children(), func(c *jobs.Supervisor) bool { return c.Name() == "other" })]
		require.Equal(t, jobs.Running, checkJob(t, other, all.foreign["OTHER"]).State)
		collect(t, other, all.foreign["PAST"])
		requireToolsTeach(t, owner, id, mine)
	})
}

// requireToolsTeach fails unless the tools answer any id well, too.
func requireToolsTeach(t testing.TB, s *jobs.Supervisor, id string, mine bool) {
	t.Helper()
	tools := s.Toolset(jobs.ToolsetOptions{Wait: time.Millisecond})
	for _, verb := range []string{"job__check", "job__collect", "job__cancel"} {
		args, err := json.Marshal(map[string]string{"id": id})
		require.NoError(t, err)
		out, isError := tools.Call(t.Context(), verb, args)
		_, fault := readReply(string(args), out, isError)
		require.Empty(t, fault, "%s %s answered %s", verb, args, out)
		require.True(t, isError || mine, "%s %s answered %s", verb, args, out)
	}
}
