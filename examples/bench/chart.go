package main

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strings"
)

// The chart is as wide as a phone, so that its text is never scaled down. Its
// colours are its own, ground included: a picture cannot know the page it is
// shown on, only whether its reader prefers dark.
const (
	chartWidth = 390
	margin     = 12
	barsLeft   = 128 // where the bars begin, right of the names
	barsRight  = 332 // where they end, left of the numbers
	barHeight  = 9
	barPitch   = 14
	groupHead  = 18
	groupGap   = 9
)

// It has no character that XML would want escaped.
const chartStyle = `
text { font: 11px system-ui, -apple-system, "Segoe UI", Roboto, Helvetica, Arial, sans-serif; fill: #1f2328 }
.title { font-size: 16px; font-weight: 600 }
.group { font-size: 12px; font-weight: 600 }
.bold { font-weight: 600 }
.number { text-anchor: end; font-variant-numeric: tabular-nums }
.middle { text-anchor: middle }
.soft { fill: #59636e }
.ours { fill: #0969da }
.theirs { fill: #9aa4af }
.ground { fill: #ffffff }
line { stroke: #d1d9e0 }
.one { stroke: #59636e }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc }
.soft { fill: #9198a1 }
.ours { fill: #4493f8 }
.theirs { fill: #656c76 }
.ground { fill: #0d1117 }
line { stroke: #30363d }
.one { stroke: #9198a1 }
}
`

const chartTitle = "Cost beside the bare alternative"

// writeChart writes the ratios of the rows that are for the chart as an SVG.
// facts is one line about the machine.
func writeChart(w io.Writer, rows []row, facts string) error {
	c := chart{y: 24}
	c.scale(rows)
	c.text(margin, "title", chartTitle)
	c.y += 18
	c.text(margin, "soft", "Ratio, logarithmic: left of 1× is cheaper, right is dearer.")
	c.y += 15
	c.text(margin, "soft", facts)
	c.y += 22
	top := c.y
	c.ticks()
	for _, r := range rows {
		if r.chart {
			c.group(r)
		}
	}
	height := c.y + 6

	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" role="img" aria-labelledby="t d">`+"\n", chartWidth, height)
	fmt.Fprintf(&b, "<title id=\"t\">%s</title>\n<desc id=\"d\">%s</desc>\n", escape(chartTitle), escape(describe(rows)))
	fmt.Fprintf(&b, "<style>%s</style>\n<rect class=\"ground\" width=\"%d\" height=\"%d\" rx=\"6\"/>\n", chartStyle, chartWidth, height)
	for v := c.low; v <= c.high*1.001; v *= 10 {
		class := ""
		if math.Abs(v-1) < .01 {
			class = ` class="one"`
		}
		fmt.Fprintf(&b, "<line%s x1=\"%.1f\" x2=\"%.1[2]f\" y1=\"%d\" y2=\"%d\"/>\n", class, c.x(v), top+4, height-8)
	}
	b.WriteString(c.body.String())
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// A chart is the part of the picture above y.
type chart struct {
	y         int
	low, high float64 // what the axis spans, powers of ten
	body      strings.Builder
}

// scale makes the axis as long as the ratios need.
func (c *chart) scale(rows []row) {
	c.low, c.high = .1, 10
	for _, r := range rows {
		for _, cell := range r.cells {
			if r.chart && cell.drawn() {
				c.low = min(c.low, math.Pow(10, math.Floor(math.Log10(cell.ratio))))
				c.high = max(c.high, math.Pow(10, math.Ceil(math.Log10(cell.ratio))))
			}
		}
	}
}

// drawn reports whether the cell has a ratio that the axis can show.
func (c cell) drawn() bool {
	return c.took && c.failed == "" && c.ratio > 0 && !math.IsInf(c.ratio, 0)
}

func (c *chart) x(ratio float64) float64 {
	part := math.Log10(ratio/c.low) / math.Log10(c.high/c.low)
	return barsLeft + part*(barsRight-barsLeft)
}

func (c *chart) text(x int, class, s string) {
	fmt.Fprintf(&c.body, "<text class=\"%s\" x=\"%d\" y=\"%d\">%s</text>\n", class, x, c.y, escape(s))
}

func (c *chart) ticks() {
	for v := c.low; v <= c.high*1.001; v *= 10 {
		label := fmt.Sprintf("%g×", math.Round(v*1000)/1000)
		c.text(int(c.x(v)), "soft middle", label)
	}
	c.y += 6
}

// group draws the bars of one row.
func (c *chart) group(r row) {
	c.y += groupHead
	// On a ground of its own, as the lines of the axis run through.
	fmt.Fprintf(&c.body, "<rect class=\"ground\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n", margin, c.y-12, chartWidth-2*margin, 16)
	c.text(margin, "group", plain(r.title))
	c.y += 5
	for i, cell := range r.cells {
		if !cell.took {
			continue
		}
		c.y += barPitch
		bar, name, number := "theirs", "soft", "soft number"
		if i == 0 {
			bar, name, number = "ours", "bold", "bold number"
		}
		c.text(margin, name, shortName(contenders[i].name))
		if cell.drawn() {
			from, to := c.x(1), c.x(cell.ratio)
			fmt.Fprintf(&c.body, "<rect class=\"%s\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\"/>\n",
				bar, min(from, to), c.y-barHeight, max(1, math.Abs(to-from)), barHeight)
			c.text(chartWidth-margin, number, formatRatio(cell.ratio))
		} else if cell.failed != "" {
			c.text(chartWidth-margin, number, "failed")
		}
	}
	c.y += groupGap
}

// shortName fits left of the bars.
func shortName(name string) string {
	return strings.NewReplacer("os/exec + bytes.Buffer", "os/exec + Buffer", "os/exec + ringbuffer", "exec + ringbuffer",
		"os/exec + circbuf", "exec + circbuf", "1 KiB pump, 200 ms poll", "pump and poll").Replace(name)
}

// plain returns a title of the table without its marks.
func plain(title string) string {
	return strings.NewReplacer("`", "", "… ", "").Replace(title)
}

// describe says what the bars say.
func describe(rows []row) string {
	var groups []string
	for _, r := range rows {
		var bars []string
		for i, c := range r.cells {
			if c.drawn() {
				bars = append(bars, contenders[i].name+" "+formatRatio(c.ratio))
			}
		}
		if r.chart {
			groups = append(groups, plain(r.title)+": "+strings.Join(bars, ", "))
		}
	}
	return strings.Join(groups, "; ")
}

func escape(s string) string {
	var b strings.Builder
	xml.EscapeText(&b, []byte(s))
	return b.String()
}
