//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package jobs

import (
	"errors"
	"os"
)

func useDir(string) error {
	return errors.New("records need file locks, which this platform does not have here")
}

func lockFile(string) (*os.File, error) { return nil, errors.ErrUnsupported }

func unlockFile(f *os.File) { f.Close() }

func openOwn(path string, flags int) (*os.File, error) { return os.OpenFile(path, flags, 0o600) }

func removed(*os.File) bool { return false }

func tampered(*os.File, int64) error { return nil }
