package jobs

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// childrenListed reports whether the kernel lists the children of a thread.
var childrenListed = sync.OnceValue(func() bool {
	_, err := os.Stat("/proc/thread-self/children")
	return err == nil
})

// childrenOf returns the children of a process, those of all its threads.
func childrenOf(pid int, buf []byte) []procStat {
	tasks := "/proc/" + strconv.Itoa(pid) + "/task/"
	threads := []string{strconv.Itoa(pid)}
	if st, ok := readStat(pid, buf); ok && st.threads > 1 {
		names, _ := os.ReadDir(tasks)
		threads = threads[:0]
		for _, name := range names {
			threads = append(threads, name.Name())
		}
	}
	var found []procStat
	for _, thread := range threads {
		list, _ := readProc(tasks+thread+"/children", buf)
		if len(list) == len(buf) {
			list, _ = os.ReadFile(tasks + thread + "/children")
		}
		for field := range bytes.FieldsSeq(list) { // which may be a part of buf
			child, err := strconv.Atoi(string(field))
			if err != nil {
				continue
			}
			if st, ok := readStat(child, make([]byte, 512)); ok && st.ppid == pid {
				found = append(found, st)
			}
		}
	}
	return found
}

// readEnviron reads the environment a process was started with, into buf if
// there is room. Processes of other users keep theirs to themselves: as nothing
// of them is ours to signal, they show a NUL.
func readEnviron(pid int, buf []byte) []byte {
	return readEnvironFile("/proc/"+strconv.Itoa(pid)+"/environ", buf)
}

// headless reports whether the first thread has ended and others go on.
func (st procStat) headless() bool { return st.state == 'Z' && st.threads > 1 }

// readThreadEnviron is readEnviron for a process whose first thread has ended
// and shows none any more.
func readThreadEnviron(pid int, buf []byte) []byte {
	tasks := "/proc/" + strconv.Itoa(pid) + "/task/"
	names, _ := os.ReadDir(tasks)
	for _, name := range names {
		if buf = readEnvironFile(tasks+name.Name()+"/environ", buf); len(buf) > 1 {
			break
		}
	}
	return buf
}

func readEnvironFile(path string, buf []byte) []byte {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		noteStarved(err)
		return append(buf[:0], 0)
	}
	defer unix.Close(fd)
	buf = buf[:0]
	for {
		buf = slices.Grow(buf, 4096)
		n, err := readRetry(fd, buf[len(buf):cap(buf)])
		if n <= 0 || err != nil {
			return buf
		}
		buf = buf[:len(buf)+n]
	}
}

// procStat is what matters of /proc/PID/stat.
type procStat struct {
	pid, ppid, pgrp, session int
	state                    byte
	exiting                  bool // past the last instruction of its program
	kernel                   bool // a thread of the kernel
	threads                  int
	start                    uint64 // hundredths of a second after boot
	name                     string
}

// dead reports whether the process has ended, reaped or not. One whose first
// thread alone has ended looks like a zombie with more than one thread.
func (s procStat) dead() bool {
	return s.threads <= 1 && (s.state == 'Z' || s.state == 'X' || s.state == 'x')
}

func readStat(pid int, buf []byte) (procStat, bool) {
	line, ok := readProc("/proc/"+strconv.Itoa(pid)+"/stat", buf)
	if !ok {
		return procStat{}, false
	}
	return parseStat(pid, line)
}

// parseStat parses the line of a stat file. The name in it may hold spaces and
// parentheses, so the fields are counted from its end.
func parseStat(pid int, line []byte) (procStat, bool) {
	open, end := bytes.IndexByte(line, '('), bytes.LastIndexByte(line, ')')
	if open < 0 || end < open {
		return procStat{}, false
	}
	f := bytes.Fields(line[end+1:])
	if len(f) < 20 {
		return procStat{}, false
	}
	st := procStat{pid: pid, state: f[0][0], name: string(line[open+1 : end])}
	const pfExiting, pfKthread = 0x4, 0x200000 // of include/linux/sched.h
	var errs [6]error
	flags, err := strconv.ParseUint(string(f[6]), 10, 64)
	st.exiting, st.kernel, errs[4] = flags&pfExiting != 0, flags&pfKthread != 0, err
	st.ppid, errs[0] = strconv.Atoi(string(f[1]))
	st.pgrp, errs[1] = strconv.Atoi(string(f[2]))
	st.session, errs[2] = strconv.Atoi(string(f[3]))
	st.threads, errs[5] = strconv.Atoi(string(f[17]))
	st.start, errs[3] = strconv.ParseUint(string(f[19]), 10, 64)
	return st, errors.Join(errs[:]...) == nil
}

// readProc reads a short file of /proc into buf.
func readProc(path string, buf []byte) ([]byte, bool) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		noteStarved(err)
		return nil, false
	}
	defer unix.Close(fd)
	n, err := readRetry(fd, buf)
	return buf[:max(n, 0)], err == nil && n > 0
}

// procUsable reports whether /proc is there and shows the pid namespace of
// this process. Without it only the process group is known.
var procUsable = sync.OnceValue(func() bool {
	self, err := os.Readlink("/proc/self")
	return !errors.Is(err, fs.ErrNotExist) && self == strconv.Itoa(os.Getpid())
})
