package jobs_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// obedient does what it reads. It says that it is ready, and that it has done
// something, with one byte.
const obedient = `printf .; while read -r what n; do
	case $what in
	print) printf "%0${n}d." 0;;
	leave) sleep 300 >/dev/null 2>&1 & setsid sleep 300 >/dev/null 2>&1 & printf .;;
	exit) exit "$n";;
	esac
done; exit 9`

// A processModel drives real processes and knows what must be said of them.
type processModel struct {
	t       *testing.T
	s       *jobs.Supervisor
	random  *rand.Rand
	mark    string
	all     []*modelProcess
	waiting []string // ends that nobody was told of
	history []string
}

type modelProcess struct {
	id                 string
	pid                int
	input              io.WriteCloser
	printed, leftovers int
	outcome            string // "" while it runs
	collected          bool
}

const modelSlots = 3

// some returns a job that runs, or one that has ended.
func (m *processModel) some(running bool) *modelProcess {
	var found []*modelProcess
	for _, j := range m.all {
		if (j.outcome == "") == running {
			found = append(found, j)
		}
	}
	if len(found) == 0 {
		return nil
	}
	return found[m.random.IntN(len(found))]
}

func (m *processModel) running() (n int) {
	for _, j := range m.all {
		if j.outcome == "" {
			n++
		}
	}
	return n
}

// strays returns how many processes the jobs that run have left behind.
func (m *processModel) strays() (n int) {
	for _, j := range m.all {
		if j.outcome == "" {
			n += j.leftovers
		}
	}
	return n
}

func (m *processModel) start() {
	spec := bash(obedient)
	spec.Input, spec.Env = true, []string{m.mark}
	snap, err := m.s.Start(m.t.Context(), spec)
	if m.running() == modelSlots {
		require.ErrorIs(m.t, err, jobs.ErrAtCapacity)
		return
	}
	require.NoError(m.t, err)
	input, err := m.s.Input(snap.ID)
	require.NoError(m.t, err)
	j := &modelProcess{id: snap.ID, pid: snap.PID, input: input}
	m.all = append(m.all, j)
	m.does(j, 1)
}

// tell tells a job what to do.
func (m *processModel) tell(j *modelProcess, format string, args ...any) {
	_, err := fmt.Fprintf(j.input, format+"\n", args...)
	require.NoError(m.t, err)
}

// does waits until a job has printed n bytes more.
func (m *processModel) does(j *modelProcess, n int) {
	j.printed += n
	require.True(m.t, eventually(func() bool { return checkJob(m.t, m.s, j.id).OutputTotal >= int64(j.printed) }))
}

// ends waits until a job has ended by itself, so that somebody has to be told.
func (m *processModel) ends(j *modelProcess, outcome string) {
	j.outcome = outcome
	require.Equal(m.t, outcome, awaitEnd(m.t, m.s, j.id).Outcome())
	m.waiting = append(m.waiting, j.id)
}

// told says that an answer has told the end of a job.
func (m *processModel) told(j *modelProcess) {
	m.waiting = slices.DeleteFunc(m.waiting, func(id string) bool { return id == j.id })
}

func (m *processModel) requireResult(j *modelProcess, r jobs.Result) {
	require.Equal(m.t, j.outcome, r.Outcome())
	data := r.Output.Bytes()
	require.Equal(m.t, r.OutputTotal, r.OutputDropped+int64(len(data)))
	require.Empty(m.t, strings.Trim(string(data), "0."))
	require.Empty(m.t, r.Survivors)
	requireDead(m.t, j.pid)
}

func (m *processModel) step() {
	verb := m.random.IntN(10)
	running, ended := m.some(true), m.some(false)
	m.history = append(m.history, fmt.Sprint(verb))
	switch {
	case verb < 2 || len(m.all) == 0:
		m.start()
	case verb == 2 && running != nil:
		n := 1 + m.random.IntN(5)*m.random.IntN(30_000)
		m.tell(running, "print %d", n)
		m.does(running, n+1)
	case verb == 3 && running != nil:
		m.tell(running, "leave")
		m.does(running, 1)
		running.leftovers += 2
		awaitSleepers(m.t, m.mark, m.strays())
	case verb == 4 && running != nil:
		code := m.random.IntN(3)
		m.tell(running, "exit %d", code)
		m.ends(running, []string{"completed, exit 0", "failed, exit 1", "failed, exit 2"}[code])
	case verb == 5 && running != nil:
		require.NoError(m.t, running.input.Close())
		m.ends(running, "failed, exit 9")
	case verb == 6 && running != nil:
		require.NoError(m.t, unix.Kill(running.pid, unix.SIGKILL))
		m.ends(running, "failed, signal, SIGKILL")
	case verb == 7 && running != nil:
		running.outcome, running.leftovers = "cancelled, SIGTERM", 0
		m.requireResult(running, cancel(m.t, m.s, running.id))
	case verb == 8 && ended != nil:
		r, err := m.s.Collect(doneContext(), ended.id)
		if ended.collected {
			require.ErrorIs(m.t, err, jobs.ErrCollected)
			break
		}
		require.NoError(m.t, err)
		m.requireResult(ended, r)
		ended.collected = true
		m.told(ended)
	case verb == 9:
		require.ElementsMatch(m.t, m.waiting, noticeIDs(m.s.Drain()))
		m.waiting = nil
	}
	m.check()
}

func (m *processModel) check() {
	for _, j := range m.all {
		snap := checkJob(m.t, m.s, j.id)
		require.EqualValues(m.t, j.printed, snap.OutputTotal)
		require.Equal(m.t, j.collected, snap.Collected)
		if j.outcome == "" {
			require.Equal(m.t, jobs.Running, snap.State)
			continue
		}
		require.Equal(m.t, j.outcome, snap.Outcome())
		require.Len(m.t, snap.Leftovers, j.leftovers)
	}
	require.Len(m.t, marked(m.mark), m.running()+m.strays())
	require.Equal(m.t, m.running(), m.s.List().Running)
}

func TestAnyOrderOfEventsOfProcessesAgreesWithAModel(t *testing.T) {
	for seed := range uint64(4) {
		_, mark := markedScript("")
		m := &processModel{t: t, random: rand.New(rand.NewPCG(seed, 8)), mark: mark}
		m.s = newSupervisor(t, jobs.Config{MaxRunning: modelSlots, MaxRetained: 1000})
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("seed %d: %s", seed, strings.Join(m.history, " "))
			}
		})
		for range 60 {
			m.step()
		}
		report, err := m.s.Close(testContext(t))
		require.NoError(t, err)
		require.Len(t, report.Stopped, m.running())
		require.Empty(t, m.s.Drain(), "the report tells the rest")
		require.Empty(t, marked(mark))
	}
}
