package jobs_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// The files cases_*_linux_test.go hold inputs that broke other hosts of jobs,
// one for each kind of fault, under the numbers that public reports of it are
// filed under here (RW-002 and so on), and further inputs of the same kinds
// ("like RW-002"). A case that a test elsewhere shows already is named, with
// that test, above the table of its kind.

// A fault is an input that broke other hosts, and what must come of it here.
type fault struct {
	id     string
	claim  string // names the subtest
	script string // for bash, where spec has no Argv
	spec   jobs.Spec
	config jobs.Config
	do     act                                          // collects, if nil
	within time.Duration                                // bounds do; promptly, if 0
	want   string                                       // the Outcome
	text   string                                       // the text view of the result
	see    func(t *testing.T, r jobs.Result, job trial) // looks at more, and at the text in place of text
}

// A trial is a job that a fault is tried on. Its processes carry the mark in
// their environment and find dir in $D.
type trial struct {
	s         *jobs.Supervisor
	id        string
	pid       int
	mark, dir string
}

// An act is what is done with a job until its end.
type act func(t *testing.T, job trial) jobs.Result

const (
	// slack is what a busy machine may add to a bound.
	slack = 5 * time.Second
	// promptly bounds what has no bound of its own. What it is proof against
	// lasts a minute and more.
	promptly = 10 * time.Second
)

// requireFaults tries each fault in a subtest of its own.
func requireFaults(t *testing.T, faults []fault) {
	for _, f := range faults {
		t.Run(f.claim, func(t *testing.T) {
			t.Parallel()
			f.require(t)
		})
	}
}

func (f fault) require(t *testing.T) {
	job := f.start(t)
	do, within := f.do, f.within
	if do == nil {
		do = collected
	}
	if within == 0 {
		within = promptly
	}
	begun := time.Now()
	r := do(t, job)
	assert.LessOrEqual(t, time.Since(begun), within, f.id)
	requireNoneLeft(t, job.mark)
	assert.Equal(t, f.want, r.Outcome(), f.id)
	assert.Nil(t, r.Survivors, f.id)
	assert.NoError(t, r.Err, f.id)
	assert.Equal(t, r.OutputTotal, int64(len(r.Output.Bytes()))+r.OutputDropped, "written = kept + dropped, %s", f.id)
	assert.Equal(t, r.Outcome(), checkJob(t, job.s, job.id).Outcome(), "a later look tells another end")
	if f.see != nil {
		f.see(t, r, job)
	} else {
		assert.Equal(t, f.text, r.Text(jobs.TextOptions{}).String(), f.id)
	}
}

func (f fault) start(t *testing.T) trial {
	s := newSupervisor(t, f.config)
	spec, dir := f.spec, t.TempDir()
	if spec.Argv == nil {
		spec.Argv = bash(f.script).Argv
	}
	mark := freshMark()
	spec.Env = append(slices.Clip(spec.Env), mark, "D="+dir)
	snap := start(t, s, spec)
	return trial{s, snap.ID, snap.PID, mark, dir}
}

// requireNoneLeft fails if a process with the mark lives, and kills it.
func requireNoneLeft(t *testing.T, mark string) {
	t.Helper()
	left := marked(mark)
	for _, pid := range left {
		unix.Kill(pid, unix.SIGKILL)
	}
	assert.Empty(t, left, "processes left")
}

func collected(t *testing.T, job trial) jobs.Result { return collect(t, job.s, job.id) }

func cancelled(t *testing.T, job trial) jobs.Result { return cancel(t, job.s, job.id) }

// cancelledAsleep cancels once n processes of the job have become a sleep.
func cancelledAsleep(n int) act {
	return func(t *testing.T, job trial) jobs.Result {
		awaitSleepers(t, job.mark, n)
		return cancelled(t, job)
	}
}

// cancelledAt cancels once the job has printed text.
func cancelledAt(text string) act {
	return func(t *testing.T, job trial) jobs.Result {
		awaitOutput(t, job.s, job.id, text)
		return cancelled(t, job)
	}
}

// cancelledOnceStopped cancels once a process of the job is in state T.
func cancelledOnceStopped(t *testing.T, job trial) jobs.Result {
	awaitState(t, job.mark, "T")
	return cancelled(t, job)
}

// awaitState waits until a process with the mark is in a state.
func awaitState(t *testing.T, mark, state string) {
	t.Helper()
	require.True(t, eventually(func() bool {
		return slices.ContainsFunc(marked(mark), func(pid int) bool { return procState(pid) == state })
	}))
}

// seeFile looks at a file that the job has written in $D.
func seeFile(name, want string) func(*testing.T, jobs.Result, trial) {
	return func(t *testing.T, _ jobs.Result, job trial) {
		data, err := os.ReadFile(filepath.Join(job.dir, name))
		require.NoError(t, err)
		assert.Equal(t, want, string(data))
	}
}
