package jobs

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// RingBufReadFrom lets tests outside the package fill a log as a pump does.
func RingBufReadFrom(b *RingBuf, read func([]byte) (int, error)) (int, error) {
	return b.readFrom(read)
}

// memory returns how many bytes a log holds for its content.
func (b *RingBuf) memory() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return cap(b.head) + cap(b.tail)
}

// fillAll moves all of text into a log through readFrom.
func fillAll(t *testing.T, b *RingBuf, text string) {
	t.Helper()
	for text != "" {
		n, err := b.readFrom(func(p []byte) (int, error) {
			require.NotEmpty(t, p, "a read into nothing looks like the end of the pipe")
			return copy(p, text), nil
		})
		require.NoError(t, err)
		text = text[n:]
	}
}

func TestRingBufReadFromKeepsWhatWriteWouldKeep(t *testing.T) {
	const text = "the quick brown fox jumps over the lazy dog"
	for _, c := range []struct{ head, tail int }{
		{0, 0}, {0, 1}, {1, 0}, {4, 0}, {0, 8}, {4, 8}, {4, len(text) - 4}, {len(text), 0}, {len(text), 8}, {100, 100},
	} {
		read, written := NewRingBuf(c.head, c.tail), NewRingBuf(c.head, c.tail)
		fillAll(t, read, text)
		written.Write([]byte(text))
		require.Equal(t, written.Log(), read.Log(), "head %d, tail %d", c.head, c.tail)
	}
}

func TestRingBufReadFromHandsOnWhatAReadWithoutBytesReturns(t *testing.T) {
	b := NewRingBuf(4, 4)
	for range 2 {
		before := b.Log()
		n, err := b.readFrom(func([]byte) (int, error) { return -1, io.ErrNoProgress })
		require.Equal(t, -1, n)
		require.ErrorIs(t, err, io.ErrNoProgress)
		n, err = b.readFrom(func([]byte) (int, error) { return 0, nil })
		require.Zero(t, n)
		require.NoError(t, err)
		require.Equal(t, before, b.Log())
		fillAll(t, b, "some bytes")
	}
}

func TestRingBufReadFromKeepsTheBytesThatCameWithAnError(t *testing.T) {
	b := NewRingBuf(0, 8)
	fillAll(t, b, "ab")
	n, err := b.readFrom(func(p []byte) (int, error) { return copy(p, "cd"), io.EOF })
	require.Equal(t, 2, n)
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, "abcd", string(b.Log().Bytes()))
}

func TestRingBufWithoutOutputCostsNoBuffer(t *testing.T) {
	b := NewRingBuf(4<<10, 64<<10)
	require.Zero(t, b.memory())
	b.readFrom(func([]byte) (int, error) { return -1, io.ErrNoProgress })
	b.Write(nil)
	b.drop(1 << 40)
	require.Zero(t, b.memory())
}

func TestRingBufTakesMemoryAsBytesArrive(t *testing.T) {
	b := NewRingBuf(4<<10, 64<<10)
	b.Write([]byte("a line\n"))
	require.LessOrEqual(t, b.memory(), 1<<10)
	for range 1000 {
		b.Write([]byte("a line\n"))
	}
	require.LessOrEqual(t, b.memory(), 4<<10+8<<10, "after 7 KiB")
}

func TestRingBufNeverHoldsMoreThanItsCapacities(t *testing.T) {
	text := strings.Repeat("x", 300)
	for _, c := range []struct{ head, tail int }{
		{1, 1}, {600, 0}, {1000, 5000}, {4 << 10, 64 << 10}, {5001, 10001},
	} {
		written, read := NewRingBuf(c.head, c.tail), NewRingBuf(c.head, c.tail)
		for range 2 * (c.head + c.tail) / len(text) {
			written.Write([]byte(text))
			fillAll(t, read, text)
			require.LessOrEqual(t, written.memory(), c.head+c.tail, "head %d, tail %d", c.head, c.tail)
			require.LessOrEqual(t, read.memory(), c.head+c.tail, "head %d, tail %d, through readFrom", c.head, c.tail)
		}
	}
}

func TestRingBufForgetsGapsThatTheTailHasPassed(t *testing.T) {
	b := NewRingBuf(4, 16)
	for range 10_000 {
		b.drop(1)
		b.Write([]byte("x"))
	}
	require.Len(t, b.Log().Pieces, 16)
	require.LessOrEqual(t, cap(b.runs), 100)
}

// A pump makes one system call for each readFrom.
func TestRingBufReadFromTakesMuchAtOnceHoweverLittleItKeeps(t *testing.T) {
	for _, c := range []struct{ head, tail int }{{0, 0}, {1, 0}, {0, 1}, {1, 1}, {0, 100}, {4 << 10, 64 << 10}} {
		b := NewRingBuf(c.head, c.tail)
		reads := 0
		for total := int64(0); total < 1<<20; total, _ = b.Stats() {
			b.readFrom(func(p []byte) (int, error) { return len(p), nil })
			reads++
			require.LessOrEqual(t, reads, 1000, "head %d, tail %d: %d bytes so far", c.head, c.tail, total)
		}
	}
}

func TestRingBufThatIsFrozenTakesNothing(t *testing.T) {
	b := NewRingBuf(2, 4)
	b.Write([]byte("0123456789"))
	before := b.Log()
	b.freeze()

	n, err := b.Write([]byte("late"))
	require.Zero(t, n)
	require.ErrorIs(t, err, io.ErrClosedPipe)
	n, err = b.readFrom(func([]byte) (int, error) {
		t.Error("a frozen log reads")
		return 0, nil
	})
	require.Zero(t, n)
	require.ErrorIs(t, err, io.ErrClosedPipe)
	b.drop(5)

	require.Equal(t, before, b.Log())
	total, dropped := b.Stats()
	require.Equal(t, []int64{10, 4}, []int64{total, dropped})
	require.Equal(t, "6789", string(b.Chunk(make([]byte, 9), 2).Data), "it can still be read")
}

func TestRingBufThatIsReleasedKeepsItsCountsOnly(t *testing.T) {
	b := NewRingBuf(2, 4)
	b.Write([]byte("0123456789"))
	b.drop(3)
	b.Write([]byte("abc"))
	b.freeze()
	b.release()

	require.Zero(t, b.memory())
	total, dropped := b.Stats()
	require.Equal(t, []int64{16, 10}, []int64{total, dropped}, "the counts are those of the end")
	require.Equal(t, Log{Total: 16, Dropped: 16}, b.Log())
	for _, from := range []int64{0, 1, 8, -3, 16, 99} {
		c := b.Chunk(make([]byte, 8), from)
		require.Empty(t, c.Data)
		require.Equal(t, int64(16), c.Next, "a reader at %d finds the end", from)
	}
}

func TestRingBufStatsDoNotWaitForAReadUnderWay(t *testing.T) {
	b := NewRingBuf(4, 4)
	b.Write([]byte("0123456789"))
	b.readFrom(func([]byte) (int, error) {
		told := make(chan struct{})
		var total, dropped int64
		go func() {
			defer close(told)
			total, dropped = b.Stats()
		}()
		select {
		case <-told:
			require.Equal(t, []int64{10, 2}, []int64{total, dropped})
		case <-time.After(10 * time.Second):
			t.Error("Stats wait for the read")
		}
		return 1, nil
	})
}
