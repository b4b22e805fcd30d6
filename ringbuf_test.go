package jobs_test

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sampleCycle is a prime: no capacity is a multiple of it, so a byte that comes
// from the wrong offset shows.
const sampleCycle = 65521

// sampleText is noise, twice, so that any cycle of it is one slice.
var sampleText = sync.OnceValue(func() []byte {
	rnd := rand.New(rand.NewPCG(1, 2))
	text := make([]byte, 2*sampleCycle)
	for i := range sampleCycle {
		text[i] = byte(rnd.Uint32())
	}
	copy(text[sampleCycle:], text[:sampleCycle])
	return text
})

// sample returns the n bytes at offset from of an endless text that is the same
// in all tests. n is at most sampleCycle; the bytes must not be changed.
func sample(from int64, n int) []byte {
	return sampleText()[from%sampleCycle:][:n:n]
}

// isSample reports whether data is what stands at offset from of that text.
func isSample(from int64, data []byte) bool {
	for len(data) > 0 {
		n := min(len(data), sampleCycle)
		if !bytes.Equal(data[:n], sample(from, n)) {
			return false
		}
		from, data = from+int64(n), data[n:]
	}
	return true
}

// writeSample appends the sample text to a log up to offset end, in writes of
// size bytes. Nothing else may have been written.
func writeSample(b *jobs.RingBuf, end int64, size int) {
	for off, _ := b.Stats(); off < end; {
		n, _ := b.Write(sample(off, int(min(int64(size), end-off))))
		off += int64(n)
	}
}

// piece is a shorthand for a Piece of text.
func piece(from int64, text string) jobs.Piece {
	return jobs.Piece{From: from, Data: []byte(text)}
}

// requireKept fails unless the log counts total bytes and holds exactly pieces.
func requireKept(t testing.TB, b *jobs.RingBuf, total int64, pieces ...jobs.Piece) {
	t.Helper()
	var all []byte
	for _, p := range pieces {
		all = append(all, p.Data...)
	}
	l := b.Log()
	require.Equal(t, pieces, l.Pieces)
	require.Equal(t, all, l.Bytes())
	require.Equal(t, total, l.Total)
	require.Equal(t, total-int64(len(all)), l.Dropped, "written = kept + dropped")
	counted, dropped := b.Stats()
	require.Equal(t, []int64{l.Total, l.Dropped}, []int64{counted, dropped}, "Stats say what the log says")
}

// followRing reads a log from its beginning to its end as a follower does, with
// a buffer of size bytes, and returns what it found.
func followRing(t testing.TB, b *jobs.RingBuf, size int) []jobs.Piece {
	t.Helper()
	var pieces []jobs.Piece
	var read, dropped, next int64
	buf := make([]byte, size)
	for {
		c := b.Chunk(buf, next)
		if c.From != next+c.Dropped || c.Next != c.From+int64(len(c.Data)) || c.Dropped < 0 || c.EOF {
			t.Fatalf("a chunk at %d contradicts itself: %+v", next, c)
		}
		read, dropped, next = read+int64(len(c.Data)), dropped+c.Dropped, c.Next
		if len(c.Data) == 0 {
			require.Equal(t, c.Total, next, "a reader stops before the end")
			require.Equal(t, c.Total, read+dropped, "the sum of what was read and dropped is the total")
			return pieces
		}
		if k := len(pieces) - 1; k >= 0 && pieces[k].From+int64(len(pieces[k].Data)) == c.From {
			pieces[k].Data = append(pieces[k].Data, c.Data...)
		} else {
			pieces = append(pieces, jobs.Piece{From: c.From, Data: bytes.Clone(c.Data)})
		}
	}
}

func TestRingBufKeepsTheFirstAndTheLastBytes(t *testing.T) {
	for _, tt := range []struct {
		name       string
		head, tail int
		writes     string // separated by spaces
		want       []jobs.Piece
	}{
		{"nothing written", 2, 3, "", nil},
		{"below capacity", 0, 8, "abc de", []jobs.Piece{piece(0, "abcde")}},
		{"exact fit in one write", 0, 8, "abcdefgh", []jobs.Piece{piece(0, "abcdefgh")}},
		{"exact fit in many writes", 0, 8, "abc def gh", []jobs.Piece{piece(0, "abcdefgh")}},
		{"wrap keeps the newest", 0, 8, "abcdefgh ij", []jobs.Piece{piece(2, "cdefghij")}},
		{"wrap many times", 0, 3, "abcd efgh ijkl mno", []jobs.Piece{piece(12, "mno")}},
		{"wrap to the same place", 0, 4, "abcd efgh", []jobs.Piece{piece(4, "efgh")}},
		{"an oversize write keeps its last bytes", 0, 4, "abcdefghij", []jobs.Piece{piece(6, "ghij")}},
		{"an oversize write after others", 0, 4, "ab cdefghij kl", []jobs.Piece{piece(8, "ijkl")}},
		{"one byte of tail", 0, 1, "abc d", []jobs.Piece{piece(3, "d")}},
		{"head alone below capacity", 4, 0, "ab c", []jobs.Piece{piece(0, "abc")}},
		{"head alone exact", 4, 0, "ab cd", []jobs.Piece{piece(0, "abcd")}},
		{"head alone over", 4, 0, "ab cde f", []jobs.Piece{piece(0, "abcd")}},
		{"head not full", 4, 4, "ab c", []jobs.Piece{piece(0, "abc")}},
		{"head and tail not full", 4, 4, "ab cdef", []jobs.Piece{piece(0, "abcdef")}},
		{"head and tail exact", 4, 4, "abcdefgh", []jobs.Piece{piece(0, "abcdefgh")}},
		{"one byte between head and tail", 4, 4, "abcdefghi", []jobs.Piece{piece(0, "abcd"), piece(5, "fghi")}},
		{"an oversize write into head and tail", 2, 3, "abcdefghij", []jobs.Piece{piece(0, "ab"), piece(7, "hij")}},
		{"an oversize write into a head begun", 3, 3, "a bcdefghij", []jobs.Piece{piece(0, "abc"), piece(7, "hij")}},
		{"an oversize write past a full head", 2, 3, "abc defghij", []jobs.Piece{piece(0, "ab"), piece(7, "hij")}},
		{"no capacity", 0, 0, "abc d", nil},
		{"capacities below zero", -1, -5, "abc d", nil},
		{"no head where it is below zero", -1, 3, "abc d", []jobs.Piece{piece(1, "bcd")}},
		{"no tail where it is below zero", 3, -1, "abc d", []jobs.Piece{piece(0, "abc")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := jobs.NewRingBuf(tt.head, tt.tail)
			total := int64(0)
			for w := range strings.FieldsSeq(tt.writes) {
				n, err := b.Write([]byte(w))
				require.NoError(t, err)
				require.Equal(t, len(w), n)
				total += int64(n)
			}
			requireKept(t, b, total, tt.want...)
		})
	}
}

func TestRingBufLosesExactlyWhatGoesBeyondItsCapacity(t *testing.T) {
	for _, c := range []struct{ head, tail int }{{0, 1}, {8, 0}, {0, 8}, {4, 8}, {4 << 10, 64 << 10}} {
		for _, over := range []int{-1, 0, 1} {
			for _, size := range []int{1, 3, 777, 4096, sampleCycle} {
				if size < 10 && c.tail > 10 {
					continue // it takes long and shows nothing new
				}
				b := jobs.NewRingBuf(c.head, c.tail)
				n := c.head + c.tail + over
				writeSample(b, int64(n), size)
				total, dropped := b.Stats()
				require.Equal(t, []int64{int64(n), int64(max(over, 0))}, []int64{total, dropped},
					"%d bytes into %v in writes of %d", n, c, size)
				l := b.Log()
				require.Equal(t, []int64{total, dropped}, []int64{l.Total, l.Dropped})
				require.Len(t, l.Bytes(), n-max(over, 0))
				for _, p := range l.Pieces {
					require.True(t, isSample(p.From, p.Data), "wrong bytes at %d", p.From)
				}
			}
		}
	}
}

func TestRingBufOfTheZeroValueCountsAndKeepsNothing(t *testing.T) {
	var b jobs.RingBuf
	n, err := b.Write([]byte("abc"))
	require.NoError(t, err)
	require.Equal(t, 3, n)
	b.Drop(4)
	requireKept(t, &b, 7)
	require.Equal(t, jobs.Chunk{From: 7, Next: 7, Dropped: 6, Total: 7, Data: []byte{}}, b.Chunk(make([]byte, 8), 1))
}

func TestRingBufTakesAnyCapacity(t *testing.T) {
	for _, c := range []struct{ head, tail int }{
		{math.MaxInt, 0}, {0, math.MaxInt}, {math.MaxInt, math.MaxInt}, {1, math.MaxInt}, {math.MinInt, math.MaxInt},
	} {
		b := jobs.NewRingBuf(c.head, c.tail)
		require.NotPanics(t, func() { writeSample(b, 10_000, 1000) }, "%v", c)
		requireKept(t, b, 10_000, jobs.Piece{From: 0, Data: sample(0, 10_000)})
	}
}

func TestRingBufDoesNotKeepWhatItWasGiven(t *testing.T) {
	b := jobs.NewRingBuf(4, 4)
	p := []byte("abcdefghij")
	b.Write(p)
	clear(p)
	requireKept(t, b, 10, piece(0, "abcd"), piece(6, "ghij"))
}

func TestRingBufKeepsHeadAndTailOfAGigabyte(t *testing.T) {
	b := jobs.NewRingBuf(4<<10, 64<<10)
	fmt.Fprintln(b, "error: the first one")
	block := bytes.Repeat([]byte("x"), 1<<20)
	for range 1 << 30 / len(block) {
		b.Write(block[:5000])
		b.Write(block[5000:])
	}
	fmt.Fprintln(b, "the last line")
	l := b.Log()
	require.Len(t, l.Pieces, 2)
	require.True(t, bytes.HasPrefix(l.Pieces[0].Data, []byte("error: the first one\n")))
	require.True(t, bytes.HasSuffix(l.Pieces[1].Data, []byte("xthe last line\n")))
	require.Equal(t, int64(1<<30+len("error: the first one\nthe last line\n")), l.Total)
	require.Equal(t, l.Total-68<<10, l.Dropped)
}

func TestRingBufKeepsTheLastLineAfterLinesLargerThanItself(t *testing.T) {
	b := jobs.NewRingBuf(16, 64)
	for range 5 {
		b.Write(append(bytes.Repeat([]byte("x"), 1<<20), '\n'))
	}
	b.Write([]byte("FAIL\n"))
	require.True(t, bytes.HasSuffix(b.Log().Bytes(), []byte("xx\nFAIL\n")))
}

func TestRingBufKeepsALongLineWithoutNewlineByteExact(t *testing.T) {
	for _, size := range []int{13, 4096, 60_000} {
		b := jobs.NewRingBuf(4<<10, 256<<10)
		writeSample(b, 200<<10, size)
		l := b.Log()
		require.Len(t, l.Pieces, 1)
		require.Len(t, l.Pieces[0].Data, 200<<10)
		require.True(t, isSample(0, l.Pieces[0].Data))
	}
}

func TestRingBufCutsBetweenBytesNotRunes(t *testing.T) {
	b := jobs.NewRingBuf(3, 4)
	for _, c := range []byte("日本語日本語") {
		b.Write([]byte{c})
	}
	requireKept(t, b, 18, piece(0, "日"), piece(14, "\xac語"))
}

func TestRingBufDropLeavesAGap(t *testing.T) {
	for _, tt := range []struct {
		name       string
		head, tail int
		ops        []any // text to write, numbers to drop
		total      int64
		want       []jobs.Piece
	}{
		{"in the tail", 0, 8, []any{"abc", 5, "def"}, 11, []jobs.Piece{piece(0, "abc"), piece(8, "def")}},
		{"several", 0, 8, []any{"ab", 1, "cd", 2, "ef", 3, "gh"}, 14,
			[]jobs.Piece{piece(0, "ab"), piece(3, "cd"), piece(7, "ef"), piece(12, "gh")}},
		{"twice without a byte between", 0, 8, []any{"ab", 1, 2, "cd"}, 7, []jobs.Piece{piece(0, "ab"), piece(5, "cd")}},
		{"before anything", 4, 8, []any{3, "abc"}, 6, []jobs.Piece{piece(3, "abc")}},
		{"and nothing else", 4, 8, []any{3}, 3, nil},
		{"at the end", 4, 8, []any{"abcdef", 3}, 9, []jobs.Piece{piece(0, "abcdef")}},
		{"before the head is full", 4, 4, []any{"ab", 3, "cd"}, 7, []jobs.Piece{piece(0, "ab"), piece(5, "cd")}},
		{"which ends the head", 4, 4, []any{"ab", 3, "cdefgh"}, 11, []jobs.Piece{piece(0, "ab"), piece(7, "efgh")}},
		{"right after the head", 2, 4, []any{"ab", 3, "cd"}, 7, []jobs.Piece{piece(0, "ab"), piece(5, "cd")}},
		{"that the tail has half passed", 0, 4, []any{"abc", 5, "def"}, 11, []jobs.Piece{piece(2, "c"), piece(8, "def")}},
		{"that the tail has passed", 0, 4, []any{"abc", 5, "defghi"}, 14, []jobs.Piece{piece(10, "fghi")}},
		{"beside a wrapped tail", 0, 4, []any{"abcdef", 2, "gh"}, 10, []jobs.Piece{piece(4, "ef"), piece(8, "gh")}},
		{"of no bytes", 4, 4, []any{"ab", 0, "cd"}, 4, []jobs.Piece{piece(0, "abcd")}},
		{"of less than no bytes", 4, 4, []any{"ab", -7, "cd"}, 4, []jobs.Piece{piece(0, "abcd")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := jobs.NewRingBuf(tt.head, tt.tail)
			for _, op := range tt.ops {
				switch op := op.(type) {
				case string:
					b.Write([]byte(op))
				case int:
					b.Drop(int64(op))
				}
			}
			requireKept(t, b, tt.total, tt.want...)
			require.Equal(t, tt.want, followRing(t, b, 3))
		})
	}
}

func TestRingBufDropTakesHugeCounts(t *testing.T) {
	b := jobs.NewRingBuf(2, 4)
	b.Write([]byte("abc"))
	b.Drop(1 << 40)
	b.Write([]byte("d"))
	b.Drop(1 << 60)
	b.Write([]byte("e"))
	want := []jobs.Piece{piece(0, "abc"), piece(1<<40+3, "d"), piece(1<<60+1<<40+4, "e")}
	requireKept(t, b, 1<<60+1<<40+5, want...)
	require.Equal(t, want, followRing(t, b, 3))
}

func TestRingBufCountDoesNotOverflow(t *testing.T) {
	b := jobs.NewRingBuf(4, 4)
	b.Write([]byte("abcdef"))
	last := int64(6)
	for range 3 {
		b.Drop(math.MaxInt64)
		b.Write([]byte("gh"))
		total, dropped := b.Stats()
		require.GreaterOrEqual(t, total, last, "the total went back")
		require.Equal(t, total-int64(len(b.Log().Bytes())), dropped)
		last = total
	}
	require.NotPanics(t, func() { followRing(t, b, 8) })
	require.Equal(t, "abcd", string(b.Chunk(make([]byte, 8), 0).Data))
	require.Equal(t, "h", string(b.Chunk(make([]byte, 8), -1).Data))
}

// A log in which every second byte is a gap is the worst there is; it must not
// make each look, or each write, cost as much as the whole log.
func TestRingBufWithManyGapsStaysFast(t *testing.T) {
	const gaps = 64 << 10
	b := jobs.NewRingBuf(0, gaps)
	begun := time.Now()
	for range gaps + gaps/4 {
		b.Drop(1)
		b.Write([]byte("x"))
	}
	require.Len(t, b.Log().Pieces, gaps)
	require.Len(t, followRing(t, b, 1), gaps)
	require.Less(t, time.Since(begun), 10*time.Second)
}

func TestRingBufChunkBeginsAtTheNextKeptByte(t *testing.T) {
	b := jobs.NewRingBuf(4, 6)
	b.Write([]byte("0123456789abcde")) // keeps 0123 and 9abcde
	for _, tt := range []struct {
		from    int64
		size    int
		at      int64
		dropped int64
		data    string
	}{
		{0, 4, 0, 0, "0123"},
		{0, 99, 0, 0, "0123"},
		{0, 1, 0, 0, "0"},
		{3, 99, 3, 0, "3"},
		{4, 99, 9, 5, "9abcde"},
		{8, 99, 9, 1, "9abcde"},
		{9, 99, 9, 0, "9abcde"},
		{9, 2, 9, 0, "9a"},
		{12, 99, 12, 0, "cde"},
		{14, 99, 14, 0, "e"},
		{15, 99, 15, 0, ""},
		{16, 99, 15, 0, ""},
		{math.MaxInt64, 99, 15, 0, ""},
		{-1, 99, 14, 0, "e"},
		{-6, 99, 9, 0, "9abcde"},
		{-7, 99, 9, 1, "9abcde"},
		{-11, 99, 9, 5, "9abcde"},
		{-12, 99, 3, 0, "3"},
		{-15, 99, 0, 0, "0123"},
		{-16, 99, 0, 0, "0123"},
		{math.MinInt64, 99, 0, 0, "0123"},
		{0, 0, 0, 0, ""},
		{5, 0, 9, 4, ""},
	} {
		want := jobs.Chunk{From: tt.at, Next: tt.at + int64(len(tt.data)), Dropped: tt.dropped, Total: 15, Data: []byte(tt.data)}
		require.Equal(t, want, b.Chunk(make([]byte, tt.size), tt.from), "%d bytes at %d", tt.size, tt.from)
	}
}

func TestRingBufChunkOfAnEmptyLogIsTheEnd(t *testing.T) {
	b := jobs.NewRingBuf(4, 6)
	for _, from := range []int64{0, 1, -1, math.MaxInt64, math.MinInt64} {
		require.Equal(t, jobs.Chunk{Data: []byte{}}, b.Chunk(make([]byte, 8), from), "from %d", from)
	}
	require.Equal(t, jobs.Chunk{}, b.Chunk(nil, 0))
}

func TestRingBufChunkReadsOnWhereHeadAndTailMeet(t *testing.T) {
	b := jobs.NewRingBuf(4, 6)
	b.Write([]byte("0123456789")) // nothing is dropped: there is no gap
	require.Equal(t, "0123456789", string(b.Chunk(make([]byte, 99), 0).Data))
	require.Equal(t, "23456", string(b.Chunk(make([]byte, 5), 2).Data))
}

func TestRingBufChunkEndsAtAGap(t *testing.T) {
	b := jobs.NewRingBuf(2, 8)
	b.Write([]byte("abcd"))
	b.Drop(3)
	b.Write([]byte("ef"))
	b.Drop(2)
	want := []jobs.Piece{piece(0, "abcd"), piece(7, "ef")}
	require.Equal(t, want, followRing(t, b, 99))
	require.Equal(t, want, followRing(t, b, 1))
	c := b.Chunk(make([]byte, 9), 9)
	require.Equal(t, jobs.Chunk{From: 11, Next: 11, Dropped: 2, Total: 11, Data: []byte{}}, c, "a gap at the end")
}

func TestRingBufChunkIsAPartOfTheCallersBuffer(t *testing.T) {
	b := jobs.NewRingBuf(2, 8)
	b.Write([]byte("abcdefgh"))
	buf := []byte("........")
	c := b.Chunk(buf, 5)
	require.Same(t, &buf[0], &c.Data[0])
	require.Equal(t, "fgh.....", string(buf), "nothing past the chunk is touched")
}

func TestRingBufGivesTheSameBytesForTheSameOffset(t *testing.T) {
	b := jobs.NewRingBuf(100, 1000)
	writeSample(b, 5000, 77)
	for _, from := range []int64{0, 50, 100, 3000, 4000, 4500, -10} {
		first := b.Chunk(make([]byte, 300), from)
		b.Chunk(make([]byte, 5000), 0) // somebody else reads all
		followRing(t, b, 99)
		b.Log()
		require.Equal(t, first, b.Chunk(make([]byte, 300), from), "from %d", from)
	}
}

func TestRingBufReadersDoNotDisturbEachOther(t *testing.T) {
	b := jobs.NewRingBuf(64, 512)
	var sizes = []int{1, 10, 100}
	next := make([]int64, len(sizes))
	read := make([]int64, len(sizes))
	for end := int64(0); end < 20_000; {
		end += 97
		writeSample(b, end, 30)
		for i, size := range sizes {
			c := b.Chunk(make([]byte, size), next[i])
			require.Equal(t, next[i]+c.Dropped, c.From)
			require.True(t, isSample(c.From, c.Data))
			next[i], read[i] = c.Next, read[i]+int64(len(c.Data))
		}
	}
	require.Equal(t, int64(20_079/97), read[0], "one byte each time")
	require.Equal(t, next[2], read[2], "the fast reader lost nothing for the slow ones")
}

func TestRingBufNeverHandsOutItsOwnMemory(t *testing.T) {
	for _, written := range []int64{10, 1 << 10, 5000, 1 << 20} { // not wrapped and wrapped
		b := jobs.NewRingBuf(100, 4096)
		writeSample(b, written, 999)
		l, c := b.Log(), b.Chunk(make([]byte, 8192), -3000)
		all := l.Bytes()

		// Under -race a read of shared memory is caught even where it would see
		// no change.
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range 100 {
				b.Write(bytes.Repeat([]byte{'!'}, 1000))
			}
		}()
		intact := func() bool {
			ok := isSample(c.From, c.Data) && len(all) > 0
			for _, p := range l.Pieces {
				ok = ok && isSample(p.From, p.Data)
			}
			return ok
		}
		require.True(t, intact())
		<-done
		require.True(t, intact(), "the log wrote over what it had handed out")

		// Nor does what a reader does to its bytes reach the log.
		before := b.Log()
		clear(b.Log().Bytes())
		for _, p := range b.Log().Pieces {
			clear(p.Data)
		}
		require.Equal(t, before, b.Log())
	}
}

func TestRingBufTellsSlowReadersExactlyWhatTheyMissed(t *testing.T) {
	const end = 20 << 20
	b := jobs.NewRingBuf(4<<10, 64<<10)
	var group sync.WaitGroup
	for _, size := range []int{512, 4096, 100_000} {
		group.Go(func() {
			buf := make([]byte, size)
			var next, read, dropped int64
			for next < end {
				c := b.Chunk(buf, next)
				read, dropped, next = read+int64(len(c.Data)), dropped+c.Dropped, c.Next
				if !isSample(c.From, c.Data) || next != read+dropped {
					t.Errorf("read %d, dropped %d, wrong at %d", read, dropped, c.From)
					return
				}
			}
			assert.Equal(t, int64(end), next)
		})
	}
	group.Go(func() {
		for last := int64(0); last < end; {
			total, dropped := b.Stats()
			kept := total - dropped
			if total < last || kept < 0 || kept > 68<<10 {
				t.Errorf("after %d: total %d, dropped %d", last, total, dropped)
				return
			}
			last = total
			l := b.Log()
			for _, p := range l.Pieces {
				if !isSample(p.From, p.Data) {
					t.Errorf("wrong bytes at %d", p.From)
					return
				}
			}
			if l.Total != l.Dropped+int64(len(l.Bytes())) {
				t.Errorf("total %d, dropped %d, kept %d", l.Total, l.Dropped, len(l.Bytes()))
				return
			}
		}
	})
	writeSample(b, end, 1000)
	group.Wait()
}

func TestRingBufNeverMixesWritesMadeAtOnce(t *testing.T) {
	b := jobs.NewRingBuf(64, 1<<20)
	var writers sync.WaitGroup
	for i := range 4 {
		writers.Go(func() {
			line := append(bytes.Repeat([]byte{'a' + byte(i)}, 98), '\n')
			for range 500 {
				b.Write(line)
			}
		})
	}
	writers.Wait()
	count := map[string]int{}
	for line := range strings.Lines(string(b.Log().Bytes())) {
		count[line[:1]]++
		require.Equal(t, strings.Repeat(line[:1], 98)+"\n", line)
	}
	require.Equal(t, map[string]int{"a": 500, "b": 500, "c": 500, "d": 500}, count)
}

func TestRingBufWorksWithoutAllocating(t *testing.T) {
	b := jobs.NewRingBuf(4<<10, 64<<10)
	writeSample(b, 1<<20, 4096)
	small, page, large := sample(0, 80), sample(0, 4096), make([]byte, 100_000)
	buf := make([]byte, 4096)
	fill := func(p []byte) (int, error) { return copy(p, page), nil }
	for name, work := range map[string]func(){
		"a short write":                func() { b.Write(small) },
		"a write of 4 KiB":             func() { b.Write(page) },
		"a write larger than the tail": func() { b.Write(large) },
		"a read into the log":          func() { jobs.RingBufReadFrom(b, fill) },
		"a chunk of the head":          func() { b.Chunk(buf, 0) },
		"a chunk of the tail":          func() { b.Chunk(buf, -4096) },
		"stats":                        func() { b.Stats() },
	} {
		require.Zero(t, testing.AllocsPerRun(100, work), name)
	}
}

func TestRingBufOfAJobKeeps4KiBAnd64KiB(t *testing.T) {
	require.Equal(t, 4<<10, jobs.DefaultHeadBytes)
	require.Equal(t, 64<<10, jobs.DefaultTailBytes)
	s := newSupervisor(t, jobs.Config{})
	for _, over := range []int64{-1, 0, 1, 100_000} {
		size := 68<<10 + over
		r := runScript(t, s, fmt.Sprintf("yes | head -c %d", size))
		require.Equal(t, []int64{size, max(over, 0)}, []int64{r.OutputTotal, r.OutputDropped})
		require.Equal(t, []int64{size, max(over, 0)}, []int64{r.Output.Total, r.Output.Dropped})
		text := strings.Repeat("y\n", int(size)/2+1)[:size]
		if over <= 0 {
			require.Equal(t, []jobs.Piece{piece(0, text)}, r.Output.Pieces)
		} else {
			tail := size - 64<<10
			require.Equal(t, []jobs.Piece{piece(0, text[:4<<10]), piece(tail, text[tail:])}, r.Output.Pieces)
		}
	}
}

func TestRingBufOfAJobKeepsTheFirstErrorAndTheLastLine(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	r := runScript(t, s, "echo first error; head -c 64M /dev/zero; echo last line")
	require.True(t, bytes.HasPrefix(r.Output.Bytes(), []byte("first error\n\x00")))
	require.True(t, bytes.HasSuffix(r.Output.Bytes(), []byte("\x00last line\n")))
	require.Equal(t, int64(64<<20+len("first error\nlast line\n")), r.OutputTotal)
	require.Equal(t, r.OutputTotal-68<<10, r.OutputDropped)
}

// However little is kept, the pipe must be read: a job whose pipe is full
// hangs.
func TestRingBufOfAJobTakesAllOutputWhateverItKeeps(t *testing.T) {
	const size = 200_000 // more than the pipe holds
	for _, c := range []struct{ head, tail int }{{-1, -1}, {0, -1}, {-1, 0}, {1, -1}, {-1, 1}, {1, 1}, {size, -1}} {
		t.Run(fmt.Sprintf("head %d tail %d", c.head, c.tail), func(t *testing.T) {
			s := newSupervisor(t, jobs.Config{HeadBytes: c.head, TailBytes: c.tail, Timeout: 10 * time.Second})
			r := runScript(t, s, fmt.Sprintf("yes | head -c %d", size))
			require.Equal(t, "completed, exit 0", r.Outcome())
			require.Equal(t, int64(size), r.OutputTotal)
			require.Equal(t, r.OutputTotal, r.OutputDropped+int64(len(r.Output.Bytes())))
		})
	}
}

// A ringModel is what a RingBuf must look like, found the plain way: it forgets
// nothing and looks at every byte.
type ringModel struct {
	head, tail int
	bytes      []byte  // all that was written
	offs       []int64 // the offset of each
	total      int64
	first      int  // how many of them are the head
	gap        bool // the head takes no more
}

func (m *ringModel) write(p []byte) {
	for _, c := range p {
		m.bytes = append(m.bytes, c)
		m.offs = append(m.offs, m.total)
		m.total++
		if !m.gap && m.first < m.head {
			m.first++
		}
	}
}

func (m *ringModel) drop(n int64) {
	if n > 0 {
		m.total += n
		m.gap = true
	}
}

// pieces returns what must be kept, and how many bytes that is.
func (m *ringModel) pieces() (pieces []jobs.Piece, kept int64) {
	for i, off := range m.offs {
		if i >= m.first && i < len(m.offs)-m.tail {
			continue
		}
		kept++
		if len(pieces) == 0 || pieces[len(pieces)-1].From+int64(len(pieces[len(pieces)-1].Data)) != off {
			pieces = append(pieces, jobs.Piece{From: off})
		}
		last := &pieces[len(pieces)-1]
		last.Data = append(last.Data, m.bytes[i])
	}
	return pieces, kept
}

// chunk returns what a read of size bytes at offset from must give.
func (m *ringModel) chunk(pieces []jobs.Piece, from int64, size int) jobs.Chunk {
	if from < 0 {
		from = max(0, m.total+from)
	}
	from = min(from, m.total)
	c := jobs.Chunk{From: m.total, Total: m.total, Data: []byte{}}
	for _, p := range pieces {
		if from < p.From+int64(len(p.Data)) {
			c.From = max(from, p.From)
			c.Data = p.Data[c.From-p.From:]
			c.Data = c.Data[:min(len(c.Data), size)]
			break
		}
	}
	c.Next = c.From + int64(len(c.Data))
	c.Dropped = c.From - from
	return c
}

// A ringProgram is a series of operations on a log, encoded in bytes. It goes
// on with zeros where the bytes end.
type ringProgram struct{ code []byte }

func (p *ringProgram) next() int {
	if len(p.code) == 0 {
		return 0
	}
	c := p.code[0]
	p.code = p.code[1:]
	return int(c)
}

var ringCapacities = [...]int{8, 0, 1, 2, 3, 7, 16, 100, 511, 512, 513, 600, 4095, 4097, 9000, -1}

func (p *ringProgram) capacity() int { return ringCapacities[p.next()%len(ringCapacities)] }

// length decodes a number of bytes: few, or about as many as fit somewhere.
func (p *ringProgram) length(m *ringModel) int {
	kind, n := p.next(), p.next()
	switch kind % 8 {
	case 0:
		return n * 40
	case 1:
		return max(0, m.head-m.first+n%5-2)
	case 2:
		return max(0, m.tail+n%5-2)
	case 3:
		return max(0, m.head-m.first+m.tail+n%5-2)
	}
	return n % 24
}

// run executes the program on a log and on the model of it, and compares them
// after every step.
func (p *ringProgram) run(t testing.TB) {
	b, m := newRingPair(p.capacity(), p.capacity())
	for len(p.code) > 0 {
		var step string
		op := p.next() % 8
		switch op {
		case 0, 1, 2:
			data := sample(m.total, p.length(m))
			step = fmt.Sprintf("Write of %d bytes", len(data))
			n, err := b.Write(data)
			require.NoError(t, err, step)
			require.Equal(t, len(data), n, step)
			m.write(data)
		case 3, 4:
			data := sample(m.total, p.length(m))
			step = fmt.Sprintf("readFrom of %d bytes", len(data))
			n, err := jobs.RingBufReadFrom(b, func(space []byte) (int, error) {
				require.NotEmpty(t, space, step)
				if len(data) == 0 {
					return -1, io.ErrNoProgress
				}
				return copy(space, data), nil
			})
			require.Equal(t, len(data) == 0, err != nil, step)
			m.write(data[:max(n, 0)])
		case 5, 6:
			n := int64(p.length(m)) - 4
			if op == 6 {
				n = 1 << (p.next() % 48)
			}
			step = fmt.Sprintf("Drop of %d", n)
			b.Drop(n)
			m.drop(n)
		case 7:
			from := int64(p.length(m)) << (p.next() % 16)
			if p.next()%2 > 0 {
				from = -from
			}
			step = "Chunk"
			m.requireChunk(t, b, from, p.length(m))
		}
		m.requireSame(t, b, step)
	}
}

func newRingPair(head, tail int) (*jobs.RingBuf, *ringModel) {
	return jobs.NewRingBuf(head, tail), &ringModel{head: max(head, 0), tail: max(tail, 0)}
}

func (m *ringModel) requireChunk(t testing.TB, b *jobs.RingBuf, from int64, size int) {
	t.Helper()
	pieces, _ := m.pieces()
	require.Equal(t, m.chunk(pieces, from, size), b.Chunk(make([]byte, size), from), "%d bytes at %d", size, from)
}

// requireSame fails unless the log is what the model says.
func (m *ringModel) requireSame(t testing.TB, b *jobs.RingBuf, step string) {
	t.Helper()
	pieces, kept := m.pieces()
	total, dropped := b.Stats()
	if total != m.total || total-dropped != kept {
		t.Fatalf("%s: total %d, dropped %d; want total %d, kept %d", step, total, dropped, m.total, kept)
	}
	l := b.Log()
	require.Equal(t, []int64{total, dropped}, []int64{l.Total, l.Dropped}, step)
	require.Equal(t, pieces, l.Pieces, step)
	require.Len(t, l.Bytes(), int(kept), step)
	size := max(1, int(kept)/3)
	require.Equal(t, pieces, followRing(t, b, size), step)
	for _, from := range []int64{0, int64(m.first), -1, -int64(m.tail) - 1, m.total / 2, m.total, m.total + 1} {
		want, got := m.chunk(pieces, from, size), b.Chunk(make([]byte, size), from)
		if !bytes.Equal(want.Data, got.Data) || want.From != got.From || want.Dropped != got.Dropped {
			t.Fatalf("%s: %d bytes at %d: got %d at %d, %d dropped; want %d at %d, %d dropped", step, size, from,
				len(got.Data), got.From, got.Dropped, len(want.Data), want.From, want.Dropped)
		}
	}
}

func TestRingBufIsWhatAModelThatForgetsNothingSays(t *testing.T) {
	rnd := rand.New(rand.NewPCG(14, 73))
	for range 150 {
		p := &ringProgram{code: make([]byte, 2+rnd.IntN(120))}
		for i := range p.code {
			p.code[i] = byte(rnd.Uint32())
		}
		p.run(t)
	}
}

// Most of the time of a run goes into making inputs shorter, unless it is given
// a small -fuzzminimizetime such as 5x.
func FuzzRingBuf(f *testing.F) {
	for _, code := range []string{
		"",
		"\x00\x00\x00\x04\x05", // a short write
		"\x04\x05\x00\x03\x02\x00\x03\x03\x00\x03\x04",                             // as much as fits, one less, one more
		"\x06\x01\x03\x04\x0f\x03\x04\x0f\x03\x04\x0f",                             // reads into a log without tail
		"\x00\x06\x00\x04\x03\x06\x05\x00\x04\x09\x06\x0a\x01\x04\x11",             // gaps
		"\x0b\x0e\x00\x00\xff\x03\x00\xff\x00\x00\xff\x07\x00\x20\x01\x01\x00\x10", // growth and wrap
		"\x0f\x0f\x00\x04\x09\x03\x04\x09\x05\x04\x09",                             // nothing is kept
	} {
		f.Add([]byte(code))
	}
	f.Fuzz(func(t *testing.T, code []byte) {
		if len(code) > 400 {
			t.Skip("longer than it needs to be")
		}
		p := &ringProgram{code: code}
		p.run(t)
	})
}
