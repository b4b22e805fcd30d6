package jobs

import (
	"cmp"
	"container/list"
	"slices"
	"time"
)

// A registry is the table of one owner's jobs: who holds a slot, who can still
// be asked about. All methods need Supervisor.mu.
type registry struct {
	maxRunning  int
	maxRetained int
	retainFor   time.Duration

	jobs map[string]*job
	keys map[string]*keyed // live jobs by Spec.Key
	// moved holds the ids that were handed up, from here or to here, and what
	// they answer once they are in no table: their tags name the first owner.
	moved map[string]error
	slots int // taken here and below: admitted, running, or ended but not reaped
	live  int // admitted or running; what Close waits for
	// releasing counts the jobs that are dead and still give back what they held.
	releasing int
	closing   bool // no more admissions
	ending    bool // Close has been called here

	// Ended jobs: those whose result was handed out and those whose end was told,
	// in the order of the telling; those whose end nobody knows yet, in the order
	// of the ends.
	collected, told, untold list.List // of *job

	notices notices
}

func (r *registry) init(cfg *Config) {
	r.maxRunning, r.maxRetained, r.retainFor = cfg.MaxRunning, cfg.MaxRetained, cfg.RetainFor
	r.jobs = make(map[string]*job)
	r.keys = make(map[string]*keyed)
	r.moved = make(map[string]error)
	r.notices.ready = make(chan struct{}, 1)
}

// maxMoved bounds how many ids of jobs that were handed up are known as such.
const maxMoved = 4096

// note remembers what the id of a job that was handed up answers once it is in
// no table.
func (r *registry) note(id string, answer error) {
	for old := range r.moved {
		if len(r.moved) < maxMoved {
			break
		}
		delete(r.moved, old)
	}
	r.moved[id] = answer
}

// add enters a job.
func (r *registry) add(j *job) { r.jobs[j.id] = j }

// enter makes a job known, as the last one that was started. It needs mu.
func (s *Supervisor) enter(j *job) {
	s.seq++
	j.seq = s.seq
	s.reg.add(j)
}

// ended enters the end of a job, and queues its notice unless somebody is about
// to tell it.
func (r *registry) ended(j *job) {
	r.live--
	r.dropKey(j)
	r.shelve(j)
	for _, w := range j.watches {
		if !j.told {
			w.flush(j)
		}
	}
	j.watches = nil
	if j.waiters == 0 {
		r.notify(j)
	}
}

// shelve puts an ended job where it belongs, and forgets what that makes too
// much.
func (r *registry) shelve(j *job) {
	if j.refused || j.forgotten || j.foreground {
		return
	}
	shelf := &r.untold
	switch {
	case j.collected:
		shelf = &r.collected
	case j.told:
		shelf = &r.told
	}
	if j.shelf == shelf {
		return
	}
	j.unshelve()
	now := time.Now()
	if j.toldAt.IsZero() && shelf != &r.untold {
		j.toldAt = now
	}
	before := shelf.Back()
	for before != nil && before.Value.(*job).toldAt.After(j.toldAt) {
		before = before.Prev()
	}
	j.shelf = shelf
	if before == nil {
		j.place = shelf.PushFront(j)
	} else {
		j.place = shelf.InsertAfter(j, before)
	}
	r.evict(now)
}

// unshelve takes a job off its shelf, if it is on one.
func (j *job) unshelve() {
	if j.shelf != nil {
		j.shelf.Remove(j.place)
		j.shelf, j.place = nil, nil
	}
}

// evict forgets what is too old or too much: collected jobs first, then those
// whose end was told, oldest first. An end that nobody knows is not
// forgotten for its age, and for its number only where nothing else is left.
// Running jobs are never touched.
func (r *registry) evict(now time.Time) {
	for _, shelf := range []*list.List{&r.collected, &r.told, &r.untold} {
		for e := shelf.Front(); e != nil; e = shelf.Front() {
			j := e.Value.(*job)
			over := r.collected.Len()+r.told.Len()+r.untold.Len() > r.maxRetained
			old := now.Sub(j.toldAt) >= r.retainFor && shelf != &r.untold
			if !over && !old {
				break
			}
			r.forget(j)
		}
	}
}

// forget lets go of a job; its id answers as expired from now on.
func (r *registry) forget(j *job) {
	j.unshelve()
	j.forgotten = true
	delete(r.jobs, j.id)
	if !j.queued && !j.runsOn() { // else once that is told
		j.s.mu.noteGone(j.id, j.resultSaved())
	}
	j.forgetOutput()
	j.work.discard()
	r.notices.unpin(j)
}

// running returns the jobs that have not ended, in order of start.
func (r *registry) running() []*job {
	return r.selectJobs(func(j *job) bool { return !j.ended })
}

// open returns the jobs that run or wait to be collected, in order of start.
func (r *registry) open() []*job {
	return r.selectJobs(func(j *job) bool { return !j.collected && !j.dismissed })
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
	l.Jobs = snapshots(r.open())
	return l
}

func snapshots(js []*job) []Snapshot {
	snaps := make([]Snapshot, len(js))
	for i, j := range js {
		snaps[i] = j.snapshot()
	}
	return snaps
}
