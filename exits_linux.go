package jobs

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// exits learns of the exits of all leaders of a tree of supervisors: one epoll
// descriptor and one goroutine, parked in the runtime's own poller, for as many
// pidfds as there are.
type exits struct {
	mu      sync.Mutex // guards the fields below
	epoll   *os.File   // nil while nothing is watched
	fd      int
	waits   map[int32]func() // by pidfd
	closing bool
	broken  bool          // it can watch nothing any more
	ended   chan struct{} // closed when the goroutine has ended
}

// watch calls exited, which must not wait, once the process behind pidfd has
// exited.
func (x *exits) watch(pidfd int, exited func()) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.broken {
		return unix.ENOSYS
	}
	if x.epoll == nil {
		if err := x.open(); err != nil {
			return err
		}
	}
	x.waits[int32(pidfd)] = exited
	err := unix.EpollCtl(x.fd, unix.EPOLL_CTL_ADD, pidfd, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: int32(pidfd)})
	if err != nil {
		delete(x.waits, int32(pidfd))
	}
	return err
}

// open starts the goroutine. It needs mu.
func (x *exits) open() error {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	unix.SetNonblock(fd, true) // for os.NewFile to park it in the poller
	x.fd, x.epoll = fd, os.NewFile(uintptr(fd), "exits")
	x.waits, x.ended = make(map[int32]func()), make(chan struct{})
	go x.run(x.epoll, x.ended)
	return nil
}

func (x *exits) run(epoll *os.File, ended chan struct{}) {
	defer close(ended)
	conn, err := epoll.SyscallConn()
	if err != nil {
		return
	}
	events := make([]unix.EpollEvent, 64)
	for {
		var n int
		// The poller tells of a change only, so all that has happened is taken
		// before the next wait.
		err := conn.Read(func(fd uintptr) bool {
			n, _ = unix.EpollWait(int(fd), events, 0)
			return n > 0
		})
		if err != nil {
			x.waitEach()
			return
		}
		for _, e := range events[:n] {
			if exited := x.take(e.Fd); exited != nil {
				exited()
			}
		}
		if x.done() {
			return
		}
	}
}

// waitEach gives every exit that is waited for a thread of its own, since the
// descriptor cannot be polled; unless it was only closed.
func (x *exits) waitEach() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.broken = true
	for pidfd, exited := range x.waits {
		go func() {
			waitidRetry(unix.P_PIDFD, int(pidfd), nil, unix.WEXITED|unix.WNOWAIT)
			exited()
		}()
	}
	clear(x.waits)
}

func (x *exits) take(pidfd int32) func() {
	x.mu.Lock()
	defer x.mu.Unlock()
	exited := x.waits[pidfd]
	delete(x.waits, pidfd)
	return exited
}

// done closes the descriptor if nobody needs it any more.
func (x *exits) done() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.closing || len(x.waits) > 0 {
		return false
	}
	x.epoll.Close()
	return true
}

// close ends the goroutine. Where jobs were let go it goes on until they have
// exited, since they must be reaped.
func (x *exits) close() {
	x.mu.Lock()
	x.closing = true
	epoll, ended, idle := x.epoll, x.ended, len(x.waits) == 0
	x.mu.Unlock()
	if epoll != nil && idle {
		epoll.Close()
		<-ended
	}
}
