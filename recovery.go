package jobs

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"
)

// A Recovery is what [New] found in a [Config.Dir] that another host had used
// before. The ends in it are told by notices, not by it.
type Recovery struct {
	// Lost holds the jobs that ran when their host died, and processes that one
	// let go of as it was closed, until they are collected or forgotten. What was
	// left of them has been killed, save for those with KeepRunning.
	Lost []Snapshot
	// Running holds the detached jobs that were picked up, see [Spec.Shell].
	Running []Snapshot
	// Ended holds the jobs that had ended and wait to be told or collected.
	Ended []Snapshot
	// Quarantine is the file with the records that could not be read; empty if
	// there were none.
	Quarantine string
}

// Recovered says what [New] found in [Config.Dir]. Only the first supervisor of
// a process that opens the directory finds something.
func (s *Supervisor) Recovered() Recovery { return s.recovered }

// settle takes over what an earlier host left: it kills what is to be killed and
// puts on record what nobody has seen the end of. It returns the jobs that are
// to be known again.
func (st *store) settle(past []*pastJob, grace time.Duration) ([]*pastJob, error) {
	lost := sweepLost(past, grace)
	known := past[:0]
	for _, p := range past {
		if p.end == nil && p.begin.Detached == nil {
			if p.start == nil {
				continue // nobody has its id
			}
			p.end = &record{Kind: recordEnd, ID: p.begin.ID, At: time.Now(), End: lost[p]}
			st.measure(p)
		}
		known = append(known, p)
	}
	if err := st.journal.replace(known); err != nil {
		return nil, err
	}
	st.dropResults(known)
	return known, nil
}

// recover makes the jobs of an earlier host known under their ids again.
func (s *Supervisor) recover(past []*pastJob, aside string) {
	s.recovered.Quarantine = aside
	for _, p := range past {
		if p.end == nil {
			s.pickUp(p)
		}
	}
	var revived []*job
	for _, p := range past {
		if p.end != nil {
			revived = append(revived, s.revive(p))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range revived {
		s.readmit(j)
	}
	for _, j := range revived { // some of which may have made others too much
		switch snap := j.snapshot(); {
		case snap.State == Lost:
			s.recovered.Lost = append(s.recovered.Lost, snap)
		case !j.forgotten:
			s.recovered.Ended = append(s.recovered.Ended, snap)
		}
	}
	if aside != "" {
		s.reg.notices.add(queued{Notice: Notice{Event: EventQuarantined, ExitCode: -1, Line: readable(aside, 4*nameLimit)}})
	}
}

// handDown gives the jobs that an earlier host ran for an owner of this name to
// the new one. It needs mu.
func (s *Supervisor) handDown(c *Supervisor) {
	if c.name == "" || s.store == nil {
		return
	}
	for _, j := range s.reg.selectJobs(func(j *job) bool { return j.recovered && j.from == c.name }) {
		if !j.ended {
			s.reg.live--
			c.reg.live++
		}
		if !j.slotFree {
			for o := c; o != s; o = o.parent {
				o.reg.slots++
			}
		}
		s.reg.moveTo(c, j)
		c.reg.resetKey(j)
	}
}

// sweepLost ends what is left of jobs whose host died, all at once, and returns
// how each that has no end on record ended.
func sweepLost(past []*pastJob, grace time.Duration) map[*pastJob]*pastEnd {
	h := new(host)
	defer h.close()
	ends := make(map[*pastJob]*pastEnd)
	var trees []tree
	of := make(map[tree]*pastEnd)
	for _, p := range past {
		if p.end != nil || p.begin.Detached != nil {
			continue
		}
		e := &pastEnd{State: Lost, Reason: ReasonLost, ExitCode: -1}
		ends[p] = e
		t := h.orphans(p)
		if t == nil {
			continue
		}
		if p.begin.Keep && p.start != nil {
			e.Survivors = t.look()
			t.close(false)
			continue
		}
		trees = append(trees, t)
		of[t] = e
	}
	killOrphans(trees, min(grace, orphanGrace))
	for _, t := range trees {
		e := of[t]
		e.Survivors = t.look()
		if err := t.blind(); err != nil {
			e.Err = err.Error()
		}
		t.close(false)
	}
	return ends
}

// orphanGrace bounds the kill grace of processes whose host is dead: New waits
// for it.
const orphanGrace = 500 * time.Millisecond

// killOrphans stops several trees whose leaders are nobody's children here.
func killOrphans(trees []tree, grace time.Duration) {
	living := func() (living []tree) {
		for _, t := range trees {
			if t.look(); !t.alone() {
				living = append(living, t)
			}
		}
		return living
	}
	left := living()
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	for _, t := range left {
		t.terminate()
	}
	for _, t := range left {
		t.await(ctx)
	}
	deadline := time.Now().Add(unkillableAfter)
	for left = living(); len(left) > 0 && time.Now().Before(deadline); left = living() {
		bound, cancel := context.WithTimeout(context.Background(), unkillableAfter)
		for _, t := range left {
			t.kill()
		}
		for _, t := range left {
			t.await(bound)
		}
		cancel()
	}
}

// measure finds out what the log files of a lost job hold.
func (st *store) measure(p *pastJob) {
	unended := *p
	unended.end = nil // which says nothing of the files yet
	out, errs := st.pastLog(&unended, false), st.pastLog(&unended, true)
	if out != nil {
		p.end.End.LogBytes = out.index.end()
		p.end.End.Total = out.index.end()
	}
	if errs != nil {
		p.end.End.ErrBytes = errs.index.end()
		p.end.End.ErrTotal = errs.index.end()
	}
}

// pastLog returns the log file of a job of an earlier host, nil if there is
// none.
func (st *store) pastLog(p *pastJob, stderr bool) *logFile {
	head := p.begin.LogHead
	if stderr {
		head = p.begin.ErrHead
	}
	path := st.logPath(p.begin.ID, stderr)
	fi, err := os.Lstat(path)
	if err != nil || head == 0 || !fi.Mode().IsRegular() || fi.Size() < head {
		return nil
	}
	l := &logFile{stderr: stderr, path: path, head: head, made: fi, announced: true}
	l.index.size = fi.Size()
	l.index.runs = []logRun{{pos: head}}
	for _, c := range p.cuts {
		if c.Stderr == stderr {
			last := &l.index.runs[len(l.index.runs)-1]
			last.n = max(0, min(c.Cut.End-last.off, fi.Size()-last.pos))
			l.index.runs = append(l.index.runs, logRun{off: c.Cut.Next, pos: c.Cut.Pos})
		}
	}
	last := &l.index.runs[len(l.index.runs)-1]
	last.n = max(0, fi.Size()-last.pos)
	if p.end != nil {
		end := p.end.End.LogBytes
		if stderr {
			end = p.end.End.ErrBytes
		}
		last.n = max(0, min(last.n, end-last.off))
	}
	return l
}

func (st *store) logPath(id string, stderr bool) string {
	name := id + ".log"
	if stderr {
		name = id + ".err.log"
	}
	return filepath.Join(st.dir, storeLogs, name)
}

// dropResults removes the results of jobs that nobody knows any more.
func (st *store) dropResults(known []*pastJob) {
	wanted := make(map[string]bool, len(known))
	for _, p := range known {
		wanted[p.begin.ID] = true
	}
	entries, _ := os.ReadDir(filepath.Join(st.dir, storeResults))
	for _, e := range entries {
		if !wanted[e.Name()] {
			os.RemoveAll(st.resultPath(e.Name()))
		}
	}
}

// revive returns a job of an earlier host, which has ended.
func (s *Supervisor) revive(p *pastJob) *job {
	e := p.end.End
	j := &job{
		s: s.shared, cfg: s.cfg, owner: s, from: p.begin.Owner,
		id: p.begin.ID, tool: p.begin.Tool, tag: p.begin.Tag, trust: p.begin.Trust, command: p.begin.Command,
		started: p.begin.At, onOwnerEnd: KillWithOwner,
		exited: make(chan struct{}), done: make(chan struct{}),
		work: pastWork{}, recovered: true,
		exitSeen: true, slotFree: true, ended: true, told: p.told,
		cause: e.Reason, endState: e.State, endedAt: p.end.At, elapsed: e.Elapsed,
		end: ending{
			exitCode: e.ExitCode, signal: e.Signal, core: e.Core, lost: e.State == Lost,
			usage:     usage{cpu: e.CPU, peakRSS: e.PeakRSS},
			leftovers: e.Leftovers, survivors: e.Survivors,
		},
	}
	if e.Err != "" {
		j.end.err = errors.New(e.Err)
	}
	if e.State == Lost && j.elapsed == 0 {
		j.elapsed = max(0, p.end.At.Sub(p.begin.At))
	}
	j.hurried, j.hurry = context.WithCancel(context.Background())
	j.hurry()
	close(j.exited)
	close(j.done)
	j.reviveLogs(p)
	j.end.resultFile = s.store.pastResult(p, s.cfg.ResultBytes)
	return j
}

// readmit enters a job of an earlier host in the tables. It needs mu.
func (s *Supervisor) readmit(j *job) {
	s.enter(j)
	s.reg.note(j.id, ErrExpired) // once it is forgotten
	s.reg.shelve(j)
	if !j.told {
		s.reg.notify(j)
	}
}

// reviveLogs gives the job what its log files hold.
func (j *job) reviveLogs(p *pastJob) {
	revive := func(stderr bool, total int64) *RingBuf {
		ring := j.newLog()
		if l := j.s.store.pastLog(p, stderr); l != nil {
			l.j = j
			l.refill(ring, total)
			j.logFiles = append(j.logFiles, l)
		} else {
			ring.drop(total)
		}
		ring.freeze()
		return ring
	}
	j.out = revive(false, p.end.End.Total)
	if p.begin.Split {
		j.errOut = revive(true, p.end.End.ErrTotal)
	}
}

// pastResult reads the result of a job of an earlier host.
func (st *store) pastResult(p *pastJob, keep int64) ResultFile {
	e := p.end.End
	r := ResultFile{Size: e.ResultSize, Problem: e.Problem, Data: e.Result}
	if len(e.Result) > 0 || e.ResultSize == 0 {
		r.Truncated = int64(len(r.Data)) < r.Size
		return r
	}
	f, err := openOwn(st.resultPath(p.begin.ID), os.O_RDONLY)
	if err != nil {
		r.Problem = cmp.Or(r.Problem, "the result was not kept: "+err.Error())
		return r
	}
	defer f.Close()
	if fi, err := f.Stat(); err == nil {
		f.Seek(max(0, fi.Size()-keep), io.SeekStart) // it is the end that is kept
	}
	r.Data, err = io.ReadAll(io.LimitReader(f, keep))
	if err == nil && len(r.Data) == 0 {
		err = errors.New("its file is empty") // as a loss of power may leave it
	}
	if err != nil {
		r.Problem = cmp.Or(r.Problem, "the result was not kept: "+err.Error())
	}
	r.Truncated = int64(len(r.Data)) < r.Size
	return r
}

// pastWork is the work of a job that an earlier host ran.
type pastWork struct{ atHand }

func (pastWork) follow(*job)                              {}
func (pastWork) settle(*job, bool) (e ending)             { return e }
func (pastWork) stop(*job) (_ []Process, _ bool, _ error) { return nil, false, nil }
func (pastWork) finished() bool                           { return true }
func (pastWork) unread() time.Duration                    { return 0 }
func (pastWork) pid() int                                 { return 0 }
func (pastWork) release(*job)                             {}
