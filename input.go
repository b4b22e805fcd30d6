package jobs

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// silentFor is how long a job must be silent, after an unfinished line, before
// it may seem to wait for input; and how long what was found then holds.
const silentFor = time.Second

// An inputPipe is the standard input of a job started with Spec.Input.
type inputPipe struct {
	j    *job
	w    *os.File
	turn chan struct{} // holds a value while somebody writes

	mu     sync.Mutex // guards the fields below; not held while w is written
	ended  bool       // by the job's end
	closed bool       // by the host

	given   atomic.Int64 // when something was last written, since the job's start
	asked   atomic.Int64 // when processes were last looked at, since the job's start
	waiting atomic.Bool  // what that gave
}

// Input returns a writer to the standard input of a job that was started with
// [Spec.Input]. Write waits while the pipe is full, which the job's end ends;
// it returns [ErrEnded] once the job has ended, or once none of its processes
// has the pipe open. Close ends the input: the job reads end of file. All
// writers of one job are one.
//
// Input returns [ErrNoInput] for other jobs, [ErrEnded] for one that has ended,
// and the errors of [Supervisor.Check].
func (s *Supervisor) Input(id string) (io.WriteCloser, error) {
	j, err := s.lookup(id)
	switch {
	case err != nil:
		return nil, err
	case j.input == nil:
		return nil, s.jobError(j, ErrNoInput)
	case isClosed(j.done):
		return nil, s.jobError(j, ErrEnded)
	}
	return j.input, nil
}

func (p *inputPipe) Write(b []byte) (int, error) { return p.write(context.Background(), b) }

// write is Write, given up with [os.ErrDeadlineExceeded] when ctx is done. What
// several callers write does not mix.
func (p *inputPipe) write(ctx context.Context, b []byte) (int, error) {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return 0, os.ErrDeadlineExceeded
	}
	p.w.SetWriteDeadline(time.Time{})
	fired := make(chan struct{})
	interrupt := context.AfterFunc(ctx, func() {
		defer close(fired)
		p.w.SetWriteDeadline(time.Unix(1, 0))
	})
	n, err := p.w.Write(b)
	if !interrupt() {
		<-fired // or the next writer would be interrupted
	}
	p.given.Store(int64(time.Since(p.j.started)))
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed && !p.ended {
		return n, os.ErrClosed
	}
	return n, p.j.s.jobError(p.j, ErrEnded) // a broken pipe, or one that is gone
}

func (p *inputPipe) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	return p.w.Close()
}

// end closes the pipe because the job has ended.
func (p *inputPipe) end() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	if !p.closed {
		p.closed = true
		p.w.Close()
	}
}

// awaitsInput reports whether the job seems to wait for something to be typed.
// Processes are looked at once a second at most, and only where all that is
// cheaper to know says so.
func (j *job) awaitsInput() bool {
	p := j.input
	if p == nil || isClosed(j.exited) {
		return false
	}
	now := time.Since(j.started)
	last := max(j.lastOutput.Load(), p.given.Load())
	if now-time.Duration(last) < silentFor || !j.unfinishedLine() {
		return false
	}
	if last := p.asked.Load(); (last == 0 || int64(now)-last > int64(silentFor)) && p.asked.CompareAndSwap(last, int64(now)) {
		p.waiting.Store(p.awaited())
	}
	return p.waiting.Load()
}

// unfinishedLine reports whether the last thing printed ends no line.
func (j *job) unfinishedLine() bool {
	for _, log := range j.logs() {
		if log.unfinished() {
			return true
		}
	}
	return false
}
