package jobs

import (
	"io"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
)

// RingBuf is a bounded log of bytes. It counts every byte written and keeps a
// short head (the first bytes) and a ring tail (the last ones); what lies
// between is dropped, and the count of it is exact: written = kept + dropped.
//
// Every byte has an absolute offset, the number of bytes written before it.
// Reading never consumes, so any number of readers can follow one log.
//
// Memory is taken as bytes arrive and never exceeds head + tail bytes. A
// RingBuf with both capacities 0 counts and keeps nothing; so does the zero
// value. All methods are safe for concurrent use.
type RingBuf struct {
	// mu guards the bytes and the fields below it. It may be held across a
	// read from a non-blocking descriptor, never across anything that waits.
	mu      sync.Mutex
	headCap int
	tailCap int
	head    []byte
	sealed  bool   // the head takes no more: a gap follows it
	tail    []byte // grows up to tailCap; wraps only at that size
	stored  int64  // bytes ever put into tail
	runs    []run  // the contiguous runs in tail, oldest first, from gone on
	gone    int    // runs that have been overwritten
	written int64  // as total, for holders of mu
	frozen  bool   // takes no more
	taps    []tap

	share *budget      // what head and tail are taken from
	taken atomic.Int64 // and how much is
	short func()       // called under mu when there was not enough; may be nil

	// counts guards the totals alone, so that a look at them never waits for
	// a reader or a writer of bytes. It is taken after mu.
	counts sync.Mutex
	total  int64
	kept   int64
}

// A tap sees what is written to a log, under its lock.
type tap interface {
	// feed is called with all that is written; off is the offset of its first
	// byte.
	feed(p []byte, off int64)
	// gap says that bytes were dropped unseen.
	gap()
	// end says that the log is final.
	end(total int64)
}

// A run is a stretch of the tail with no gap inside: the byte stored as number
// at has the absolute offset off.
type run struct {
	off, at int64
}

// A Chunk is a contiguous piece of a job's output.
type Chunk struct {
	// From is the absolute offset of the first byte of Data.
	From int64
	// Next is the offset to ask for to go on reading: From + len(Data).
	Next int64
	// Dropped counts the bytes between the offset asked for and From: written,
	// but no longer kept. Reading on from Next until EOF, the sum of all
	// Dropped and all len(Data) is Total.
	Dropped int64
	// Total counts all bytes written so far, kept or not.
	Total int64
	// EOF reports that the job has ended and Next is the end of its output.
	EOF bool
	// Data holds the bytes, exactly as written.
	Data []byte
}

// A Log is all that a RingBuf kept at one moment.
type Log struct {
	// Pieces are in order of offset. Between two of them, and before the
	// first, bytes were dropped.
	Pieces []Piece
	// Total counts all bytes written, Dropped those that are in no piece.
	Total, Dropped int64
}

// A Piece is a contiguous part of a [Log]. From is the absolute offset of its
// first byte.
type Piece struct {
	From int64
	Data []byte
}

// Bytes returns the kept bytes in order, without a mark where some were
// dropped. It returns nil if nothing was kept.
func (l Log) Bytes() []byte {
	if len(l.Pieces) == 1 {
		return l.Pieces[0].Data
	}
	var all []byte
	for _, p := range l.Pieces {
		all = append(all, p.Data...)
	}
	return all
}

// NewRingBuf returns an empty log that keeps the first head and the last tail
// bytes. A capacity below 1 keeps nothing of that end.
func NewRingBuf(head, tail int) *RingBuf {
	return &RingBuf{headCap: max(head, 0), tailCap: max(tail, 0)}
}

// Write appends p. It never fails on a live log and never keeps p. Once the
// job that owns the log has ended it takes nothing and returns
// [io.ErrClosedPipe].
func (b *RingBuf) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.frozen {
		return 0, io.ErrClosedPipe
	}
	b.write(p)
	return len(p), nil
}

// attach lets t scan what is kept from the absolute offset from on, and then
// whatever comes, under mu.
func (b *RingBuf) attach(t *lineScanner, from int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	end := b.clamp(from)
	for off, span := b.find(end); span > 0; off, span = b.find(off + span) {
		if off > end {
			t.gap()
		}
		piece := make([]byte, span)
		b.copyOut(piece, off)
		t.feed(piece, off)
		end = off + span
	}
	if end < b.written {
		t.gap()
	}
	if b.frozen {
		t.end(b.written)
		return
	}
	b.taps = append(b.taps, t)
}

// tap lets t see all that is written from now on.
func (b *RingBuf) tap(t tap) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taps = append(b.taps, t)
}

func (b *RingBuf) detach(t *lineScanner) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taps = slices.DeleteFunc(b.taps, func(other tap) bool { return other == t })
}

// poke lets t test its unfinished line.
func (b *RingBuf) poke(t *lineScanner) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t.testUnfinished(b.written)
}

// keeps reports whether the byte at an offset is there, or is the next to come.
func (b *RingBuf) keeps(off int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	found, _ := b.find(b.clamp(off))
	return found == b.clamp(off)
}

// unfinished reports whether the last byte written is kept and ends no line.
func (b *RingBuf) unfinished() bool {
	var last [1]byte
	c := b.Chunk(last[:], -1)
	return len(c.Data) == 1 && c.Data[0] != '\n'
}

// Stats returns how many bytes were written, and how many of those are no
// longer kept. It does not wait for readers or writers of bytes.
func (b *RingBuf) Stats() (total, dropped int64) {
	b.counts.Lock()
	defer b.counts.Unlock()
	return b.total, b.total - b.kept
}

// Chunk copies kept bytes from the absolute offset from into p, up to the next
// gap, and returns what it found; Data is a part of p. A negative from counts
// back from the end. Where the byte at from is no longer kept, the chunk
// begins at the next one that is. A from past the end gives an empty chunk at
// the end. Chunk never sets EOF: a log does not know whether more will come.
func (b *RingBuf) Chunk(p []byte, from int64) Chunk {
	b.mu.Lock()
	defer b.mu.Unlock()
	from = b.clamp(from)
	off, span := b.find(from)
	n := int(min(int64(len(p)), span))
	b.copyOut(p[:n], off)
	return Chunk{From: off, Next: off + int64(n), Dropped: off - from, Total: b.written, Data: p[:n]}
}

// Log returns a copy of all that is kept.
func (b *RingBuf) Log() Log {
	b.mu.Lock()
	defer b.mu.Unlock()
	var l Log
	kept := int64(0)
	for off, span := b.find(0); span > 0; off, span = b.find(off + span) {
		p := Piece{From: off, Data: make([]byte, span)}
		b.copyOut(p.Data, off)
		l.Pieces = append(l.Pieces, p)
		kept += span
	}
	l.Total, l.Dropped = b.written, b.written-kept
	return l
}

// drop counts n bytes as written and dropped, without touching what is kept.
// It does nothing if n < 1.
func (b *RingBuf) drop(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > 0 && !b.frozen {
		b.skip(n)
		for _, t := range b.taps {
			t.gap()
		}
	}
}

// freeze makes the log final.
func (b *RingBuf) freeze() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.frozen = true
	for _, t := range b.taps {
		t.end(b.written)
	}
	b.taps = nil
}

// release gives back the memory of a frozen log. Its counts stay.
func (b *RingBuf) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.head, b.tail, b.runs, b.gone = nil, nil, nil, 0
	b.giveBack()
}

// giveBack gives what a frozen log has taken of the memory that it shares to
// others. What it keeps lives on until nobody uses the log.
func (b *RingBuf) giveBack() { b.share.give(b.taken.Swap(0)) }

// readFrom appends what one call of read puts into the log's own memory, so
// that nothing is copied twice. read must not wait, and must not touch more of
// the slice than it fills: the rest holds kept bytes. The first bytes are read
// apart, as are those for which there is little room in one piece.
func (b *RingBuf) readFrom(read func([]byte) (int, error)) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.frozen {
		return 0, io.ErrClosedPipe
	}
	// A pipe in packet mode loses what of a packet the read has no room for.
	var space []byte
	if b.written > 0 && (b.headRoom() > 0 || b.tailCap >= minRead) {
		space = b.space(1)
	}
	if len(space) < minRead {
		apart := apartPool.Get().(*[minRead]byte)
		defer apartPool.Put(apart)
		n, err := read(apart[:])
		if n > 0 {
			b.write(apart[:n])
		}
		return n, err
	}
	n, err := read(space)
	if n > 0 {
		b.commit(n)
		b.show(space[:n])
	}
	return n, err
}

// minRead is the least that is asked for at once: what a packet of a pipe holds
// at most.
const minRead = 4096

var apartPool = sync.Pool{New: func() any { return new([minRead]byte) }}

// settle waits until a read that is under way has been written.
func (b *RingBuf) settle() {
	b.mu.Lock()
	defer b.mu.Unlock()
}

// The methods below need mu.

func (b *RingBuf) write(p []byte) {
	all := p
	room := min(b.headRoom(), len(p))
	b.store(p[:room])
	p = p[room:]
	if over := len(p) - b.tailCap; over > 0 {
		b.skip(int64(over))
		p = p[over:]
	}
	b.store(p)
	b.show(all)
}

// show lets the taps see what has just been written.
func (b *RingBuf) show(p []byte) {
	for _, t := range b.taps {
		t.feed(p, b.written-int64(len(p)))
	}
}

// store puts p where there is room for it: the head first, then the tail.
func (b *RingBuf) store(p []byte) {
	for len(p) > 0 {
		n := copy(b.space(len(p)), p)
		b.commit(n)
		p = p[n:]
	}
}

func (b *RingBuf) skip(n int64) {
	b.sealed = true
	b.written += max(0, min(n, maxWritten-b.written)) // a sparse file can claim any size
	b.count()
}

// maxWritten bounds what skip counts, far from where an int64 ends.
const maxWritten = 1 << 62

func (b *RingBuf) headRoom() int {
	if b.sealed {
		return 0
	}
	return b.headCap - len(b.head)
}

// space returns where the next bytes go, as much as is contiguous. It grows
// the log if there is no room for want bytes. There must be room for one in the
// head or the tail.
func (b *RingBuf) space(want int) []byte {
	if room := b.headRoom(); room > 0 {
		if used := len(b.head); cap(b.head)-used < min(want, room) {
			size := grown(used, want, 512, b.headCap)
			b.charge(size-cap(b.head), true)
			b.head = append(make([]byte, 0, size), b.head...)
		}
		return b.head[len(b.head):cap(b.head)]
	}
	if used := len(b.tail); b.stored >= int64(used) && used < b.tailCap {
		b.growTail(want)
	}
	return b.tail[b.stored%int64(len(b.tail)):]
}

// growTail makes room for want bytes, or for as many as memory allows.
func (b *RingBuf) growTail(want int) {
	used := len(b.tail)
	size := grown(used, want, leastTail, b.tailCap)
	if !b.charge(size-used, size <= leastTail) {
		b.tailCap = max(used, min(leastTail, b.tailCap)) // for good
		if size = b.tailCap; size == used {
			return
		}
		b.charge(size-used, true)
	}
	b.tail = append(make([]byte, 0, size), b.tail...)
	b.tail = b.tail[:size]
}

// leastTail is what a log keeps however little memory is left.
const leastTail = 4096

// charge takes n bytes of the memory that logs share. It reports false if there
// are not enough, unless forced.
func (b *RingBuf) charge(n int, force bool) bool {
	if !b.share.take(int64(n), force) {
		if b.short != nil {
			b.short()
		}
		return false
	}
	b.taken.Add(int64(n))
	return true
}

// grown returns the size that a buffer of used bytes grows to for want more.
func grown(used, want, least, most int) int {
	if want >= most-used {
		return most
	}
	return min(max(2*used, used+want, least), most)
}

// commit counts the n bytes just put where space said.
func (b *RingBuf) commit(n int) {
	if b.headRoom() > 0 {
		b.head = b.head[:len(b.head)+n]
	} else {
		if k := len(b.runs); k == 0 || b.end(k-1) != b.written {
			b.addRun(run{off: b.written, at: b.stored})
		}
		b.stored += int64(n)
		for oldest := b.oldest(); b.gone+1 < len(b.runs) && b.runs[b.gone+1].at <= oldest; {
			b.gone++
		}
	}
	b.written += int64(n)
	b.count()
}

func (b *RingBuf) addRun(r run) {
	if len(b.runs) == cap(b.runs) && 2*b.gone >= len(b.runs) {
		b.runs = b.runs[:copy(b.runs, b.runs[b.gone:])]
		b.gone = 0
	}
	b.runs = append(b.runs, r)
}

// count publishes the totals.
func (b *RingBuf) count() {
	b.counts.Lock()
	b.total = b.written
	b.kept = int64(len(b.head)) + b.stored - b.oldest()
	b.counts.Unlock()
}

// oldest returns the number of the first stored byte still in the tail.
func (b *RingBuf) oldest() int64 {
	return max(0, b.stored-int64(len(b.tail)))
}

func (b *RingBuf) clamp(from int64) int64 {
	if from < 0 {
		return max(0, b.written+from)
	}
	return min(from, b.written)
}

// find returns the first kept offset at or after from, and how many bytes are
// kept from there without a gap; if there is none, the end and 0.
func (b *RingBuf) find(from int64) (off, span int64) {
	head := int64(len(b.head))
	if from < head {
		// The tail may go on where the head ends.
		if off, span := b.findTail(head); off == head {
			head += span
		}
		return from, head - from
	}
	return b.findTail(from)
}

func (b *RingBuf) findTail(from int64) (off, span int64) {
	i := b.runAt(from)
	if i == len(b.runs) {
		return b.written, 0
	}
	r := b.runs[i]
	off = max(from, r.off+max(0, b.oldest()-r.at))
	return off, b.end(i) - off
}

// runAt returns the number of the first run that ends after off.
func (b *RingBuf) runAt(off int64) int {
	return b.gone + sort.Search(len(b.runs)-b.gone, func(i int) bool { return off < b.end(b.gone+i) })
}

// end returns the offset after the last byte of run i.
func (b *RingBuf) end(i int) int64 {
	next := b.stored
	if i+1 < len(b.runs) {
		next = b.runs[i+1].at
	}
	return b.runs[i].off + next - b.runs[i].at
}

// copyOut fills p with kept bytes from off; find has said that they are there.
func (b *RingBuf) copyOut(p []byte, off int64) {
	if off < int64(len(b.head)) {
		n := copy(p, b.head[off:])
		p, off = p[n:], off+int64(n)
	}
	if len(p) == 0 {
		return
	}
	i := b.runAt(off)
	pos := (b.runs[i].at + off - b.runs[i].off) % int64(len(b.tail))
	n := copy(p, b.tail[pos:])
	copy(p[n:], b.tail)
}
