package jobs

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// awaited reports whether all that was written has been read, and a process
// waits for more on its standard input.
func (p *inputPipe) awaited() bool {
	defer files.enter()()
	conn, err := p.w.SyscallConn()
	if err != nil {
		return false
	}
	var st unix.Stat_t
	var rest int
	controlErr := conn.Control(func(fd uintptr) {
		if err = unix.Fstat(int(fd), &st); err == nil {
			rest, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) // FIONREAD
		}
	})
	if controlErr != nil || err != nil || rest > 0 {
		return false
	}
	pipe := fmt.Sprintf("pipe:[%d]", st.Ino)
	names, err := os.ReadDir("/proc")
	if err != nil {
		return false
	}
	return slices.ContainsFunc(names, func(e os.DirEntry) bool {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			return false
		}
		dir := "/proc/" + e.Name()
		// Not a stat, which follows the link: it would hang where some process of
		// the machine reads from a file system that does not answer.
		in, err := os.Readlink(dir + "/fd/0")
		return err == nil && in == pipe && blockedOnInput(dir)
	})
}

// inputCalls are the system calls in which a program waits for its standard
// input; it must be their first argument, or they wait for several descriptors.
var inputCalls = map[int]bool{
	unix.SYS_READ:        true,
	unix.SYS_READV:       true,
	unix.SYS_PPOLL:       false,
	unix.SYS_PSELECT6:    false,
	unix.SYS_EPOLL_PWAIT: false,
}

// blockedOnInput reports whether the first thread of a process is blocked in
// such a call.
func blockedOnInput(dir string) bool {
	line, ok := readProc(dir+"/syscall", make([]byte, 256))
	f := bytes.Fields(line)
	if !ok || len(f) < 2 {
		return false // it runs, or we may not know
	}
	n, err := strconv.Atoi(string(f[0]))
	first, known := inputCalls[n]
	return err == nil && known && (!first || string(f[1]) == "0x0")
}
