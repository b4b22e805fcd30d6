package jobs_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"
	"weak"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// watch begins a watch that makes no second burst while the test lasts.
func watch(t testing.TB, s *jobs.Supervisor, id, pattern string, burst int) (stop func()) {
	t.Helper()
	stop, err := s.Watch(id, jobs.WatchSpec{Pattern: regexp.MustCompile(pattern), Burst: burst, Every: time.Hour})
	require.NoError(t, err)
	return stop
}

// watchPuppet starts a function and watches it.
func watchPuppet(t testing.TB, s *jobs.Supervisor, pattern string, burst int) (p *puppet, id string, stop func()) {
	t.Helper()
	ps, started := startPuppets(t, s, 1)
	return ps[0], started[0], watch(t, s, started[0], pattern, burst)
}

// matchedLines returns the lines that notices tell, in their order.
func matchedLines(notices []jobs.Notice) []string {
	var list []string
	for _, n := range notices {
		if n.Event == jobs.EventMatched {
			list = append(list, n.Line)
		}
	}
	return list
}

// matches counts the matches that notices tell, one by one or as a number.
func matches(notices []jobs.Notice) (told, suppressed int) {
	for _, n := range notices {
		if n.Line != "" {
			told++
		}
		suppressed += n.Suppressed
	}
	return told, suppressed
}

func TestALineThatIsWatchedForMakesANotice(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	p := newPuppet()
	id := start(t, s, jobs.Spec{Func: p.run, Tool: "build", Tag: "request 7", Trust: "user"}).ID
	watch(t, s, id, "^error", 5)
	p.print("all is well\nerror: no cheese\nno error\n")
	require.Len(t, s.Ready(), 1)
	notices := s.Drain()
	require.Len(t, notices, 1)
	n := notices[0]
	require.Positive(t, n.Elapsed)
	n.Elapsed = 0
	require.Equal(t, jobs.Notice{
		Event: jobs.EventMatched, ID: id, Tool: "build", Tag: "request 7", Trust: "user",
		State: jobs.Running, ExitCode: -1, Line: "error: no cheese",
	}, n)
	data, err := json.Marshal(n)
	require.NoError(t, err)
	require.JSONEq(t, fmt.Sprintf(`{"event":"job_matched","id":%q,"tool":"build","status":"running",
		"elapsed_secs":0,"tag":"request 7","line":"error: no cheese","next_action":%q}`, id, "job__check "+idArgs(id)), string(data))

	p.finish(nil)
	requireOneEnd(t, s, id)
}

func TestAFloodOfMatchesMakesFewNoticesAndAnExactCount(t *testing.T) {
	const lines, burst = 10_000, 5
	for _, tt := range []struct {
		name string
		// read returns all notices up to that of the end.
		read func(t *testing.T, s *jobs.Supervisor, id string) []jobs.Notice
	}{
		{"at the end", func(t *testing.T, s *jobs.Supervisor, id string) []jobs.Notice {
			endOf(t, s, id)
			return s.Drain()
		}},
		{"as they come", func(t *testing.T, s *jobs.Supervisor, id string) (all []jobs.Notice) {
			for len(all) == 0 || all[len(all)-1].Event == jobs.EventMatched {
				<-s.Ready()
				all = append(all, s.Drain()...)
			}
			return all
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSupervisor(t, jobs.Config{})
			g := newGate(t)
			id := start(t, s, g.gated(fmt.Sprintf(`read -r _ <"$GATE"; seq -f 'error %%g' 1 %d; seq 1 %d`, lines, lines))).ID
			watch(t, s, id, "^error ", burst)
			g.open(t)
			notices := tt.read(t, s, id)
			require.Len(t, notices, burst+2)
			require.Equal(t, []string{"error 1", "error 2", "error 3", "error 4", "error 5", ""}, matchedLines(notices))
			told, suppressed := matches(notices)
			require.Equal(t, burst, told)
			require.Equal(t, lines-burst, suppressed)
			require.Equal(t, lines-burst, notices[burst].Suppressed)
			require.Equal(t, jobs.EventCompleted, notices[burst+1].Event, "the end comes last")
			require.Nil(t, s.Drain())
		})
	}
}

func TestFewMatchesAreAllToldAndNothingIsSuppressed(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	p, _, stop := watchPuppet(t, s, "error", 3)
	p.print("error 1\nx\nerror 2\nx\nerror 3\n")
	stop()
	notices := s.Drain()
	require.Equal(t, []string{"error 1", "error 2", "error 3"}, matchedLines(notices))
	_, suppressed := matches(notices)
	require.Zero(t, suppressed)
}

func TestAWatchSeesWhatIsPrintedFromThenOn(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	ps, started := startPuppets(t, s, 1)
	ps[0].print("error before\n")
	watch(t, s, started[0], "error", 5)
	ps[0].print("error after\n")
	require.Equal(t, []string{"error after"}, matchedLines(s.Drain()))
}

func TestAWatchTestsWholeLinesOnly(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	p, id, _ := watchPuppet(t, s, "^err", 5)
	p.print("error")
	require.True(t, waitOn(t, s, jobs.WaitSpec{Pattern: line("error")}).Match != nil)
	require.Empty(t, s.Ready())
	p.print(" one\nx\nerror")
	require.Equal(t, []string{"error one"}, matchedLines(s.Drain()))
	p.print(" two")
	p.finish(nil)
	endOf(t, s, id)
	require.Equal(t, []string{"error two"}, matchedLines(s.Drain()), "the end of the job ends the line")
}

func TestAWatchSeesAllThatAProcessWrites(t *testing.T) {
	for name, script := range map[string]string{
		"standard output": `echo error one`,
		"standard error":  `echo error one >&2`,
		"result file":     `echo error one >"$LLM_OUTPUT"`,
	} {
		for _, split := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, split %v", name, split), func(t *testing.T) {
				s := newSupervisor(t, jobs.Config{})
				g := newGate(t)
				spec := g.gated(`read -r _ <"$GATE"; ` + script + `; read -r _ <"$GATE"`)
				spec.SplitStderr = split
				id := start(t, s, spec).ID
				watch(t, s, id, "error", 5)
				g.open(t)
				<-s.Ready()
				require.Equal(t, []string{"error one"}, matchedLines(s.Drain()))
				g.open(t)
				requireOneEnd(t, s, id)
			})
		}
	}
}

func TestStoppingAWatchTellsWhatItKeptBackOnce(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	p, id, stop := watchPuppet(t, s, "error", 1)
	p.print("error 1\nerror 2\nerror 3\n")
	stop()
	notices := s.Drain()
	require.Equal(t, []string{"error 1", ""}, matchedLines(notices))
	require.Equal(t, 2, notices[1].Suppressed)
	require.Equal(t, jobs.Running, notices[1].State)
	stop()
	p.print("error 4\n")
	stop()
	require.Nil(t, s.Drain())
	p.finish(nil)
	requireOneEnd(t, s, id)
	stop()
	require.Nil(t, s.Drain())
}

func TestTheEndOfAJobTellsWhatAWatchKeptBackFirst(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	p, id, stop := watchPuppet(t, s, "error", 1)
	p.print("error 1\nerror 2\nerror 3\n")
	p.finish(nil)
	endOf(t, s, id)
	stop()
	notices := s.Drain()
	require.Len(t, notices, 3)
	require.Equal(t, 2, notices[1].Suppressed)
	require.Equal(t, jobs.EventCompleted, notices[2].Event)
	stop()
	require.Nil(t, s.Drain())
}

func TestAWatchThatCannotBeginSaysWhy(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	child, err := s.Child(jobs.ChildConfig{})
	require.NoError(t, err)
	spec := jobs.WatchSpec{Pattern: regexp.MustCompile("error")}
	ended, collected := finish(t, s), finish(t, s)
	collect(t, s, collected)
	for _, tt := range []struct {
		id   string
		want error
	}{
		{ended, jobs.ErrEnded},
		{collected, jobs.ErrEnded},
		{foreground(t, s, returning(nil), patience).ID, jobs.ErrExpired},
		{start(t, child, jobs.Spec{Func: waits}).ID, jobs.ErrForeign},
		{fmt.Sprintf("job_%020x", 1), jobs.ErrNotFound},
	} {
		stop, err := s.Watch(tt.id, spec)
		requireJobError(t, err, tt.want, tt.id)
		require.Nil(t, stop)
	}
	running := start(t, s, jobs.Spec{Func: waits}).ID
	stop, err := s.Watch(running, jobs.WatchSpec{})
	require.ErrorContains(t, err, "Pattern")
	require.Nil(t, stop)
	require.Equal(t, jobs.Running, checkJob(t, s, running).State)
}

func TestAnAnswerThatTellsTheEndTakesTheNoticesOfAWatchBack(t *testing.T) {
	for name, tell := range map[string]func(*jobs.Supervisor, string) error{
		"Collect": func(s *jobs.Supervisor, id string) error { _, err := s.Collect(t.Context(), id); return err },
		"Cancel":  func(s *jobs.Supervisor, id string) error { _, err := s.Cancel(t.Context(), id); return err },
		"Wait": func(s *jobs.Supervisor, id string) error {
			_, err := s.Wait(t.Context(), jobs.WaitSpec{IDs: []string{id}})
			return err
		},
	} {
		for _, ended := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, ended %v", name, ended), func(t *testing.T) {
				s := newSupervisor(t, jobs.Config{})
				p, id, stop := watchPuppet(t, s, "error", 1)
				p.print("error 1\nerror 2\n")
				end := p.finish
				if name == "Cancel" {
					end = func(any) {}
				}
				if ended {
					p.finish(nil)
					endOf(t, s, id)
					require.Len(t, s.Ready(), 1)
				} else {
					go end(nil)
				}
				require.NoError(t, tell(s, id))
				require.Empty(t, s.Ready())
				stop()
				require.Nil(t, s.Drain())
			})
		}
	}
}

// Other jobs keep theirs.
func TestTheNoticesOfOtherWatchesStayWhenAnEndIsTold(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	one, first, _ := watchPuppet(t, s, "error", 5)
	two, second, _ := watchPuppet(t, s, "error", 5)
	one.print("error 1\n")
	two.print("error 2\n")
	cancel(t, s, first)
	require.Equal(t, []string{second}, noticeIDs(s.Drain()))
}

func TestABurstIsRefilledOneByOneAsTimePasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSupervisor(t, jobs.Config{})
		ps, started := startPuppets(t, s, 1)
		p := ps[0]
		_, err := s.Watch(started[0], jobs.WatchSpec{Pattern: regexp.MustCompile("error"), Burst: 2, Every: time.Minute})
		require.NoError(t, err)
		count := 0
		flood := func(n int) []jobs.Notice {
			for range n {
				count++
				p.print(fmt.Sprintf("error %d\n", count))
			}
			return s.Drain()
		}
		require.Equal(t, []string{"error 1", "error 2"}, matchedLines(flood(10)))

		time.Sleep(time.Minute - time.Nanosecond)
		require.Empty(t, flood(10))

		time.Sleep(time.Nanosecond)
		notices := flood(10)
		require.Equal(t, []string{"error 21"}, matchedLines(notices))
		require.Equal(t, 18, notices[0].Suppressed)

		time.Sleep(3 * time.Hour)
		notices = flood(10)
		require.Equal(t, []string{"error 31", "error 32"}, matchedLines(notices), "no more than the burst")
		require.Equal(t, 9, notices[0].Suppressed)
		require.Zero(t, notices[1].Suppressed)

		p.finish(nil)
		endOf(t, s, started[0])
		notices = s.Drain()
		require.Len(t, notices, 2)
		require.Equal(t, 8, notices[0].Suppressed)
	})
}

func TestAWatchAllowsFiveAtOnceAndOneMoreAMinuteUnlessItSaysOtherwise(t *testing.T) {
	for _, spec := range []jobs.WatchSpec{{}, {Burst: -1, Every: -1}} {
		synctest.Test(t, func(t *testing.T) {
			s := newSupervisor(t, jobs.Config{})
			ps, started := startPuppets(t, s, 1)
			spec.Pattern = regexp.MustCompile("error")
			_, err := s.Watch(started[0], spec)
			require.NoError(t, err)
			for _, want := range []int{5, 1, 1} {
				ps[0].print(strings.Repeat("error\n", 20))
				require.Len(t, s.Drain(), want)
				time.Sleep(time.Minute)
			}
		})
	}
}

func TestTwoWatchesOfOneJobCountApart(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	p, id, stopErrors := watchPuppet(t, s, "error", 1)
	watch(t, s, id, "error|warning", 2)
	p.print("warning 1\nerror 1\nwarning 2\nerror 2\nerror 3\n")
	require.ElementsMatch(t, []string{"error 1", "warning 1", "error 1"}, matchedLines(s.Drain()))
	stopErrors()
	notices := s.Drain()
	require.Len(t, notices, 1)
	require.Equal(t, 2, notices[0].Suppressed)
	p.print("error 4\n")
	p.finish(nil)
	endOf(t, s, id)
	notices = s.Drain()
	require.Len(t, notices, 2)
	require.Equal(t, 4, notices[0].Suppressed)
}

func TestTheLineOfANoticeIsShortAndHarmless(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	p, _, _ := watchPuppet(t, s, "error", 1000)
	for _, tt := range []struct{ raw, want string }{
		{"\x1b[31merror\x1b[0m: red", "error: red"},
		{"10%\r100%\rerror: after a bar", "error: after a bar"},
		{"error\x00\x01\x7f\u202e\u2066!", "error␀!"},
		{"error \xff\xfe", "error \uFFFD"},
		{"error " + strings.Repeat("x", 100_000), "error " + strings.Repeat("x", 194) + "…"},
		{"error" + strings.Repeat("€", 1000), "error" + strings.Repeat("€", 65) + "…"},
		{"error" + strings.Repeat("\x1b[31m", 1000) + "x", "errorx"},
	} {
		p.print(tt.raw + "\n")
		notices := s.Drain()
		require.NotEmpty(t, notices)
		got := notices[0].Line
		assert.Equal(t, tt.want, got)
		assert.LessOrEqual(t, len(got), 204)
		assert.True(t, utf8.ValidString(got))
	}
}

// The queue drops lines before it drops ends.
func TestLinesNeverPushAnEndOutOfTheQueue(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	ended := finish(t, s)
	p, id, _ := watchPuppet(t, s, "error", 10_000)
	p.print(strings.Repeat("error\n", 3000))
	p.finish(nil)
	endOf(t, s, id)
	notices := s.Drain()
	require.Equal(t, jobs.EventDropped, notices[0].Event)
	told, _ := matches(notices)
	require.Equal(t, 3000, told+notices[0].Dropped)
	var ends []string
	for _, n := range notices {
		if n.Event == jobs.EventCompleted {
			ends = append(ends, n.ID)
		}
	}
	require.Equal(t, []string{ended, id}, ends)
}

func TestAStopThatMeetsTheEndOfTheJobTellsEachMatchOnce(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	for i := range 200 {
		p, id, stop := watchPuppet(t, s, "error", 1)
		p.print("error\nerror\nerror\nerror")
		both := []func(){stop, func() { p.finish(nil) }}
		var done sync.WaitGroup
		done.Go(both[i%2])
		both[1-i%2]()
		done.Wait()
		endOf(t, s, id)
		notices := s.Drain()
		told, suppressed := matches(notices)
		require.Contains(t, []int{3, 4}, told+suppressed, "the last line ends with the job")
		require.Equal(t, 1, told)
		require.Equal(t, jobs.EventCompleted, notices[len(notices)-1].Event)
		collect(t, s, id)
	}
}

func TestWatchesThatBeginWhileTheJobEndsMakeNoNoticeAfterIt(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	for range 200 {
		ps, started := startPuppets(t, s, 1)
		var done sync.WaitGroup
		done.Go(func() {
			stop, err := s.Watch(started[0], jobs.WatchSpec{Pattern: regexp.MustCompile("error")})
			if err != nil {
				assert.ErrorIs(t, err, jobs.ErrEnded)
				return
			}
			stop()
		})
		ps[0].print("error")
		ps[0].finish(nil)
		done.Wait()
		endOf(t, s, started[0])
		notices := s.Drain()
		require.Equal(t, jobs.EventCompleted, notices[len(notices)-1].Event)
		require.LessOrEqual(t, len(notices), 2)
		collect(t, s, started[0])
	}
}

func TestAWatchOfADemotedJobOutlivesTheDemotion(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	p := newPuppet()
	r := demote(t, s, jobs.Spec{Func: p.run})
	watch(t, s, r.ID, "error", 1)
	p.print("error\n")
	require.Equal(t, []string{"error"}, matchedLines(s.Drain()))
	p.finish(nil)
	requireOneEnd(t, s, r.ID)
}

// Whatever scans a log holds the pattern. Once nobody does, nobody scans.
func TestAWatchLeavesNoScannerBehind(t *testing.T) {
	for name, end := range map[string]func(p *puppet, stop func()){
		"stop":           func(_ *puppet, stop func()) { stop() },
		"end of the job": func(p *puppet, _ func()) { p.finish(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSupervisor(t, jobs.Config{})
			ps, started := startPuppets(t, s, 1)
			var pattern weak.Pointer[regexp.Regexp]
			func() {
				re := regexp.MustCompile("error")
				pattern = weak.Make(re)
				stop, err := s.Watch(started[0], jobs.WatchSpec{Pattern: re})
				require.NoError(t, err)
				ps[0].print("error\n")
				runtime.GC()
				require.NotNil(t, pattern.Value(), "the watch holds it")
				end(ps[0], stop)
			}()
			require.True(t, eventually(func() bool {
				runtime.GC()
				return pattern.Value() == nil
			}), "a scanner is left")
		})
	}
}
