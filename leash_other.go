//go:build !linux

package jobs

import (
	"context"
	"fmt"
)

// A leash needs Linux.
type leash struct{}

func newLeash(top *Supervisor) *leash {
	if !top.cfg.Leash {
		return nil
	}
	return new(leash)
}

func (l *leash) announce(context.Context, *job) error {
	if l == nil {
		return nil
	}
	return fmt.Errorf("Config.Leash: %w", ErrUnsupported)
}

func (*leash) hold(string, int) {}
func (*leash) release(string)   {}
func (*leash) close()           {}
