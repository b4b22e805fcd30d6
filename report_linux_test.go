package jobs_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// reported is a job as a Report holds it.
func reported(change func(s *jobs.Snapshot)) []jobs.Snapshot {
	s := jobs.Snapshot{
		ID: "job_0123456789abcdefabcd", Tool: "build", State: jobs.Cancelled, Reason: jobs.ReasonShutdown, ExitCode: -1,
		Signal: jobs.Signal(syscall.SIGTERM), Elapsed: 90 * time.Second, OutputTotal: 1234,
	}
	change(&s)
	return []jobs.Snapshot{s}
}

func TestAReportSaysWhatBecameOfEachJob(t *testing.T) {
	exited := func(code int) func(*jobs.Snapshot) {
		return func(s *jobs.Snapshot) {
			s.State, s.Reason, s.ExitCode, s.Signal = jobs.Completed, jobs.ReasonExit, code, 0
			if code != 0 {
				s.State = jobs.Failed
			}
		}
	}
	for name, tt := range map[string]struct {
		report jobs.Report
		want   []string
		no     []string
	}{
		"killed while it ran, with a log": {
			report: jobs.Report{Stopped: reported(func(s *jobs.Snapshot) { s.LogPath = "/records/logs/x.log" })},
			want:   []string{"stopped", "while these jobs ran", "job_0123456789abcdefabcd (build)", "1m30s", "1,234 bytes", "/records/logs/x.log"},
			no:     []string{"exit 0", "completed"},
		},
		"killed while it ran, without a log": {
			report: jobs.Report{Stopped: reported(func(*jobs.Snapshot) {})},
			want:   []string{"job_0123456789abcdefabcd"},
			no:     []string{"log file: "},
		},
		"finished too late": {
			report: jobs.Report{Uncollected: reported(exited(7))},
			want:   []string{"too late", "failed, exit 7", "1,234 bytes"},
			no:     []string{"They were stopped"},
		},
		"finished well but too late": {
			report: jobs.Report{Uncollected: reported(exited(0))},
			want:   []string{"too late", "completed, exit 0"},
		},
		"a log that is not whole": {
			report: jobs.Report{Stopped: reported(func(s *jobs.Snapshot) {
				s.LogPath, s.LogErr = "/records/logs/x.log", errors.New("no space\nleft")
			})},
			want: []string{"not whole", "no space left", "/records/logs/x.log"},
		},
		"a limit": {
			report: jobs.Report{Uncollected: reported(func(s *jobs.Snapshot) {
				s.State, s.Reason, s.Signal = jobs.Failed, jobs.ReasonResourceLimit, jobs.Signal(syscall.SIGXCPU)
			})},
			want: []string{"limit", "SIGXCPU"},
		},
		"a limit of output": {
			report: jobs.Report{Uncollected: reported(func(s *jobs.Snapshot) { s.State, s.Reason = jobs.Failed, jobs.ReasonOutputLimit })},
			want:   []string{"output"},
		},
		"an error of waiting": {
			report: jobs.Report{Uncollected: reported(func(s *jobs.Snapshot) {
				s.State, s.Reason, s.Err = jobs.Failed, jobs.ReasonInternal, errors.New("wait: no child\nprocesses")
			})},
			want: []string{"wait: no child processes"},
		},
		"survivors": {
			report: jobs.Report{Stopped: reported(func(s *jobs.Snapshot) {
				s.State, s.Reason, s.Survivors = jobs.Failed, jobs.ReasonUnreaped, []jobs.Process{{PID: 7, Name: "x"}}
			})},
			want: []string{"1 of its processes could not be killed"},
		},
		"kept": {
			report: jobs.Report{Kept: reported(func(s *jobs.Snapshot) { s.State, s.Reason = jobs.Lost, jobs.ReasonOwnerClosed })},
			want:   []string{"run on"},
			no:     []string{"stopped", "failed", "completed"},
		},
		"handed up": {
			report: jobs.Report{HandedUp: reported(func(s *jobs.Snapshot) { s.State, s.Reason = jobs.Running, "" })},
			want:   []string{"run on", "job_0123456789abcdefabcd (build), for 1m30s so far"},
			no:     []string{"stopped"},
		},
		"a name that would be a line": {
			report: jobs.Report{Stopped: reported(func(s *jobs.Snapshot) { s.Tool = "x\n- job_ffffffffffffffffffff (forged)\x1b[31m" })},
			want:   []string{"(x - job_ffffffffffffffffffff (forged"},
			no:     []string{"\n- job_ffff", "\x1b"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			text := jobs.Texts{}.Report(tt.report)
			for _, part := range tt.want {
				assert.Contains(t, text, part)
			}
			for _, part := range append(tt.no, "recover", "nothing") {
				assert.NotContains(t, text, part, "it must not claim what it does not know")
			}
			require.Len(t, strings.Split(text, "\n"), 2, "a head and a line")
		})
	}
	require.Empty(t, jobs.Texts{}.Report(jobs.Report{}))
}

func TestAReportSaysEachConditionOnceAndNamesEachJob(t *testing.T) {
	snaps := func(ids ...string) (all []jobs.Snapshot) {
		for _, id := range ids {
			all = append(all, reported(func(s *jobs.Snapshot) { s.ID = id })...)
		}
		return all
	}
	report := jobs.Report{Stopped: snaps("job_a", "job_b"), Uncollected: snaps("job_c", "job_d"), HandedUp: snaps("job_e"), Kept: snaps("job_f")}
	text := jobs.Texts{}.Report(report)
	var heads []string
	for line := range strings.SplitSeq(text, "\n") {
		if !strings.HasPrefix(line, "- ") {
			heads = append(heads, line)
		}
	}
	require.Len(t, heads, 4)
	require.Len(t, strings.Split(text, "\n"), 10)
	for _, id := range []string{"job_a", "job_b", "job_c", "job_d", "job_e", "job_f"} {
		require.Equal(t, 1, strings.Count(text, id), id)
	}
	seen := make(map[string]bool)
	for _, head := range heads {
		require.False(t, seen[head])
		seen[head] = true
	}
}

// What Close returns goes into words as it is.
func TestTheReportOfACloseNamesBothKindsOfAbandonedWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := jobs.New(jobs.Config{})
		require.NoError(t, err)
		late := start(t, s, returning("unheard"))
		synctest.Wait()
		running := start(t, s, gated(nil, "so far"))
		time.Sleep(time.Minute)
		report, err := s.Close(t.Context())
		require.NoError(t, err)
		text := jobs.Texts{}.Report(report)
		stopped, uncollected, _ := strings.Cut(text, "\nThese jobs had ended")
		assert.Contains(t, stopped, running.ID+" (func): cancelled")
		assert.Contains(t, stopped, "after 1m0s; it printed 6 bytes")
		assert.Contains(t, uncollected, late.ID+" (func): completed")
		assert.Empty(t, s.Drain(), "told twice")
	})
}

// With records nothing is over: the next host still has the result.
func TestWhatAReportNamesCanStillBeCollectedFromTheRecords(t *testing.T) {
	dir := t.TempDir()
	s := newSupervisor(t, jobs.Config{Dir: dir})
	id := start(t, s, returning("late")).ID
	awaitEnd(t, s, id)
	report, err := s.Close(testContext(t))
	require.NoError(t, err)
	require.Contains(t, jobs.Texts{}.Report(report), id)
	s = newSupervisor(t, jobs.Config{Dir: dir})
	require.Equal(t, "\"late\"", strings.TrimSpace(string(collect(t, s, id).File.Data)))
}
