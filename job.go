package jobs

import (
	"cmp"
	"container/list"
	"context"
	"runtime"
	"sync/atomic"
	"time"
)

// unkillableAfter is how long a killed job may take to die before it is given
// up as unreaped and its callers are released.
const unkillableAfter = 2 * time.Second

// pumpTurn is how long output that waits to be read is given to arrive.
const pumpTurn = 10 * time.Millisecond

// A job is one job from its admission to its single end.
type job struct {
	s          *shared // not its first owner, which it would keep in memory once handed up
	cfg        *Config
	id         string
	seq        int
	tool       string
	tag, trust string
	key        string
	shell      string // the name of its machine, if it runs detached
	started    time.Time
	timeout    time.Duration
	idleAfter  time.Duration // of Spec.IdleTimeout
	leftovers  Leftovers
	onOwnerEnd OwnerEnd
	limit      int64 // of output bytes, 0 = none

	out    *RingBuf
	errOut *RingBuf    // nil unless standard error has a log of its own
	result *resultFile // nil for functions
	input  *inputPipe  // nil unless the job has one
	work   work

	logFull   LogFull
	command   string     // on record, without its secrets
	launched  uint64     // the clock before its start, in the unit of /proc
	logFiles  []*logFile // none, one, or two
	stray     bool       // its start was given up, and it may run still
	recovered bool       // an earlier host ran it
	from      string     // and its owner had this name

	lastOutput atomic.Int64 // time since started, as nanoseconds
	late       atomic.Int64 // bytes thrown away after the end
	written    atomic.Int64 // bytes written to standard output and error

	// hurried is done when nobody may be waited for any more.
	hurried context.Context
	hurry   context.CancelFunc
	exited  chan struct{} // closed when the leader has exited or the Func returned
	done    chan struct{} // closed after the end was published

	scanners atomic.Int32 // how many scan the output as it comes

	// Guarded by Supervisor.mu.
	owner      *Supervisor
	cause      Reason        // fixed by the first of exit and stop request
	settled    chan struct{} // closed when a stop has done all it can; made by its request
	exitSeen   bool
	expiry     *time.Timer // of the timeout
	idleCheck  *time.Timer // of the idle timeout
	unkilled   []Process   // what a stop could not kill
	stopErr    error       // and why
	slotFree   bool        // its slot has been given back
	releaser   *Supervisor // the owner at that time, whose Close waits for release
	ended      bool
	end        ending
	endState   State
	endedAt    time.Time
	elapsed    time.Duration
	waiters    int               // who will tell the end when it comes
	onEnd      []chan<- struct{} // each gets a value when it has come
	watches    []*watch
	told       bool // the end has been told
	queued     bool // the end waits to be told as a notice
	foreground bool // a Run that may leave nothing of it has not answered yet
	found      bool // others found it by its key and hold its id
	refused    bool // the start was refused while the work had begun
	collected  bool
	dismissed  bool       // it was cancelled, and the one who did that has the result
	forgotten  bool       // it is in no table any more
	looked     lookState  // what a model has seen of it
	strikes    int        // turns that ended while it was open
	shelf      *list.List // of the registry's shelves of ended jobs
	place      *list.Element
	toldAt     time.Time
}

// work is what a job does: a process or a function.
type work interface {
	// follow stays with the work until its leader has exited or its function
	// returned. It is where a job spends its life, so its stack is kept small.
	follow(j *job)
	// settle takes what the work left. first reports that the exit is the
	// job's cause; otherwise a stop is under way.
	settle(j *job, first bool) ending
	// stop makes the work end, by force if it must. It runs at most once,
	// beside follow, and returns what it could not kill. stuck says that the
	// work itself is not dead: follow has not returned and may not soon.
	stop(j *job) (survivors []Process, stuck bool, err error)
	// finished reports, without waiting, whether the work has ended.
	finished() bool
	// unread returns how long output that waits to be read is given to arrive;
	// 0 if none waits.
	unread() time.Duration
	// seenRunning reports whether this host knows that the work has run under it.
	seenRunning() bool
	// askedAbout says that somebody wants to know how the job stands; urgent, that
	// it matters now.
	askedAbout(urgent bool)
	// pid returns the leader's process id, 0 if there is no leader.
	pid() int
	// release gives back what the work held. It runs once the end is told, so
	// that nobody waits for it.
	release(j *job)
	// discard gives up what the ended work has left elsewhere. It must not wait.
	discard()
}

// atHand is the part of work that is the same for all that is in sight.
type atHand struct{}

func (atHand) seenRunning() bool { return true }
func (atHand) askedAbout(bool)   {}
func (atHand) discard()          {}

// An ending is how a job's work ended.
type ending struct {
	exitCode   int
	signal     Signal
	core       bool
	unknown    bool // the outcome could not be learned
	lost       bool // it goes on, but nobody follows it any more
	usage      usage
	err        error
	reason     Reason // overrides that of the cause if set
	leftovers  []Process
	survivors  []Process
	resultFile ResultFile
}

// usage is what the system says a job has taken.
type usage struct {
	cpu     time.Duration
	peakRSS int64
}

// log returns one of the job's logs. That of a standard error which has none of
// its own is empty.
func (j *job) log(stderr bool) *RingBuf {
	switch {
	case !stderr:
		return j.out
	case j.errOut == nil:
		return new(RingBuf)
	}
	return j.errOut
}

// chunk reads from a log, or from its file where the log has dropped what is
// asked for. room is told how much there is.
func (j *job) chunk(from int64, room func(there int64) []byte, stderr bool) Chunk {
	ring := j.log(stderr)
	total, dropped := ring.Stats()
	if from < 0 {
		from = max(0, total+from)
	}
	gone := dropped > 0 && !ring.keeps(from)
	if gone {
		if c, ok := j.fileChunk(from, room, stderr); ok {
			return c
		}
	}
	c := ring.Chunk(room(total-dropped), from)
	if c.Dropped > 0 && !gone { // since a moment ago
		if c, ok := j.fileChunk(from, room, stderr); ok {
			return c
		}
	}
	return c
}

// fileChunk reads from the file of a log. ok is false if memory holds more of
// what is asked for.
func (j *job) fileChunk(from int64, room func(there int64) []byte, stderr bool) (c Chunk, ok bool) {
	for _, l := range j.logFiles {
		if l.stderr != stderr {
			continue
		}
		l.flush()
		off, there := l.reach(from)
		if there == 0 || off > from && j.log(stderr).Chunk(nil, from).From <= off {
			return Chunk{}, false
		}
		c, ok = l.chunk(room(min(there, 1<<20)), from)
		c.Total, _ = j.log(stderr).Stats()
		return c, ok
	}
	return Chunk{}, false
}

// logs returns the job's logs: one, or two.
func (j *job) logs() []*RingBuf {
	if j.errOut == nil {
		return []*RingBuf{j.out}
	}
	return []*RingBuf{j.out, j.errOut}
}

// stopIfIdle stops the job if it has been silent for its idle timeout, else it
// looks again when that could be.
func (j *job) stopIfIdle() {
	j.lookAtResult(true) // which may have grown unseen
	// What waits in a pipe was printed: a host that was stopped finds it there
	// together with the overdue timer.
	unread := j.work.unread()
	rest := j.idleAfter - time.Since(j.started) + time.Duration(j.lastOutput.Load())
	if rest <= 0 && unread > 0 {
		rest = unread
	}
	if rest <= 0 {
		j.requestStop(ReasonIdle)
		return
	}
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	if !j.ended {
		j.idleCheck.Reset(rest)
	}
}

// stopIfOverdue stops the job at its timeout. One of an earlier host may have
// ended in time, so it must have been seen running.
func (j *job) stopIfOverdue() {
	if j.work.seenRunning() {
		j.requestStop(ReasonTimeout)
		return
	}
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	if !j.ended {
		j.expiry.Reset(leastPause)
	}
}

// lookAtResult lets what has been written to the result file join the output,
// unless that was done a moment ago and it is not urgent.
func (j *job) lookAtResult(urgent bool) {
	if j.result != nil {
		j.result.look(j.out, urgent)
	}
	j.work.askedAbout(urgent)
}

// live is the goroutine of a job.
func (j *job) live() {
	defer j.contain()
	j.work.follow(j)
	j.finish()
}

// finish goes from the exit to the end. It has a frame of its own: those of
// live and all it calls while it waits must fit into the smallest stack.
//
//go:noinline
func (j *job) finish() {
	first := j.noteExit()
	if !first {
		<-j.settled
	}
	j.publish(j.work.settle(j, first))
	runtime.Gosched() // the one who waits for the end goes first
	j.release()
}

// release gives back what the work held, which Close waits for.
func (j *job) release() {
	defer func() {
		j.s.mu.Lock()
		defer j.s.mu.Unlock()
		j.releaser.reg.releasing--
		j.releaser.idle.Broadcast()
	}()
	j.work.release(j)
}

// contain ends the job if its goroutine panics, so that a fault in here is
// told like any other end, and leaves nothing running and nothing held.
func (j *job) contain() {
	v := recover()
	if v == nil {
		return
	}
	j.s.mu.Lock()
	if j.ended {
		j.s.mu.Unlock()
		return // while giving back what it held
	}
	if j.cause == "" {
		j.cause = ReasonInternal
	}
	unstopped := j.settled == nil
	if unstopped {
		j.settled = make(chan struct{})
	}
	j.s.mu.Unlock()
	if unstopped {
		j.stop()
	}
	<-j.settled
	j.publish(ending{exitCode: -1, reason: ReasonInternal, err: newPanicError(v)})
	defer func() { recover() }()
	j.release()
}

// noteExit records that the leader has exited. It reports whether that is the
// job's cause: false means that a stop was requested before and is under way.
func (j *job) noteExit() bool {
	j.s.mu.Lock()
	j.exitSeen = true
	if j.cause == "" {
		j.cause = ReasonExit
	}
	first := j.cause == ReasonExit
	j.s.mu.Unlock()
	close(j.exited)
	return first
}

// requestStop asks for the job's end. The first request of a job that has not
// exited fixes the cause and begins the stop; one that finds it exited makes
// it wait no longer. It never waits itself.
func (j *job) requestStop(why Reason) {
	finished := j.work.finished()
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	if j.cause == "" && finished {
		j.cause = ReasonExit
	}
	switch {
	case j.ended:
	case j.cause == "":
		j.cause = why
		j.settled = make(chan struct{})
		go j.stop()
	case j.cause == ReasonExit:
		j.hurry()
	}
}

// stop is the one way a job is made to end.
func (j *job) stop() {
	var survivors []Process
	var stuck bool
	var err error
	defer func() {
		if v := recover(); v != nil {
			stuck, err = true, newPanicError(v)
		}
		if stuck {
			j.publish(ending{exitCode: -1, reason: ReasonUnreaped, survivors: survivors, err: err})
		}
		j.s.mu.Lock()
		j.unkilled, j.stopErr = survivors, err
		j.s.mu.Unlock()
		close(j.settled)
	}()
	survivors, stuck, err = j.work.stop(j)
}

// publish makes the job's end known. In one critical section the end is
// published and the slot freed; then waiters wake. Of a job that was given up
// as stuck, the second call frees the slot when the work has ended after all.
func (j *job) publish(e ending) {
	for _, log := range j.logs() {
		log.freeze()
	}
	j.recordEnd(e)
	defer j.hurry() // releases the context
	if !e.lost && e.reason != ReasonUnreaped {
		j.input.end()
	}
	s := j.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.reason != ReasonUnreaped && !e.lost && !j.slotFree {
		j.slotFree = true
		j.owner.takeSlots(-1)
		j.releaser = j.owner
		j.releaser.reg.releasing++
	}
	if j.ended {
		return
	}
	for _, timer := range []*time.Timer{j.expiry, j.idleCheck} {
		if timer != nil {
			timer.Stop()
		}
	}
	j.end = e
	if j.unkilled != nil {
		j.end.survivors = j.unkilled
	}
	if j.end.err == nil {
		j.end.err = j.stopErr
	}
	j.endState, j.cause = e.conclude(j.cause)
	j.endedAt = time.Now()
	j.elapsed = j.endedAt.Sub(j.started)
	j.ended = true
	j.owner.reg.ended(j)
	close(j.done)
	for _, ch := range j.onEnd {
		poke(ch)
	}
	j.owner.idle.Broadcast()
}

// conclude returns the final state and reason of a job whose cause is given.
func (e ending) conclude(cause Reason) (State, Reason) {
	switch {
	case e.lost:
		return Lost, cause
	case e.reason == ReasonUnreaped:
		return Failed, ReasonUnreaped
	case cause != ReasonExit && cause != "":
		return cause.state(), cause
	case e.reason == ReasonLost:
		return Lost, ReasonLost
	case e.reason != "":
		return Failed, e.reason
	case e.unknown:
		return Failed, ReasonInternal
	case e.signal.ofLimit():
		return Failed, ReasonResourceLimit
	case e.signal != 0:
		return Failed, ReasonSignal
	case e.exitCode > 0, e.exitCode < 0 && e.err != nil: // a Func has no code
		return Failed, ReasonExit
	}
	return Completed, ReasonExit
}

// await waits for the end of the job or of ctx; an end wins over an end of ctx
// that came at the same time. If it returns nil the caller is about to tell
// the end, so that there is no notice of it.
func (j *job) await(ctx context.Context) error {
	j.expect()
	ended := closedBefore(ctx, j.done)
	j.leave(ended)
	if ended {
		return nil
	}
	return ctx.Err()
}

// expect announces somebody who will tell the end if it comes. As long as
// there is one, the end has no notice.
func (j *job) expect() {
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	j.waiters++
}

// leave takes that back. tell says that the one who leaves tells the end.
func (j *job) leave(tell bool) {
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	j.left(tell)
}

// left is leave for holders of Supervisor.mu.
func (j *job) left(tell bool) {
	j.waiters--
	switch {
	case tell:
		j.tell()
	case j.ended && j.waiters == 0:
		j.owner.reg.notify(j)
	}
}

// tell records that the end has been told. It needs Supervisor.mu.
func (j *job) tell() {
	if !j.told {
		j.s.mu.note(recordTold, j.id)
	}
	j.told = true
	j.owner.reg.withdraw(j)
	if j.ended {
		j.owner.reg.shelve(j)
	}
}

// lookup finds a job by its id.
func (s *Supervisor) lookup(id string) (*job, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.find(id)
}

// find is lookup for holders of mu.
func (s *Supervisor) find(id string) (*job, error) {
	s.reg.evict(time.Now())
	if j, ok := s.reg.jobs[id]; ok {
		return j, nil
	}
	return nil, &JobError{ID: id, Err: s.absent(id)}
}

// jobError returns err about j, with its Snapshot.
func (s *shared) jobError(j *job, err error) error {
	snap := s.snapshotOf(j)
	return &JobError{ID: j.id, Job: &snap, Err: err}
}

func (s *shared) snapshotOf(j *job) Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return j.snapshot()
}

// consume hands out the result of an ended job, once.
func (s *Supervisor) consume(j *job) (Result, error) {
	s.mu.Lock()
	won := !j.collected
	if won {
		j.collected = true
		if !j.runsOn() {
			s.mu.noteGone(j.id, j.resultSaved())
		}
		j.owner.reg.shelve(j)
	}
	s.mu.Unlock()
	if !won {
		return Result{}, s.jobError(j, ErrCollected)
	}
	r := s.resultOf(j)
	s.dropResult(j)
	return r, nil
}

// peek returns the result of an ended job without consuming it.
func (s *Supervisor) peek(j *job) (Result, error) {
	r := s.resultOf(j)
	// Looked at last: somebody may have consumed it while it was being copied.
	s.mu.Lock()
	collected := j.collected
	j.dismissed = j.endState == Cancelled
	s.mu.Unlock()
	if collected {
		return Result{}, s.jobError(j, ErrCollected)
	}
	return r, nil
}

func (s *Supervisor) resultOf(j *job) Result {
	s.mu.Lock()
	r := Result{Snapshot: j.snapshot(), File: j.end.resultFile}
	s.mu.Unlock()
	j.addLogs(&r)
	return r
}

// addLogs adds to r what is kept of the job's output.
func (j *job) addLogs(r *Result) {
	r.Output = j.out.Log()
	if j.errOut != nil {
		r.Stderr = j.errOut.Log()
	}
}

// runsOn reports whether the job was let go and is on record for the next host to
// pick up. It needs Supervisor.mu.
func (j *job) runsOn() bool {
	return j.shell != "" && j.endState == Lost && j.cause == ReasonOwnerClosed
}

// dropResult lets go of what a collected job no longer needs; its Snapshot
// stays.
func (s *Supervisor) dropResult(j *job) {
	for _, log := range j.logs() {
		log.release()
	}
	j.work.discard()
	s.mu.Lock()
	j.end.resultFile = ResultFile{}
	s.mu.Unlock()
}

// runningJobs returns the jobs that have not ended, in order of start.
func (s *Supervisor) runningJobs() []*job {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reg.running()
}

// awaitIdle waits until no job is starting, every job has ended, and what they
// held is given back.
func (s *Supervisor) awaitIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.reg.live > 0 || s.reg.releasing > 0 {
		s.idle.Wait()
	}
}

// noteTime records that the job has just written something.
func (j *job) noteTime() { j.lastOutput.Store(int64(time.Since(j.started))) }

// noteOutput records that the job has just written n bytes, and asks for its
// end if that was more than it may write.
func (j *job) noteOutput(n int) {
	j.noteTime()
	before := j.written.Add(int64(n)) - int64(n)
	if j.limit > 0 && before <= j.limit && before+int64(n) > j.limit {
		j.requestStop(ReasonOutputLimit)
	}
}

// snapshot needs Supervisor.mu.
func (j *job) snapshot() Snapshot {
	snap := Snapshot{
		ID:           j.id,
		Tool:         j.tool,
		Tag:          j.tag,
		Trust:        j.trust,
		Owner:        cmp.Or(j.from, j.owner.name),
		Command:      j.command,
		Recovered:    j.recovered,
		State:        Running,
		ExitCode:     -1,
		LeaderExited: j.exitSeen,
		Started:      j.started,
		LateBytes:    j.late.Load(),
		Collected:    j.collected,
	}
	for _, l := range j.logFiles {
		if snap.LogPath == "" {
			snap.LogPath = l.path
		}
		if snap.LogErr == nil {
			snap.LogErr = l.problem()
		}
	}
	snap.OutputTotal, snap.OutputDropped = j.out.Stats()
	if j.errOut != nil {
		snap.StderrTotal, snap.StderrDropped = j.errOut.Stats()
	}
	if j.ended {
		snap.State, snap.Reason = j.endState, j.cause
		snap.Elapsed = j.elapsed
		snap.ExitCode, snap.Signal, snap.CoreDumped = j.end.exitCode, j.end.signal, j.end.core
		snap.Err = j.end.err
		snap.CPUTime, snap.PeakRSS = j.end.usage.cpu, j.end.usage.peakRSS
		snap.Leftovers, snap.Survivors = j.end.leftovers, j.end.survivors
		return snap
	}
	if j.cause != "" && j.cause != ReasonExit {
		snap.State, snap.Reason = Cancelling, j.cause
	}
	snap.PID = j.work.pid()
	snap.Elapsed = time.Since(j.started)
	snap.Idle = snap.Elapsed - time.Duration(j.lastOutput.Load())
	return snap
}

// forgetOutput gives back what the job takes of the memory that all share. Its
// logs must be final.
func (j *job) forgetOutput() {
	for _, log := range j.logs() {
		log.giveBack()
	}
}
