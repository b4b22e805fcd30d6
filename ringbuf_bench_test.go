package jobs_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
)

// page is the size of a typical write of a busy program.
const page = 4 << 10

// fastest returns the least time that one call of each function took, in
// nanoseconds. Their turns alternate, so that whatever else the machine does
// meets all of them.
func fastest(fs ...func()) []float64 {
	const rounds, calls = 100, 200
	best := make([]float64, len(fs))
	for round := range rounds {
		for i, f := range fs {
			begun := time.Now()
			for range calls {
				f()
			}
			took := float64(time.Since(begun).Nanoseconds()) / calls
			if round == 0 || took < best[i] {
				best[i] = took
			}
		}
	}
	return best
}

// fullRing returns a log of the usual size that has wrapped.
func fullRing() *jobs.RingBuf {
	b := jobs.NewRingBuf(jobs.DefaultHeadBytes, jobs.DefaultTailBytes)
	writeSample(b, 1<<20, page)
	return b
}

// copyRing returns a function that does the least a ring can: it copies p to
// the next place of 64 KiB.
func copyRing(p []byte) func() {
	mem, off := make([]byte, jobs.DefaultTailBytes), 0
	return func() {
		copy(mem[off:], p)
		off = (off + len(p)) % len(mem)
	}
}

// The promise is at most 2 times a copy, and no allocation.
func BenchmarkRingBufWrite4KiB(b *testing.B) {
	ring, p := fullRing(), sample(0, page)
	write := func() { ring.Write(p) }
	b.SetBytes(page)
	b.ReportAllocs()
	for b.Loop() {
		write()
	}
	took := fastest(copyRing(p), write)
	b.ReportMetric(took[0], "copy-ns")
	b.ReportMetric(took[1]/took[0], "x-copy")
}

// The promise is at most a microsecond, and no allocation.
func BenchmarkRingBufChunk4KiB(b *testing.B) {
	for _, from := range []int64{0, -page, -jobs.DefaultTailBytes} {
		b.Run(fmt.Sprintf("from=%d", from), func(b *testing.B) {
			ring, buf := fullRing(), make([]byte, page)
			b.SetBytes(page)
			b.ReportAllocs()
			for b.Loop() {
				if c := ring.Chunk(buf, from); len(c.Data) != page {
					b.Fatalf("%d bytes at %d", len(c.Data), c.From)
				}
			}
		})
	}
}

// A pump reads into the log's own memory: what that costs beside the copy that
// the read itself is.
func BenchmarkRingBufFill(b *testing.B) {
	ring := fullRing()
	src := make([]byte, jobs.DefaultTailBytes)
	read := func(p []byte) (int, error) { return copy(p, src), nil }
	fill := func() int64 {
		n, _ := jobs.RingBufReadFrom(ring, read)
		return int64(n)
	}
	for fill() < int64(len(src)) {
		// Up to the edge: from there each call fills the whole tail.
	}
	b.SetBytes(int64(len(src)))
	b.ReportAllocs()
	for b.Loop() {
		fill()
	}
	took := fastest(copyRing(src), func() { fill() })
	b.ReportMetric(took[0], "copy-ns")
	b.ReportMetric(took[1]/took[0], "x-copy")
}

// A look at a log must not depend on how much went through it.
func BenchmarkRingBufStats(b *testing.B) {
	ring := fullRing()
	b.ReportAllocs()
	for b.Loop() {
		ring.Stats()
	}
}
