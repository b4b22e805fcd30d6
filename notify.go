package jobs

import (
	"encoding/json"
	"slices"
	"time"
)

// maxNotices bounds the queue of notices. Past it the oldest line that is
// watched for is dropped, or else the oldest end, and how many were is told.
const maxNotices = 1024

// Events of a [Notice].
const (
	EventCompleted = "job_completed"
	EventFailed    = "job_failed"
	EventCancelled = "job_cancelled"
	EventLost      = "job_lost"
	EventMatched   = "job_matched"     // a line of output, see Supervisor.Watch
	EventUnwatched = "job_unwatched"   // it goes on unwatched, see Config.WatchFor
	EventDropped   = "notices_dropped" // the queue overflowed

	// EventLogStopped tells that a log file takes no more, and in Line why. See
	// Config.LogLimit.
	EventLogStopped = "job_log_stopped"
	// EventUnrecorded tells that records cannot be written to Config.Dir, and in
	// Line why. They are written when that is possible again.
	EventUnrecorded = "records_failed"
	// EventQuarantined tells that records in Config.Dir could not be read, and in
	// Line which file they were moved to.
	EventQuarantined = "records_quarantined"

	// EventLeashLost tells that the leash was lost, and in Line what was done about
	// it; at the top supervisor only. See Config.Leash.
	EventLeashLost = "leash_lost"
)

// A Notice tells that a job has ended, or that it printed a line that somebody
// watches for; with [EventDropped] and [EventLeashLost] it is about no job. It
// is of constant size: but for that one line, cut to 200 bytes, it never holds
// output.
//
// The end of a job is told once: by the answer of a Collect, Cancel, Run, Wait,
// Reap, Reset, TurnEnd or Close that waited for it or found it ended; otherwise
// by its Notice.
// Check, Output and List do not count as telling.
type Notice struct {
	Event  string
	ID     string
	Tool   string
	Tag    string
	Trust  string
	State  State
	Reason Reason
	// ExitCode is -1 where there is none.
	ExitCode int
	Signal   Signal
	Elapsed  time.Duration
	// Line is the line of an EventMatched; empty where only Suppressed counts. In
	// other events that are no end it says more about what happened.
	Line string
	// Suppressed counts the matches since the watch's notice before that had
	// none of their own.
	Suppressed int
	// Dropped counts, in an EventDropped, the notices lost to the bound of the
	// queue.
	Dropped int
}

// MarshalJSON gives the notice in the words of the tools, with the next thing
// to do.
func (n Notice) MarshalJSON() ([]byte, error) {
	return encodeJSON(n.view(newWords(nil)))
}

// A noticeView is the JSON face of a Notice.
type noticeView struct {
	Event       string   `json:"event"`
	ID          string   `json:"id,omitempty"`
	Tool        string   `json:"tool,omitempty"`
	Status      State    `json:"status,omitempty"`
	Reason      Reason   `json:"reason,omitempty"`
	ExitCode    *int     `json:"exit_code,omitempty"`
	Signal      string   `json:"signal,omitempty"`
	ElapsedSecs *float64 `json:"elapsed_secs,omitempty"`
	NextAction  string   `json:"next_action,omitempty"`
	Tag         string   `json:"tag,omitempty"`
	Line        string   `json:"line,omitempty"`
	Suppressed  int      `json:"suppressed,omitempty"`
	Dropped     int      `json:"dropped,omitempty"`
}

func (n Notice) view(w words) noticeView {
	if n.Dropped > 0 {
		return noticeView{Event: n.Event, Dropped: n.Dropped, NextAction: w.listCall()}
	}
	if n.Event == EventLeashLost {
		return noticeView{Event: n.Event, Line: n.Line, NextAction: w.listCall()}
	}
	v := noticeView{
		Event:      n.Event,
		ID:         n.ID,
		Tool:       readable(n.Tool, nameLimit),
		Status:     n.State,
		Reason:     n.Reason,
		Signal:     n.Signal.String(),
		NextAction: w.collectCall(n.ID),
		Tag:        readable(n.Tag, nameLimit),
		Line:       n.Line,
		Suppressed: n.Suppressed,
	}
	if n.ID != "" {
		v.ElapsedSecs = new(seconds(n.Elapsed))
	}
	switch {
	case n.ID == "":
		v.NextAction = w.listCall()
	case !(queued{Notice: n}).end():
		v.NextAction = w.checkCall(n.ID)
	}
	if n.ExitCode >= 0 {
		v.ExitCode = &n.ExitCode
	}
	return v
}

var _ json.Marshaler = Notice{}

// Drain returns the notices that wait, oldest first, and empties the queue:
// their ends count as told. It returns nil if there is none. Notices that a
// [Supervisor.Deliver] has in hand are not among them.
func (s *Supervisor) Drain() []Notice {
	return s.takeNotices(maxNotices + 1) // and the one about dropped ones
}

// takeNotices removes up to k notices from the queue and counts their ends as
// told.
func (s *Supervisor) takeNotices(k int) []Notice {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.reg.notices.take(k)
	told(taken)
	return plain(taken)
}

// Ready returns a channel that holds a value when notices wait, so that an
// idle host can be woken. Many ends at once give one value. A host that
// receives it should call Drain; that may return nothing, where an answer has
// told the end meanwhile. The channel is never closed.
func (s *Supervisor) Ready() <-chan struct{} {
	return s.reg.notices.ready
}

// A queued notice is one that nobody has seen, about job; that is nil once the
// job is forgotten, so that its output is not kept for the notice's sake.
type queued struct {
	Notice
	job *job
	// owed is set where the record of a forgotten job waits for this notice, and
	// saved with it where a file with its result does.
	owed  *shared
	saved bool
}

// end reports whether it tells a job's end.
func (q queued) end() bool {
	switch q.Event {
	case EventCompleted, EventFailed, EventCancelled, EventLost:
		return true
	}
	return false
}

func plain(qs []queued) []Notice {
	if len(qs) == 0 {
		return nil
	}
	ns := make([]Notice, len(qs))
	for i, q := range qs {
		ns[i] = q.Notice
	}
	return ns
}

// told records that ends have been told. It needs Supervisor.mu.
func told(qs []queued) {
	for _, q := range qs {
		if q.owed != nil && q.end() {
			q.owed.mu.noteGone(q.ID, q.saved)
		}
		if q.end() && q.job != nil {
			q.job.queued, q.job.told = false, true
			q.job.s.mu.note(recordTold, q.job.id)
			q.job.owner.reg.shelve(q.job)
		}
	}
}

// notices is the queue of what nobody has been told. Its methods need
// Supervisor.mu.
type notices struct {
	queue   []queued
	claimed []queued // that a Deliver has in hand
	dropped int
	ready   chan struct{} // of one element
}

// notify queues the notice of an ended job, unless its end is told already.
func (r *registry) notify(j *job) {
	if j.told || j.queued || j.refused {
		return
	}
	j.queued = true
	r.notices.add(queued{Notice: j.notice("job_" + string(j.endState)), job: j})
}

// notice returns a notice about the job as it stands.
func (j *job) notice(event string) Notice {
	snap := j.snapshot()
	return Notice{
		Event:    event,
		ID:       snap.ID,
		Tool:     snap.Tool,
		Tag:      snap.Tag,
		Trust:    snap.Trust,
		State:    snap.State,
		Reason:   snap.Reason,
		ExitCode: snap.ExitCode,
		Signal:   snap.Signal,
		Elapsed:  snap.Elapsed,
	}
}

// withdraw takes back the notices of a job whose end is being told otherwise.
func (r *registry) withdraw(j *job) {
	n := &r.notices
	about := func(q queued) bool { return q.ID == j.id }
	n.queue = slices.DeleteFunc(n.queue, about)
	n.claimed = slices.DeleteFunc(n.claimed, about)
	if j.queued && j.forgotten {
		j.s.mu.noteGone(j.id, j.resultSaved())
	}
	j.queued = false
	n.settle()
}

// unpin lets go of a job that is forgotten. Its notices stay.
func (n *notices) unpin(j *job) {
	for _, qs := range [][]queued{n.queue, n.claimed} {
		for i := range qs {
			if qs[i].job == j {
				qs[i].job, qs[i].owed, qs[i].saved = nil, j.s, j.resultSaved()
			}
		}
	}
}

// move gives the notices about a job to the queue of its new owner. Those that a
// Deliver has in hand stay.
func (n *notices) move(j *job, to *notices) {
	about := func(q queued) bool { return q.job == j }
	for _, q := range n.queue {
		if about(q) {
			to.add(q)
		}
	}
	n.queue = slices.DeleteFunc(n.queue, about)
	n.settle()
}

func (n *notices) add(q queued) {
	n.queue = append(n.queue, q)
	n.bound()
	n.settle()
}

// bound drops what is too much: lines first, then the oldest ends.
func (n *notices) bound() {
	for len(n.queue) > maxNotices {
		i := max(0, slices.IndexFunc(n.queue, func(q queued) bool { return !q.end() }))
		told(n.queue[i : i+1]) // by the count of those dropped
		n.queue = slices.Delete(n.queue, i, i+1)
		n.dropped++
	}
}

// take removes up to k notices. If some were dropped, the first says so.
func (n *notices) take(k int) []queued {
	var taken []queued
	if n.dropped > 0 {
		taken = append(taken, queued{Notice: Notice{Event: EventDropped, ExitCode: -1, Dropped: n.dropped}})
		n.dropped = 0
		k--
	}
	k = min(k, len(n.queue))
	taken = append(taken, n.queue[:k]...)
	n.queue = slices.Delete(n.queue, 0, k)
	n.settle()
	return taken
}

// settle makes ready hold a value exactly while there is something to take.
func (n *notices) settle() {
	if len(n.queue) > 0 || n.dropped > 0 {
		poke(n.ready)
		return
	}
	select {
	case <-n.ready:
	default:
	}
}
