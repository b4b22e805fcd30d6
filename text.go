package jobs

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Every sentence meant for a model is in this file.

// Descriptions of tools and their fields.
const (
	textStartTool = "Run one of your tools in the background and get a job id at once, so that you can go on meanwhile. " +
		"For work that takes more than a few seconds: builds, test runs, servers, long calls. " +
		"The answer says that the job was started, not that it succeeded. You are told when it ends."
	textStartToolName = "The exact name of one of your tools."
	textStartArgs     = `The arguments of that tool as JSON text, for example {"path":"."}. Leave it out for a tool without arguments.`
	textCheckTool     = "Look at a job without waiting: its state and its latest output. Looking changes nothing. " +
		"To wait for the end, collect it instead of checking again and again."
	textCollectTool = "Wait for a job to end and take its result. Each result is handed out once. " +
		"If the job still runs after a while the answer says so, and you can collect again later."
	textCancelTool = "Stop a job with all its processes and see what it had printed. A job that has ended is not touched."
	textListTool   = "List your jobs: those that run, and those that ended and wait to be collected."
	textJobID      = "The job id that starting it returned."
	textTailLines  = "Show at most this many lines, counted from the end."
	textFullResult = "Show the whole result, not only its last 50,000 characters. Ask at the first collect: a result is handed out once."
)

// words make the sentences of one Toolset. They hold the names of the tools,
// since a host may have given them others.
type words map[string]string

// newWords asks the host for the names of the tools, once. A rename that
// panics, or that gives nothing or one name twice, changes none.
func newWords(rename func(string) string) (w words) {
	plain, renamed := make(words), make(words)
	for _, t := range toolTable {
		plain[t.name] = t.name
	}
	defer func() {
		if recover() != nil {
			w = plain
		}
	}()
	if rename == nil {
		return plain
	}
	taken := map[string]bool{"": true}
	for _, t := range toolTable {
		name := rename(t.name)
		if taken[name] {
			return plain
		}
		taken[name], renamed[t.name] = true, name
	}
	return renamed
}

func (w words) collectCall(id string) string {
	return fmt.Sprintf(`%s {"id":%q}`, w[toolCollect], id)
}

func (w words) checkCall(id string) string {
	return fmt.Sprintf(`%s {"id":%q}`, w[toolCheck], id)
}

func (w words) listCall() string { return w[toolList] + " {}" }

func (w words) started() string {
	return fmt.Sprintf("Started, not finished. Go on; its end will be told. %s waits for the result.", w[toolCollect])
}

func (w words) endedNotCollected(s Snapshot) string {
	if s.State == Cancelled && s.Reason == ReasonCancelled {
		return fmt.Sprintf("It was stopped; %s shows once more what it left.", w[toolCollect])
	}
	return fmt.Sprintf("It has ended; %s hands out the result.", w[toolCollect])
}

func (w words) alreadyCollected() string {
	return "Nothing is left to do: its result was handed out before."
}

func (w words) unchanged() string {
	return fmt.Sprintf("nothing new; %s waits for the end", w[toolCollect])
}

func (w words) stillRunning(waited time.Duration) string {
	return fmt.Sprintf("Still running after a wait of %v. Go on and collect it later, or stop it with %s.", waited, w[toolCancel])
}

func (w words) stopped(s Snapshot) string {
	switch {
	case len(s.Survivors) > 0:
		return "It was told to stop, but the processes named in survivors could not be killed."
	case s.Reason == ReasonUnreaped:
		return "It was told to stop and does not; it keeps its place until it ends. Go on without it."
	case s.State == Cancelled:
		return "Stopped; none of its processes is left."
	}
	return fmt.Sprintf("It has ended as shown; nothing more was stopped. %s hands out the result.", w[toolCollect])
}

func (w words) notDone(s Snapshot) string {
	if s.State == Cancelling {
		return fmt.Sprintf("The wait was interrupted; the stop goes on. Look later with %s.", w[toolCheck])
	}
	return fmt.Sprintf("The wait was interrupted; the job goes on. Collect it later with %s.", w[toolCollect])
}

func (w words) policyFailed() string { return "the host's policy failed on it" }

// Errors.

func (w words) disabled() string {
	return "Background jobs are switched off here; call tools directly."
}

func (w words) unknownTool(name string) string {
	return fmt.Sprintf("There is no tool %q here. The job tools are %s.", readable(name, 64), strings.Join(w.toolNames(), ", "))
}

func (w words) toolNames() []string {
	var names []string
	for _, d := range toolTable {
		names = append(names, w[d.name])
	}
	return names
}

func (w words) unknownField(tool, field string, fields []string) string {
	known := "it takes none"
	if len(fields) > 0 {
		known = "it takes " + strings.Join(fields, ", ")
	}
	return fmt.Sprintf("%s has no field %q; %s.", w[tool], readable(field, 64), known)
}

func (w words) missingField(tool, field string) string {
	return fmt.Sprintf("%s needs the field %q.", w[tool], field)
}

func (w words) wrongType(tool, field, want string) string {
	return fmt.Sprintf("The field %q of %s must be %s.", field, w[tool], want)
}

func (w words) notAnObject(tool string, fields []string) string {
	return fmt.Sprintf("The arguments of %s must be one JSON object with the fields it takes: %s.", w[tool], cmp.Or(strings.Join(fields, ", "), "none"))
}

func (w words) notAllowed(err *NotAllowedError, allowed []string) string {
	list := "None of your tools can run in the background."
	if len(allowed) > 0 {
		list = "These can run in the background: " + readable(strings.Join(allowed, ", "), 2000) + "."
	}
	return fmt.Sprintf("%q cannot run as a job: %s. %s", readable(err.Tool, 64), readable(err.Reason, 2000), list)
}

func (w words) atCapacity(l List) string {
	return fmt.Sprintf("%d of %d jobs run already, so nothing was started. Wait for one with %s, or stop one with %s; then start again.",
		l.Running, l.MaxRunning, w[toolCollect], w[toolCancel])
}

func (w words) startFailed(err error) string {
	var start *StartError
	if errors.As(err, &start) {
		err = start.cause()
	}
	return "Not started: " + readable(strings.TrimPrefix(err.Error(), "jobs: "), 4000) + "."
}

// jobError explains an error about one job.
func (w words) jobError(err error) string {
	var je *JobError
	if !errors.As(err, &je) {
		return err.Error()
	}
	id := readable(je.ID, 40)
	switch {
	case errors.Is(err, ErrCollected):
		return fmt.Sprintf("%s has ended (%s); its result was handed out before. Look in your earlier messages, or start it again.", id, je.Job.Outcome())
	case errors.Is(err, ErrExpired):
		return fmt.Sprintf("%s ended some time ago and is no longer remembered. If its result still matters, start it again.", id)
	case !validID(je.ID):
		return fmt.Sprintf("%q is not a job id. Ids look like job_0123456789abcdef0123; %s shows yours.", id, w[toolList])
	}
	return fmt.Sprintf("There is no job %s. %s shows your jobs.", id, w[toolList])
}

// startError explains why a job was not started.
func (w words) startError(err error, l List, allowed []string) string {
	var refused *NotAllowedError
	switch {
	case errors.Is(err, ErrAtCapacity):
		return w.atCapacity(l)
	case errors.Is(err, ErrClosed):
		return "The session is ending, so no job can be started any more. Call the tool directly if it still matters."
	case errors.Is(err, ErrDisabled):
		return w.disabled()
	case errors.As(err, &refused):
		return w.notAllowed(refused, allowed)
	}
	return w.startFailed(err)
}

func (w words) hostFailed(v any) string {
	return fmt.Sprintf("The host failed while it answered (%s). Nothing was started or stopped. Try once more, or call the tool directly.", readable(fmt.Sprint(v), 200))
}

func (w words) noResolver() string {
	return "This host cannot start tools as jobs. Call the tool directly."
}

// callError is the error text inside a failed result.
func (w words) callError(s Snapshot) string {
	switch {
	case s.Reason == ReasonTimeout:
		return fmt.Sprintf("It ran longer than its timeout and was stopped after %s.", s.Elapsed.Round(100*time.Millisecond))
	case s.Reason == ReasonOutputLimit:
		return "It was stopped because it wrote more than it may."
	case s.Reason == ReasonUnreaped:
		return "It was told to stop, but the system does not let go of it."
	case s.Reason == ReasonInternal:
		return "It broke down: " + readable(fmt.Sprint(s.Err), 1000)
	case s.Reason == ReasonShutdown:
		return "It was stopped because the session ended."
	case s.State == Cancelled:
		return "It was stopped before it was done."
	case s.Signal != 0:
		return fmt.Sprintf("It was killed by %s.", s.Signal)
	case s.ExitCode > 0:
		return fmt.Sprintf("It failed with exit code %d.", s.ExitCode)
	}
	return "It failed: " + readable(fmt.Sprint(s.Err), 1000)
}

// readable makes s fit to be read by a model: no control characters, and not
// longer than n bytes or a little more.
func readable(s string, n int) string {
	cut := len(s) > n
	if cut {
		s = s[:n]
	}
	s = Log{Pieces: []Piece{{Data: []byte(s)}}}.Text(TextOptions{}).Body
	if cut {
		s += "…"
	}
	return s
}
