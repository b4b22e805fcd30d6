package top

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/agentjobs/jobs"
)

// Bounds of what is remembered and read.
const (
	maxEnded  = 200 // jobs that no supervisor lists any more
	tailBytes = 16 << 10
)

// A row is a job and whose it is.
type row struct {
	owner  string
	number int // of the owner, by which rows are in order
	sup    *jobs.Supervisor
	snap   jobs.Snapshot
	gone   bool // forgotten before its end was seen
}

func (r row) ended() bool { return r.gone || r.snap.Ended() }

// A board finds the jobs, and remembers those that are listed no more because
// they were collected or cancelled.
type board struct {
	root    *jobs.Supervisor
	numbers map[*jobs.Supervisor]int
	owners  int // seen so far
	rows    map[string]row
}

func newBoard(root *jobs.Supervisor) *board {
	return &board{root: root, numbers: make(map[*jobs.Supervisor]int), rows: make(map[string]row)}
}

// look returns all jobs as they stand, by owner and then by start.
func (b *board) look() []row {
	open := make(map[*jobs.Supervisor]bool)
	listed := make(map[string]bool)
	b.walk(b.root, "host", func(s *jobs.Supervisor, owner string) {
		open[s] = true
		for _, snap := range s.List().Jobs {
			listed[snap.ID] = true
			b.rows[snap.ID] = row{owner: owner, number: b.numbers[s], sup: s, snap: snap}
		}
	})
	for s := range b.numbers {
		if !open[s] {
			delete(b.numbers, s)
		}
	}
	var rows, unlisted []row
	for id, r := range b.rows {
		if !listed[id] && !r.ended() {
			snap, err := r.sup.Check(id)
			if err == nil {
				r.snap = snap
			}
			r.gone = err != nil
		}
		if !open[r.sup] && r.ended() {
			r.sup = nil // not to keep the memory of a closed owner
		}
		b.rows[id] = r
		if listed[id] || !r.ended() {
			rows = append(rows, r)
		} else {
			unlisted = append(unlisted, r)
		}
	}
	byStart := func(x, y row) int {
		return cmp.Or(x.snap.Started.Compare(y.snap.Started), cmp.Compare(x.snap.ID, y.snap.ID))
	}
	slices.SortFunc(unlisted, byStart)
	old := max(0, len(unlisted)-maxEnded)
	for _, r := range unlisted[:old] {
		delete(b.rows, r.snap.ID)
	}
	rows = append(rows, unlisted[old:]...)
	slices.SortFunc(rows, func(x, y row) int { return cmp.Or(x.number-y.number, byStart(x, y)) })
	return rows
}

// walk calls f for s and all below it.
func (b *board) walk(s *jobs.Supervisor, name string, f func(s *jobs.Supervisor, owner string)) {
	if b.numbers[s] == 0 {
		b.owners++
		b.numbers[s] = b.owners
	}
	f(s, name)
	for _, c := range s.Children() {
		child := cmp.Or(line(c.Name()), "unnamed")
		if s != b.root {
			child = name + " / " + child
		}
		b.walk(c, child, f)
	}
}

// cancel asks a job to stop, and says what came of that. It does not wait for
// the end, and asks nothing of a job that has ended: who is told of an end that
// way takes the notice from the job's owner.
func cancel(r row) string {
	name := line(r.snap.Tool)
	if r.sup == nil || r.ended() {
		return name + " has ended"
	}
	snap, err := r.sup.Check(r.snap.ID)
	if err != nil || snap.Ended() {
		return name + " has ended"
	}
	ctx, done := context.WithCancel(context.Background())
	done()
	if _, err := r.sup.Cancel(ctx, r.snap.ID); err != nil && !errors.Is(err, context.Canceled) {
		return line(err.Error())
	}
	return "asked " + name + " to stop"
}

// tail returns the end of a job's output as the library's text view has it, so
// that nothing in it moves the terminal.
func tail(r row) string {
	if r.sup == nil {
		return "Its owner is closed."
	}
	text, err := readable(r.snap.ID, r.sup.Output)
	switch {
	case errors.Is(err, jobs.ErrCollected):
		return "Its result was collected, and its output with it."
	case err != nil:
		return "It is no longer remembered."
	}
	if stderr, err := readable(r.snap.ID, r.sup.Stderr); err == nil && stderr != "" {
		text += "\n-- standard error --\n" + stderr
	}
	return text
}

// readable returns the end of an output that read, a method of a supervisor,
// gives piece by piece.
func readable(id string, read func(id string, from int64, max int) (jobs.Chunk, error)) (string, error) {
	var log jobs.Log
	for from, left := int64(-tailBytes), tailBytes; left > 0; {
		c, err := read(id, from, left)
		if err != nil {
			return "", err
		}
		log.Total = c.Next // what came since is for the next look
		if len(c.Data) == 0 {
			break
		}
		log.Pieces = append(log.Pieces, jobs.Piece{From: c.From, Data: c.Data})
		from, left = c.Next, left-len(c.Data)
	}
	return log.Text(jobs.TextOptions{}).Body, nil
}

// line makes a name, which may come from a model, fit to stand in a line.
func line(s string) string {
	log := jobs.Log{Pieces: []jobs.Piece{{Data: []byte(s)}}, Total: int64(len(s))}
	return strings.Join(strings.Fields(log.Text(jobs.TextOptions{}).Body), " ")
}
