//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package jobs

import (
	"syscall"

	"golang.org/x/sys/unix"
)

func signalName(n int) string { return unix.SignalName(syscall.Signal(n)) }

// ofLimit reports whether only a limit on resources sends the signal.
func (s Signal) ofLimit() bool {
	return syscall.Signal(s) == unix.SIGXCPU || syscall.Signal(s) == unix.SIGXFSZ
}

// endingOf reads a wait status.
func endingOf(ws syscall.WaitStatus) ending {
	if ws.Signaled() {
		return ending{exitCode: -1, signal: Signal(ws.Signal()), core: ws.CoreDump()}
	}
	return ending{exitCode: ws.ExitStatus()}
}
