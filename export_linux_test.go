package jobs

// WithoutPidfd forces the mode without pidfds. It must be called before the
// first job.
func WithoutPidfd() { withoutPidfd = true }

// SetLeashShell sets the command of the shell that leashes run in. It must be
// called before the first job.
func SetLeashShell(command ...string) { leashShell = command }

// LeashScript is what they run.
func LeashScript() string { return leashScript }

// PidfdWorks reports whether jobs use pidfds.
func PidfdWorks() bool { return pidfdWorks() }
