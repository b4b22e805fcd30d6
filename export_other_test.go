//go:build !linux

package jobs

// WithoutPidfd does nothing where there is no pidfd to do without.
func WithoutPidfd() {}

// PidfdWorks reports whether jobs use pidfds.
func PidfdWorks() bool { return false }
