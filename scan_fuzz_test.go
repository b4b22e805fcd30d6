package jobs

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// scanned is a line that a scanner has found.
type scanned struct {
	line string
	next int64
}

// A scanModel remembers what a scanner was shown, in stretches without a gap.
type scanModel struct {
	stretches []Piece
	written   int64
}

func (m *scanModel) gap(n int64) {
	m.written += n
	m.stretches = append(m.stretches, Piece{From: m.written})
}

func (m *scanModel) show(p []byte) {
	m.written += int64(len(p))
	if k := len(m.stretches); k > 0 {
		m.stretches[k-1].Data = append(m.stretches[k-1].Data, p...)
	}
}

// begin makes the model see what a log keeps from an offset on.
func (m *scanModel) begin(b *RingBuf, from int64) {
	if from < 0 {
		from = max(0, m.written+from)
	}
	at := min(from, m.written)
	m.stretches = []Piece{{From: at}}
	for _, p := range b.Log().Pieces {
		if skip := at - p.From; skip > 0 {
			p.From, p.Data = p.From+min(skip, int64(len(p.Data))), p.Data[min(skip, int64(len(p.Data))):]
		}
		switch {
		case len(p.Data) == 0:
			continue
		case p.From == at:
			last := &m.stretches[len(m.stretches)-1]
			last.Data = append(last.Data, p.Data...)
		default:
			m.stretches = append(m.stretches, p)
		}
		at = p.From + int64(len(p.Data))
	}
	if at < m.written {
		m.gap(0)
	}
}

// lines returns all lines so far, and the unfinished one.
func (m *scanModel) lines() (lines []scanned, unfinished string) {
	for _, s := range m.stretches {
		rest, off := s.Data, s.From
		unfinished = "" // is lost with a gap
		for len(rest) > 0 {
			n, over := bytes.IndexByte(rest, '\n'), 1
			if n < 0 {
				n, over = len(rest), 0
			}
			if n > lineLimit {
				n, over = lineLimit, 0
			} else if over == 0 {
				unfinished = string(rest)
				break
			}
			off += int64(n + over)
			lines = append(lines, scanned{seen(rest[:n]), off})
			rest = rest[n+over:]
		}
	}
	return lines, unfinished
}

func seen(line []byte) string {
	var v viewer
	v.piece(line)
	return string(v.out)
}

// A scanProgram is a series of operations on a log with a scanner, encoded in
// bytes.
type scanProgram struct{ code []byte }

func (p *scanProgram) next() int {
	if len(p.code) == 0 {
		return 0
	}
	c := p.code[0]
	p.code = p.code[1:]
	return int(c)
}

func (p *scanProgram) literal() []byte {
	n := min(p.next()%40, len(p.code))
	text := p.code[:n]
	p.code = p.code[n:]
	return text
}

// long returns about as much as a line may hold.
func (p *scanProgram) long() []byte {
	n := []int{lineLimit - 1, lineLimit, lineLimit + 1, lineLimit / 2, 2*lineLimit + 1, 5000, 4096, 100}[p.next()%8]
	return bytes.Repeat([]byte{"ax\n\t"[p.next()%4]}, n)
}

// run executes the program and compares what the scanner has found with what
// the model says.
func (p *scanProgram) run(t testing.TB) {
	b := NewRingBuf([]int{4096, 0, 10, 100}[p.next()%4], []int{1 << 16, 0, 64, 5000}[p.next()%4])
	m := new(scanModel)
	var found []scanned
	scanner := &lineScanner{pattern: regexp.MustCompile(""), found: func(line []byte, next int64) {
		found = append(found, scanned{string(line), next})
	}}
	attached := false
	for len(p.code) > 0 {
		switch op := p.next() % 10; {
		case op < 4:
			text := p.literal()
			b.Write(text)
			m.show(text)
		case op == 4:
			text := p.long()
			b.Write(text)
			m.show(text)
		case op < 7:
			text := p.literal()
			for len(text) > 0 {
				n, err := b.readFrom(func(space []byte) (int, error) { return copy(space, text), nil })
				require.NoError(t, err)
				m.show(text[:n])
				text = text[n:]
			}
		case op == 7:
			n := int64(p.next() % 3)
			b.drop(n)
			if n > 0 && attached {
				m.gap(n)
			} else {
				m.written += n
			}
		case op == 8 && !attached:
			attached = true
			from := int64(p.next()) << (p.next() % 10)
			if p.next()%2 == 1 {
				from = -from
			}
			m.begin(b, from)
			b.attach(scanner, from)
		case op == 8:
			requireUnfinished(t, b, scanner, m, &found)
		}
		lines, _ := m.lines()
		requireScanned(t, lines, found)
	}
	b.freeze()
	lines, unfinished := m.lines()
	if unfinished != "" {
		lines = append(lines, scanned{seen([]byte(unfinished)), m.written})
	}
	requireScanned(t, lines, found)
}

// requireUnfinished tests the unfinished line, which must stay.
func requireUnfinished(t testing.TB, b *RingBuf, scanner *lineScanner, m *scanModel, found *[]scanned) {
	before := len(*found)
	for range 2 {
		b.poke(scanner)
		_, unfinished := m.lines()
		var want []scanned
		if unfinished != "" {
			want = []scanned{{seen([]byte(unfinished)), m.written}}
		}
		requireScanned(t, want, (*found)[before:])
		*found = (*found)[:before]
	}
}

// requireScanned compares without printing lines of many kilobytes.
func requireScanned(t testing.TB, want, got []scanned) {
	t.Helper()
	require.Equal(t, len(want), len(got), "lines")
	for i := range want {
		require.True(t, want[i] == got[i], "line %d: %d bytes %.40q to %d, want %d bytes %.40q to %d", i,
			len(got[i].line), got[i].line, got[i].next, len(want[i].line), want[i].line, want[i].next)
	}
}

func TestAScannerFindsTheLinesThatAreThereHoweverTheyArrive(t *testing.T) {
	for _, code := range scanSeeds {
		(&scanProgram{code: []byte(code)}).run(t)
	}
	// A line that is cut at its limit goes on in the next.
	var found []scanned
	scanner := &lineScanner{pattern: regexp.MustCompile(""), found: func(line []byte, next int64) {
		found = append(found, scanned{string(line), next})
	}}
	text := strings.Repeat("a", lineLimit) + "b\n" + strings.Repeat("c", lineLimit) + "\nd"
	for from := range text {
		scanner.feed([]byte(text[from:from+1]), int64(from))
	}
	scanner.end(int64(len(text)))
	var sizes []int
	for _, line := range found {
		sizes = append(sizes, len(line.line))
	}
	require.Equal(t, []int{lineLimit, 1, lineLimit, 1}, sizes)
}

// The codes attach a scanner (\x08), write (\x00, length, text), read (\x05),
// write much (\x04, length, character), drop (\x07) and test what is unfinished
// (\x08 again).
var scanSeeds = []string{
	"",
	"\x00\x00\x08\x00\x00\x00\x00\x05ab\ncd\x08\x05\x03e\n\n",
	"\x00\x00\x00\x09one\ntwo\nt\x08\x00\x00\x00\x00\x05hree\n",
	"\x02\x02\x00\x10one\ntwo\nthree\nfo\x07\x02\x00\x05ur\n!!\x08\x02\x00\x01\x00\x03a\nb",
	"\x00\x00\x08\x00\x00\x00\x04\x01\x00\x00\x01\n\x04\x00\x00\x00\x02\n\n\x04\x02\x01\x00\x01\n",
	"\x00\x00\x08\x00\x00\x00\x04\x01\x00\x08\x00\x01a\x08\x07\x01\x08\x00\x02b\n",
	"\x03\x03\x04\x05\x01\x04\x03\x00\x00\x01\n\x08\x10\x04\x00\x04\x04\x02\x00\x01\n",
	"\x01\x01\x00\x04abc\n\x08\x00\x00\x00\x05\x04\rd\ne\x07\x02\x05\x03f\ng",
}

func FuzzScan(f *testing.F) {
	for _, code := range scanSeeds {
		f.Add([]byte(code))
	}
	f.Fuzz(func(t *testing.T, code []byte) {
		if len(code) <= 300 { // more only costs time
			(&scanProgram{code: code}).run(t)
		}
	})
}
