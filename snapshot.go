package jobs

import (
	"fmt"
	"time"
)

// A State is where a job is in its life. States only move forward: Running,
// perhaps Cancelling, then one of the ends.
type State string

// The states of a job.
const (
	Running    State = "running"
	Cancelling State = "cancelling" // a stop was requested and is not done
	Completed  State = "completed"  // exit code 0, or a Func without error
	Failed     State = "failed"
	Cancelled  State = "cancelled" // stopped because somebody asked for it
	Lost       State = "lost"      // nobody can know how it ended, or will end
)

// Ended reports whether s is final.
func (s State) Ended() bool {
	return s != Running && s != Cancelling && s != ""
}

// A Reason is why a job ended.
type Reason string

// The reasons of an end.
const (
	ReasonExit        Reason = "exit"         // the leader exited, or the Func returned
	ReasonSignal      Reason = "signal"       // a signal killed the leader; not ours
	ReasonTimeout     Reason = "timeout"      // stopped by Spec.Timeout
	ReasonIdle        Reason = "idle"         // stopped by Spec.IdleTimeout
	ReasonOutputLimit Reason = "output_limit" // stopped by an output limit
	ReasonCancelled   Reason = "cancelled"    // stopped by Cancel, Reap, Reset, or with Run
	ReasonOwnerClosed Reason = "owner_closed" // its owner was closed: stopped, or let go
	ReasonShutdown    Reason = "shutdown"     // stopped by Close of the whole tree
	// ReasonResourceLimit is a signal that only a limit on CPU time or file size
	// sends: SIGXCPU or SIGXFSZ.
	ReasonResourceLimit Reason = "resource_limit"
	ReasonLost          Reason = "lost"     // its host died before it ended, or it vanished from where a Shell ran it
	ReasonInternal      Reason = "internal" // the Func panicked, or the outcome could not be learned
	ReasonUnreaped      Reason = "unreaped" // stopped, but it could not be killed
)

// state returns the state in which a job ends that was stopped for r.
func (r Reason) state() State {
	switch r {
	case ReasonCancelled, ReasonShutdown, ReasonOwnerClosed:
		return Cancelled
	}
	return Failed
}

// A Process names a process of a job.
type Process struct {
	PID  int    `json:"pid"`
	Name string `json:"name"` // as the system shows it, at most 15 bytes on Linux
}

// A Snapshot is what is known of a job at one moment. It is a value: it does
// not change, and its slices must not be modified.
type Snapshot struct {
	ID   string
	Tool string
	// Tag and Trust are those of the Spec.
	Tag, Trust string
	// Owner is the name of the job's supervisor, see [ChildConfig].
	Owner string

	State  State
	Reason Reason // why it ended; empty before, save while Cancelling

	// PID is the leader of a running process job; 0 once it has been reaped
	// and for functions.
	PID int
	// LeaderExited is set as soon as the leader's exit has been seen: the job
	// may still be draining output or killing leftovers.
	LeaderExited bool
	// ExitCode is the leader's exit code. It is -1 while it runs, if a signal
	// killed it, if its code is not known, and for functions.
	ExitCode int
	// Signal is the signal that killed the leader, 0 if none did.
	Signal Signal
	// CoreDumped tells that the leader left a core dump.
	CoreDumped bool
	// Err says more about an end, such as the error of a Func or why a process
	// could not be killed. A non-zero exit code is not an error here.
	Err error

	Started time.Time
	// Elapsed is the time since the start; it stands still once the job ended.
	Elapsed time.Duration
	// Idle is the time since the last output, or since the start if there was
	// none; 0 once the job ended.
	Idle time.Duration

	// OutputTotal counts the bytes written to the output, OutputDropped those
	// of them that are no longer kept.
	OutputTotal, OutputDropped int64
	// StderrTotal and StderrDropped count standard error where it has a log of
	// its own.
	StderrTotal, StderrDropped int64
	// LateBytes counts what kept leftovers printed after the end.
	LateBytes int64

	// WaitingForInput tells that the job seems to wait for something to be typed:
	// it was started with [Spec.Input], it has been silent for a second after an
	// unfinished line, all that was written to it is read, and one of its
	// processes waits for more. Only Check looks for that, on Linux.
	WaitingForInput bool

	// CPUTime is the processor time that the leader and the descendants it has
	// waited for took, PeakRSS the most memory, in bytes, that one of them had
	// resident. Both are known once the job has ended, on Linux and the BSDs.
	// Linux counts to a process what the host had when it started it: where the
	// job never had more than that, PeakRSS is 0.
	CPUTime time.Duration
	PeakRSS int64

	// Command is the command line on record, without the secrets that can be told
	// by their looks. It is empty without [Config.Dir].
	Command string
	// LogPath is the job's log file, LogErr why that is not whole, if it is not.
	LogPath string
	LogErr  error
	// Recovered tells that an earlier host ran the job, see [Config.Dir].
	Recovered bool

	// Collected tells that the result has been handed out.
	Collected bool
	// Leftovers holds the processes that were alive after the leader had
	// exited by itself. They were killed, unless the Spec says KeepLeftovers.
	Leftovers []Process
	// Survivors holds the processes that were still alive when the kill was
	// given up, or when the job was let go. It is nil where the kill was proved.
	Survivors []Process
}

// Ended reports whether the job has ended.
func (s Snapshot) Ended() bool { return s.State.Ended() }

// ShellCode returns the exit code as a shell shows it: the code itself, 128
// plus the number of the signal that killed the leader, or -1 if there is
// neither.
func (s Snapshot) ShellCode() int {
	if s.Signal != 0 {
		return 128 + int(s.Signal)
	}
	return s.ExitCode
}

// Outcome says in a few words how the job stands, such as "completed, exit 0"
// or "failed, timeout, SIGKILL".
func (s Snapshot) Outcome() string {
	text := string(s.State)
	if s.Reason != "" && s.Reason != ReasonExit && string(s.Reason) != text {
		text += ", " + string(s.Reason)
	}
	switch {
	case s.Signal != 0:
		text += ", " + s.Signal.String()
	case s.ExitCode >= 0:
		text += fmt.Sprintf(", exit %d", s.ExitCode)
	}
	return text
}

// A Result is what a job left: its final Snapshot, what it wrote to its result
// file, and what was kept of its output.
type Result struct {
	Snapshot
	// File is what $LLM_OUTPUT held at the end, or the encoded value of a Func.
	File ResultFile
	// Output is the kept output, Stderr that of a log of its own.
	Output, Stderr Log
}
