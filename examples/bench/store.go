package main

import (
	"bytes"
	"sync"

	"github.com/armon/circbuf"
	"github.com/smallnest/ringbuffer"
)

// The stores here are not made for a reader beside the writer, or do not count
// what went through them, so each has a mutex.

// bytesBuffer keeps everything.
type bytesBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func newBytesBuffer() store { return new(bytesBuffer) }

func (b *bytesBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *bytesBuffer) total() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return int64(b.buf.Len())
}

func (b *bytesBuffer) last(p []byte) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return p[:copy(p, end(b.buf.Bytes(), len(p)))]
}

// circ is armon/circbuf.
type circ struct {
	mu  sync.Mutex
	buf *circbuf.Buffer
}

func newCircbuf() store {
	buf, err := circbuf.NewBuffer(ringSize)
	if err != nil {
		panic(err) // only for a size below 1
	}
	return &circ{buf: buf}
}

func (b *circ) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *circ) total() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.TotalWritten()
}

func (b *circ) last(p []byte) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return p[:copy(p, end(b.buf.Bytes(), len(p)))]
}

// ring is smallnest/ringbuffer, told to overwrite.
type ring struct {
	mu      sync.Mutex
	buf     *ringbuffer.RingBuffer
	written int64
}

func newRingbuffer() store {
	return &ring{buf: ringbuffer.New(ringSize).SetOverwrite(true)}
}

func (b *ring) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	// It takes no more than its size at once.
	for rest := p; len(rest) > 0; {
		n, err := b.buf.Write(rest[:min(len(rest), ringSize)])
		if err != nil {
			return len(p) - len(rest) + n, err
		}
		rest = rest[n:]
	}
	b.written += int64(len(p))
	return len(p), nil
}

func (b *ring) total() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.written
}

func (b *ring) last(p []byte) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	kept := b.buf.Length()
	p = p[:min(len(p), kept)]
	if len(p) > 0 {
		b.buf.PeekAt(kept-len(p), p)
	}
	return p
}

// discard keeps nothing: os/exec at its barest, but with a pipe to read.
type discard struct{}

func newDiscard() store { return discard{} }

func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) total() int64                { return 0 }
func (discard) last([]byte) []byte          { return nil }

// end returns the last n bytes of p, or all of it.
func end(p []byte, n int) []byte {
	return p[max(0, len(p)-n):]
}
