//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package jobs

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A pump moves what a process prints into its job's log, until every writer
// has closed the pipe or it is told to stop.
type pump struct {
	j    *job
	log  *RingBuf
	pipe *os.File
	conn syscall.RawConn
	done chan struct{} // closed when run has returned
}

// newPump returns a pump into log, and the end of its pipe that the process
// gets. The caller closes that end once the process has it.
func newPump(j *job, log *RingBuf) (*pump, *os.File, error) {
	r, w, err := newPipe()
	if err != nil {
		return nil, nil, err
	}
	conn, err := r.SyscallConn()
	if err != nil {
		r.Close()
		w.Close()
		return nil, nil, err
	}
	return &pump{j: j, log: log, pipe: r, conn: conn, done: make(chan struct{})}, w, nil
}

// run moves to the end, in a goroutine of its own.
func (p *pump) run() {
	defer close(p.done)
	p.move()
}

// move moves until the end, and reports false if it was interrupted before, or
// the pipe was closed.
func (p *pump) move() (ended bool) {
	var n int
	var err error
	fill := pollFirst(func(fd uintptr) bool {
		n, err = p.fill(int(fd))
		return err != unix.EAGAIN
	})
	// One read for each turn, so that a deadline set by interrupt or stop ends
	// the loop even while a flood never lets a read find the pipe empty.
	for {
		if p.conn.Read(fill) != nil {
			return false
		}
		if n <= 0 || err != nil {
			return true
		}
		p.j.noteOutput(n)
		p.j.flushLogs()
	}
}

// interrupt makes a move return.
func (p *pump) interrupt() { p.pipe.SetReadDeadline(time.Unix(1, 0)) }

// pollFirst makes f wait for the poller if there is nothing for it yet. It
// could find that out itself, but most jobs print nothing for long, and a
// goroutine that has called no deeper than this keeps the smallest stack.
//
// It must look: what the poller has seen before the wait begins, the wait does
// not report again.
func pollFirst(f func(uintptr) bool) func(uintptr) bool {
	polled := false
	return func(fd uintptr) bool {
		if !polled {
			polled = true
			fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			if n, err := unix.Poll(fds[:], 0); n == 0 && err == nil {
				return false
			}
		}
		return f(fd)
	}
}

// fill reads once into the log, or into the void when the log is final.
func (p *pump) fill(fd int) (int, error) {
	n, err := p.log.readFrom(func(b []byte) (int, error) {
		n, err := readRetry(fd, b)
		if n > 0 {
			p.j.noteTime() // see unread
		}
		return n, err
	})
	if errors.Is(err, io.ErrClosedPipe) {
		var void [4096]byte
		n, err = readRetry(fd, void[:])
		p.j.late.Add(int64(max(n, 0)))
	}
	return n, err
}

func readRetry(fd int, b []byte) (int, error) {
	for {
		n, err := unix.Read(fd, b)
		if err != unix.EINTR {
			return n, err
		}
	}
}

// stop ends the pump and takes what the pipe holds at this moment.
func (p *pump) stop() {
	select {
	case <-p.done:
		return // at its end
	default:
	}
	p.interrupt()
	<-p.done
	// With an expired deadline a read gives nothing even where data waits, so
	// the rest is taken from the descriptor itself. A writer that goes on may
	// be refilling the pipe: take no more than the largest pipe can hold.
	p.conn.Control(func(fd uintptr) {
		for taken := 0; taken < 1<<20; {
			n, err := p.fill(int(fd))
			if n <= 0 || err != nil {
				return
			}
			taken += n
			p.j.noteOutput(n)
			p.j.flushLogs()
		}
	})
}

// streams are the pumps of one process: one, or two where standard error has a
// log of its own.
type streams struct {
	pumps []*pump
}

// follow moves what comes until every writer of the first pipe has closed it,
// or until interrupted; then a goroutine goes on with it. It reports whether it
// saw the end. Most jobs have one pipe, and cost no goroutine but the one that
// follows.
func (s *streams) follow() (ended bool) {
	for _, p := range s.pumps[1:] {
		go p.run()
	}
	first := s.pumps[0]
	if first.move() {
		close(first.done)
		return true
	}
	first.pipe.SetReadDeadline(time.Time{})
	go first.run()
	return false
}

// interrupt makes follow return, as the leader has exited.
func (s *streams) interrupt() { s.pumps[0].interrupt() }

// unread reports whether a pipe holds something. If it reports false then the
// time of the last output is that of all that was printed so far.
func (s *streams) unread() bool {
	for _, p := range s.pumps {
		holds := false
		p.conn.Control(func(fd uintptr) {
			fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, _ := unix.Poll(fds[:], 0)
			holds = n > 0 && fds[0].Revents&unix.POLLIN != 0
		})
		if holds {
			return true
		}
		p.log.settle()
	}
	return false
}

// drained reports whether every pump has seen the end before ctx was done.
func (s *streams) drained(ctx context.Context) bool {
	for _, p := range s.pumps {
		if !closedBefore(ctx, p.done) {
			return false
		}
	}
	return true
}

// finish takes the rest of the output. All that could be killed is dead, so the
// end is at hand, unless somebody who was not found still holds a pipe: then
// what is there now is all.
func (s *streams) finish() {
	last, cancel := context.WithTimeout(context.Background(), silence)
	defer cancel()
	s.drained(last)
	for _, p := range s.pumps {
		p.stop()
	}
}

// keep leaves the pipes to leftovers that live on.
func (s *streams) keep(k *keptPipes) {
	for _, p := range s.pumps {
		k.add(p)
	}
}

// close closes the pipes.
func (s *streams) close() {
	for _, p := range s.pumps {
		p.pipe.Close()
	}
}

// keptPipes are the pipes that leftovers hold past the end of their jobs.
// Somebody must go on reading, or the leftovers would die of SIGPIPE.
type keptPipes struct {
	mu     sync.Mutex // guards the set
	pumps  map[*pump]struct{}
	closed bool
}

// add takes over a pump whose log is final.
func (k *keptPipes) add(p *pump) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.pumps == nil {
		k.pumps = make(map[*pump]struct{})
	}
	k.pumps[p] = struct{}{}
	go func() {
		<-p.done
		p.pipe.Close()
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.pumps, p)
	}()
	if k.closed {
		p.pipe.Close()
	}
}

// close closes every pipe and waits for the pumps.
func (k *keptPipes) close() {
	k.mu.Lock()
	k.closed = true
	pumps := make([]*pump, 0, len(k.pumps))
	for p := range k.pumps {
		pumps = append(pumps, p)
	}
	k.mu.Unlock()
	for _, p := range pumps {
		p.pipe.Close()
		<-p.done
	}
}
