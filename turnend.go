package jobs

import "context"

// maxStrikes is how many ends of turns a job may outlast before it is discarded.
const maxStrikes = 3

// A TurnAction is what a host should do at the end of a turn.
type TurnAction string

// The actions at the end of a turn.
const (
	TurnOver    TurnAction = ""        // nothing is open: let the turn end
	TurnInject  TurnAction = "inject"  // show the model what is open and go on
	TurnDiscard TurnAction = "discard" // some jobs were discarded: warn, and show what is left
)

// A Reminder says what a model is about to leave behind at the end of its turn.
// [Texts.Reminder] puts it into words.
type Reminder struct {
	Action TurnAction
	// Running holds the jobs that run, Uncollected those that have ended and
	// whose results nobody has taken; both in order of start.
	Running, Uncollected []Snapshot
	// Discarded holds the jobs that the model was reminded of three times: they
	// have been stopped and forgotten, with their results.
	Discarded []Snapshot
	// Strike is how often the model has been reminded of that of the jobs above
	// of which it was most often, this time included; 0 if there is none.
	Strike int
}

// TurnEnd is for the moment in which a model ends its turn. It looks for jobs
// that are still open: those that run, and those whose result was not
// collected. A [Supervisor.Run] that has not answered yet is none of them.
//
// Three times the Reminder lists a job, with [TurnInject]: the host should show
// the list and give the model another turn. The fourth time the job is stopped
// and forgotten, as by [Supervisor.Reap] with ctx, and the action is
// [TurnDiscard]. A job that is collected, or stopped, in time is counted no
// more.
func (s *Supervisor) TurnEnd(ctx context.Context) Reminder {
	return s.turnEnd(ctx, func(*job) bool { return true })
}

// TurnEndOf is TurnEnd for the given jobs only, such as those of one node of a
// graph. Other ids are ignored.
func (s *Supervisor) TurnEndOf(ctx context.Context, ids ...string) Reminder {
	only := setOf(ids)
	return s.turnEnd(ctx, func(j *job) bool { return only[j.id] })
}

func (s *Supervisor) turnEnd(ctx context.Context, want func(*job) bool) Reminder {
	rem, out := s.strike(want)
	if len(out) > 0 {
		if rem.Discarded = s.Reap(ctx, out...); len(rem.Discarded) > 0 {
			rem.Action = TurnDiscard
		}
	}
	return rem
}

// strike counts one more end of a turn against each open job that is wanted. It
// returns the ids of those that have had enough, and a Reminder of the others.
func (s *Supervisor) strike(want func(*job) bool) (rem Reminder, out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.reg.open() {
		// A Run that has not answered is its caller's; no model knows of it.
		if !want(j) || j.endState == Lost || j.foreground && !j.found {
			continue
		}
		if j.strikes == maxStrikes {
			out = append(out, j.id)
			continue
		}
		j.strikes++
		rem.Strike = max(rem.Strike, j.strikes)
		rem.Action = TurnInject
		if j.ended {
			rem.Uncollected = append(rem.Uncollected, j.snapshot())
		} else {
			rem.Running = append(rem.Running, j.snapshot())
		}
	}
	return rem, out
}
