package jobs

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A sharedLog is one of several logs that share memory, and all that was ever
// written to it: -1 stands for a byte that was dropped on the way.
type sharedLog struct {
	*RingBuf
	all      []int16
	head     int // how many bytes were written before the first drop, up to the capacity
	sealed   bool
	kept     int64
	wanted   int // most that it might keep of the end
	released bool
}

func (l *sharedLog) wrote(p []byte) {
	for _, c := range p {
		l.all = append(l.all, int16(c))
	}
	if !l.sealed {
		l.head = min(l.headCap, len(l.all))
	}
}

func (l *sharedLog) dropped(n int) {
	for range n {
		l.all = append(l.all, -1)
	}
	l.sealed = l.sealed || n > 0
}

// requireTrue fails unless what the log says is true, it keeps its beginning and
// the least of its end, and never less than before.
func (l *sharedLog) requireTrue(t testing.TB) {
	t.Helper()
	total, dropped := l.Stats()
	require.EqualValues(t, len(l.all), total)
	log := l.Log()
	if l.released { // which keeps its counts and nothing else
		require.Empty(t, log.Pieces)
		return
	}
	require.Equal(t, []int64{total, dropped}, []int64{log.Total, log.Dropped})
	require.Len(t, log.Bytes(), int(total-dropped))
	require.GreaterOrEqual(t, total-dropped, l.kept, "it keeps less than it did")
	l.kept = total - dropped
	at := make([]bool, total)
	for _, p := range log.Pieces {
		for i, c := range p.Data {
			off := p.From + int64(i)
			if at[off] = true; l.all[off] != int16(c) {
				t.Fatalf("the byte at %d is %d and was %d", off, c, l.all[off])
			}
		}
	}
	require.False(t, slices.Contains(at[:l.head], false), "a byte of the head is lost")
	for off, stored := len(l.all)-1, 0; off >= l.head && stored < min(leastTail, l.wanted); off-- {
		if l.all[off] >= 0 {
			if stored++; !at[off] {
				t.Fatalf("one of the last bytes is lost, %d back", len(l.all)-off)
			}
		}
	}
}

// A memoryProgram writes to several logs with one budget, as its bytes say.
type memoryProgram struct{ code []byte }

func (p *memoryProgram) next() int {
	if len(p.code) == 0 {
		return 0
	}
	c := p.code[0]
	p.code = p.code[1:]
	return int(c)
}

func (p *memoryProgram) text() []byte {
	kind, n, seed := p.next()%4, p.next(), p.next()
	text := make([]byte, []int{n % 16, n * 7, n * 61, leastTail + n%5 - 2}[kind])
	for i := range text {
		text[i] = byte(i*31 + seed)
	}
	return text
}

func (p *memoryProgram) run(t testing.TB) {
	size := int64([]int{1, 600, 5000, 20_000, 100_000, 0}[p.next()%6])
	memory := new(budget)
	memory.left.Store(size)
	logs := make([]*sharedLog, 3)
	for i := range logs {
		l := &sharedLog{wanted: []int{1 << 14, 0, 100, 5000, 1 << 16}[p.next()%5]}
		l.RingBuf = NewRingBuf([]int{4096, 0, 10, 600}[p.next()%4], l.wanted)
		l.share = memory
		logs[i] = l
	}
	for len(p.code) > 0 {
		l := logs[p.next()%len(logs)]
		switch op := p.next() % 8; {
		case op < 3:
			text := p.text()
			if n, err := l.Write(text); err == nil {
				require.Equal(t, len(text), n)
				l.wrote(text)
			}
		case op < 6:
			for text := p.text(); len(text) > 0; {
				n, err := l.readFrom(func(space []byte) (int, error) {
					require.NotEmpty(t, space, "a read into nothing looks like the end of the pipe")
					return copy(space, text), nil
				})
				if err != nil {
					break
				}
				l.wrote(text[:n])
				text = text[n:]
			}
		case op == 6:
			if n := p.next() % 5; !l.frozen {
				l.drop(int64(n))
				l.dropped(n)
			}
		case p.next()%4 == 0:
			l.freeze()
			l.release()
			l.released = true
		}
		l.requireTrue(t)
		requireWithin(t, memory, size, logs)
	}
	for _, l := range logs {
		l.freeze()
		l.release()
	}
	require.Equal(t, size, memory.left.Load(), "not all memory was given back")
}

// requireWithin fails unless the memory is what the logs have taken of it, and
// they took no more than there was but for what each keeps in any case.
func requireWithin(t testing.TB, memory *budget, size int64, logs []*sharedLog) {
	t.Helper()
	var taken, least int64
	for _, l := range logs {
		require.Equal(t, int64(l.memory()), l.taken.Load(), "what a log holds is not what it was charged")
		taken += l.taken.Load()
		least += int64(l.headCap + min(l.wanted, leastTail))
	}
	require.Equal(t, size-taken, memory.left.Load())
	require.LessOrEqual(t, taken, size+least)
}

func TestLogsThatShareMemoryKeepWhatTheyMust(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 11))
	for range 150 {
		p := &memoryProgram{code: make([]byte, 7+rnd.IntN(200))}
		for i := range p.code {
			p.code[i] = byte(rnd.Uint32())
		}
		p.run(t)
	}
}

func FuzzRingBufMemory(f *testing.F) {
	for _, code := range []string{
		"",
		"\x01\x00\x00\x00\x00\x00\x00\x00\x00\x02\xff\x01\x01\x00\x02\xff\x02\x02\x03\x02\xff\x03",
		"\x00\x04\x01\x04\x00\x03\x03\x00\x03\x03\x02\x07\x00\x03\x03\x02\x09\x01\x06\x03\x01\x00\x02\xff\x01\x00\x07\x00",
		"\x02\x00\x00\x03\x01\x02\x02\x00\x00\x02\x80\x01\x00\x07\x04\x01\x03\x02\xff\x05\x02\x03\x03\x01\x01",
	} {
		f.Add([]byte(code))
	}
	f.Fuzz(func(t *testing.T, code []byte) {
		if len(code) <= 300 { // more only costs time
			(&memoryProgram{code: code}).run(t)
		}
	})
}
