package jobs_test

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNewRefusesWhatMustNotBeNegative(t *testing.T) {
	for field, cfg := range map[string]jobs.Config{
		"DrainGrace":  {DrainGrace: -1},
		"KillGrace":   {KillGrace: -time.Second},
		"MaxRetained": {MaxRetained: -1},
		"MaxRunning":  {MaxRunning: -1},
		"ResultBytes": {ResultBytes: -1},
		"RetainFor":   {RetainFor: -time.Hour},
	} {
		s, err := jobs.New(cfg)
		assert.ErrorContains(t, err, "Config."+field)
		assert.Nil(t, s, field)
	}
	_, err := jobs.New(jobs.Config{MaxRunning: -1})
	assert.ErrorContains(t, err, "Disabled", "the error names the switch that was meant")
}

func TestNewTakesWhatMayBeNegative(t *testing.T) {
	s, err := jobs.New(jobs.Config{HeadBytes: -1, TailBytes: -1, ResultFileLimit: -1, Timeout: -1})
	require.NoError(t, err)
	collect(t, s, start(t, s, returning(nil)).ID)
	_, err = s.Close(testContext(t))
	require.NoError(t, err)
}

func TestNewRefusesAnEnvironmentNoProcessCanHave(t *testing.T) {
	for name, entry := range map[string]string{
		"no equals sign":   "sesame",
		"no key":           "=sesame",
		"NUL in the key":   "K\x00=sesame",
		"NUL in the value": "KEY=sesame\x00",
	} {
		_, err := jobs.New(jobs.Config{Env: []string{"GOOD=1", entry}})
		assert.ErrorContains(t, err, "Config.Env[1]", name)
		assert.NotContains(t, err.Error(), "sesame", "a value may be a secret")
	}
}

func TestADisabledSupervisorRefusesEveryJob(t *testing.T) {
	s := newSupervisor(t, jobs.Config{Disabled: true})
	for name, spec := range map[string]jobs.Spec{
		"function": function(func(context.Context, io.Writer) (any, error) {
			t.Error("the function ran")
			return nil, nil
		}),
		"process": {Argv: []string{"true"}},
		"nothing": {},
	} {
		_, err := s.Start(testContext(t), spec)
		assert.ErrorIs(t, err, jobs.ErrDisabled, name)
	}
	assert.Empty(t, s.List().Jobs)
	_, err := s.Check("job_0123456789abcdef0123")
	assert.ErrorIs(t, err, jobs.ErrNotFound)
}

// A supervisor that is never used costs its host nothing, so a TempDir that
// does not exist hurts only a job that needs it.
func TestNewTouchesNoFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "missing")
	s := newSupervisor(t, jobs.Config{TempDir: dir})
	collect(t, s, start(t, s, returning(nil)).ID)
	require.NoDirExists(t, dir)
}

func TestFiveJobsRunAtOnceByDefault(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	assert.Equal(t, jobs.List{Jobs: []jobs.Snapshot{}, MaxRunning: 5}, s.List())
	for range jobs.DefaultMaxRunning {
		start(t, s, gated(nil, ""))
	}
	_, err := s.Start(testContext(t), returning(nil))
	require.ErrorIs(t, err, jobs.ErrAtCapacity)
	require.ErrorContains(t, err, "5 of 5")
}

func TestTheKillGraceIsFiveSecondsByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := jobs.New(jobs.Config{})
		require.NoError(t, err)
		gate := make(chan struct{})
		defer close(gate)
		begun := time.Now()
		cancel(t, s, start(t, s, deaf(gate)).ID)
		require.Equal(t, 5*time.Second, time.Since(begun))
	})
}

func TestThirtyTwoFinishedJobsAreRememberedByDefault(t *testing.T) {
	for _, tt := range []struct{ maxRunning, want int }{
		{0, jobs.DefaultMaxRetained},
		{40, 40}, // all that ran at once can be collected
	} {
		s := newSupervisor(t, jobs.Config{MaxRunning: tt.maxRunning})
		var all []string
		for range tt.want + 2 {
			all = append(all, finish(t, s))
		}
		requireKnown(t, s, all[2:], all[:2])
		require.Equal(t, all[2:], ids(s.List().Jobs))
	}
}

func TestAToldJobIsRememberedForHalfAnHourByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSupervisor(t, jobs.Config{})
		id := finish(t, s)
		require.Len(t, s.Drain(), 1)
		time.Sleep(30*time.Minute - time.Second)
		requireKnown(t, s, []string{id}, nil)
		time.Sleep(time.Second)
		requireKnown(t, s, nil, []string{id})
	})
}

func TestHeadAndTailAreKeptAsConfigured(t *testing.T) {
	for _, tt := range []struct {
		name       string
		head, tail int
		want       []int // lengths of the kept pieces
	}{
		{"default", 0, 0, []int{4 << 10, 64 << 10}},
		{"set", 10, 100, []int{10, 100}},
		{"no head", -1, 100, []int{100}},
		{"no tail", 10, -1, []int{10}},
		{"nothing", -1, -1, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const total = 100 << 10
			s := newSupervisor(t, jobs.Config{HeadBytes: tt.head, TailBytes: tt.tail})
			r := collect(t, s, start(t, s, function(func(_ context.Context, out io.Writer) (any, error) {
				for range total / 1024 {
					out.Write(make([]byte, 1024))
				}
				return nil, nil
			})).ID)
			var got []int
			kept := 0
			for _, p := range r.Output.Pieces {
				got = append(got, len(p.Data))
				kept += len(p.Data)
			}
			assert.Equal(t, tt.want, got)
			assert.Equal(t, int64(total), r.OutputTotal)
			assert.Equal(t, int64(total-kept), r.OutputDropped)
		})
	}
}

// What the host changes after New must not reach the jobs.
func TestTheEnvironmentOfTheConfigIsCopied(t *testing.T) {
	env := []string{"PATH=/usr/bin:/bin", "WHO=before"}
	s := newSupervisor(t, jobs.Config{Env: env})
	env[1] = "WHO=after"
	snap, err := s.Start(testContext(t), bash("echo $WHO"))
	if errors.Is(err, jobs.ErrUnsupported) {
		t.Skip(err)
	}
	require.NoError(t, err)
	require.Equal(t, "before\n", string(collect(t, s, snap.ID).Output.Bytes()))
}
