package jobs

import (
	"bytes"
	"regexp"
)

// lineLimit is how long an unfinished line may get before it is taken as one.
const lineLimit = 64 << 10

// A lineScanner tests each line that comes into a log against a pattern, as a
// model would see the line. It sees every byte that the log takes, kept or
// not. Its methods are called under the log's lock.
type lineScanner struct {
	pattern *regexp.Regexp
	// found is called with each matching line and the offset after it. It must
	// not wait, nor touch the log.
	found func(line []byte, next int64)
	// began gets a value when there is an unfinished line to test, if it is not
	// nil.
	began chan struct{}

	line []byte // the unfinished line
}

// feed scans p, whose first byte has the offset from.
func (t *lineScanner) feed(p []byte, from int64) {
	for len(p) > 0 {
		room := lineLimit - len(t.line)
		i := bytes.IndexByte(p[:min(len(p), room+1)], '\n')
		switch {
		case i >= 0:
			t.test(p[:i], from+int64(i)+1)
			i++
		case len(p) > room:
			i = room
			t.test(p[:i], from+int64(i))
		default:
			t.line = append(t.line, p...)
			poke(t.began)
			return
		}
		p, from = p[i:], from+int64(i)
	}
}

// test tests the line that rest ends.
func (t *lineScanner) test(rest []byte, next int64) {
	line := rest
	if len(t.line) > 0 {
		line = append(t.line, rest...)
		t.line = line[:0]
	}
	var v viewer
	v.piece(line)
	if t.pattern.Match(v.out) {
		t.found(v.out, next)
	}
}

// testUnfinished tests the unfinished line, if any, and keeps it.
func (t *lineScanner) testUnfinished(next int64) {
	if line := t.line; len(line) > 0 {
		t.test(nil, next)
		t.line = line
	}
}

// gap says that bytes are missing here.
func (t *lineScanner) gap() { t.line = t.line[:0] }

// end says that nothing more will come.
func (t *lineScanner) end(next int64) {
	if len(t.line) > 0 {
		t.test(nil, next)
	}
}

// poke puts a value into a channel of one element, if it has room. A nil
// channel has none.
func poke(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
