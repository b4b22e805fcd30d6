//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package jobs

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// useDir makes a directory that only its user may enter, or makes sure that an
// existing one is that: its own, no symbolic link, closed to others.
func useDir(path string) error {
	made := os.MkdirAll(path, 0o700) // fails at a link that leads nowhere
	fi, err := os.Lstat(path)
	if err != nil {
		return cmp.Or(made, err)
	}
	switch st := fi.Sys().(*syscall.Stat_t); {
	case fi.Mode().Type() == fs.ModeSymlink:
		return errors.New("it is a symbolic link; name the directory itself")
	case made != nil:
		return made
	case int(st.Uid) != os.Geteuid():
		return fmt.Errorf("it belongs to the user with number %d; use a directory of your own", st.Uid)
	case fi.Mode().Perm() != 0o700:
		return os.Chmod(path, 0o700)
	}
	return nil
}

// lockFile takes the lock of a directory for this process. The system gives it
// back when the process ends, however that comes.
func lockFile(path string) (*os.File, error) {
	const flags = unix.O_NOFOLLOW | unix.O_NONBLOCK
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|flags, 0o600)
	if errors.Is(err, fs.ErrPermission) {
		f, err = os.OpenFile(path, os.O_RDONLY|flags, 0) // which a lock does not mind
	}
	if err != nil {
		return nil, err
	}
	if err := takeLock(f); err != nil {
		defer f.Close()
		if err != unix.EWOULDBLOCK {
			return nil, err
		}
		return nil, fmt.Errorf("%w: process %s", ErrDirInUse, lockHolder(f))
	}
	f.Truncate(0)
	fmt.Fprintln(f, os.Getpid())
	return f, nil
}

// A child on its way to its exec holds the lock of its host still. A host that
// was killed meanwhile leaves it for a moment, and with it a job that cannot be
// told by its environment yet.
const (
	lockPause    = 2 * time.Millisecond
	lockPatience = 100 * time.Millisecond
	deadPatience = 2 * time.Second // where the holder is known to be dead
)

// takeLock takes the lock of an open file, and waits a moment for one who is
// about to give it back.
func takeLock(f *os.File) error {
	for begun := time.Now(); ; time.Sleep(lockPause) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err != unix.EWOULDBLOCK {
			return err
		}
		patience := lockPatience
		if pid, _ := strconv.Atoi(lockHolder(f)); pid > 1 && unix.Kill(pid, 0) == unix.ESRCH {
			patience = deadPatience
		}
		if time.Since(begun) > patience {
			return err
		}
	}
}

// lockHolder returns the number that the holder of a lock has left in it.
func lockHolder(f *os.File) string {
	var holder [32]byte
	n, _ := f.ReadAt(holder[:], 0)
	return strings.TrimSpace(string(holder[:n]))
}

// unlockFile gives a lock back, also where a process that is on its way to its
// exec holds the descriptor still.
func unlockFile(f *os.File) {
	unix.Flock(int(f.Fd()), unix.LOCK_UN)
	f.Close()
}

// openOwn opens a file of the directory for reading or appending. It follows no
// symbolic link and waits for nobody.
func openOwn(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		f.Close()
		return nil, errors.Join(err, syscall.EINVAL)
	}
	return f, nil
}

// removed reports whether a file has no name any more.
func removed(f *os.File) bool {
	fi, err := f.Stat()
	return err == nil && fi.Sys().(*syscall.Stat_t).Nlink == 0
}

// tampered reports what somebody else has done to a file that is to be size
// bytes long.
func tampered(f *os.File, size int64) error {
	fi, err := f.Stat()
	switch {
	case err != nil:
		return err
	case removed(f):
		return errors.New("somebody removed the log file")
	case fi.Size() != size:
		return errors.New("somebody changed the log file")
	}
	return nil
}
