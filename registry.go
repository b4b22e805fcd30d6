package jobs

import (
	"cmp"
	"container/list"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A registry is the table of jobs: who holds a slot, who can still be asked
// about, whose id was known once. All methods need Supervisor.mu.
type registry struct {
	maxRunning  int
	maxRetained int
	retainFor   time.Duration

	jobs  map[string]*job
	seq   int // number of the last job registered
	slots int // taken: admitted, running, or ended but not reaped
	live  int // admitted or running; what Close waits for
	// releasing counts the jobs that are dead and still give back what they held.
	releasing int
	closing   bool // no more admissions

	// Ended jobs in the order they ended.
	uncollected list.List // of *job
	collected   list.List // of *job

	notices notices

	// expired holds ids that were forgotten, the last maxExpired of them.
	expired     map[string]struct{}
	expiredFIFO []string
}

// maxExpired bounds how many forgotten ids can be told from unknown ones.
const maxExpired = 4096

func (r *registry) init(cfg Config) {
	r.maxRunning, r.maxRetained, r.retainFor = cfg.MaxRunning, cfg.MaxRetained, cfg.RetainFor
	r.jobs = make(map[string]*job)
	r.expired = make(map[string]struct{})
	r.notices.ready = make(chan struct{}, 1)
}

// idPrefix begins every job id; 16 hex digits follow.
const idPrefix = "job_"

func newID() string {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return idPrefix + hex.EncodeToString(b[:])
}

// validID reports whether id has the form of a job id.
func validID(id string) bool {
	digits, ok := strings.CutPrefix(id, idPrefix)
	return ok && len(digits) == 16 && strings.Trim(digits, "0123456789abcdef") == ""
}

// reserve takes a slot and returns an id that no job has had.
func (r *registry) reserve() (string, error) {
	switch {
	case r.closing:
		return "", ErrClosed
	case r.slots >= r.maxRunning:
		return "", fmt.Errorf("%w: %d of %d; wait for one to end, or cancel one", ErrAtCapacity, r.slots, r.maxRunning)
	}
	r.slots++
	r.live++
	for {
		id := newID()
		if _, taken := r.jobs[id]; taken {
			continue
		}
		if _, was := r.expired[id]; !was {
			return id, nil
		}
	}
}

// release gives back the slot of a start that failed.
func (r *registry) release() {
	r.slots--
	r.live--
}

func (r *registry) add(j *job) {
	r.seq++
	j.seq = r.seq
	r.jobs[j.id] = j
}

// ended moves a job that has just ended to the retained ones.
func (r *registry) ended(j *job) {
	r.live--
	if !j.refused {
		j.place = r.uncollected.PushBack(j)
		r.evict(j.endedAt)
	}
}

// consumed moves an ended job to the collected ones.
func (r *registry) consumed(j *job) {
	if j.place == nil {
		return // forgotten while its collector was on the way
	}
	r.uncollected.Remove(j.place)
	// Both lists are in the order of the ends, whenever they were collected.
	before := r.collected.Back()
	for before != nil && before.Value.(*job).endedAt.After(j.endedAt) {
		before = before.Prev()
	}
	if before == nil {
		j.place = r.collected.PushFront(j)
	} else {
		j.place = r.collected.InsertAfter(j, before)
	}
}

// find returns the job, or the sentinel that says why there is none.
func (r *registry) find(id string) (*job, error) {
	if !validID(id) {
		return nil, ErrNotFound
	}
	r.evict(time.Now())
	if j, ok := r.jobs[id]; ok {
		return j, nil
	}
	if _, ok := r.expired[id]; ok {
		return nil, ErrExpired
	}
	return nil, ErrNotFound
}

// evict forgets what is too old or too much: collected jobs first, then the
// oldest ends. Running jobs are never touched.
func (r *registry) evict(now time.Time) {
	for _, l := range []*list.List{&r.collected, &r.uncollected} {
		for e := l.Front(); e != nil; e = l.Front() {
			over := r.collected.Len()+r.uncollected.Len() > r.maxRetained
			if !over && now.Sub(e.Value.(*job).endedAt) < r.retainFor {
				break
			}
			r.forget(l.Remove(e).(*job))
		}
	}
}

func (r *registry) forget(j *job) {
	j.place = nil
	delete(r.jobs, j.id)
	r.expired[j.id] = struct{}{}
	r.expiredFIFO = append(r.expiredFIFO, j.id)
	if len(r.expiredFIFO) > maxExpired {
		delete(r.expired, r.expiredFIFO[0])
		r.expiredFIFO = r.expiredFIFO[1:]
	}
}

// running returns the jobs that have not ended, in order of start.
func (r *registry) running() []*job {
	return r.selectJobs(func(j *job) bool { return !j.ended })
}

func (r *registry) selectJobs(want func(*job) bool) []*job {
	var picked []*job
	for _, j := range r.jobs {
		if want(j) {
			picked = append(picked, j)
		}
	}
	slices.SortFunc(picked, func(a, b *job) int { return cmp.Compare(a.seq, b.seq) })
	return picked
}

func (r *registry) list() List {
	r.evict(time.Now())
	l := List{Running: r.slots, MaxRunning: r.maxRunning}
	l.Jobs = snapshots(r.selectJobs(func(j *job) bool { return !j.collected && !j.dismissed }))
	return l
}

// report tells of all that Close leaves: their ends need no notice any more.
func (r *registry) report(stopped []*job) Report {
	var rep Report
	was := make(map[*job]bool)
	// One that had exited by itself, or was being stopped for another reason,
	// is none of Close's.
	stopped = slices.DeleteFunc(stopped, func(j *job) bool { return j.cause != ReasonShutdown && j.cause != ReasonUnreaped })
	for _, j := range stopped {
		was[j] = true
	}
	rep.Stopped = snapshots(stopped)
	left := r.selectJobs(func(j *job) bool { return !j.collected && !j.dismissed && !was[j] })
	rep.Uncollected = snapshots(left)
	for _, j := range left {
		j.told = true
		r.withdraw(j)
	}
	return rep
}

func snapshots(js []*job) []Snapshot {
	snaps := make([]Snapshot, len(js))
	for i, j := range js {
		snaps[i] = j.snapshot()
	}
	return snaps
}
