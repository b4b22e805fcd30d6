package jobs

import "golang.org/x/sys/unix"

// Calls that newer architectures have never had.
func init() {
	inputCalls[unix.SYS_POLL] = false
	inputCalls[unix.SYS_SELECT] = false
	inputCalls[unix.SYS_EPOLL_WAIT] = false
}
