package top

import (
	"fmt"
	"strings"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/charmbracelet/x/ansi"
)

// Widths of columns.
const (
	stateWidth = 10
	timeWidth  = 9
	ownerWidth = 20
)

var colours = map[jobs.State]ansi.Style{
	jobs.Running:    ansi.NewStyle().ForegroundColor(ansi.Blue),
	jobs.Cancelling: ansi.NewStyle().ForegroundColor(ansi.Yellow),
	jobs.Completed:  ansi.NewStyle().ForegroundColor(ansi.Green),
	jobs.Failed:     ansi.NewStyle().ForegroundColor(ansi.Red),
	jobs.Lost:       ansi.NewStyle().ForegroundColor(ansi.Red),
}

var (
	bar   = ansi.NewStyle().Reverse(true)
	faint = ansi.NewStyle().Faint()
)

// screen returns as many lines as the terminal has, none wider than it: a head,
// the jobs, a line about the one that is picked, its tail, and the keys.
func (m *model) screen() string {
	if m.width == 0 {
		return "" // not known yet
	}
	if m.width < 20 || m.height < 6 {
		return ansi.Truncate("too small", m.width, "")
	}
	// The list takes what it needs, up to half of what there is.
	inner := m.height - 3
	list := min(max(1, len(m.rows)), inner/2)
	lines := []string{bar.Styled(fit(m.head(), m.width))}
	first := max(0, min(m.picked-list/2, len(m.rows)-list))
	for i := first; i < first+list; i++ {
		switch {
		case i < len(m.rows):
			lines = append(lines, m.job(i))
		default:
			lines = append(lines, "no jobs yet")
		}
	}
	lines = append(lines, bar.Styled(fit(m.about(), m.width)))
	lines = append(lines, m.end(inner-list)...)
	keys := "q quit  c cancel  ↑↓ pick"
	if m.said != "" {
		keys += "  │ " + m.said
	}
	lines = append(lines, faint.Styled(fit(keys, m.width)))
	return strings.Join(lines, "\n")
}

func (m *model) head() string {
	running := 0
	for _, r := range m.rows {
		if !r.ended() {
			running++
		}
	}
	return fmt.Sprintf(" jobs: %d running, %d ended", running, len(m.rows)-running)
}

func (m *model) job(i int) string {
	r := m.rows[i]
	mark := "  "
	if i == m.picked {
		mark = "> "
	}
	elapsed := r.snap.Elapsed
	if !r.ended() {
		elapsed = m.now.Sub(r.snap.Started)
	}
	state := string(r.snap.State)
	if r.gone {
		state = "gone"
	}
	name := line(r.snap.Tool)
	if r.snap.Tag != "" {
		name += " (" + line(r.snap.Tag) + ")"
	}
	// Where there is no room the owner is the first to go.
	left := m.width - len(mark) - stateWidth - 1 - timeWidth - 1
	owner := ""
	if left >= 2*ownerWidth {
		owner = fit(r.owner, ownerWidth-1) + " "
		left -= ownerWidth
	}
	return mark + colours[r.snap.State].Styled(fit(state, stateWidth)) + " " +
		fmt.Sprintf("%*s", timeWidth, shortly(elapsed)) + " " + owner + fit(name, left)
}

// about says what is known of the job that is picked.
func (m *model) about() string {
	if m.picked >= len(m.rows) {
		return ""
	}
	r := m.rows[m.picked]
	outcome := r.snap.Outcome()
	if r.gone {
		outcome = "ended, and forgotten before it was seen"
	}
	text := fmt.Sprintf(" %s: %s, %d bytes", line(r.snap.Tool), outcome, r.snap.OutputTotal+r.snap.StderrTotal)
	if r.snap.Err != nil {
		text += ", " + line(fmt.Sprint(r.snap.Err))
	}
	return text
}

// end returns the last n lines of the tail, as wide as the terminal.
func (m *model) end(n int) []string {
	// Before wrapping, which takes time, leave out what cannot be seen.
	raw := strings.Split(strings.TrimSuffix(m.tail, "\n"), "\n")
	raw = raw[max(0, len(raw)-n):]
	var lines []string
	for _, l := range raw {
		lines = append(lines, strings.Split(ansi.Hardwrap(spaced(l), m.width, true), "\n")...)
	}
	lines = lines[max(0, len(lines)-n):]
	for len(lines) < n {
		lines = append(lines, "")
	}
	return lines
}

// fit cuts or fills s to a width.
func fit(s string, width int) string {
	s = ansi.Truncate(s, width, "…")
	return s + strings.Repeat(" ", max(0, width-ansi.StringWidth(s)))
}

// spaced puts spaces in place of tabs, whose width only the terminal knows.
func spaced(s string) string {
	var b strings.Builder
	for i, part := range strings.Split(s, "\t") {
		if i > 0 {
			b.WriteString(strings.Repeat(" ", 8-ansi.StringWidth(b.String())%8))
		}
		b.WriteString(part)
	}
	return b.String()
}

func shortly(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%.1fs", d.Truncate(100*time.Millisecond).Seconds())
	}
	return d.Truncate(time.Second).String()
}
