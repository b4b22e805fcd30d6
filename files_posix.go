//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package jobs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// openNoFollow opens a file for reading. It does not follow a symbolic link
// and does not wait for the other end of a FIFO.
func openNoFollow(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
}

// A fileID tells files apart, whatever their names.
type fileID struct{ device, inode uint64 }

// diskUse returns how many bytes of disk a file takes, however long it claims
// to be, and which file it is; zeros if there is none.
func diskUse(path string) (bytes int64, id fileID) {
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil {
		return 0, fileID{}
	}
	return int64(st.Blocks) * 512, fileID{uint64(st.Dev), uint64(st.Ino)}
}

// afterHole returns the offset of the first data at or after from, so that
// reading the end of a sparse file does not give a megabyte of zeros.
func afterHole(f *os.File, from int64) int64 {
	if data, err := f.Seek(from, seekData); err == nil {
		return data
	}
	return from
}

// notADirectory reports whether there is a file, or a circle of links, where a
// directory should be.
func notADirectory(err error) bool {
	return errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

// linksForbidden reports whether a file system has no links.
func linksForbidden(err error) bool { return errors.Is(err, unix.EPERM) }
