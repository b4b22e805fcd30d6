package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

const (
	// The pause between two looks grows with the job's age. It is shorter while
	// somebody waits.
	firstLook  = 100 * time.Millisecond
	leastPause = 250 * time.Millisecond
	longPause  = 30 * time.Second
	waitPause  = 2 * time.Second
	// mostBackOff is the longest pause after looks that failed.
	mostBackOff = time.Minute

	// startBound, lookBound and stopBound bound one script, which may have to
	// come by a slow link; a stop has what it waits there besides.
	startBound = 30 * time.Second
	lookBound  = time.Minute
	stopBound  = 20 * time.Second
	// startTries is how often a start is tried whose answer did not come.
	startTries = 3
	// obeyTurn is how long one script waits for a TERM to do.
	obeyTurn = time.Second
	// hurriedStop is what the stop of a job has left when nobody may wait.
	hurriedStop = 5 * time.Second
	// strayBound is how long a job is pursued whose start was given up.
	strayBound = time.Minute
	// removeBound is how long the removal of a collected job may take.
	removeBound = 15 * time.Second

	// mostAsked is how much output one look asks for, leastAsked what it asks
	// for where that is too much for the link.
	mostAsked  = 256 << 10
	leastAsked = 4 << 10
	// mostCuts is how often the whole of a result is asked for again that came cut
	// since the link was bad before.
	mostCuts = 3
	// mostBehind is how much output is fetched late. What is before it counts
	// as dropped.
	mostBehind = 1 << 20
	// resultPerAsk is how much of a result is asked for, per byte of output.
	resultPerAsk = 4
)

// A remote is the work of a job that runs detached, through a Shell. What is
// known of it is what looks brought: each is one script on a connection of its
// own, so that one that is lost loses nothing.
type remote struct {
	far     *farSide
	shell   Shell
	name    string // of the machine
	machine *machine
	id      string

	wake   chan struct{} // gets a value when a look is wanted at once
	asked  atomic.Int64  // when somebody last asked about the job, as nanoseconds of age
	looked atomic.Int64  // the same for when the last look that succeeded began
	over   atomic.Bool   // the far side has ended
	gone   atomic.Bool   // and is removed, or being removed
	seen   atomic.Bool   // it ran under this host: before, its end counts more than its limits

	// What follows is of follow alone.
	made      time.Time
	watched   time.Time // when the present watch began
	unwatched bool      // it is over and nobody has asked since
	off, lost int64     // of the output stored there, and of what was not
	size      int64     // of the result at the last look
	ask       int64
	fails     int  // looks in a row that failed
	cuts      int  // looks that found the job ended and brought a part of its result
	missed    bool // the last look did not find the job
	end       ending
}

// startRemote starts a job through its Shell. The start is one script, which
// starts nothing when it finds that it has been there before; so it may be sent
// again when its answer did not come. Where none comes at all the job is stopped
// in the background, in case that it runs.
func startRemote(ctx context.Context, j *job, spec Spec) (work, error) {
	fail := func(stage Stage, hint string, err error) (work, error) {
		return nil, &StartError{Tool: j.tool, Stage: stage, Hint: hint, Err: err}
	}
	r, err := newRemote(&j.s.far, spec.Shell, j.id)
	if err != nil {
		return fail(StageShell, "", err)
	}
	a, sent, err := r.start(ctx, farStart(j, spec))
	switch {
	case err != nil && sent:
		j.stray = true
		r.far.chore(strayBound, func(ctx context.Context) { r.stopStray(ctx, j.s) })
		fallthrough
	case err != nil:
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return fail(StageShell, "", err)
	case a.fault == "missing":
		return fail(StageShell, "a job there needs them", fmt.Errorf("%s lacks %s", r.name, a.cause))
	case a.fault == "dir":
		return fail(StageDir, "on "+r.name, errors.New(a.cause))
	case a.fault != "":
		return fail(StageShell, "on "+r.name, errors.New(a.cause))
	}
	r.seen.Store(true)
	return r, nil
}

// start sends the script until an answer comes. sent reports that it may have
// arrived.
func (r *remote) start(ctx context.Context, s farScript) (a farAnswer, sent bool, err error) {
	for try := range startTries {
		if try > 0 && sleep(ctx, time.Duration(try)*leastPause) != nil {
			break
		}
		if a, err = r.run(ctx, r.machine.scripts, startBound, s); err == nil {
			return a, true, nil
		}
		var unsent *unsentError
		if errors.As(err, &unsent) {
			break
		}
		sent = true
	}
	return a, sent, err
}

// newRemote returns the work of a job under an id, be that known from before. Its
// output comes from the beginning, as far as it is kept.
func newRemote(far *farSide, shell Shell, id string) (*remote, error) {
	if !validID(id) {
		return nil, fmt.Errorf("%q is no job id", id)
	}
	r := &remote{far: far, shell: shell, id: id, wake: make(chan struct{}, 1), ask: mostAsked, made: time.Now()}
	err := protect(func() error {
		r.name = shell.String()
		return nil
	})
	r.machine = far.machine(r.name)
	r.watched = r.made
	return r, err
}

// run runs a script there.
func (r *remote) run(ctx context.Context, turn limiter, bound time.Duration, s farScript) (farAnswer, error) {
	leave, err := turn.enterBefore(ctx)
	if err != nil {
		return farAnswer{}, &unsentError{err}
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	var printed []byte
	err = protectApart("the Shell", func() (err error) {
		printed, err = r.shell.Run(ctx, s.text)
		return err
	})
	if a, ok := s.answer(printed); ok {
		return a, nil
	}
	if err == nil {
		err = fmt.Errorf("no answer of a POSIX sh came, but %q", readable(string(printed), 200))
	}
	return farAnswer{}, fmt.Errorf("%s: %w", r.name, err)
}

// runStop runs the script that stops the job. Where that could not look at the
// job it has stopped nothing.
func (r *remote) runStop(ctx context.Context, force bool, wait time.Duration) (farAnswer, error) {
	a, err := r.run(ctx, r.machine.stops, stopBound, r.stopScript(force, wait))
	if err == nil && a.fault != "" {
		err = fmt.Errorf("%s: %s", r.name, a.cause)
	}
	return a, err
}

// backOff is the pause after so many failures in a row.
func backOff(fails int) time.Duration {
	return min(leastPause<<min(fails, 16), mostBackOff)
}

func (r *remote) pid() int       { return 0 } // a number of this machine it is not
func (r *remote) finished() bool { return false }

// unread is positive if the job may have printed something since the last look.
func (r *remote) unread() time.Duration {
	if !r.seen.Load() || time.Since(r.made)-time.Duration(r.looked.Load()) > waitPause {
		return time.Second
	}
	return 0
}

// seenRunning reports whether a look has found the job running under this host.
func (r *remote) seenRunning() bool { return r.seen.Load() }

func (r *remote) askedAbout(urgent bool) {
	r.asked.Store(int64(time.Since(r.made)))
	if urgent {
		poke(r.wake)
	}
}

// follow looks at the job until it has ended there, or nobody wants to know any
// more.
func (r *remote) follow(j *job) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer context.AfterFunc(j.hurried, func() {
		if !isClosed(j.done) {
			sleep(ctx, hurriedStop)
		}
		cancel()
	})()
	for r.rest(j) {
		begun := time.Since(r.made)
		a, err := r.run(ctx, r.machine.scripts, lookBound, r.lookScript(j))
		if err != nil {
			r.fails++
			r.ask = max(r.ask/4, leastAsked)
			continue
		}
		r.fails = 0
		r.ask = min(r.ask*2, mostAsked)
		r.looked.Store(int64(begun))
		if r.take(j, a) {
			r.over.Store(true)
			return
		}
	}
}

func (r *remote) lookScript(j *job) farScript {
	return newFarScript("look", r.id,
		"off", r.off,
		"max", r.ask,
		"last", min(j.cfg.ResultBytes, resultPerAsk*r.ask),
		"most", j.cfg.ResultFileLimit)
}

// rest waits until the next look is due. It reports false once the job's end
// is published, be it that the job was let go or given up.
func (r *remote) rest(j *job) bool {
	begun := time.Now()
	for {
		left := r.interval(j) - time.Since(begun)
		if left <= 0 {
			return !isClosed(j.done)
		}
		timer := time.NewTimer(min(left, waitPause))
		select {
		case <-timer.C:
		case <-r.wake:
			left = 0
		case <-j.done:
		}
		timer.Stop()
		if left == 0 || isClosed(j.done) {
			return !isClosed(j.done)
		}
	}
}

// interval returns how long to wait from one look to the next, as things stand.
func (r *remote) interval(j *job) time.Duration {
	age := time.Since(j.started)
	pause := min(max(age/10, leastPause), longPause)
	if age < leastPause {
		pause = firstLook
	}
	if r.fails > 0 {
		pause = max(pause, backOff(r.fails))
	}
	wanted := r.wanted(j)
	switch {
	case wanted && (r.unwatched || j.cfg.WatchFor > 0 && time.Since(r.watched) > j.cfg.WatchFor):
		r.watched, r.unwatched = time.Now(), false
		return 0
	case wanted:
		return min(pause, max(waitPause, backOff(r.fails)))
	case j.cfg.WatchFor > 0 && time.Since(r.watched) > j.cfg.WatchFor:
		if !r.unwatched {
			r.unwatched = true
			j.tellUnwatched()
		}
		return 2 * waitPause // that is, never
	}
	return pause
}

// wanted reports whether somebody waits for news of the job, or has just asked.
func (r *remote) wanted(j *job) bool {
	if j.scanners.Load() > 0 || r.asked.Load() > r.looked.Load() {
		return true
	}
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	return j.waiters > 0 || j.cause != ""
}

// tellUnwatched queues the notice that a job goes on unwatched.
func (j *job) tellUnwatched() {
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	if !j.ended {
		j.owner.reg.notices.add(queued{Notice: j.notice(EventUnwatched), job: j})
	}
}

// take takes in what a look brought, and reports whether the job has ended and
// all of it is known.
func (r *remote) take(j *job, a farAnswer) (ended bool) {
	if a.state == "running" || a.state == "ended" || a.total > 0 {
		r.takeOutput(j, a)
	}
	if a.size != r.size {
		r.size = a.size
		j.noteTime()
	}
	if limit := j.cfg.ResultFileLimit; limit > 0 && a.disk > limit && a.state != "ended" {
		j.requestStop(ReasonOutputLimit)
	}
	if a.state != "running" && r.off < a.total {
		return false
	}
	switch a.state {
	case "ended":
		whole := min(a.size, j.cfg.ResultBytes, resultPerAsk*mostAsked)
		if r.cuts < mostCuts && a.result == "-" && int64(len(a.text)) < whole {
			r.cuts++
			r.ask = mostAsked
			poke(r.wake)
			return false
		}
		r.end = ending{exitCode: a.code, resultFile: a.resultFile(), leftovers: a.left}
		return true
	case "running":
		r.missed = false
		r.seen.Store(true)
		return false
	}
	// A verdict for good is given once it was found twice.
	if !r.missed {
		r.missed = true
		poke(r.wake)
		return false
	}
	r.end = ending{exitCode: -1, reason: ReasonLost, err: fmt.Errorf("%s has lost the job: it does not run there and has left no exit code", r.name)}
	return true
}

// takeOutput moves output into the job's log. Where there is more to fetch the
// next look comes at once.
func (r *remote) takeOutput(j *job, a farAnswer) {
	r.drop(j, a, a.lost-r.lost)
	r.lost = max(r.lost, a.lost)
	r.drop(j, a, a.from-r.off)
	r.off = max(r.off, a.from)
	if len(a.data) > 0 {
		j.out.Write(a.data)
		r.off += int64(len(a.data))
		r.note(j, a, len(a.data))
		j.flushLogs()
	}
	behind := a.total - r.off
	if behind > 0 {
		poke(r.wake)
	}
	if most := max(mostBehind, int64(j.cfg.TailBytes)); behind > most && r.off >= int64(j.cfg.HeadBytes) {
		r.drop(j, a, behind-most)
		r.off = a.total - most
	}
}

// drop counts n bytes that were printed and are not kept.
func (r *remote) drop(j *job, a farAnswer, n int64) {
	if n > 0 {
		j.out.drop(n)
		r.note(j, a, int(n))
	}
}

// note records that n bytes were printed. One that has ended is stopped for
// nothing any more.
func (r *remote) note(j *job, a farAnswer, n int) {
	if a.state == "ended" {
		j.noteTime()
		return
	}
	j.noteOutput(n)
}

func (r *remote) settle(*job, bool) ending { return r.end }

func (r *remote) release(*job) {}

// stop makes the job end: TERM, the grace, KILL. Each script waits a moment for
// what the signal does and says what is left. As long as the machine cannot be
// reached it is tried again, unless nobody may wait.
func (r *remote) stop(j *job) (survivors []Process, stuck bool, err error) {
	hurried, giveUp := context.WithCancel(context.Background())
	defer giveUp()
	defer context.AfterFunc(j.hurried, func() {
		sleep(hurried, hurriedStop)
		giveUp()
	})()
	var deadline time.Time // the grace begins with the TERM
	for fails := 0; ; {
		force := j.hurried.Err() != nil || !deadline.IsZero() && !time.Now().Before(deadline)
		turn, cancel := context.WithCancel(hurried)
		if !force {
			cancel()
			turn, cancel = context.WithCancel(j.hurried)
		}
		wait := min(j.cfg.KillGrace, obeyTurn)
		if !deadline.IsZero() {
			wait = min(time.Until(deadline), obeyTurn)
		}
		a, runErr := r.runStop(turn, force, wait)
		if runErr == nil && deadline.IsZero() {
			deadline = time.Now().Add(j.cfg.KillGrace - wait)
		}
		if runErr != nil {
			fails++
			sleep(turn, backOff(fails))
		}
		cancel()
		switch {
		case runErr == nil && a.state != "running":
			return a.left, !r.awaitEnd(j, hurried), nil
		case runErr == nil && force:
			return a.left, true, fmt.Errorf("%s does not let go of the job", r.name)
		case hurried.Err() != nil:
			return nil, true, fmt.Errorf("the job may go on: %w", cmp.Or(runErr, hurried.Err()))
		}
	}
}

func (r *remote) stopScript(force bool, wait time.Duration) farScript {
	kill := 0
	if force {
		kill, wait = 1, 0
	}
	return newFarScript("stop", r.id, "force", kill, "wait", max(0, wait.Milliseconds()/100))
}

// awaitEnd waits until follow has seen the end, or ctx is done.
func (r *remote) awaitEnd(j *job, ctx context.Context) bool {
	poke(r.wake)
	return closedBefore(ctx, j.exited)
}

// stopStray stops a job of which nobody knows whether it was started, and keeps
// it from being started later. Only then is it gone from the record.
func (r *remote) stopStray(ctx context.Context, s *shared) {
	for fails := 1; ; fails++ {
		_, err := r.runStop(ctx, true, 0)
		if err == nil {
			s.record(record{Kind: recordGone, ID: r.id})
			return
		}
		if sleep(ctx, backOff(fails)) != nil {
			return
		}
	}
}

// discard removes what is left of a job there, once its result is handed out or
// forgotten. It does not wait.
func (r *remote) discard() {
	if !r.over.Load() || r.gone.Swap(true) {
		return
	}
	r.far.chore(removeBound, func(ctx context.Context) {
		for fails := 1; ; fails++ {
			if _, err := r.run(ctx, r.machine.scripts, removeBound, newFarScript("remove", r.id)); err == nil || sleep(ctx, backOff(fails)) != nil {
				return
			}
		}
	})
}
