package dashboard

import (
	"bytes"
	"fmt"
	"net/http"
	"time"
)

// silence is how long a stream may be silent: only who writes learns that nobody
// is there.
const silence = 15 * time.Second

// patience is how long a page may take to read what was sent. Tests have less.
var patience = 10 * time.Second

// events streams the board, and the tail of the job that the query names, for
// as long as the page stays. It runs in the request's own goroutine and leaves
// nothing behind.
func (d *dashboard) events(w http.ResponseWriter, r *http.Request) {
	select {
	case d.clients <- struct{}{}:
		defer func() { <-d.clients }()
	default:
		w.Header().Set("Retry-After", "5")
		http.Error(w, "too many pages are open", http.StatusServiceUnavailable)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // proxies hold back what they can
	out := &stream{w: w, c: http.NewResponseController(w)}
	id := r.URL.Query().Get("job")
	tick := time.NewTicker(d.refresh)
	defer tick.Stop()
	for seen := 0; ; {
		data, version := d.board.look()
		if version != seen {
			seen = version
			out.event("board", fmt.Appendf(nil, `{"now":%d,"board":%s}`, time.Now().UnixMilli(), data))
		}
		if id != "" {
			if data := d.board.tail(id); !bytes.Equal(data, out.tail) {
				out.tail = data
				out.event("tail", data)
			}
		}
		if time.Since(out.last) > silence {
			out.send([]byte(":\n\n")) // a comment
		}
		if out.err != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
		}
	}
}

// A stream writes server-sent events. After an error it does nothing.
type stream struct {
	w    http.ResponseWriter
	c    *http.ResponseController
	tail []byte // sent last
	last time.Time
	err  error
}

// event sends JSON, which has no newline.
func (s *stream) event(name string, data []byte) {
	s.send(fmt.Appendf(nil, "event: %s\ndata: %s\n\n", name, data))
}

func (s *stream) send(p []byte) {
	if s.err != nil {
		return
	}
	s.last = time.Now()
	// Writers that know no deadline, such as those of tests, do not block.
	_ = s.c.SetWriteDeadline(s.last.Add(patience))
	if _, s.err = s.w.Write(p); s.err == nil {
		s.err = s.c.Flush()
	}
}
