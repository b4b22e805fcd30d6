package jobs

import (
	"context"
	"regexp"
	"slices"
	"sync"
	"time"
)

// lineSettles is how long an unfinished line is left to grow before it is
// tested against a pattern.
const lineSettles = 50 * time.Millisecond

// A WaitSpec says what to wait for.
type WaitSpec struct {
	// IDs are the jobs to wait for. Nil means all that run now.
	IDs []string

	// All waits until each of the jobs has ended. Otherwise the first end is
	// enough.
	All bool

	// Pattern, if not nil, ends the wait as soon as a line of output of one of
	// the jobs matches, standard error included. It is tested against the text
	// view of each line, without its newline, and of an unfinished line too. A
	// line longer than 64 KiB is cut into lines of that length. While a line is
	// tested the job that printed it, and looks at its output, wait; [Toolset]
	// refuses patterns of a model that are costly.
	Pattern *regexp.Regexp

	// From is the absolute offset in the output at which the search for Pattern
	// begins; negative counts back from the end. 0 searches all that is kept, so
	// that a line printed before the call counts. StderrFrom is the same for
	// standard error, of a job where that has a log of its own.
	From, StderrFrom int64

	// Timeout bounds the wait. Zero means no bound but the context's; negative
	// looks once and does not wait.
	Timeout time.Duration
}

// A WaitResult says how a wait ended.
type WaitResult struct {
	// Jobs holds the jobs, in the order of the ids, each once. The ends that
	// they show count as told.
	Jobs []Snapshot
	// Match is the line that Pattern found, nil if none.
	Match *Match
	// TimedOut tells that the time was over first.
	TimedOut bool
}

// A Match is a line of output that a pattern matched.
type Match struct {
	// ID is the job that printed it.
	ID string
	// Line is its text view, as a [Text] body has it.
	Line string
	// Next is the offset after the line, for a next [WaitSpec.From].
	Next int64
	// Stderr tells that the line stands in a log of standard error, so that Next
	// is for [WaitSpec.StderrFrom].
	Stderr bool
}

// Wait waits for ends, for a line of output, or for the first of both. That the
// time is over is an answer, not an error. It leaves nothing behind: no
// goroutine, no subscription.
//
// If one of the ids is wrong Wait returns the error of [Supervisor.Check] for
// it and waits for none. The context ends the wait, never a job; Wait then
// returns its error beside the present state of the jobs, whose ends do not
// count as told. So it does with a [*PendingError] where the host has something
// more urgent, see [Supervisor.SetPending].
func (s *Supervisor) Wait(ctx context.Context, spec WaitSpec) (WaitResult, error) {
	w := &waiting{s: s, spec: spec, wake: make(chan struct{}, 1), began: make(chan struct{}, 1)}
	if err := w.begin(); err != nil {
		return WaitResult{}, err
	}
	w.scan()
	err := w.wait(ctx)
	w.stopScanning()
	w.result.Jobs = w.leave(err == nil)
	return w.result, err
}

// waiting is a Wait under way.
type waiting struct {
	s      *Supervisor
	spec   WaitSpec
	jobs   []*job
	wake   chan struct{} // gets a value when a job has ended or a line was found
	began  chan struct{} // gets a value when there is an unfinished line
	scans  []scanOf
	result WaitResult

	mu    sync.Mutex // guards match
	match *Match
}

// scanOf is a scanner and the log it is attached to.
type scanOf struct {
	log     *RingBuf
	scanner *lineScanner
}

// begin finds the jobs and announces one who will tell their ends.
func (w *waiting) begin() error {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	if w.spec.IDs == nil {
		w.jobs = w.s.reg.running()
	}
	seen := make(map[*job]bool, len(w.spec.IDs))
	for _, id := range w.spec.IDs {
		j, err := w.s.find(id)
		if err != nil {
			return err
		}
		if !seen[j] {
			seen[j] = true
			w.jobs = append(w.jobs, j)
		}
	}
	for _, j := range w.jobs {
		j.waiters++
		j.onEnd = append(j.onEnd, w.wake)
	}
	return nil
}

// scan looks for the pattern in what is kept, and in what is to come.
func (w *waiting) scan() {
	if w.spec.Pattern == nil {
		return
	}
	for _, j := range w.jobs {
		j.lookAtResult(false)
		j.scanners.Add(1)
		for _, log := range j.logs() {
			t := &lineScanner{pattern: w.spec.Pattern, began: w.began, found: func(line []byte, next int64) {
				w.found(&Match{ID: j.id, Line: string(line), Next: next, Stderr: log != j.out})
			}}
			from := w.spec.From
			if log != j.out {
				from = w.spec.StderrFrom
			}
			log.attach(t, from)
			w.scans = append(w.scans, scanOf{log, t})
		}
	}
	w.testUnfinished()
}

func (w *waiting) found(m *Match) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.match == nil {
		w.match = m
		poke(w.wake)
	}
}

func (w *waiting) testUnfinished() {
	for _, scan := range w.scans {
		scan.log.poke(scan.scanner)
	}
}

func (w *waiting) stopScanning() {
	for _, scan := range w.scans {
		scan.log.detach(scan.scanner)
	}
	if w.spec.Pattern != nil {
		for _, j := range w.jobs {
			j.scanners.Add(-1)
		}
	}
}

// wait waits for what the spec says. An end or a line wins over what ends the
// wait at the same time.
func (w *waiting) wait(ctx context.Context) error {
	var over, settled <-chan time.Time
	if w.spec.Timeout > 0 {
		timer := time.NewTimer(w.spec.Timeout)
		defer timer.Stop()
		over = timer.C
	}
	settle := time.NewTimer(0)
	defer settle.Stop()
	var err error
	var costs time.Duration // of a test of unfinished lines
	for timedOut := w.spec.Timeout < 0; ; {
		urgent := w.s.urgency()
		switch {
		case w.satisfied():
			return nil
		case timedOut:
			w.result.TimedOut = true
			return nil
		case err != nil:
			return err
		case urgent.summary != "":
			return &PendingError{Summary: urgent.summary}
		}
		select {
		case <-w.wake:
		case <-urgent.changed:
		case <-over:
			timedOut = true
			w.testUnfinished()
		case <-ctx.Done():
			err = ctx.Err()
		case <-w.began:
			if settled == nil {
				settle.Reset(max(lineSettles, 10*costs))
				settled = settle.C
			}
		case <-settled:
			settled = nil
			begun := time.Now()
			w.testUnfinished()
			costs = time.Since(begun) // the jobs wait meanwhile
		}
	}
}

// satisfied reports whether what was waited for has come.
func (w *waiting) satisfied() bool {
	w.mu.Lock()
	w.result.Match = w.match
	w.mu.Unlock()
	if w.result.Match != nil {
		return true
	}
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	ended := 0
	for _, j := range w.jobs {
		if j.ended {
			ended++
		}
	}
	return ended == len(w.jobs) || ended > 0 && !w.spec.All
}

// leave takes back what begin has announced. tell says that the ends count as
// told.
func (w *waiting) leave(tell bool) []Snapshot {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	for _, j := range w.jobs {
		j.onEnd = slices.DeleteFunc(j.onEnd, func(ch chan<- struct{}) bool { return ch == w.wake })
		j.left(tell && j.ended)
	}
	return snapshots(w.jobs)
}
