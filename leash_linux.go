package jobs

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// leashPatience is how long a write to the leash may take, and how long it
	// may leave unread what was written, before it counts as dead.
	leashPatience = time.Second

	// leashLooks is how often it is looked at within that time. One look would
	// not do: a machine that was suspended wakes with the timer overdue.
	leashLooks = 4

	// A leash that is lost more than mostLosses times within lossesWithin is
	// given up.
	mostLosses   = 5
	lossesWithin = time.Minute
)

// leashShell is the command of a POSIX shell. Tests set it before the first job.
var leashShell = []string{"/bin/sh"}

//go:embed leash.sh
var leashScript string

var errLeashGivenUp = errors.New("it was lost too often")

// A leash is a small shell process that kills the jobs of a host that was
// killed itself. It is told of every job through a pipe, whose end only the host
// holds; the system closes that whatever way the host dies. A nil leash holds
// nothing.
type leash struct {
	top *Supervisor // which is told when it is lost

	// turn holds a value while somebody deals with the leash, which takes no
	// longer than leashPatience for each shell that does not listen. It guards
	// the fields below.
	turn    chan struct{}
	jobs    map[string]leashed // by id
	shell   *leashProcess      // nil while there is none
	losses  []time.Time        // the latest
	looking *time.Timer        // nil unless a look is due
	givenUp bool
	closed  bool
	burials sync.WaitGroup
}

// leashed is what a leash knows of a job.
type leashed struct {
	pid   int    // of the leader, 0 before it is started
	start uint64 // when it was started, or is about to be
}

func (l leashed) line(id string) string {
	return fmt.Sprintf("+ %d %d %s\n", l.pid, l.start, id)
}

// newLeash returns the leash of a tree of supervisors, nil if it has none.
func newLeash(top *Supervisor) *leash {
	if !top.cfg.Leash {
		return nil
	}
	return &leash{top: top, turn: make(chan struct{}, 1), jobs: make(map[string]leashed)}
}

func (l *leash) enter() (leave func()) {
	l.turn <- struct{}{}
	return func() { <-l.turn }
}

// announce puts a job on the leash that is about to be started. The first one
// starts the leash.
func (l *leash) announce(ctx context.Context, j *job) error {
	if l == nil || j.onOwnerEnd == KeepRunning {
		return nil
	}
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-l.turn }()
	if l.givenUp || l.closed {
		return nil
	}
	l.jobs[j.id] = leashed{start: bootTicks()}
	if l.shell != nil {
		l.write(l.jobs[j.id].line(j.id))
		return nil
	}
	err := l.renew()
	if err == errLeashGivenUp {
		l.giveUp()
		return nil
	}
	if err != nil {
		delete(l.jobs, j.id)
	}
	return err
}

// hold tells the leash the leader of a job, unless that is reaped already.
func (l *leash) hold(id string, leader int) {
	if l == nil || leader == 0 {
		return
	}
	st, ok := readStat(leader, make([]byte, 512))
	defer l.enter()()
	if _, on := l.jobs[id]; on && ok {
		l.jobs[id] = leashed{pid: leader, start: st.start}
		l.write(l.jobs[id].line(id))
	}
}

// release takes a job off the leash. It must come before its leader is reaped,
// when the number becomes free.
func (l *leash) release(id string) {
	if l == nil {
		return
	}
	defer l.enter()()
	if _, on := l.jobs[id]; on {
		delete(l.jobs, id)
		l.write("- " + id + "\n")
	}
}

// close takes all jobs off the leash and ends it.
func (l *leash) close() {
	if l == nil {
		return
	}
	l.end()
	l.burials.Wait()
}

func (l *leash) end() {
	defer l.enter()()
	l.closed = true
	if l.looking != nil {
		l.looking.Stop()
	}
	if sh := l.shell; sh != nil {
		l.shell = nil
		var off strings.Builder
		for id := range l.jobs {
			off.WriteString("- " + id + "\n")
		}
		heard := sh.write(off.String()) == nil
		l.burials.Go(func() { sh.end(!heard) })
	}
	clear(l.jobs)
}

// write tells the shell something, and replaces it if it does not listen. It
// needs turn.
func (l *leash) write(lines string) {
	if l.shell == nil {
		return
	}
	if err := l.shell.write(lines); err != nil {
		l.mend()
		return
	}
	l.lookSoon()
}

// lookSoon has a look taken at whether the shell reads what it is told. It needs
// turn.
func (l *leash) lookSoon() {
	if l.looking == nil {
		l.looking = time.AfterFunc(leashPatience/leashLooks, l.look)
	}
}

func (l *leash) look() {
	defer l.enter()()
	l.looking = nil
	switch sh := l.shell; {
	case sh == nil || l.closed || sh.idle():
	case sh.silent > leashLooks:
		l.mend()
	default:
		l.lookSoon()
	}
}

// died is called when a shell has exited.
func (l *leash) died(sh *leashProcess) {
	defer l.enter()()
	if sh == l.shell {
		l.mend()
	}
}

// mend replaces a shell that is dead, or as good as that, and tells of it. Where
// there are no jobs that waits for the next one. It needs turn.
func (l *leash) mend() {
	l.bury()
	if len(l.jobs) == 0 {
		return
	}
	switch err := l.renew(); err {
	case nil:
		l.tell("a new one holds the jobs")
	case errLeashGivenUp:
		l.giveUp()
	default:
		l.tell(readable(fmt.Sprintf("no job has one until the next is started, since there is no new one: %v", err), 200))
	}
}

// bury gets rid of the shell and counts the loss. It needs turn.
func (l *leash) bury() {
	sh := l.shell
	l.shell = nil
	l.losses = append(l.losses, time.Now())
	l.burials.Go(func() { sh.end(true) })
}

// renew starts a shell and tells it of all jobs. It needs turn.
func (l *leash) renew() error {
	for {
		if n := len(l.losses); n > mostLosses && time.Since(l.losses[n-1-mostLosses]) < lossesWithin {
			return errLeashGivenUp
		}
		l.losses = l.losses[max(0, len(l.losses)-mostLosses):]
		var lines strings.Builder
		for id, j := range l.jobs {
			lines.WriteString(j.line(id))
		}
		sh, err := l.start()
		if err != nil {
			return err
		}
		l.shell = sh
		if sh.write(lines.String()) == nil {
			l.lookSoon()
			return nil
		}
		l.bury()
	}
}

// giveUp lets the jobs go on without a leash. It needs turn.
func (l *leash) giveUp() {
	l.givenUp = true
	clear(l.jobs)
	l.tell("it is given up, and no job has one any more")
}

// tell queues a notice that the leash was lost.
func (l *leash) tell(line string) {
	s := l.top
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reg.notices.add(queued{Notice: Notice{Event: EventLeashLost, ExitCode: -1, Line: line}})
}

// A leashProcess is the shell of a leash.
type leashProcess struct {
	tree    tree
	w       *os.File
	written int // bytes
	read    int // of those, at the last look
	silent  int // looks since it was last seen to read
}

// start starts a shell, in a session of its own and out of reach of signals that
// are meant for the host or its jobs. Its environment has no job's id, or it
// would pass for a process of the job that this host is.
func (l *leash) start() (*leashProcess, error) {
	env := []string{
		"LC_ALL=C",
		"LEASH=" + leashScript,
		"PATH=" + cmp.Or(os.Getenv("PATH"), "/usr/bin:/bin"),
	}
	if err := leashNeeds(env); err != nil {
		return nil, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	r, w, err := newInputPipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	c := &command{argv: append(slices.Clone(leashShell), "-c", `eval "$LEASH"`, "jobs-leash", EnvJob), env: env}
	if err := c.find(); err != nil {
		w.Close()
		return nil, err
	}
	attr := &os.ProcAttr{
		Dir:   "/",
		Env:   env,
		Files: []*os.File{r, null, null},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	}
	defer forks.enter()()
	sh := &leashProcess{w: w}
	sh.tree, err = l.top.host.start(c, attr, "", func() { go l.died(sh) })
	if err != nil {
		w.Close()
		return nil, err
	}
	return sh, nil
}

// leashNeeds reports what a shell would miss.
func leashNeeds(env []string) error {
	if !procUsable() {
		return errors.New("it needs a /proc that shows the processes of this host")
	}
	for _, tool := range []string{"grep", "head", "sed", "sleep", "tr"} {
		if (&command{argv: []string{tool}, env: env}).find() != nil {
			return fmt.Errorf("it needs %s, which is not in PATH", tool)
		}
	}
	return nil
}

// write writes to the shell. It fails if that takes too long. The part of a line
// that is left then is one that nobody ends, and so none.
func (sh *leashProcess) write(lines string) error {
	const most = 4 << 10
	for len(lines) > 0 {
		n := min(len(lines), most)
		sh.w.SetWriteDeadline(time.Now().Add(leashPatience))
		if _, err := sh.w.WriteString(lines[:n]); err != nil {
			return err
		}
		sh.written += n
		lines = lines[n:]
	}
	return nil
}

// idle reports whether the shell has read all it was told. If not, it counts the
// looks that have not seen it read.
func (sh *leashProcess) idle() bool {
	conn, err := sh.w.SyscallConn()
	if err != nil {
		return true
	}
	var unread int
	conn.Control(func(fd uintptr) { unread, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }) // FIONREAD
	if err != nil {
		return true
	}
	sh.silent++
	if read := sh.written - unread; read > sh.read || unread == 0 {
		sh.read, sh.silent = read, 0
	}
	return unread == 0
}

// end ends the shell: it exits when its pipe is closed, unless it holds jobs. It
// is killed if kill is set, or if it does not.
func (sh *leashProcess) end(kill bool) {
	if kill {
		sh.tree.kill() // before it finds the pipe closed
	}
	sh.w.Close()
	if !sh.gone(leashPatience) {
		sh.tree.kill()
		if !sh.gone(unkillableAfter) {
			return
		}
	}
	sh.tree.reap()
	sh.tree.close(false)
}

// gone reports whether the shell has exited, within a time.
func (sh *leashProcess) gone(within time.Duration) bool {
	bound, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return closedBefore(bound, sh.tree.gone())
}
