//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package jobs

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// seekData is no valid argument of lseek on every BSD: sparse files are read
// with their holes.
const seekData = -1

func newPipe() (r, w *os.File, err error)      { return os.Pipe() }
func newInputPipe() (r, w *os.File, err error) { return os.Pipe() }

// rssUnit is the unit of the memory that the system reports.
var rssUnit = func() int64 {
	if runtime.GOOS == "darwin" {
		return 1
	}
	return 1 << 10
}()

// untouched is false: these systems cannot tell whether a file is open
// elsewhere, so that every job gets a new one.
func untouched(string) bool { return false }

// A host is what the jobs of one supervisor share: here the kqueue on which
// one goroutine waits for the exits of all.
type host struct {
	null sharedFile // the null device

	mu    sync.Mutex // guards the fields below
	kq    int        // valid while waits is not nil
	waits map[int]func()
	// closing makes the goroutine end with the last exit.
	closing bool
	gone    chan struct{} // closed when the goroutine has ended
}

// close ends the goroutine, unless there are jobs that were let go: they are to
// be reaped when they exit.
func (h *host) close() {
	h.null.close()
	h.mu.Lock()
	h.closing = true
	if len(h.waits) > 0 {
		h.mu.Unlock()
		return
	}
	gone := h.gone
	if h.waits != nil {
		h.waits = nil
		unix.Close(h.kq) // wakes kevent with EBADF
	}
	h.mu.Unlock()
	if gone != nil {
		<-gone
	}
}

// watch calls exited, which must not wait, once the process has exited. The
// process is a child that nobody has reaped.
func (h *host) watch(pid int, exited func()) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waits == nil {
		kq, err := unix.Kqueue()
		if err != nil {
			return err
		}
		unix.CloseOnExec(kq)
		h.kq, h.waits, h.gone = kq, make(map[int]func()), make(chan struct{})
		go h.deliver(kq, h.gone)
	}
	h.waits[pid] = exited
	var ev unix.Kevent_t
	unix.SetKevent(&ev, pid, unix.EVFILT_PROC, unix.EV_ADD|unix.EV_ONESHOT)
	ev.Fflags = unix.NOTE_EXIT
	if _, err := unix.Kevent(h.kq, []unix.Kevent_t{ev}, nil, nil); err != nil {
		// ESRCH: it has exited before it could be watched (libuv/libuv#3451).
		delete(h.waits, pid)
		if err != unix.ESRCH {
			return err
		}
		exited()
	}
	return nil
}

func (h *host) deliver(kq int, gone chan struct{}) {
	defer close(gone)
	events := make([]unix.Kevent_t, 64)
	for {
		n, err := unix.Kevent(kq, nil, events, nil)
		if err != nil && err != unix.EINTR {
			return
		}
		h.mu.Lock()
		for _, ev := range events[:max(n, 0)] {
			pid := int(ev.Ident)
			if exited := h.waits[pid]; exited != nil {
				delete(h.waits, pid)
				exited()
			}
		}
		if h.closing && h.waits != nil && len(h.waits) == 0 {
			h.waits = nil
			unix.Close(kq)
			h.mu.Unlock()
			return
		}
		h.mu.Unlock()
	}
}

// A bsdTree is a tree that knows its leader and its process group, nothing
// more. NOTE_EXIT does not reap, so the order of the end is that of Linux.
type bsdTree struct {
	leader   int           // never below 2
	exitSeen chan struct{} // closed when the leader has exited

	// mu guards reaped and is held while the group is signalled: no number is
	// used once its process is reaped.
	mu         sync.Mutex
	reaped     bool
	terminated bool
}

func (h *host) start(c *command, attr *os.ProcAttr, _ string, exited func()) (tree, error) {
	p, err := os.StartProcess(c.path, c.argv, attr)
	if err != nil {
		return nil, err
	}
	t := &bsdTree{leader: p.Pid, exitSeen: make(chan struct{})} // Release sets p.Pid to -1
	p.Release()
	err = h.watch(t.leader, func() {
		close(t.exitSeen)
		exited()
	})
	if err != nil {
		t.kill()
		t.reap()
		return nil, err
	}
	return t, nil
}

func (t *bsdTree) pid() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reaped {
		return 0
	}
	return t.leader
}

func (t *bsdTree) gone() <-chan struct{} { return t.exitSeen }

func (t *bsdTree) exited() bool { return isClosed(t.exitSeen) }

// look finds nothing: these systems offer no cheap and safe way.
func (t *bsdTree) look() []Process { return nil }

func (t *bsdTree) lookBelow() {}

func (t *bsdTree) blind() error { return nil }

func (t *bsdTree) busy() bool { return false }

func (t *bsdTree) alone() bool { return true }

func (t *bsdTree) await(context.Context) bool { return true }

// signalGroup is the one function that sends signals.
func (t *bsdTree) signalGroup(sig syscall.Signal) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reaped || t.leader < 2 {
		return nil
	}
	err := unix.Kill(-t.leader, sig)
	if err == unix.ESRCH {
		return nil
	}
	return err
}

func (t *bsdTree) terminate() error {
	if t.terminated {
		return nil
	}
	t.terminated = true
	return errors.Join(t.signalGroup(unix.SIGTERM), t.signalGroup(unix.SIGCONT))
}

func (t *bsdTree) kill() error { return t.signalGroup(unix.SIGKILL) }

func (t *bsdTree) reap() ending {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reaped = true
	for {
		var ws syscall.WaitStatus
		var used syscall.Rusage
		_, err := syscall.Wait4(t.leader, &ws, 0, &used)
		if err == nil {
			e := endingOf(ws)
			e.usage = usage{
				cpu:     time.Duration(used.Utime.Nano() + used.Stime.Nano()),
				peakRSS: int64(used.Maxrss) * rssUnit,
			}
			return e
		}
		if err != syscall.EINTR {
			return ending{exitCode: -1, unknown: true, err: errors.New("the exit status was taken by another wait in this process")}
		}
	}
}

func (t *bsdTree) close(bool) {}

func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
