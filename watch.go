package jobs

import (
	"errors"
	"regexp"
	"slices"
	"time"
)

// A WatchSpec says which lines of a job's output are worth a notice.
type WatchSpec struct {
	// Pattern is tested as that of a [WaitSpec], against whole lines only.
	Pattern *regexp.Regexp

	// Burst is how many notices may come at once. Defaults to 5.
	Burst int

	// Every is how long it takes until one more may come. Defaults to one
	// minute.
	Every time.Duration
}

// A watch turns matching lines of one job into notices. Supervisor.mu guards
// its fields.
type watch struct {
	spec       WatchSpec
	tokens     int // how many notices may come now
	refilled   time.Time
	suppressed int
}

// Watch makes a notice with [EventMatched] of each line that the job prints
// from now on and that matches, as many as the WatchSpec allows; the next
// notice of the watch says how many matches it kept back. They come before the
// notice of the job's end, and none comes after it, or after an answer that
// told it.
//
// The function that Watch returns ends the watch; calling it again does
// nothing. Watch fails if there is no Pattern; it returns [ErrEnded] for a job
// that has ended, and the errors of [Supervisor.Check].
func (s *Supervisor) Watch(id string, spec WatchSpec) (stop func(), err error) {
	if spec.Pattern == nil {
		return nil, errors.New("jobs: WatchSpec.Pattern is nil; set it to what a line must match")
	}
	if spec.Burst <= 0 {
		spec.Burst = 5
	}
	if spec.Every <= 0 {
		spec.Every = time.Minute
	}
	j, err := s.lookup(id)
	if err != nil {
		return nil, err
	}
	w := &watch{spec: spec, tokens: spec.Burst, refilled: time.Now()}
	if !j.addWatch(w) {
		return nil, s.jobError(j, ErrEnded)
	}
	detach := w.attach(j)
	return func() {
		if j.dropWatch(w) {
			detach()
		}
	}, nil
}

func (j *job) addWatch(w *watch) bool {
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	if !j.ended {
		j.watches = append(j.watches, w)
	}
	return !j.ended
}

// dropWatch ends a watch, and reports false if it has ended already.
func (j *job) dropWatch(w *watch) bool {
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	i := slices.Index(j.watches, w)
	if i < 0 {
		return false
	}
	j.watches = slices.Delete(j.watches, i, i+1)
	w.flush(j)
	return true
}

// attach makes the watch see what comes into the logs of its job.
func (w *watch) attach(j *job) (detach func()) {
	var scans []scanOf
	j.scanners.Add(1)
	for _, log := range j.logs() {
		t := &lineScanner{pattern: w.spec.Pattern, found: func(line []byte, _ int64) { w.matched(j, line) }}
		total, _ := log.Stats()
		log.attach(t, total)
		scans = append(scans, scanOf{log, t})
	}
	return func() {
		for _, scan := range scans {
			scan.log.detach(scan.scanner)
		}
		j.scanners.Add(-1)
	}
}

// matched makes a notice of a line, or counts it.
func (w *watch) matched(j *job, line []byte) {
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	if !slices.Contains(j.watches, w) {
		return
	}
	now := time.Now()
	if more := int(now.Sub(w.refilled) / w.spec.Every); more > 0 {
		w.tokens = min(w.tokens+more, w.spec.Burst)
		w.refilled = w.refilled.Add(time.Duration(more) * w.spec.Every)
	}
	if w.tokens == 0 {
		w.suppressed++
		return
	}
	w.tokens--
	w.tell(j, string(line[:min(len(line), 4*nameLimit)]))
}

// flush tells how many matches were kept back, if any.
func (w *watch) flush(j *job) {
	if w.suppressed > 0 {
		w.tell(j, "")
	}
}

// tell queues a notice. It needs Supervisor.mu.
func (w *watch) tell(j *job, line string) {
	n := j.notice(EventMatched)
	n.Line, n.Suppressed = readable(line, nameLimit), w.suppressed
	w.suppressed = 0
	j.owner.reg.notices.add(queued{Notice: n, job: j})
}
