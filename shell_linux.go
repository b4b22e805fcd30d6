package jobs

import (
	"context"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// runAlone runs a program in a session of its own. When ctx is done it kills its
// group, whose number is taken as long as nobody has waited for the program.
func runAlone(ctx context.Context, cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	leave, err := forks.enterBefore(ctx)
	if err != nil {
		return &unsentError{err}
	}
	err = cmd.Start()
	leave()
	if err != nil {
		return &unsentError{err}
	}
	pid := cmd.Process.Pid
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		waitidRetry(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT)
	}()
	if closedBefore(ctx, exited) {
		return cmd.Wait()
	}
	signal(-1, pid, true, unix.SIGKILL)
	<-exited
	cmd.Wait()
	return ctx.Err()
}
