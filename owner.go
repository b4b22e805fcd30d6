package jobs

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// An OwnerEnd is a policy for jobs that run when their supervisor is closed.
type OwnerEnd int

const (
	// DefaultOwnerEnd is KeepRunning for a job with a [Spec.Shell] and
	// KillWithOwner for any other.
	DefaultOwnerEnd OwnerEnd = iota
	// KillWithOwner stops them with [ReasonOwnerClosed], or [ReasonShutdown]
	// where the whole tree of supervisors is closed.
	KillWithOwner
	// HandUp gives them to the supervisor above, with their ids, their slots and
	// the notices to come. A supervisor with none above stops them.
	HandUp
	// KeepRunning is HandUp, but the supervisor at the top lets go of them
	// instead of stopping them: they go on, end as [Lost] in its Report, and
	// nobody sees how. Until this process ends somebody reads what they print;
	// then they get SIGPIPE when they print more. What a job with a Shell prints
	// goes on being kept where it runs.
	KeepRunning
)

// ownerEnd resolves DefaultOwnerEnd.
func (s Spec) ownerEnd() OwnerEnd {
	switch {
	case s.OnOwnerEnd != DefaultOwnerEnd:
		return s.OnOwnerEnd
	case s.Shell != nil:
		return KeepRunning
	}
	return KillWithOwner
}

// ChildConfig configures a supervisor made by [Supervisor.Child]. The zero
// value is ready to use.
type ChildConfig struct {
	// Disabled makes Start refuse every job with [ErrDisabled].
	Disabled bool

	// MaxRetained and RetainFor are as in [Config]; they default to the
	// parent's.
	MaxRetained int
	RetainFor   time.Duration

	// MaxRunning is how many jobs the child, with its own children, may run at
	// once. Every supervisor above it has its say too: a child's job takes a
	// slot in each. Defaults to the parent's.
	MaxRunning int

	// Name is the owner's name, for people. Every Snapshot carries it.
	Name string
}

// Child returns a supervisor for one owner of jobs, such as a session, a chat
// or a sub-agent. It has ids, capacity, notices and retention of its own, below
// the ceiling of s, and everything else of s. Neither sees the other's jobs: an
// id of one gives [ErrForeign] in the other. A supervisor keeps its children,
// with all that they remember, until they are closed.
//
// Closing a child ends its jobs, each by its [Spec.OnOwnerEnd]. Closing s
// closes its children first. Children can have children.
//
// Child returns [ErrClosed] if s is closed, and fails if the ChildConfig has a
// negative value.
func (s *Supervisor) Child(cc ChildConfig) (*Supervisor, error) {
	if cc.MaxRunning < 0 || cc.MaxRetained < 0 || cc.RetainFor < 0 {
		return nil, fmt.Errorf("jobs: ChildConfig has a negative value; leave it 0 for the parent's")
	}
	cfg := *s.cfg
	cfg.Disabled = cfg.Disabled || cc.Disabled
	cfg.MaxRunning = cmp.Or(cc.MaxRunning, cfg.MaxRunning)
	cfg.MaxRetained = cmp.Or(cc.MaxRetained, cfg.MaxRetained)
	cfg.RetainFor = cmp.Or(cc.RetainFor, cfg.RetainFor)
	c := newSupervisor(s.shared, &cfg)
	c.parent, c.name = s, cc.Name
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reg.closing {
		return nil, ErrClosed
	}
	c.number = int(s.owners.Add(1))
	if s.children == nil {
		s.children = make(map[*Supervisor]struct{})
	}
	s.children[c] = struct{}{}
	s.top.handDown(c)
	return c, nil
}

// Name returns the name given in [ChildConfig], "" for a supervisor at the top.
func (s *Supervisor) Name() string { return s.name }

// Children returns the children that are not closed, in the order in which they
// were made.
func (s *Supervisor) Children() []*Supervisor {
	s.mu.Lock()
	defer s.mu.Unlock()
	var cs []*Supervisor
	for c := range s.children {
		cs = append(cs, c)
	}
	slices.SortFunc(cs, func(a, b *Supervisor) int { return a.number - b.number })
	return cs
}

// A Report says what a Supervisor left undone when it was closed or reset. It
// holds the jobs of children that were closed with it as well.
type Report struct {
	// Stopped holds the jobs that were running and were ended.
	Stopped []Snapshot
	// Uncollected holds the jobs that had ended by themselves and whose result
	// nobody had collected.
	Uncollected []Snapshot
	// HandedUp holds the jobs that run on under the supervisor above, Kept
	// those that run on under none. See [OwnerEnd].
	HandedUp, Kept []Snapshot
}

func (r *Report) add(other Report) {
	r.Stopped = append(r.Stopped, other.Stopped...)
	r.Uncollected = append(r.Uncollected, other.Uncollected...)
	r.HandedUp = append(r.HandedUp, other.HandedUp...)
	r.Kept = append(r.Kept, other.Kept...)
}

// Close ends a supervisor: its children first, then its running jobs, each by
// its [Spec.OnOwnerEnd], which is to stop it as Cancel does. It waits for them,
// and at the top it removes what the tree of supervisors made: the private
// directory, the pipes to kept leftovers. New jobs are refused with [ErrClosed]
// as soon as Close is called. Check, Output, Collect and List go on answering.
//
// When ctx is done, every process still to be stopped is killed at once; Close
// then still waits for their deaths, which the system grants within moments,
// and returns the context's error beside the Report. A job that cannot be
// killed is given up after two seconds and named in the Report.
//
// A second call waits for the first and returns the same Report and nil; the
// end of its context hurries the first.
func (s *Supervisor) Close(ctx context.Context) (Report, error) {
	reason := ReasonOwnerClosed
	if s.parent == nil {
		reason = ReasonShutdown
	}
	return s.close(ctx, reason)
}

func (s *Supervisor) close(ctx context.Context, reason Reason) (Report, error) {
	hurry := context.AfterFunc(ctx, s.hurry)
	defer hurry()
	if !s.beginClose() {
		<-s.closed
		return s.report, nil
	}
	report := s.closeChildren(reason)
	stopped := s.endRunning(reason, &report)
	s.awaitIdle()
	var err error
	if !hurry() {
		err = ctx.Err()
	}
	s.finishClose(stopped, report)
	return s.report, err
}

// beginClose refuses further starts here and below. It reports whether this is
// the first call.
func (s *Supervisor) beginClose() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := !s.reg.ending
	s.reg.ending = true
	s.refuseStarts()
	return first
}

func (s *Supervisor) refuseStarts() {
	s.reg.closing = true
	for c := range s.children {
		c.refuseStarts()
	}
}

// closeChildren closes the children, all at once, and returns what they
// reported.
func (s *Supervisor) closeChildren(reason Reason) Report {
	children := s.Children()
	reports := make([]Report, len(children))
	var all sync.WaitGroup
	for i, c := range children {
		all.Go(func() { reports[i], _ = c.close(s.hurried, reason) })
	}
	all.Wait()
	var sum Report
	for _, r := range reports {
		r.HandedUp = nil // to s, which says what becomes of them
		sum.add(r)
	}
	return sum
}

// endRunning begins the end of every running job and returns those that were
// told to stop. Their ends are told by the report.
func (s *Supervisor) endRunning(reason Reason, report *Report) []*job {
	var stopped []*job
	for _, j := range s.runningJobs() {
		switch {
		case j.onOwnerEnd != KillWithOwner && s.parent != nil:
			if snap, ok := s.handUp(j); ok {
				report.HandedUp = append(report.HandedUp, snap)
			}
		case j.onOwnerEnd == KeepRunning:
			if snap, ok := j.letGo(); ok {
				report.Kept = append(report.Kept, snap)
				break
			}
			fallthrough
		default:
			j.expect() // the report tells its end
			j.requestStop(reason)
			context.AfterFunc(s.hurried, j.hurry)
			stopped = append(stopped, j)
		}
	}
	return stopped
}

// handUp gives a running job to the supervisor above. ok is false if it has
// ended meanwhile.
func (s *Supervisor) handUp(j *job) (snap Snapshot, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j.ended {
		return Snapshot{}, false
	}
	s.reg.slots--
	s.reg.live--
	s.parent.reg.live++
	s.reg.moveTo(s.parent, j)
	return j.snapshot(), true
}

// moveTo gives a job to another owner, with its id and the notices to come.
func (r *registry) moveTo(to *Supervisor, j *job) {
	delete(r.jobs, j.id)
	r.note(j.id, ErrForeign)
	r.dropKey(j)
	j.unshelve()
	j.owner, j.strikes = to, 0
	to.reg.add(j)
	to.reg.note(j.id, ErrExpired)
	r.notices.move(j, &to.reg.notices)
	if j.ended {
		to.reg.shelve(j)
	}
}

// letGo ends the record of a job that runs on. ok is false if it comes to an end
// already.
func (j *job) letGo() (snap Snapshot, ok bool) {
	finished := j.work.finished()
	j.s.mu.Lock()
	if j.cause != "" || finished {
		j.s.mu.Unlock()
		return Snapshot{}, false
	}
	j.cause = ReasonOwnerClosed
	j.waiters++ // the report tells its end
	j.settled = make(chan struct{})
	j.s.mu.Unlock()
	defer close(j.settled) // an exit from now on comes too late to be told
	e := ending{exitCode: -1, lost: true}
	if pid := j.work.pid(); pid != 0 {
		e.survivors = []Process{{PID: pid, Name: j.tool}}
	}
	j.publish(e)
	j.leave(true)
	return j.s.snapshotOf(j), true
}

// finishClose completes the report and gives back what the jobs needed
// together.
func (s *Supervisor) finishClose(stopped []*job, report Report) {
	for _, j := range stopped {
		j.leave(true)
	}
	if s.parent == nil {
		s.kept.close()
		s.watcher.close()
		s.leash.close()
		s.host.close()
		s.far.close(s.hurried)
		s.dir.remove()
	}
	s.mu.Lock()
	report.add(s.leftUndone(stopped))
	s.report = report
	if s.parent != nil {
		delete(s.parent.children, s)
		for _, j := range s.reg.jobs {
			j.forgetOutput() // nobody may ever ask s again
			s.mu.noteGone(j.id, j.resultSaved())
		}
	}
	s.mu.Unlock()
	if s.parent == nil {
		s.store.release()
	}
	s.hurry() // releases the context
	close(s.closed)
}

// leftUndone tells of all that Close leaves: their ends need no notice any
// more. It needs mu.
func (s *Supervisor) leftUndone(stopped []*job) Report {
	// One that had exited by itself, or was being stopped for another reason,
	// is none of Close's.
	stopped = slices.DeleteFunc(stopped, func(j *job) bool { return !j.cause.byClose() })
	rep := Report{Stopped: snapshots(stopped)}
	told := setOf(stopped)
	left := s.reg.selectJobs(func(j *job) bool {
		return j.ended && !j.collected && !j.dismissed && !(j.endState == Lost && j.told) && !told[j]
	})
	rep.Uncollected = snapshots(left)
	for _, j := range left {
		j.tell()
	}
	return rep
}

func setOf[T comparable](list []T) map[T]bool {
	set := make(map[T]bool, len(list))
	for _, v := range list {
		set[v] = true
	}
	return set
}

// byClose reports whether a job that ended for r was ended by a Close.
func (r Reason) byClose() bool {
	return r == ReasonShutdown || r == ReasonOwnerClosed || r == ReasonUnreaped
}

// Reap stops the given jobs if they run, and forgets them with their results
// and notices; it is for the end of a scope smaller than an owner, such as one
// node of a graph. It returns the final Snapshots of those it reaped, in order
// of start. Ids that are unknown, forgotten or collected are skipped. Later
// calls for a reaped id get [ErrExpired].
//
// When ctx is done the processes are killed at once. Reap still waits for their
// deaths.
func (s *Supervisor) Reap(ctx context.Context, ids ...string) []Snapshot {
	wanted := setOf(ids)
	snaps, _ := s.reap(ctx, func(j *job) bool { return wanted[j.id] })
	return snaps
}

// Reset stops and forgets every job of this supervisor, not of its children,
// and says what it ended. The supervisor goes on. Later calls for the ids get
// [ErrExpired]. See [Supervisor.Reap] for ctx.
func (s *Supervisor) Reset(ctx context.Context) Report {
	_, report := s.reap(ctx, func(*job) bool { return true })
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.reg.selectJobs(func(j *job) bool { return j.collected }) {
		s.reg.forget(j) // the tombstones
	}
	return report
}

// reap also reports what it stopped and what it found uncollected.
func (s *Supervisor) reap(ctx context.Context, want func(*job) bool) (all []Snapshot, report Report) {
	s.mu.Lock()
	picked := s.reg.selectJobs(func(j *job) bool { return !j.collected && want(j) })
	running, dismissed := make(map[*job]bool), make(map[*job]bool)
	for _, j := range picked {
		j.waiters++ // they are told by what reap returns
		switch {
		case !j.ended:
			running[j] = true
		case j.dismissed:
			dismissed[j] = true
		}
	}
	s.mu.Unlock()
	for _, j := range picked {
		j.requestStop(ReasonCancelled)
	}
	hurried := context.AfterFunc(ctx, func() {
		for _, j := range picked {
			j.hurry()
		}
	})
	defer hurried()
	for _, j := range picked {
		<-j.done
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range picked {
		j.left(true)
		j.owner.reg.forget(j) // which may have become another's meanwhile
		snap := j.snapshot()
		all = append(all, snap)
		switch {
		case dismissed[j]:
		case running[j] && snap.Reason.byReap():
			report.Stopped = append(report.Stopped, snap)
		default:
			report.Uncollected = append(report.Uncollected, snap)
		}
	}
	return all, report
}

// byReap reports whether a job that ended for r may have been ended by a Reap.
func (r Reason) byReap() bool { return r == ReasonCancelled || r == ReasonUnreaped }
