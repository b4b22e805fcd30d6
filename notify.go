package jobs

import (
	"encoding/json"
	"slices"
	"time"
)

// maxNotices bounds the queue of notices. Past it the oldest is dropped, and
// how many were is told.
const maxNotices = 1024

// A Notice tells that a job has ended. It is of constant size: it never holds
// output.
//
// The end of a job is told once: by the answer of a Collect, Cancel or Close
// that waited for it or found it ended; otherwise by its Notice. Check, Output
// and List do not count as telling.
type Notice struct {
	// Event is "job_completed", "job_failed" or "job_cancelled"; or
	// "notices_dropped", when the queue overflowed, with only Dropped set.
	Event  string
	ID     string
	Tool   string
	Tag    string
	State  State
	Reason Reason
	// ExitCode is -1 where there is none.
	ExitCode int
	Signal   Signal
	Elapsed  time.Duration
	// Dropped counts the notices lost to the bound of the queue.
	Dropped int
}

// MarshalJSON gives the notice in the words of the tools, with the next thing
// to do.
func (n Notice) MarshalJSON() ([]byte, error) {
	return encodeJSON(n.view(newWords(nil)))
}

// A noticeView is the JSON face of a Notice.
type noticeView struct {
	Event       string  `json:"event"`
	ID          string  `json:"id,omitempty"`
	Tool        string  `json:"tool,omitempty"`
	Status      State   `json:"status,omitempty"`
	Reason      Reason  `json:"reason,omitempty"`
	ExitCode    *int    `json:"exit_code,omitempty"`
	Signal      string  `json:"signal,omitempty"`
	ElapsedSecs float64 `json:"elapsed_secs,omitempty"`
	NextAction  string  `json:"next_action,omitempty"`
	Tag         string  `json:"tag,omitempty"`
	Dropped     int     `json:"dropped,omitempty"`
}

func (n Notice) view(w words) noticeView {
	if n.Dropped > 0 {
		return noticeView{Event: n.Event, Dropped: n.Dropped, NextAction: w.listCall()}
	}
	v := noticeView{
		Event:       n.Event,
		ID:          n.ID,
		Tool:        readable(n.Tool, nameLimit),
		Status:      n.State,
		Reason:      n.Reason,
		Signal:      n.Signal.String(),
		ElapsedSecs: seconds(n.Elapsed),
		NextAction:  w.collectCall(n.ID),
		Tag:         readable(n.Tag, nameLimit),
	}
	if n.ExitCode >= 0 {
		v.ExitCode = &n.ExitCode
	}
	return v
}

var _ json.Marshaler = Notice{}

// Drain returns the notices that wait, oldest first, and empties the queue:
// their ends count as told. It returns nil if there is none.
func (s *Supervisor) Drain() []Notice {
	return s.takeNotices(maxNotices + 1) // and the one about dropped ones
}

// takeNotices removes up to k notices from the queue.
func (s *Supervisor) takeNotices(k int) []Notice {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reg.notices.take(k)
}

// Ready returns a channel that holds a value when notices wait, so that an
// idle host can be woken. Many ends at once give one value. A host that
// receives it should call Drain; that may return nothing, where an answer has
// told the end meanwhile. The channel is never closed.
func (s *Supervisor) Ready() <-chan struct{} {
	return s.reg.notices.ready
}

// notices is the queue of ends that nobody has been told. Its methods need
// Supervisor.mu.
type notices struct {
	queue   []Notice
	dropped int
	ready   chan struct{} // of one element
}

// notify queues the notice of an ended job, unless its end is told already.
func (r *registry) notify(j *job) {
	if j.told || j.refused {
		return
	}
	j.told = true
	snap := j.snapshot()
	r.notices.add(Notice{
		Event:    "job_" + string(snap.State),
		ID:       snap.ID,
		Tool:     snap.Tool,
		Tag:      snap.Tag,
		State:    snap.State,
		Reason:   snap.Reason,
		ExitCode: snap.ExitCode,
		Signal:   snap.Signal,
		Elapsed:  snap.Elapsed,
	})
}

// withdraw takes back the notice of a job whose end is being told otherwise.
func (r *registry) withdraw(j *job) {
	n := &r.notices
	n.queue = slices.DeleteFunc(n.queue, func(n Notice) bool { return n.ID == j.id })
	n.settle()
}

func (n *notices) add(notice Notice) {
	if len(n.queue) == maxNotices {
		n.queue = slices.Delete(n.queue, 0, 1)
		n.dropped++
	}
	n.queue = append(n.queue, notice)
	n.settle()
}

// take removes up to k notices. If some were dropped, the first says so.
func (n *notices) take(k int) []Notice {
	var taken []Notice
	if n.dropped > 0 {
		taken = append(taken, Notice{Event: "notices_dropped", ExitCode: -1, Dropped: n.dropped})
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
		select {
		case n.ready <- struct{}{}:
		default:
		}
		return
	}
	select {
	case <-n.ready:
	default:
	}
}
