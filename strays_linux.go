package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// A job younger than youngAge has its descendants among the pids given out
	// since its start. If those are more than narrowSpan, a walk through all of
	// /proc, which many jobs can share, is the cheaper way.
	youngAge   = 100 * time.Millisecond
	narrowSpan = 64

	// mostPause bounds the pause between two walks.
	mostPause = 20 * time.Millisecond

	// sweepPatience bounds the wait for a sweep. Reading /proc can hang on a
	// process that the kernel itself is stuck in.
	sweepPatience = 2 * time.Second
)

// A member is a process of a job besides its leader, seen alive.
type member struct {
	stat    procStat
	grouped bool     // in the leader's process group
	told    bool     // TERM has been sent
	pidfd   *os.File // nil without pidfd
	fd      int
}

// newMember takes hold of a process that was seen in /proc. It returns nil if
// the process is gone, or was a thread.
func newMember(st procStat, grouped bool) *member {
	m := &member{stat: st, grouped: grouped, fd: -1}
	if pidfdWorks() {
		fd, err := unix.PidfdOpen(st.pid, 0)
		if err != nil {
			noteStarved(err)
			return nil
		}
		unix.SetNonblock(fd, true)
		m.fd, m.pidfd = fd, os.NewFile(uintptr(fd), "pidfd")
	}
	// Only now is it certain that the number means who was seen.
	now, same := m.now()
	if !same || now.dead() || m.pidfd == nil && !isProcess(st.pid) {
		if same && now.dead() {
			m.reapIfOurs()
		}
		m.close()
		return nil
	}
	return m
}

// isProcess reports whether a pid is that of a process. Those of its other
// threads can be looked up in /proc too.
func isProcess(pid int) bool {
	status, ok := readProc("/proc/"+strconv.Itoa(pid)+"/status", make([]byte, 1024))
	return ok && bytes.Contains(status, []byte("\nTgid:\t"+strconv.Itoa(pid)+"\n"))
}

// now returns the process's present entry in /proc; ok is false once it is
// gone.
func (m *member) now() (st procStat, ok bool) {
	st, ok = readStat(m.stat.pid, make([]byte, 512))
	return st, ok && st.start == m.stat.start
}

// alive reports whether the process still runs. A zombie does not.
func (m *member) alive() bool {
	st, ok := m.now()
	return ok && !st.dead()
}

// signal sends sig to exactly this process. Without pidfd its identity is
// checked right before; the window that leaves is that of two system calls.
func (m *member) signal(sig unix.Signal) error {
	if m.pidfd == nil && !m.alive() {
		return nil
	}
	return signal(m.fd, m.stat.pid, false, sig)
}

// await waits until the process is dead or ctx is done, and reports whether it
// is dead. Where it had become a child of this process it is reaped.
func (m *member) await(ctx context.Context) bool {
	if m.pidfd == nil {
		return m.pollDeath(ctx)
	}
	conn, err := m.pidfd.SyscallConn()
	if err != nil {
		return !m.alive()
	}
	m.pidfd.SetReadDeadline(time.Time{})
	interrupt := context.AfterFunc(ctx, func() { m.pidfd.SetReadDeadline(time.Unix(1, 0)) })
	defer interrupt()
	dead := false
	conn.Read(func(uintptr) bool {
		fds := []unix.PollFd{{Fd: int32(m.fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 0)
		dead = n > 0
		return dead || err != nil && err != unix.EINTR
	})
	if dead {
		m.reapIfOurs()
	}
	return dead
}

// reapIfOurs reaps a dead process that had become a child of this one, as
// orphans do where the host is PID 1 or a subreaper.
func (m *member) reapIfOurs() {
	if m.pidfd != nil {
		waitidRetry(unix.P_PIDFD, m.fd, nil, unix.WEXITED|unix.WNOHANG) // ECHILD if it is not ours
		return
	}
	if st, ok := m.now(); ok && st.ppid == os.Getpid() {
		waitidRetry(unix.P_PID, m.stat.pid, nil, unix.WEXITED|unix.WNOHANG)
	}
}

func (m *member) pollDeath(ctx context.Context) bool {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for m.alive() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return !m.alive()
		}
	}
	m.reapIfOurs()
	return true
}

func (m *member) close() {
	if m.pidfd != nil {
		m.pidfd.Close()
	}
}

// look finds the live processes of the job. It remembers those it finds, since
// what betrayed them may be gone at the next look.
func (t *linuxTree) look() []Process {
	if !procUsable() {
		return nil
	}
	before := starved.Load()
	t.overlooked = nil
	for pinned := t.pinned(); ; pinned = false {
		q := t.query(pinned)
		if !t.lookNarrow(q) && !t.host.sweeper.ask(q) {
			t.overlooked = errors.New("reading /proc takes too long")
			break
		}
		// Had the leader been reaped by somebody else meanwhile, its number may
		// have been given to a stranger: what it said would be worth nothing.
		if pinned && !t.pinned() {
			continue
		}
		t.remember(q)
		break
	}
	names := t.known()
	if starved.Load() != before {
		t.overlooked = unix.EMFILE
	}
	return names
}

// blind reports why the last look may have overlooked processes.
func (t *linuxTree) blind() error {
	if t.overlooked == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", errUnseen, t.overlooked)
}

// starved counts how often something could not be looked at for want of a
// descriptor.
var starved atomic.Int64

func noteStarved(err error) {
	if err == unix.EMFILE || err == unix.ENFILE || errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		starved.Add(1)
	}
}

// lookBelow finds the descendants of a leader that lives. Some of them nothing
// else betrays, and that only as long as it lives. It reads no more of /proc
// than there are processes in the job.
func (t *linuxTree) lookBelow() {
	if !procUsable() || !childrenListed() {
		t.look()
		return
	}
	if !t.pinned() {
		return
	}
	defer files.enter()()
	q := t.query(true)
	buf := make([]byte, 512)
	below := []procStat{{pid: t.leader}}
	for i := 0; i < len(below); i++ {
		parent := below[i]
		found := childrenOf(parent.pid, buf)
		// What a number that has changed hands says is worth nothing.
		if i > 0 {
			if now, ok := readStat(parent.pid, buf); !ok || now.start != parent.start {
				continue
			}
		}
		below = append(below, found...)
	}
	if t.pinned() {
		q.found = slices.DeleteFunc(below[1:], procStat.dead)
		t.remember(q)
	}
}

func (t *linuxTree) query(pinned bool) *query {
	q := &query{
		id:     t.id,
		leader: t.leader,
		pinned: pinned,
		since:  t.ticks,
		exit:   t.exitTicks.Load(),
		roots:  make(map[int]uint64),
		done:   make(chan struct{}),
	}
	for _, m := range t.members {
		q.roots[m.stat.pid] = m.stat.start
	}
	return q
}

// remember takes hold of what a look has found, and reaps what had become this
// process's own.
func (t *linuxTree) remember(q *query) {
	for _, pid := range q.orphans {
		waitidRetry(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOHANG)
	}
	for _, st := range q.found {
		if start, ok := q.roots[st.pid]; ok && start == st.start {
			continue
		}
		if m := newMember(st, st.pgrp == t.leader); m != nil {
			t.members = append(t.members, m)
		}
	}
}

func (t *linuxTree) alone() bool { return len(t.members) == 0 }

func (t *linuxTree) busy() bool {
	return slices.ContainsFunc(t.members, (*member).busy)
}

// busy reports whether the process runs or waits for a processor or a disk, or
// has unread bytes in the pipe that is its standard input.
func (m *member) busy() bool {
	st, ok := m.now()
	if !ok || st.dead() {
		return false
	}
	return st.state == 'R' || st.state == 'D' || unread(fmt.Sprintf("/proc/%d/fd/0", m.stat.pid)) > 0
}

// unread returns how many bytes wait in the pipe behind path. It consumes none.
func unread(path string) int {
	// Not a stat, which would follow the link to a file system that may hang.
	if to, err := os.Readlink(path); err != nil || !strings.HasPrefix(to, "pipe:[") {
		return 0
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	n, err := unix.IoctlGetInt(fd, unix.TIOCINQ) // FIONREAD
	if err != nil {
		return 0
	}
	return n
}

// known forgets the dead and names the living. Those that are exiting already
// are awaited like the others, but are no news.
func (t *linuxTree) known() []Process {
	if t.alone() {
		return nil
	}
	defer files.enter()()
	var names []Process
	t.members = slices.DeleteFunc(t.members, func(m *member) bool {
		before := starved.Load()
		st, ok := m.now()
		if !ok && starved.Load() != before {
			return false // nobody can tell
		}
		if !ok || st.dead() {
			m.reapIfOurs()
			m.close()
			return true
		}
		if !st.exiting || st.headless() {
			names = append(names, Process{PID: st.pid, Name: st.name})
		}
		return false
	})
	return names
}

// lookNarrow answers q by looking only at the pids given out since the job's
// start, and those it asks about by number. It reports false where that would
// not do.
func (t *linuxTree) lookNarrow(q *query) bool {
	if time.Since(t.born) > youngAge {
		return false
	}
	defer files.enter()()
	var table procTable
	buf := make([]byte, 512)
	// A process may have been born since the last pid was read, so it is read
	// again until it stands still; a busy machine ends that soon.
	from := t.leader + 1
	for range 4 {
		last, ok := t.host.lastPID(buf)
		if !ok || last < from-1 || last-t.leader > narrowSpan {
			return false // unknown, wrapped around, or too many
		}
		if last < from {
			break // none at all, or none since the last round
		}
		if table == nil {
			table = make(procTable)
		}
		for ; from <= last; from++ {
			table.add(from, buf)
		}
	}
	if table == nil {
		return true // the leader was the last process born here
	}
	for pid := range q.roots {
		table.add(pid, buf)
	}
	table.answer([]*query{q}, t.leader)
	return true
}

// lastPID returns the pid that was given out last in this pid namespace.
func (h *host) lastPID(buf []byte) (int, bool) {
	f, err := h.loadavg.open("/proc/loadavg")
	if err != nil {
		return 0, false
	}
	n, err := unix.Pread(int(f.Fd()), buf, 0)
	fields := bytes.Fields(buf[:max(n, 0)])
	if err != nil || len(fields) == 0 {
		return 0, false
	}
	pid, err := strconv.Atoi(string(fields[len(fields)-1]))
	return pid, err == nil
}

// A query asks for the processes of one job.
type query struct {
	id     string
	leader int
	pinned bool           // the leader is not reaped: its number is its own
	since  uint64         // no process of the job is older
	exit   uint64         // when the leader's exit was seen
	roots  map[int]uint64 // pid → start of processes known before

	found   []procStat // alive, besides the leader
	orphans []int      // zombies of the job that are children of this process
	done    chan struct{}
}

// names reports whether the leader's number n, found with process e, means the
// leader. Once somebody else has reaped it the number can be a stranger's; as
// that of a session or group it still means ours in whatever is older than the
// leader's exit.
func (q *query) names(n int, e *procEntry) bool {
	return q.pinned || n != e.pid && n != e.ppid && e.start < q.exit
}

// A sweeper walks through /proc on behalf of all jobs of a supervisor. At most
// one walk is under way; a query that comes meanwhile is answered by the next
// one, together with all others that came.
type sweeper struct {
	mu      sync.Mutex // guards the fields below
	waiting []*query
	walking bool
}

// ask answers q, or reports false if that takes too long.
func (s *sweeper) ask(q *query) bool {
	s.mu.Lock()
	s.waiting = append(s.waiting, q)
	if !s.walking {
		s.walking = true
		go s.walk()
	}
	s.mu.Unlock()
	patience := time.NewTimer(sweepPatience)
	defer patience.Stop()
	select {
	case <-q.done:
		return true
	case <-patience.C:
		return false
	}
}

func (s *sweeper) walk() {
	for {
		batch := s.next()
		if len(batch) == 0 {
			return
		}
		begun := time.Now()
		readTable().answer(batch, 0)
		for _, q := range batch {
			close(q.done)
		}
		if s.asked() {
			// Jobs end one after another: more of them may share the next walk, and
			// the processor is left to those who end.
			time.Sleep(min(2*time.Since(begun), mostPause))
		}
	}
}

// asked reports whether queries wait.
func (s *sweeper) asked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting) > 0
}

func (s *sweeper) next() []*query {
	s.mu.Lock()
	defer s.mu.Unlock()
	batch := s.waiting
	s.waiting = nil
	s.walking = len(batch) > 0
	return batch
}

// A procTable holds what /proc said of some or all processes.
type procTable map[int]*procEntry

type procEntry struct {
	procStat
	asked bool   // owner is set
	owner *query // the job it belongs to, if any
	read  bool   // the environment has been read
}

func (t procTable) add(pid int, buf []byte) {
	if st, ok := readStat(pid, buf); ok {
		t[pid] = &procEntry{procStat: st}
	}
}

// readTable walks through /proc.
func readTable() procTable {
	table := make(procTable)
	dir, err := os.Open("/proc")
	if err != nil {
		noteStarved(err)
		return table
	}
	defer dir.Close()
	buf := make([]byte, 512)
	for {
		names, err := dir.Readdirnames(512)
		for _, name := range names {
			if pid, err := strconv.Atoi(name); err == nil {
				table.add(pid, buf)
			}
		}
		if err != nil {
			return table
		}
	}
}

// answer gives each query its processes. If the table holds only pids given out
// since one was, that is oldest, else 0.
func (t procTable) answer(batch []*query, oldest int) {
	m := matcher{
		oldest:   oldest,
		table:    t,
		self:     os.Getpid(),
		since:    batch[0].since,
		byLeader: make(map[int]*query),
		byRoot:   make(map[int]*query),
		byID:     make(map[string]*query),
	}
	for _, q := range batch {
		m.since = min(m.since, q.since)
		m.byLeader[q.leader] = q
		m.byID[q.id] = q
		for pid := range q.roots {
			m.byRoot[pid] = q
		}
	}
	// In the midst of an exec a process shows no environment. It is asked again,
	// a few times: one that has none at all looks the same.
	for pause := time.Millisecond; ; pause *= 2 {
		for _, e := range t {
			m.owner(e)
		}
		if m.unclear == 0 || pause > 8*time.Millisecond {
			break
		}
		time.Sleep(pause)
		m.unclear = 0
		for _, e := range t {
			e.asked = e.asked && e.owner != nil
		}
	}
	for pid, e := range t {
		q := e.owner
		switch {
		case q == nil || pid == q.leader:
		case !e.dead():
			q.found = append(q.found, e.procStat)
		case e.ppid == m.self && (e.session == q.leader || e.pgrp == q.leader):
			q.orphans = append(q.orphans, pid)
		}
	}
	for _, q := range batch {
		slices.SortFunc(q.found, func(a, b procStat) int { return a.pid - b.pid })
	}
}

// A matcher tells which process belongs to which job.
type matcher struct {
	table    procTable
	self     int
	since    uint64 // no process of any job in question is older
	oldest   int    // nor has one a lower pid; 0 = no telling
	byLeader map[int]*query
	byRoot   map[int]*query
	byID     map[string]*query
	environ  []byte // reused
	unclear  int    // processes that showed no environment
}

// owner returns the query that e belongs to, by what it is itself or by its
// parent.
func (m *matcher) owner(e *procEntry) *query {
	if e.asked {
		return e.owner
	}
	e.asked = true
	if e.pid == m.self || e.start+1 < m.since {
		return nil
	}
	e.owner = m.direct(e)
	if parent := m.table[e.ppid]; e.owner == nil && parent != nil {
		e.owner = m.owner(parent)
	}
	return e.owner
}

// direct finds the owner by the leader's number, which may be that of the
// session, the group or the parent; by earlier acquaintance; or by the
// environment.
func (m *matcher) direct(e *procEntry) *query {
	for _, n := range [...]int{e.pid, e.ppid, e.session, e.pgrp} {
		if q := m.byLeader[n]; q != nil && q.names(n, e) {
			return q
		}
	}
	if q := m.byRoot[e.pid]; q != nil && q.roots[e.pid] == e.start {
		return q
	}
	if e.read || e.dead() || e.exiting && !e.headless() || e.kernel || m.olderSession(e) {
		return nil
	}
	if e.headless() {
		m.environ = readThreadEnviron(e.pid, m.environ)
	} else {
		m.environ = readEnviron(e.pid, m.environ)
	}
	if e.read = len(m.environ) > 0; !e.read {
		m.unclear++
	}
	for id := range jobIDs(m.environ) {
		if q := m.byID[id]; q != nil {
			return q
		}
	}
	return nil
}

// olderSession reports whether the process is in a session that began before
// the jobs did. Nobody can join a session, so such a process is of none.
func (m *matcher) olderSession(e *procEntry) bool {
	if e.session < m.oldest {
		return true
	}
	leader := m.table[e.session]
	return leader != nil && leader.start+1 < m.since
}

// jobIDs yields the elements of the id chain in an environment.
func jobIDs(environ []byte) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for kv := range bytes.SplitSeq(environ, []byte{0}) {
			chain, ok := bytes.CutPrefix(kv, []byte(EnvJob+"="))
			if !ok {
				continue
			}
			for id := range bytes.SplitSeq(chain, []byte(":")) {
				if !yield(string(id)) {
					return
				}
			}
		}
	}
}
