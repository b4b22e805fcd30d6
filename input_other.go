//go:build !linux

package jobs

// awaited is always false: other systems do not say what a process waits for.
func (*inputPipe) awaited() bool { return false }
