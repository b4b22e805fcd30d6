package jobs

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const seekData = unix.SEEK_DATA

// A host is what the jobs of one supervisor share.
type host struct {
	null    sharedFile // the null device
	loadavg sharedFile // /proc/loadavg, which tells the last pid
	sweeper sweeper
	exits   exits

	mu   sync.Mutex     // guards quit
	quit chan struct{}  // closed by close; made by the first adopted orphan
	kept sync.WaitGroup // goroutines that wait for orphans
}

func (h *host) close() {
	h.null.close()
	h.loadavg.close()
	h.exits.close()
	h.mu.Lock()
	if h.quit != nil {
		close(h.quit)
		h.quit = nil
	}
	h.mu.Unlock()
	h.kept.Wait()
}

// withoutPidfd makes every job do without pidfds, as on an old kernel or under
// a sandbox that hides them. Tests set it before the first job.
var withoutPidfd bool

// pidfdWorks reports whether the kernel has all of pidfd that is needed: Linux
// 5.4. Sandboxes hide parts of it, so each part is tried.
var pidfdWorks = sync.OnceValue(func() bool {
	if withoutPidfd {
		return false
	}
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	// This process is not its own child: ECHILD says that the call is known.
	if err := unix.Waitid(unix.P_PIDFD, fd, nil, unix.WEXITED|unix.WNOHANG, nil); err != unix.ECHILD {
		return false
	}
	return unix.PidfdSendSignal(fd, 0, nil, 0) == nil
})

// groupByPidfd is false once the kernel has said that it cannot signal a
// process group through a pidfd (before Linux 6.9).
var groupByPidfd atomic.Bool

func init() { groupByPidfd.Store(true) }

// A linuxTree is a tree on Linux. Without pidfd the leader's exit is awaited by
// a thread, strays are signalled by number right after a look at their start
// time, and the rest is the same.
type linuxTree struct {
	host   *host
	id     string
	leader int // the leader's pid, its group and its session; never below 2
	born   time.Time
	ticks  uint64 // the same in the unit of /proc

	hostRSS int64 // what this process had had at most by then

	pidfd int           // -1 without
	exit  chan struct{} // closed when the leader has exited

	// mu guards reaped and is held while the leader or its group is
	// signalled: no number is used once its process is reaped.
	mu     sync.Mutex
	reaped bool

	exitTicks atomic.Uint64 // when the leader's exit was first seen
	stolen    atomic.Bool   // somebody else has reaped the leader

	terminated bool
	overlooked error // why the last look may have missed something
	members    []*member
}

// start starts the process of job id. exited is called, and must not wait, when
// its leader has exited.
func (h *host) start(c *command, attr *os.ProcAttr, id string, exited func()) (tree, error) {
	closeOnExec()
	t := &linuxTree{host: h, id: id, pidfd: -1, exit: make(chan struct{}), born: time.Now(), ticks: bootTicks()}
	var own unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &own) == nil {
		t.hostRSS = int64(own.Maxrss)
	}
	if pidfdWorks() {
		attr.Sys.PidFD = &t.pidfd
	}
	p, err := os.StartProcess(c.path, c.argv, attr)
	if err != nil {
		return nil, err
	}
	// Release sets p.Pid to -1, and kill(-(-1)) would be heard by PID 1.
	t.leader = p.Pid
	p.Release()
	told := func() {
		close(t.exit)
		exited()
	}
	if t.pidfd < 0 || h.exits.watch(t.pidfd, told) != nil {
		go func() { // no pidfd, or no room to watch it
			t.peek(0)
			told()
		}()
	}
	return t, nil
}

// closeOnExec keeps descriptors without the flag from reaching a job. Go opens
// all of its own with it; those that were inherited, or that C code opened, are
// left.
func closeOnExec() {
	if unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	// Before Linux 5.11.
	names, _ := os.ReadDir("/proc/self/fd")
	for _, name := range names {
		if fd, err := strconv.Atoi(name.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}

func (t *linuxTree) pid() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reaped || t.stolen.Load() {
		return 0
	}
	return t.leader
}

// peek reports whether the leader has exited, without reaping it. With flags of
// 0 it waits for that, else flags is WNOHANG.
func (t *linuxTree) peek(flags int) bool {
	kind, n := t.childID()
	var info unix.Siginfo
	err := waitidRetry(kind, n, &info, unix.WEXITED|unix.WNOWAIT|flags)
	if err == nil && info.Signo == 0 {
		return false
	}
	if err != nil {
		t.stolen.Store(true) // ECHILD: there is no child to tell of
	}
	t.exitTicks.CompareAndSwap(0, bootTicks())
	return true
}

// childID names the leader to waitid.
func (t *linuxTree) childID() (kind, n int) {
	if t.pidfd < 0 {
		return unix.P_PID, t.leader
	}
	return unix.P_PIDFD, t.pidfd
}

// pinned reports whether the leader is unreaped, so that its number means it
// and nobody else.
func (t *linuxTree) pinned() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pinnedLocked()
}

// pinnedLocked needs t.mu.
func (t *linuxTree) pinnedLocked() bool {
	if t.reaped {
		return false
	}
	if exited := t.exitTicks.Load() != 0; !t.peek(unix.WNOHANG) && exited {
		t.stolen.Store(true) // it has exited, and yet runs: that is another child
	}
	return !t.stolen.Load()
}

func waitidRetry(kind, n int, info *unix.Siginfo, flags int) error {
	for {
		err := unix.Waitid(kind, n, info, flags, nil)
		if err != unix.EINTR {
			return err
		}
	}
}

func (t *linuxTree) exited() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reaped || t.peek(unix.WNOHANG)
}

func (t *linuxTree) gone() <-chan struct{} { return t.exit }

// signal is the one function that sends signals: to the process behind fd, or,
// without one, to number pid, or to its group.
func signal(fd, pid int, group bool, sig unix.Signal) error {
	if pid < 2 {
		return unix.EINVAL // 0 is our own group, 1 is init, -1 is everybody
	}
	var err error
	switch {
	case fd >= 0 && !group:
		err = unix.PidfdSendSignal(fd, sig, nil, 0)
	case fd >= 0:
		err = unix.PidfdSendSignal(fd, sig, nil, unix.PIDFD_SIGNAL_PROCESS_GROUP)
	case group:
		err = unix.Kill(-pid, sig)
	default:
		err = unix.Kill(pid, sig)
	}
	if err == unix.ESRCH {
		return nil // gone is what was wanted
	}
	return err
}

func (t *linuxTree) signalGroup(sig unix.Signal) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pidfd >= 0 && groupByPidfd.Load() {
		err := signal(t.pidfd, t.leader, true, sig)
		if err != unix.EINVAL {
			return err
		}
		groupByPidfd.Store(false)
	}
	if !t.pinnedLocked() {
		return nil
	}
	return signal(-1, t.leader, true, sig)
}

func (t *linuxTree) terminate() error {
	var errs []error
	first := !t.terminated
	if first {
		t.terminated = true
		// CONT as well: a stopped process takes TERM only when it goes on.
		errs = append(errs, t.signalGroup(unix.SIGTERM), t.signalGroup(unix.SIGCONT))
	}
	for _, m := range t.members {
		if !m.told && !(first && m.grouped) {
			errs = append(errs, m.signal(unix.SIGTERM), m.signal(unix.SIGCONT))
		}
		m.told = true
	}
	return errors.Join(errs...)
}

func (t *linuxTree) kill() error {
	errs := []error{t.signalGroup(unix.SIGKILL)}
	for _, m := range t.members {
		errs = append(errs, m.signal(unix.SIGKILL))
	}
	return errors.Join(errs...)
}

func (t *linuxTree) await(ctx context.Context) bool {
	for _, m := range t.members {
		if !m.await(ctx) {
			return false
		}
	}
	return true
}

// reap takes the leader's status. Where a host reaps children it does not know
// (wait4(-1)) or ignores SIGCHLD, the kernel still tells the status to who
// holds a pidfd, since Linux 6.15.
func (t *linuxTree) reap() ending {
	t.mu.Lock()
	defer t.mu.Unlock()
	kind, n := t.childID()
	pinned := t.pinnedLocked()
	t.reaped = true
	var info unix.Siginfo
	var used unix.Rusage
	if pinned && unix.Waitid(kind, n, &info, unix.WEXITED|unix.WNOHANG, &used) == nil && info.Signo != 0 {
		e := exitOf(&info)
		e.usage = usage{
			cpu:     time.Duration(used.Utime.Nano() + used.Stime.Nano()),
			peakRSS: t.peakRSS(&used),
		}
		return e
	}
	if t.pidfd >= 0 {
		exit := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
		if unix.IoctlPidfdInfo(t.pidfd, &exit) == nil && exit.Mask&unix.PIDFD_INFO_EXIT != 0 {
			return endingOf(syscall.WaitStatus(exit.Exit_code))
		}
	}
	return ending{exitCode: -1, unknown: true, err: errors.New("the exit status was taken by another wait in this process")}
}

// peakRSS returns the most memory that the leader had. Until it executed its
// program it ran in the memory of this process, and the kernel counts that in;
// where it never had more than that, nothing is known.
func (t *linuxTree) peakRSS(used *unix.Rusage) int64 {
	host := t.hostRSS
	if host == inheritedRSS() {
		// What counts is this program's own. That never shrinks, and to read it
		// takes longer than all else of a reap.
		host = ownRSS.Load()
		if int64(used.Maxrss) > host {
			host = peakRSS()
			ownRSS.Store(host)
		}
	}
	if int64(used.Maxrss) <= host {
		return 0
	}
	return int64(used.Maxrss) << 10
}

// ownRSS is what peakRSS has returned last.
var ownRSS atomic.Int64

// inheritedRSS returns what the kernel counts to this process though it was the
// memory of the one that executed it; 0 if that was no more than its own.
var inheritedRSS = sync.OnceValue(func() int64 {
	var own unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &own) != nil || int64(own.Maxrss) <= peakRSS() {
		return 0
	}
	return int64(own.Maxrss)
})

// peakRSS returns the most memory that this program has had, in KiB.
func peakRSS() int64 {
	status, _ := os.ReadFile("/proc/self/status")
	_, rest, _ := bytes.Cut(status, []byte("\nVmHWM:"))
	fields := bytes.Fields(rest)
	if len(fields) == 0 {
		return math.MaxInt64
	}
	n, _ := strconv.ParseInt(string(fields[0]), 10, 64)
	return n
}

// childInfo is the part of a siginfo that tells of a child. unix.Siginfo keeps
// it to itself; where its first three fields end, a 64-bit system pads.
type childInfo struct {
	_                [3]int32
	_                [^uint(0) >> 63]int32
	pid, uid, status int32
}

// exitOf reads what waitid has filled in.
func exitOf(info *unix.Siginfo) ending {
	const killed, dumped = 2, 3 // CLD_KILLED, CLD_DUMPED
	status := (*childInfo)(unsafe.Pointer(info)).status
	switch info.Code {
	case killed, dumped:
		return ending{exitCode: -1, signal: Signal(status), core: info.Code == dumped}
	}
	return ending{exitCode: int(status)}
}

func (t *linuxTree) close(kept bool) {
	for _, m := range t.members {
		if kept && hostReaps() {
			t.host.adopt(m)
		} else {
			m.close()
		}
	}
	t.members = nil
	if t.pidfd >= 0 {
		<-t.exit // the number must not be given to another file before
		unix.Close(t.pidfd)
	}
}

// hostReaps reports whether orphans become children of this process: it is
// PID 1 of its namespace, or has made itself a subreaper.
func hostReaps() bool {
	if os.Getpid() == 1 {
		return true
	}
	var is int32
	err := unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&is)), 0, 0, 0)
	return err == nil && is != 0
}

// adopt waits for a kept leftover that has become a child of this process and
// reaps it, so that it does not stay a zombie.
func (h *host) adopt(m *member) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.quit == nil {
		h.quit = make(chan struct{})
	}
	quit := h.quit
	h.kept.Go(func() {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go func() {
			select {
			case <-quit:
				cancel()
			case <-ctx.Done():
			}
		}()
		m.await(ctx)
		m.close()
	})
}

// newPipe returns a pipe whose reading end is polled and whose writing end
// blocks, as a child expects. With os.Pipe both ends would be polled.
func newPipe() (r, w *os.File, err error) { return pipe("output", 0) }

// newInputPipe is newPipe the other way round: the child reads.
func newInputPipe() (r, w *os.File, err error) { return pipe("input", 1) }

// pipe returns a pipe of which one end, 0 or 1, is polled.
func pipe(name string, polled int) (r, w *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	unix.SetNonblock(fds[polled], true)
	return os.NewFile(uintptr(fds[0]), name), os.NewFile(uintptr(fds[1]), name), nil
}

// untouched reports whether a file is empty and nobody has it open. The kernel
// grants a write lease on that condition only.
func untouched(path string) bool {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode != unix.S_IFREG|0o600 || st.Size != 0 || st.Nlink != 1 {
		return false
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		return false
	}
	_, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK)
	return err == nil
}

// bootTicks returns the present time in the unit of start times in /proc:
// hundredths of a second since boot.
func bootTicks() uint64 {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0
	}
	return uint64(ts.Sec)*100 + uint64(ts.Nsec)/10_000_000
}
