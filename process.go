package jobs

import (
	"cmp"
	"context"
	"errors"
	"time"
)

// silence is how long a held pipe must be quiet, after the leader's exit, for
// a job to stop waiting for more. Programs such as `exec > >(tee log)` print
// their last line after their leader is gone.
const silence = 200 * time.Millisecond

// lastBreath is how long processes found after the leader's exit may take to
// end by themselves before they count as leftovers.
const lastBreath = 20 * time.Millisecond

// errUnseen means that the end of all processes of a job is not proved.
var errUnseen = errors.New("processes outside the group may live on")

// lookAgain is the pause before a look that failed is tried again.
const lookAgain = 50 * time.Millisecond

// A tree is a started process with all that descends from it, as far as the
// platform shows it. The leader stays unreaped until reap: as long as that
// lasts its number names it and its group, and nobody else.
//
// pid, gone, exited and signals may be used concurrently; look, await and all
// after them by one goroutine at a time.
type tree interface {
	// pid returns the leader's process id, 0 once it is reaped.
	pid() int
	// gone is closed once the leader has exited, soon after exited reports that.
	gone() <-chan struct{}
	// exited reports whether it has, without waiting.
	exited() bool
	// look finds the live processes besides the leader, remembers them, and
	// names those that are not exiting already.
	look() []Process
	// lookBelow is a look at the descendants of the leader only, while it lives.
	lookBelow()
	// blind reports why the last look may have missed something, nil if it
	// did not.
	blind() error
	// busy reports whether a remembered process is at work: it runs, or it has
	// input that it has not read yet.
	busy() bool
	// alone reports whether no process is remembered: none was alive at the
	// last look.
	alone() bool
	// await waits until the remembered processes are dead or ctx is done, and
	// reports whether they are dead.
	await(ctx context.Context) bool
	// terminate asks the group and the remembered processes to end, each once.
	terminate() error
	// kill forces the group and the remembered processes to end.
	kill() error
	// reap takes the leader's exit status. It returns ending.unknown if
	// somebody else took it.
	reap() ending
	// close gives back what the tree holds. If kept is set, processes that
	// live on are left to themselves.
	close(kept bool)
}

// A process is the work of a job that is a program.
type process struct {
	atHand
	tree    tree
	streams streams
	kept    bool // leftovers live on, by policy
}

func (p *process) pid() int       { return p.tree.pid() }
func (p *process) finished() bool { return p.tree.exited() }

func (p *process) unread() time.Duration {
	if p.streams.unread() {
		return pumpTurn
	}
	return 0
}

// follow moves what the process prints until nobody can print any more or the
// leader has exited.
func (p *process) follow(*job) {
	if p.streams.follow() {
		// A process closes its pipe a moment before its exit can be seen.
		for range exitFollows {
			if p.tree.exited() {
				return
			}
		}
	}
	<-p.tree.gone()
}

// exitFollows is how often a leader is asked whether it has exited, once its
// pipe is closed, before that is waited for: some ten microseconds.
const exitFollows = 30

// settle goes the way from the leader's exit to the moment it can be told:
// drain, kill what is left, drain the rest, read the result, reap.
func (p *process) settle(j *job, first bool) ending {
	var left ending
	if first {
		p.drain(j)
		left.leftovers = p.leftovers(j)
		p.kept = j.leftovers == KeepLeftovers
		if !p.kept {
			left.survivors, left.err = p.sweepUp()
		}
	}
	if !p.kept {
		p.streams.finish()
	}
	left.resultFile = j.result.final(j.out)
	j.s.watcher.remove(j)
	j.s.leash.release(j.id)
	e := p.tree.reap()
	e.leftovers, e.survivors, e.resultFile = left.leftovers, left.survivors, left.resultFile
	if e.err == nil {
		e.err = left.err
	}
	return e
}

// release closes the descriptors, save those that kept leftovers need.
func (p *process) release(j *job) {
	j.s.leash.release(j.id) // where a panic kept settle from it
	if p.kept {
		p.streams.keep(&j.s.kept)
	} else {
		p.streams.close()
	}
	p.tree.close(p.kept)
	j.result.release()
}

// drain waits for the output that is still to come after the leader's exit:
// until nobody holds the pipe, until it has been silent with nobody at work who
// could still write to it, until the drain grace is over, or until nobody may
// wait any more.
func (p *process) drain(j *job) {
	limit, cancel := context.WithTimeout(j.hurried, j.cfg.DrainGrace)
	defer cancel()
	exit := time.Since(j.started)
	for rest := silence; rest > 0 && limit.Err() == nil; {
		quiet, cancel := context.WithTimeout(limit, rest)
		done := p.streams.drained(quiet)
		cancel()
		if done {
			return
		}
		last := max(exit, time.Duration(j.lastOutput.Load()))
		rest = silence - (time.Since(j.started) - last)
		if rest <= 0 && limit.Err() == nil {
			if p.tree.look(); p.tree.busy() {
				rest = silence
			}
		}
	}
}

// leftovers names the processes that outlive the leader. Those that are about
// to end by themselves, such as a tee that has written its last, are none.
func (p *process) leftovers(j *job) []Process {
	p.tree.look()
	if p.tree.alone() {
		return nil
	}
	lastBreath, cancel := context.WithTimeout(j.hurried, lastBreath)
	defer cancel()
	p.tree.await(lastBreath)
	return p.tree.look()
}

// sweepUp kills what the leader left behind and proves it. Where look found
// nothing the group gets its KILL all the same: it costs one system call, and
// not every platform can look.
func (p *process) sweepUp() ([]Process, error) {
	if p.tree.alone() && p.tree.blind() == nil {
		p.tree.kill()
		return nil, nil
	}
	survivors, _, err := p.killAll(nil)
	return survivors, err
}

// stop is the one kill path: TERM and CONT to the tree, the grace, KILL, proof.
// The grace belongs to the tree, so it goes on after the leader's exit while
// any process of the job lives.
func (p *process) stop(j *job) (survivors []Process, stuck bool, err error) {
	grace, cancel := context.WithTimeout(j.hurried, j.cfg.KillGrace)
	defer cancel()
	p.tree.lookBelow() // some strays are known only by their parent, while it lives
	p.tree.terminate()
	if !closedBefore(grace, j.exited) {
		return p.killAll(j.exited)
	}
	for p.tree.await(grace) {
		if p.tree.look(); p.tree.alone() {
			if p.tree.blind() != nil {
				break
			}
			p.tree.kill() // for platforms that cannot look
			return nil, false, nil
		}
		p.tree.terminate() // those that appeared since
	}
	return p.killAll(j.exited)
}

// killAll sends KILL to the tree until nothing of it is left, or the system
// does not let go of something. leader is closed when the leader has exited;
// nil means that it has.
func (p *process) killAll(leader <-chan struct{}) (survivors []Process, stuck bool, err error) {
	deadline := time.Now().Add(unkillableAfter)
	for {
		last := !time.Now().Before(deadline)
		err = p.tree.kill()
		// Counted from the KILL: while the host was stopped nothing could die of it.
		bound, cancel := context.WithTimeout(context.Background(), unkillableAfter)
		stuck = leader != nil && !closedBefore(bound, leader) && !p.tree.exited()
		p.tree.await(bound)
		last = last || bound.Err() != nil
		cancel()
		survivors = p.tree.look()
		blind := p.tree.blind()
		if !stuck && p.tree.alone() && blind == nil {
			return nil, false, nil
		}
		if last {
			if stuck {
				survivors = append(survivors, Process{PID: p.tree.pid(), Name: "(leader)"})
			}
			return survivors, stuck, cmp.Or(err, blind)
		}
		if blind != nil {
			time.Sleep(lookAgain)
		}
	}
}

// closedBefore waits for ch, and reports false if ctx was done first.
func closedBefore(ctx context.Context, ch <-chan struct{}) bool {
	select {
	case <-ch:
	case <-ctx.Done():
	}
	return isClosed(ch)
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
