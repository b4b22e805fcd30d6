package jobs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Texts puts into words what a host tells a model, or a person, outside of tool
// answers. The first line of each kind of text differs from that of all others,
// so that they can be told apart. No name, tag or output can begin a line of
// its own in them. The zero value is ready to use.
type Texts struct {
	// Rename is that of [ToolsetOptions].
	Rename func(name string) string
}

// Demoted is the answer of a foreground call that [Supervisor.Run] has sent to
// the background. It is always the same but for the id, and shorter than 400
// bytes.
func (t Texts) Demoted(s Snapshot) string { return newWords(t.Rename).demoted(s.ID) }

// Turn makes a turn of a conversation out of a notice, for hosts that wake a
// model with one. It says that no person wrote it. output, if not empty, is
// shown in a fence that it cannot close, whatever it holds; pass the body of a
// [Text], or the end of one.
func (t Texts) Turn(n Notice, output string) string {
	w := newWords(t.Rename)
	text := w.turnHead() + "\n" + w.told(n)
	if output != "" {
		output = readable(output, len(output))
		fence := fenceFor(output)
		text += "\n" + w.fenceHead() + "\n" + fence + "\n" + strings.TrimSuffix(output, "\n") + "\n" + fence
	}
	return text + "\n" + w.next(n)
}

// Task makes a task out of a notice, for hosts that queue work for a model.
func (t Texts) Task(n Notice) string {
	w := newWords(t.Rename)
	return w.taskHead(n) + "\n" + w.told(n) + "\n" + w.next(n)
}

// Plain says a notice in one line.
func (t Texts) Plain(n Notice) string { return newWords(t.Rename).told(n) }

// Reminder says what a model is about to leave behind at the end of its turn;
// "" if that is nothing.
func (t Texts) Reminder(r Reminder) string {
	if r.Action == TurnOver {
		return ""
	}
	w := newWords(t.Rename)
	text := w.reminderHead(r)
	for _, s := range r.Discarded {
		text += "\n" + w.discarded(s)
	}
	for _, s := range r.Running {
		text += "\n" + w.reminded(s, true)
	}
	for _, s := range r.Uncollected {
		text += "\n" + w.reminded(s, false)
	}
	return text
}

// Report says, for an operator or for the model of a session to come, what a
// supervisor left behind when it was closed; "" if that is nothing.
func (t Texts) Report(r Report) string {
	w := newWords(t.Rename)
	var text strings.Builder
	list := func(head string, snaps []Snapshot, line func(Snapshot) string) {
		if len(snaps) == 0 {
			return
		}
		if text.Len() > 0 {
			text.WriteByte('\n')
		}
		text.WriteString(head)
		for _, s := range snaps {
			text.WriteString("\n- " + line(s))
		}
	}
	list(w.reportStopped(), r.Stopped, w.leftBehind)
	list(w.reportUncollected(), r.Uncollected, w.leftBehind)
	list(w.reportHandedUp(), r.HandedUp, w.goesOn)
	list(w.reportKept(), r.Kept, w.goesOn)
	return text.String()
}

// State says which jobs there are and how they stand, without any number that
// grows: the text changes only when a job is started, changes its state, or
// leaves the list. So it can stand in a prompt without spoiling its cache.
func (t Texts) State(l List) string {
	w := newWords(t.Rename)
	if len(l.Jobs) == 0 {
		return w.noJobs()
	}
	text := w.stateHead()
	for _, s := range l.Jobs {
		text += "\n" + w.stateLine(s)
	}
	return text
}

// Merge adds notices to the result of a tool call, as its member "notices"; and
// what is more urgent, if anything, as "pending_summary" before it. All else of
// a JSON object stays as it is, byte for byte, unless it has one of the two
// already: then notices in it come first, and only the values of the rest are
// kept. Any other value, or text that is no JSON, becomes the member "result"
// of a new object. Without notices and summary the result is returned unchanged.
func (t Texts) Merge(result json.RawMessage, pending string, notices []Notice) json.RawMessage {
	if pending == "" && len(notices) == 0 {
		return result
	}
	w := newWords(t.Rename)
	members, ok := object(result)
	if !ok || members == nil { // null, or nothing at all
		result, _ = encodeJSON(map[string]any{"result": resultValue(result)})
		members = nil
	}
	all, list := members["notices"].([]any)
	if old := members["notices"]; old != nil && !list {
		all = []any{old}
	}
	for _, n := range notices {
		all = append(all, n.view(w))
	}
	var replaced []string
	var more [][]byte
	if pending != "" {
		replaced = append(replaced, "pending_summary")
		more = append(more, jsonMember("pending_summary", readable(pending, 4000)))
	}
	if len(notices) > 0 || list && len(all) > 0 {
		replaced = append(replaced, "notices")
		more = append(more, jsonMember("notices", all))
	}
	return splice(without(result, members, replaced...), more)
}

// resultValue is what a result that is no object stands for.
func resultValue(result json.RawMessage) any {
	if json.Valid(result) && depth(result) < 10_000 { // what decoders take, less the object around it
		return result
	}
	return readable(string(result), len(result))
}

func jsonMember(name string, value any) []byte {
	text, _ := encodeJSON(value) // cannot fail
	return append([]byte(`"`+name+`":`), text...)
}

// without returns an object without some of its members, unchanged if it has
// none of them.
func without(result json.RawMessage, members map[string]any, names ...string) json.RawMessage {
	had := false
	for _, name := range names {
		_, has := members[name]
		had = had || has
		delete(members, name)
	}
	if !had {
		return result
	}
	text, _ := encodeJSON(members)
	return text
}

// splice adds members to the end of the text of an object.
func splice(result json.RawMessage, more [][]byte) json.RawMessage {
	body := bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(result), []byte("}")))
	out := bytes.Clone(body)
	for _, m := range more {
		if out[len(out)-1] != '{' {
			out = append(out, ',')
		}
		out = append(out, m...)
	}
	return append(out, '}')
}

// fenceFor returns a fence of backticks that text cannot close.
func fenceFor(text string) string {
	longest, run := 0, 0
	for _, c := range text {
		if run++; c != '`' {
			run = 0
		}
		longest = max(longest, run)
	}
	return strings.Repeat("`", max(3, longest+1))
}

// oneLine makes a name fit to stand in a line.
func oneLine(s string) string {
	return strings.Join(strings.Fields(readable(s, nameLimit)), " ")
}

// FormatList returns the jobs as lines for a person, with a head that says how
// many places are taken.
func FormatList(l List) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d places taken\n", l.Running, l.MaxRunning)
	for _, s := range l.Jobs {
		fmt.Fprintf(&b, "%s  %-9s  %8s  %s\n", s.ID, s.State, shortly(s.Elapsed), title(s))
	}
	return b.String()
}

// FormatJob returns what is known of one job as lines for a person, with its
// output, such as [Result.Output], if l has any.
func FormatJob(s Snapshot, l Log) string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-10s "+format+"\n", append([]any{name}, args...)...)
	}
	line("job", "%s", s.ID)
	line("tool", "%s", title(s))
	if s.Owner != "" {
		line("owner", "%s", oneLine(s.Owner))
	}
	line("state", "%s", s.Outcome())
	if s.Err != nil {
		line("error", "%s", oneLine(fmt.Sprint(s.Err)))
	}
	line("started", "%s, %s ago", s.Started.Format(time.DateTime), shortly(time.Since(s.Started)))
	line("elapsed", "%s", shortly(s.Elapsed))
	if s.PID != 0 {
		line("pid", "%d", s.PID)
	}
	line("output", "%s bytes, %s dropped", grouped(s.OutputTotal+s.StderrTotal), grouped(s.OutputDropped+s.StderrDropped))
	if s.Ended() && (s.CPUTime > 0 || s.PeakRSS > 0) {
		line("used", "%s of processor time, %s bytes at most", shortly(s.CPUTime), grouped(s.PeakRSS))
	}
	for _, p := range s.Leftovers {
		line("left over", "%d %s", p.PID, oneLine(p.Name))
	}
	for _, p := range s.Survivors {
		line("survived", "%d %s", p.PID, oneLine(p.Name))
	}
	if text := l.Text(TextOptions{}); text.Body != "" || text.Truncated {
		b.WriteString("\n" + text.String())
		if !strings.HasSuffix(text.Body, "\n") {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// title names a job for a person.
func title(s Snapshot) string {
	if s.Tag == "" {
		return oneLine(s.Tool)
	}
	return oneLine(s.Tool) + " (" + oneLine(s.Tag) + ")"
}

// shortly rounds a duration to what a person wants to know.
func shortly(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
