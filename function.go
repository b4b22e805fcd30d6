package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// A function is the work of a job that runs inside the host.
type function struct {
	atHand
	call   func(ctx context.Context, out io.Writer) (any, error)
	ctx    context.Context
	cancel context.CancelFunc

	result ResultFile // set by follow, as is err
	err    error

	printing sync.Mutex // held while a piece goes to the log and its file
}

func newFunction(start context.Context, call func(context.Context, io.Writer) (any, error)) *function {
	ctx, cancel := context.WithCancel(context.WithoutCancel(start))
	return &function{call: call, ctx: ctx, cancel: cancel}
}

func (f *function) pid() int     { return 0 }
func (f *function) release(*job) {}

// finished is always false: what runs in the host cannot be looked at from
// outside, so its end counts from when follow has seen it.
func (f *function) finished() bool { return false }

func (f *function) unread() time.Duration { return 0 }

func (f *function) follow(j *job) {
	defer f.cancel()
	f.result, f.err = f.protected(functionOutput{j, &f.printing})
}

func (f *function) settle(*job, bool) ending {
	e := ending{exitCode: -1, err: f.err, resultFile: f.result}
	if _, panicked := f.err.(*panicError); panicked {
		e.reason = ReasonInternal
	}
	return e
}

// protected calls the function and encodes what it returns, both of which is
// the host's code.
func (f *function) protected(out io.Writer) (result ResultFile, err error) {
	err = protectApart("the function", func() error {
		value, err := f.call(f.ctx, out)
		if err != nil {
			return err
		}
		encoded, err := encodeValue(value)
		if err != nil {
			err = fmt.Errorf("the result cannot be encoded: %w", err)
		}
		result = encoded
		return err
	})
	return result, err
}

// stop cancels the function's context and gives it the kill grace to return.
// Nothing can force it.
func (f *function) stop(j *job) (survivors []Process, stuck bool, err error) {
	f.cancel()
	grace, cancel := context.WithTimeout(j.hurried, j.cfg.KillGrace)
	defer cancel()
	if closedBefore(grace, j.exited) {
		return nil, false, nil
	}
	// One that is hurried has had no time to return.
	last, cancel := context.WithTimeout(context.Background(), unkillableAfter)
	defer cancel()
	if j.hurried.Err() != nil && closedBefore(last, j.exited) {
		return nil, false, nil
	}
	return nil, true, errors.New("the function has not returned since its context was cancelled")
}

// functionOutput is the out of a function.
type functionOutput struct {
	j  *job
	mu *sync.Mutex // or many at once would print faster than one can flush
}

func (o functionOutput) Write(p []byte) (int, error) {
	if len(o.j.logFiles) > 0 {
		o.mu.Lock()
		defer o.mu.Unlock()
	}
	n, err := o.j.out.Write(p)
	if n > 0 {
		o.j.noteOutput(n)
		o.j.flushLogs()
	}
	return n, err
}

// encodeValue makes a result of what a function returned. A nil value is no
// result.
func encodeValue(v any) (ResultFile, error) {
	if v == nil {
		return ResultFile{}, nil
	}
	data, err := encodeJSON(v)
	if err != nil {
		return ResultFile{}, err
	}
	return ResultFile{Data: data, Size: int64(len(data))}, nil
}

// A panicError is a panic of the host's code, contained.
type panicError struct {
	value any
}

func newPanicError(v any) *panicError {
	return &panicError{value: v}
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }
