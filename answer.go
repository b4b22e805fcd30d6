package jobs

import (
	"encoding/json"
	"errors"
	"slices"
	"unicode/utf8"
)

const (
	statusOK      = "ok"
	statusError   = "error"
	statusPending = "pending"

	// answerLimit bounds an answer, fullAnswerLimit one that full_result asked
	// for.
	answerLimit     = 64 << 10
	fullAnswerLimit = 8 << 20

	// checkTailCap is how many characters of output a look shows, and
	// besideResultCap how many stand beside a result.
	checkTailCap    = 4000
	besideResultCap = 2000

	// unchangedBeforeHint is after how many looks without news a look says that
	// there is a better way.
	unchangedBeforeHint = 3

	// noticesPerAnswer is how many notices ride along in one answer.
	noticesPerAnswer = 8

	// nameLimit bounds names and tags that the host has given.
	nameLimit = 200

	// maxResultDepth bounds the nesting of a result that is handed on as JSON.
	maxResultDepth = 512
)

// An answer is what a tool call returns, as JSON.
type answer struct {
	Status          string          `json:"status"`
	ID              string          `json:"id,omitempty"`
	JobID           string          `json:"job_id,omitempty"`
	Tool            string          `json:"tool,omitempty"`
	Reason          Reason          `json:"reason,omitempty"`
	ExitCode        *int            `json:"exit_code,omitempty"`
	Signal          string          `json:"signal,omitempty"`
	ElapsedSecs     *float64        `json:"elapsed_secs,omitempty"`
	IdleSecs        float64         `json:"idle_secs,omitempty"`
	LeaderExited    bool            `json:"leader_exited,omitempty"`
	WaitingForInput bool            `json:"waiting_for_input,omitempty"`
	Unchanged       bool            `json:"unchanged,omitempty"`
	NextCheckSecs   int             `json:"next_check_secs,omitempty"`
	Result          json.RawMessage `json:"result,omitempty"`
	ResultTruncated bool            `json:"result_truncated,omitempty"`
	Note            string          `json:"result_note,omitempty"`
	Match           *matchLine      `json:"match,omitempty"`
	Output          *string         `json:"output,omitempty"`
	From            *int64          `json:"from,omitempty"`
	Next            *int64          `json:"next,omitempty"`
	Dropped         int64           `json:"dropped,omitempty"`
	OutputTail      *string         `json:"output_tail,omitempty"`
	Captured        *int64          `json:"output_bytes_captured,omitempty"`
	TailTruncated   bool            `json:"tail_truncated,omitempty"`
	Survivors       []Process       `json:"survivors,omitempty"`
	Leftovers       []Process       `json:"leftovers,omitempty"`
	ActiveJobs      *int            `json:"active_jobs,omitempty"`
	MaxJobs         *int            `json:"max_concurrent_jobs,omitempty"`
	Jobs            []jobLine       `json:"jobs,omitzero"`
	PendingSummary  string          `json:"pending_summary,omitempty"`
	Message         string          `json:"message,omitempty"`
	Hint            string          `json:"hint,omitempty"`
	Notices         []noticeView    `json:"notices,omitempty"`

	full   bool // the longer limit holds
	capped bool // full_result would have shown more

	// text is the result as text, and wrap makes the result of a part of it;
	// wrap is nil if there is nothing to shorten.
	text Text
	wrap func(body string) json.RawMessage
}

// A jobLine is a job in a list.
type jobLine struct {
	ID          string  `json:"id"`
	Tool        string  `json:"tool"`
	Status      State   `json:"status"`
	Reason      Reason  `json:"reason,omitempty"`
	ExitCode    *int    `json:"exit_code,omitempty"`
	Signal      string  `json:"signal,omitempty"`
	ElapsedSecs float64 `json:"elapsed_secs"`
	Captured    int64   `json:"output_bytes_captured"`
}

// lineOf is the line of a job in a list.
func lineOf(s Snapshot) jobLine {
	return jobLine{
		ID:          s.ID,
		Tool:        readable(s.Tool, nameLimit),
		Status:      s.State,
		ElapsedSecs: seconds(s.Elapsed),
		Captured:    *s.captured(),
	}
}

// A matchLine is the line of output that a wait found.
type matchLine struct {
	ID   string `json:"id"`
	Line string `json:"line"`
	Next int64  `json:"next"`
}

// about is the answer that tells how a job stands.
func about(s Snapshot) answer {
	return answer{Status: string(s.State), ID: s.ID, Tool: readable(s.Tool, nameLimit), ElapsedSecs: new(seconds(s.Elapsed))}
}

// captured counts the bytes of a job's output.
func (s Snapshot) captured() *int64 {
	n := s.OutputTotal + s.StderrTotal
	return &n
}

func failed(message string) answer {
	return answer{Status: statusError, Message: message}
}

// pending makes this the answer to a wait that ended for something more urgent,
// if err says so.
func (a *answer) pending(w words, err error) bool {
	var urgent *PendingError
	if !errors.As(err, &urgent) {
		return false
	}
	a.Status = statusPending
	a.PendingSummary = readable(urgent.Summary, 4000)
	a.Message = w.pending()
	return true
}

// outcome sets what is known of an end.
func (a *answer) outcome(s Snapshot) {
	if s.Reason != ReasonExit && string(s.Reason) != string(s.State) {
		a.Reason = s.Reason
	}
	if s.ExitCode >= 0 {
		a.ExitCode = &s.ExitCode
	}
	a.Signal = s.Signal.String()
	a.Survivors, a.Leftovers = firstFew(s.Survivors), firstFew(s.Leftovers)
}

// firstFew bounds how many processes an answer names.
func firstFew(ps []Process) []Process {
	few := slices.Clone(ps[:min(len(ps), 20)])
	for i := range few {
		few[i].Name = readable(few[i].Name, nameLimit) // a process calls itself as it likes
	}
	return few
}

// logs are what was kept of a job's output.
type logs struct {
	out, err Log
}

func logsOf(r Result) logs { return logs{r.Output, r.Stderr} }

// tail shows the end of the output, at most limit characters of it unless the
// options ask for all.
func (a *answer) tail(l logs, s Snapshot, o TextOptions, limit int) {
	text := l.out.Text(o)
	body, truncated := text.Body, text.Truncated
	if errs := l.err.Text(o); errs.Body != "" {
		body += "\n--- standard error ---\n" + errs.Body
		truncated = truncated || errs.Truncated
	}
	if !o.Full {
		if cut := lastRunes(body, limit); len(cut) < len(body) {
			body, truncated = cut, true
		}
	}
	a.OutputTail, a.Captured, a.TailTruncated = &body, s.captured(), truncated
}

// lastRunes returns the last n characters of s.
func lastRunes(s string, n int) string {
	for i := utf8.RuneCountInString(s); i > n; i-- {
		_, size := utf8.DecodeRuneInString(s)
		s = s[size:]
	}
	return s
}

// setResult sets the result of a job: the content itself where that is JSON
// and whole, the text of cut JSON, else {"output": text}.
func (a *answer) setResult(r ResultFile, text Text) {
	a.text = text
	a.wrap = func(body string) json.RawMessage {
		value, _ := encodeJSON(map[string]string{"output": body})
		return value
	}
	a.ResultTruncated = text.Truncated
	if r.isJSON() {
		a.wrap = func(body string) json.RawMessage {
			value, _ := encodeJSON(body)
			return value
		}
		if content := []byte(text.Body); !text.Truncated && json.Valid(content) && depth(content) <= maxResultDepth {
			a.Result = content
			return
		}
	}
	a.Result = a.wrap(text.Body)
}

// depth returns how deep valid JSON is nested.
func depth(text []byte) (deepest int) {
	level, inString := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			level++
			deepest = max(deepest, level)
		case c == '}' || c == ']':
			level--
		}
	}
	return deepest
}

// setFailure makes the result one that says what went wrong, beside the content
// of the result file, if any.
func (a *answer) setFailure(callError string) {
	inner := a.wrap
	fail := func(output json.RawMessage) json.RawMessage {
		value, _ := encodeJSON(struct {
			Error  string          `json:"tool_call_error"`
			Output json.RawMessage `json:"output,omitempty"`
		}{callError, output})
		return value
	}
	if inner == nil {
		a.Result = fail(nil)
		return
	}
	a.Result = fail(a.Result)
	a.wrap = func(body string) json.RawMessage { return fail(inner(body)) }
}

// encode returns the answer as JSON, no longer than its limit: the longest
// part gives way until it fits.
func (a answer) encode() json.RawMessage {
	limit := answerLimit
	if a.full {
		limit = fullAnswerLimit
	}
	for {
		if a.ResultTruncated {
			a.Hint = a.text.Header()
			if a.capped {
				a.Hint += " full_result would have shown all that was kept."
			}
		}
		text, err := encodeJSON(a)
		if err == nil && len(text) <= limit {
			return text
		}
		if !a.shrink() {
			text, _ = encodeJSON(failed("The answer is too large to show."))
			return text
		}
	}
}

// shrink makes the longest part of the answer a quarter shorter, and reports false
// if there is none left to shorten.
func (a *answer) shrink() bool {
	tail, result := 0, 0
	if a.OutputTail != nil {
		tail = len(*a.OutputTail)
	}
	if a.wrap != nil {
		result = len(a.text.Body)
	}
	switch longest := max(tail, result, 100*len(a.Jobs)); {
	case longest < 200:
		return false
	case longest == tail:
		cut := lastRunes(*a.OutputTail, utf8.RuneCountInString(*a.OutputTail)*3/4)
		a.OutputTail, a.TailTruncated = &cut, true
	case longest == result:
		a.capped = !a.full
		a.text.Shown -= a.text.Shown / 4
		a.text.Body = lastRunes(a.text.Body, int(a.text.Shown))
		a.text.Truncated, a.ResultTruncated = true, true
		a.Result = a.wrap(a.text.Body)
	default:
		a.Jobs = a.Jobs[:len(a.Jobs)*3/4]
		a.Hint = "The list is too long to show; these are the oldest."
	}
	return true
}

// A lookState is what the model saw when it last looked at a job.
type lookState struct {
	state   State
	total   int64
	waiting bool // for input
	seen    bool
	same    int // looks in a row that showed nothing new
}

// nextCheck suggests after how many seconds to look again: longer and longer
// while nothing changes.
func (l lookState) nextCheck() int {
	return min(2<<min(l.same, 5), 60)
}

// look is Check for the model: it also counts looks that showed nothing new.
func (s *Supervisor) look(id string) (Snapshot, lookState, error) {
	var now lookState
	snap, err := s.inspect(id, func(j *job, snap Snapshot) {
		now = lookState{state: snap.State, total: snap.OutputTotal + snap.StderrTotal, waiting: snap.WaitingForInput, seen: true}
		if was := j.looked; was.seen && was.state == now.state && was.total == now.total && was.waiting == now.waiting {
			now.same = was.same + 1
		}
		j.looked = now
	})
	return snap, now, err
}

// logs returns what is kept of a job's output.
func (s *Supervisor) logs(id string) (logs, error) {
	j, err := s.lookup(id)
	if err != nil {
		return logs{}, err
	}
	l := logs{out: j.out.Log()}
	if j.errOut != nil {
		l.err = j.errOut.Log()
	}
	return l, nil
}
