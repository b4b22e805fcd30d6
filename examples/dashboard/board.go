package dashboard

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/agentjobs/jobs"
)

// Bounds of what is shown and remembered.
const (
	maxRows   = 300 // jobs
	maxGroups = 60  // owners without a job to show
)

// A board is what all pages show. Whoever asks for it while it is old brings it
// up to date, so that many pages cost one look, and none costs nothing.
type board struct {
	root  *jobs.Supervisor
	fresh time.Duration

	mu      sync.Mutex
	looked  time.Time
	groups  map[*jobs.Supervisor]*group // of owners that are not closed
	entries map[string]*entry           // by job id
	owners  int                         // seen so far
	data    []byte                      // the JSON of it all
	version int                         // of data
}

// A group is an owner.
type group struct {
	number       int
	name         string
	running, max int
	closed       bool
}

// An entry is a job that was seen. It stays when a supervisor lists the job no
// more because its result was collected.
type entry struct {
	group *group
	sup   *jobs.Supervisor // nil once the owner is closed, not to keep its memory
	snap  jobs.Snapshot
	gone  bool // forgotten before its end was seen
}

func (e *entry) ended() bool { return e.gone || e.snap.Ended() }

func newBoard(root *jobs.Supervisor, fresh time.Duration) *board {
	return &board{
		root:    root,
		fresh:   fresh,
		groups:  make(map[*jobs.Supervisor]*group),
		entries: make(map[string]*entry),
	}
}

// look returns the JSON of the board. The version grows when it changes.
func (b *board) look() (data []byte, version int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	// Pages that tick alike must not miss each other's look by a hair.
	if time.Since(b.looked) > b.fresh/2 {
		b.update()
		if data := b.encode(); !bytes.Equal(data, b.data) {
			b.data = data
			b.version++
		}
		b.looked = time.Now()
	}
	return b.data, b.version
}

// update takes in how the supervisors stand. It needs mu, as what it calls does.
func (b *board) update() {
	open := make(map[*jobs.Supervisor]bool)
	listed := make(map[string]bool)
	b.walk(b.root, "", func(s *jobs.Supervisor, g *group) {
		open[s] = true
		list := s.List()
		g.running, g.max = list.Running, list.MaxRunning
		for _, snap := range list.Jobs {
			listed[snap.ID] = true
			b.entries[snap.ID] = &entry{group: g, sup: s, snap: snap}
		}
	})
	for id, e := range b.entries {
		if !listed[id] && !e.ended() {
			snap, err := e.sup.Check(id)
			if err == nil {
				e.snap = snap
			}
			e.gone = err != nil
		}
		if !open[e.sup] && e.ended() {
			e.sup = nil
		}
	}
	for s, g := range b.groups {
		if !open[s] {
			g.closed, g.running = true, 0
			delete(b.groups, s)
		}
	}
	b.forget(listed)
}

// walk calls f for s and all below it, each with its group.
func (b *board) walk(s *jobs.Supervisor, above string, f func(*jobs.Supervisor, *group)) {
	name := "host"
	if s != b.root {
		name = cmp.Or(line(s.Name()), "unnamed")
	}
	if above != "" {
		name = above + " / " + name
	}
	g := b.groups[s]
	if g == nil {
		b.owners++
		g = &group{number: b.owners, name: name}
		b.groups[s] = g
	}
	f(s, g)
	below := name
	if s == b.root {
		below = ""
	}
	for _, c := range s.Children() {
		b.walk(c, below, f)
	}
}

// forget bounds the entries that only the board remembers: the oldest go. What
// supervisors list they bound themselves.
func (b *board) forget(listed map[string]bool) {
	var own []*entry
	for id, e := range b.entries {
		if !listed[id] && e.ended() {
			own = append(own, e)
		}
	}
	slices.SortFunc(own, byStart)
	for _, e := range own[:max(0, len(own)-maxRows)] {
		delete(b.entries, e.snap.ID)
	}
}

func byStart(x, y *entry) int {
	return cmp.Or(x.snap.Started.Compare(y.snap.Started), cmp.Compare(x.snap.ID, y.snap.ID))
}

// encode returns the JSON of at most maxRows jobs: the ones that run, and the
// newest of those that ended. It holds no number that grows by itself, so that
// it changes only when something happens.
func (b *board) encode() []byte {
	all := slices.SortedFunc(maps.Values(b.entries), byStart)
	rank := func(e *entry) int {
		if e.ended() {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(all, func(x, y *entry) int { return rank(x) - rank(y) })
	hidden := max(0, len(all)-maxRows)
	all = all[hidden:]
	slices.SortFunc(all, byStart)

	rows := make(map[*group][]row)
	for _, e := range all {
		rows[e.group] = append(rows[e.group], e.row())
	}
	shown := slices.Collect(maps.Keys(rows))
	var empty []*group
	for _, g := range b.groups {
		if rows[g] == nil {
			empty = append(empty, g)
		}
	}
	byNumber := func(x, y *group) int { return x.number - y.number }
	slices.SortFunc(empty, byNumber)
	shown = append(shown, empty[:min(len(empty), maxGroups)]...)
	slices.SortFunc(shown, byNumber)

	view := boardView{Hidden: hidden, Owners: []ownerView{}}
	for _, g := range shown {
		jobs := rows[g]
		if jobs == nil {
			jobs = []row{} // a list in JSON too
		}
		view.Owners = append(view.Owners, ownerView{g.number, g.name, g.running, g.max, g.closed, jobs})
	}
	data, _ := json.Marshal(view) // cannot fail
	return data
}

// find returns a job that was seen, and its supervisor; nil if there is none any
// more.
func (b *board) find(id string) (*jobs.Supervisor, entry, bool) {
	b.look()
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[id]
	if e == nil {
		return nil, entry{}, false
	}
	return e.sup, *e, true
}

// cancel asks a job to stop. It does not wait for that: who waits for an end is
// told of it, and that would take the notice from the owner, whose model is to
// know that its job was cancelled.
func (b *board) cancel(id string) error {
	s, _, ok := b.find(id)
	if !ok || s == nil {
		return jobs.ErrNotFound
	}
	// For the same reason Cancel must not find the job ended.
	snap, err := s.Check(id)
	if err != nil {
		return err
	}
	if snap.Ended() {
		return jobs.ErrEnded
	}
	ctx, done := context.WithCancel(context.Background())
	done()
	_, err = s.Cancel(ctx, id)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
