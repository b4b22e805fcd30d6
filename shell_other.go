//go:build !linux

package jobs

import (
	"context"
	"os/exec"
)

// runAlone runs a program, where the platform has sessions in one of its own.
// When ctx is done it kills the program but not its group, which could be
// another's already.
func runAlone(ctx context.Context, cmd *exec.Cmd) error {
	cmd.SysProcAttr = ownSession()
	if err := cmd.Start(); err != nil {
		return &unsentError{err}
	}
	kill := context.AfterFunc(ctx, func() { cmd.Process.Kill() })
	defer kill()
	err := cmd.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}
