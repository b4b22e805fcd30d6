package jobs

import (
	"errors"
	"fmt"
)

// Errors that callers test for with [errors.Is]. Those that concern one job
// come wrapped in a [*JobError].
var (
	// ErrNotFound means that no job of this supervisor ever had the id.
	ErrNotFound = errors.New("jobs: no such job")
	// ErrForeign means that another owner's job has the id, or had it. It is an
	// ErrNotFound too.
	ErrForeign = fmt.Errorf("%w of this owner", ErrNotFound)
	// ErrExpired means that the job ended and has been forgotten since, by
	// [Config.MaxRetained] or [Config.RetainFor]; or it was reaped, reset or
	// discarded, or a Run has answered all there was to it.
	ErrExpired = errors.New("jobs: job ended and is no longer remembered")
	// ErrCollected means that the result was handed out before.
	ErrCollected = errors.New("jobs: result already collected")
	// ErrEnded means that the job has ended, or has closed its standard input, so
	// that it takes no more.
	ErrEnded = errors.New("jobs: job takes no more input")
	// ErrNoInput means that the job was started without [Spec.Input].
	ErrNoInput = errors.New("jobs: job has no input")
	// ErrPending means that the host has something more urgent than to wait.
	// A [*PendingError] says what.
	ErrPending = errors.New("jobs: something more urgent is pending")
	// ErrAtCapacity means that [Config.MaxRunning] jobs run. A [*CapacityError]
	// says how many and whose.
	ErrAtCapacity = errors.New("jobs: too many jobs are running")
	// ErrDirInUse means that another process uses [Config.Dir].
	ErrDirInUse = errors.New("jobs: directory is in use by another host")
	// ErrClosed means that Close has been called.
	ErrClosed = errors.New("jobs: supervisor is closed")
	// ErrDisabled means that [Config.Disabled] is set.
	ErrDisabled = errors.New("jobs: background jobs are disabled")
	// ErrUnsupported means that the platform cannot run process jobs.
	ErrUnsupported = errors.New("jobs: process jobs are not supported on this platform")
)

// A CapacityError says that no slot is free.
type CapacityError struct {
	// Running and MaxRunning are those of the supervisor that is full.
	Running, MaxRunning int
	// Shared tells that this is a supervisor above the one that was asked.
	Shared bool
}

func (e *CapacityError) Error() string {
	whose := ""
	if e.Shared {
		whose = " of all owners together"
	}
	return fmt.Sprintf("%v: %d of %d%s; wait for one to end, or cancel one", ErrAtCapacity, e.Running, e.MaxRunning, whose)
}

// Unwrap returns ErrAtCapacity.
func (e *CapacityError) Unwrap() error { return ErrAtCapacity }

// A JobError is an error that concerns one job.
type JobError struct {
	// ID is the id as the caller gave it.
	ID string
	// Job is the job's Snapshot, nil if there is none.
	Job *Snapshot
	// Err is one of the package's sentinel errors.
	Err error
}

func (e *JobError) Error() string {
	id := e.ID
	if len(id) > 40 {
		id = id[:40] + "…"
	}
	if e.Job == nil {
		return fmt.Sprintf("%v: %q", e.Err, id)
	}
	return fmt.Sprintf("%v: %s (%s)", e.Err, id, e.Job.Outcome())
}

// Unwrap returns the sentinel.
func (e *JobError) Unwrap() error { return e.Err }

// A Stage is the part of a start that failed.
type Stage string

// The stages of a start, in order.
const (
	StageSpec  Stage = "spec"              // the Spec is not valid
	StageWrap  Stage = "wrapper"           // Config.Wrap
	StageEnv   Stage = "environment"       // Config.EnvFilter
	StageFile  Stage = "result file"       // the private directory or the result file
	StageDir   Stage = "working directory" // Spec.Dir
	StagePath  Stage = "program"           // finding and executing Argv[0]
	StageArgs  Stage = "arguments"         // the size of arguments and environment
	StageLeash Stage = "leash"             // Config.Leash
	StageHost  Stage = "resources"         // descriptors, processes, memory
	// StageShell is Spec.Shell: the way to the machine, or what it lacks.
	StageShell Stage = "shell"
)

// A StartError says why a job could not be started. It never contains the
// value of an environment variable.
type StartError struct {
	// Tool is the tool name of the Spec.
	Tool string
	// Stage is what failed.
	Stage Stage
	// Hint says what to do about it; it may be empty.
	Hint string
	// Err is the cause, as the system gave it where it did.
	Err error
}

func (e *StartError) Error() string {
	text := fmt.Sprintf("jobs: cannot start %q: %v", e.Tool, e.cause())
	if len(text) > 4000 {
		text = text[:2000] + "…" + text[len(text)-1000:]
	}
	return text
}

// cause is the error without what was to be started.
func (e *StartError) cause() error {
	if e.Hint == "" {
		return fmt.Errorf("%s: %w", e.Stage, e.Err)
	}
	return fmt.Errorf("%s: %w (%s)", e.Stage, e.Err, e.Hint)
}

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }
