package main

import (
	"fmt"
	"io"
	"math"
	"strings"
)

// writeTable writes the rows as a Markdown table, and below it what the bare
// alternatives are.
func writeTable(w io.Writer, rows []row) error {
	var b strings.Builder
	b.WriteString("| work | bare |")
	for _, c := range contenders {
		fmt.Fprintf(&b, " %s |", c.name)
	}
	b.WriteString("\n|---|--:|" + strings.Repeat("--:|", len(contenders)) + "\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s |", r.title, r.bare.format(r.unit))
		for _, c := range r.cells {
			fmt.Fprintf(&b, " %s |", c.format(r.unit))
		}
		b.WriteString("\n")
	}
	b.WriteString("\nThe bare alternatives, and half of what their rounds were apart:\n\n")
	for i, r := range rows {
		if i == 0 || r.against != rows[i-1].against {
			fmt.Fprintf(&b, "* %s: %s", r.title, r.against)
			if s := r.spread(); !math.IsNaN(s) {
				fmt.Fprintf(&b, " (± %.0f %%)", 50*s)
			}
			b.WriteString("\n")
		}
	}
	failures(&b, rows)
	_, err := io.WriteString(w, b.String())
	return err
}

// failures says why contenders failed.
func failures(b *strings.Builder, rows []row) {
	for _, r := range rows {
		if r.bare.failed != "" {
			fmt.Fprintf(b, "\n%s, bare: failed, %s\n", r.title, r.bare.failed)
		}
		for i, c := range r.cells {
			if c.failed != "" {
				fmt.Fprintf(b, "\n%s, %s: failed, %s\n", r.title, contenders[i].name, c.failed)
			}
		}
	}
}

func (c cell) format(u unit) string {
	switch {
	case !c.took:
		return ""
	case c.failed != "":
		return "failed"
	case math.IsNaN(c.ratio) || math.IsInf(c.ratio, 0):
		return u.format(c.value)
	}
	return fmt.Sprintf("%s (%s)", u.format(c.value), formatRatio(c.ratio))
}

func formatRatio(r float64) string {
	switch {
	case r < .0095:
		return fmt.Sprintf("%.1g×", r)
	case r < 9.95:
		return fmt.Sprintf("%.2f×", r)
	case r < 99.5:
		return fmt.Sprintf("%.0f×", r)
	}
	return thousands(r) + "×"
}

// thousands returns a whole number in groups of three digits.
func thousands(v float64) string {
	s := fmt.Sprintf("%.0f", v)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// format returns v with three digits that count and a unit that suits it.
func (u unit) format(v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	steps := map[unit][]struct {
		size float64
		name string
	}{
		seconds: {{1, "s"}, {1e-3, "ms"}, {1e-6, "µs"}, {1e-9, "ns"}},
		octets:  {{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}, {1, "B"}},
		count:   {{1, ""}},
	}[u]
	step := steps[len(steps)-1]
	for _, s := range steps {
		if v >= s.size {
			step = s
			break
		}
	}
	return strings.TrimSpace(threeDigits(v/step.size) + " " + step.name)
}

func threeDigits(v float64) string {
	switch {
	case v == math.Trunc(v):
		return fmt.Sprintf("%.0f", v)
	case v < 9.995:
		return fmt.Sprintf("%.2f", v)
	case v < 99.95:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// size returns n bytes in words.
func size(n int64) string { return octets.format(float64(n)) }
