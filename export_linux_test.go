package jobs

// WithoutPidfd forces the mode without pidfds. It must be called before the
// first job.
func WithoutPidfd() { withoutPidfd = true }

// PidfdWorks reports whether jobs use pidfds.
func PidfdWorks() bool { return pidfdWorks() }
