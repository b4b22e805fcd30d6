package jobs

import (
	"bytes"
	"context"
	"errors"
	"os"
	"time"
	"unicode/utf8"
)

const (
	// outputPiece is how much job__output reads unless asked for less, or more,
	// up to outputPieceMost.
	outputPiece     = 16 << 10
	outputPieceMost = 32 << 10
	// outputShownMost bounds the text of a piece: as JSON it may be twice as long.
	outputShownMost = 28 << 10

	// writePatience is how long job__write waits for the job to read.
	writePatience = 5 * time.Second
)

// await is job__wait.
func (t *Toolset) await(ctx context.Context, in input) answer {
	spec := WaitSpec{IDs: in.IDs, All: in.All, Pattern: in.Pattern, Timeout: t.wait}
	if in.Timeout != nil {
		spec.Timeout = min(*in.Timeout, t.wait)
	}
	waited := spec.Timeout
	if waited == 0 {
		spec.Timeout = -1
	}
	r, err := t.s.Wait(ctx, spec)
	var je *JobError
	if errors.As(err, &je) {
		return t.failedJob(err)
	}
	a := answer{Status: statusOK, Jobs: []jobLine{}, Message: t.words.waited(r, waited)}
	if !a.pending(t.words, err) && err != nil {
		a.Message = t.words.waitInterrupted()
	}
	for _, s := range r.Jobs {
		line := lineOf(s)
		if s.Ended() {
			var end answer
			end.outcome(s)
			line.Reason, line.ExitCode, line.Signal = end.Reason, end.ExitCode, end.Signal
		}
		a.Jobs = append(a.Jobs, line)
	}
	if r.Match != nil {
		a.Match = &matchLine{r.Match.ID, readable(r.Match.Line, checkTailCap), r.Match.Next}
	}
	return a
}

// output is job__output.
func (t *Toolset) output(_ context.Context, in input) answer {
	size := outputPiece
	if in.MaxBytes > 0 {
		size = min(max(in.MaxBytes, utf8.UTFMax), outputPieceMost)
	}
	c, err := t.s.Output(in.ID, in.From, size)
	if err != nil {
		return t.failedJob(err)
	}
	snap, err := t.s.Check(in.ID)
	if err != nil {
		return t.failedJob(err)
	}
	all := c.Next == c.Total
	text := shownPiece(&c, snap.Ended())
	a := about(snap)
	a.Output, a.From, a.Next, a.Dropped, a.Captured = &text, &c.From, &c.Next, c.Dropped, &c.Total
	if all && (c.Next == c.Total || len(c.Data) == 0) {
		a.Message = t.words.outputEnd(snap)
	}
	return a
}

// shownPiece returns the text view of a chunk. It makes the chunk shorter where
// it breaks off amid a line, or where its view would be too long for an answer.
func shownPiece(c *Chunk, ended bool) string {
	for {
		switch {
		case c.Next < c.Total:
			c.Data = wholeLines(c.Data)
		case !ended:
			c.Data = trimPartialRune(c.Data) // the rest is still to come
		}
		c.Next = c.From + int64(len(c.Data))
		text := Log{Pieces: []Piece{{Data: c.Data}}}.Text(TextOptions{Full: true})
		if len(text.Body) <= outputShownMost {
			return text.Body
		}
		c.Data = c.Data[:len(c.Data)/2]
		c.Next = c.From + int64(len(c.Data))
	}
}

// wholeLines returns as much of the start of b as ends a line, or a character
// if there is no end of a line; but never nothing of something.
func wholeLines(b []byte) []byte {
	if i := bytes.LastIndexByte(b, '\n'); i >= 0 {
		return b[:i+1]
	}
	if whole := trimPartialRune(b); len(whole) > 0 {
		return whole
	}
	return b
}

// write is job__write.
func (t *Toolset) write(ctx context.Context, in input) answer {
	if in.Text == "" && !in.Close {
		return failed(t.words.nothingToWrite())
	}
	w, err := t.s.Input(in.ID)
	if err != nil {
		return t.failedJob(err)
	}
	patience, cancel := context.WithTimeout(ctx, writePatience)
	defer cancel()
	n, err := w.(*inputPipe).write(patience, []byte(in.Text))
	var je *JobError
	switch {
	case errors.As(err, &je):
		return t.failedJob(err)
	case errors.Is(err, os.ErrClosed):
		return failed(t.words.inputClosed())
	case err != nil:
		return failed(t.words.writtenInPart(n, len(in.Text)))
	}
	if in.Close {
		w.Close()
	}
	snap, err := t.s.Check(in.ID)
	if err != nil {
		return t.failedJob(err)
	}
	a := about(snap)
	a.Message = t.words.written(n, in.Close)
	return a
}
