//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package jobs

import (
	"context"
	"os"
	"strconv"
	"syscall"
)

// Process jobs need process groups and signals. Here only function jobs run;
// what follows keeps the rest of the package ignorant of that.

type host struct{}

func (*host) close() {}

type streams struct{}

func (*streams) follow() bool                 { return true }
func (*streams) drained(context.Context) bool { return true }
func (*streams) finish()                      {}
func (*streams) unread() bool                 { return false }
func (*streams) close()                       {}
func (*streams) keep(*keptPipes)              {}

type keptPipes struct{}

func (*keptPipes) close() {}

func startProcess(context.Context, *job, Spec) (work, error) {
	return nil, ErrUnsupported
}

func openNoFollow(path string) (*os.File, error) { return os.Open(path) }

type fileID struct{}

func diskUse(string) (bytes int64, id fileID) { return 0, fileID{} }

func afterHole(_ *os.File, from int64) int64 { return from }

func untouched(string) bool { return false }

func signalName(n int) string { return strconv.Itoa(n) }

func (Signal) ofLimit() bool { return false }

func notADirectory(error) bool { return false }

func linksForbidden(error) bool { return true }

func ownSession() *syscall.SysProcAttr { return nil }
