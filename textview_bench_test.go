package jobs_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
)

// BenchmarkTextView measures the view of a full log beside bytes.ToValidUTF8 of
// the same bytes, in turns. "x-ToValidUTF8" is the rate of the view in terms of
// that of ToValidUTF8: more is better, the promise for plain text is 0.5.
func BenchmarkTextView(b *testing.B) {
	line := "2026-01-01 12:00:00 INFO compiling package github.com/agentjobs/jobs\n"
	for _, c := range []struct{ name, line string }{
		{"plain", line},
		{"unicode", "日本語のログ ✓ Grüße " + line},
		{"colour", "\x1b[32mINFO\x1b[0m " + line},
		{"progress", "Receiving objects: 42%\rReceiving objects: 43%\r"},
		{"binary", random(4096)},
	} {
		b.Run(c.name, func(b *testing.B) {
			data := []byte(strings.Repeat(c.line, jobs.DefaultTailBytes/len(c.line)))
			log := jobs.Log{Pieces: []jobs.Piece{{Data: data}}, Total: int64(len(data))}
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			var peer, view time.Duration
			for b.Loop() {
				t0 := time.Now()
				bytes.ToValidUTF8(data, []byte("\uFFFD"))
				t1 := time.Now()
				log.Text(jobs.TextOptions{})
				view += time.Since(t1)
				peer += t1.Sub(t0)
			}
			b.ReportMetric(float64(peer)/float64(view), "x-ToValidUTF8")
		})
	}
}
