package dashboard_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/agentjobs/jobs/examples/dashboard"
	"github.com/stretchr/testify/require"
)

const patience = 30 * time.Second // of a loaded machine

// newHost returns a supervisor that ends with the test.
func newHost(t *testing.T, cfg jobs.Config) *jobs.Supervisor {
	t.Helper()
	cfg.KillGrace = 500 * time.Millisecond
	s, err := jobs.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { s.Close(context.Background()) })
	return s
}

func newChild(t *testing.T, s *jobs.Supervisor, name string) *jobs.Supervisor {
	t.Helper()
	c, err := s.Child(jobs.ChildConfig{Name: name})
	require.NoError(t, err)
	return c
}

// A puppet is a job that prints and ends when the test says so.
type puppet struct {
	jobs.Snapshot
	lines chan string
}

func newPuppet(t *testing.T, s *jobs.Supervisor, tool string) *puppet {
	t.Helper()
	p := &puppet{lines: make(chan string)}
	snap, err := s.Start(t.Context(), jobs.Spec{Tool: tool, Func: func(ctx context.Context, out io.Writer) (any, error) {
		for {
			select {
			case line, more := <-p.lines:
				if !more {
					return nil, nil
				}
				io.WriteString(out, line)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}})
	require.NoError(t, err)
	p.Snapshot = snap
	return p
}

func (p *puppet) say(line string) { p.lines <- line }
func (p *puppet) end()            { close(p.lines) }

// until waits for a condition that nothing announces.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline:
			require.Fail(t, "never: "+what)
		}
	}
}

// ended returns how a job ended, once it has, without being told of it.
func ended(t *testing.T, s *jobs.Supervisor, id string) jobs.Snapshot {
	t.Helper()
	var snap jobs.Snapshot
	until(t, "the job ends", func() bool {
		var err error
		snap, err = s.Check(id)
		require.NoError(t, err)
		return snap.Ended()
	})
	return snap
}

func serve(t *testing.T, s *jobs.Supervisor, o dashboard.Options) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(dashboard.New(s, o))
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return srv
}

// A board is what the page is sent.
type board struct {
	Hidden int
	Owners []struct {
		Name         string
		Running, Max int
		Closed       bool
		Jobs         []struct {
			ID, Tool, Tag, State, Outcome string
			Ended                         bool
		}
	}
}

func (b board) jobs() int {
	n := 0
	for _, o := range b.Owners {
		n += len(o.Jobs)
	}
	return n
}

type tail struct {
	ID, Note       string
	Total, Dropped int64
	Text, Stderr   *string
}

// A stream is what an open page is sent, as it stands.
type stream struct {
	board board
	tail  tail
	body  *bufio.Reader
	leave func()
}

// follow opens a stream about a job.
func follow(t *testing.T, srv *httptest.Server, job string) *stream {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL+"/events?job="+job, nil)
	require.NoError(t, err)
	res, err := srv.Client().Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { res.Body.Close() })
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.Equal(t, "text/event-stream", res.Header.Get("Content-Type"))
	return &stream{body: bufio.NewReader(res.Body), leave: cancel}
}

// until reads on until what was sent is as wanted.
func (s *stream) until(t *testing.T, wanted func() bool) {
	t.Helper()
	for name := ""; !wanted(); {
		line, err := s.body.ReadString('\n')
		require.NoError(t, err, "the stream ended")
		field, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch {
		case field == "event":
			name = value
		case field == "data" && name == "board":
			var e struct{ Board board }
			require.NoError(t, json.Unmarshal([]byte(value), &e))
			s.board = e.Board
		case field == "data" && name == "tail":
			s.tail = tail{}
			require.NoError(t, json.Unmarshal([]byte(value), &s.tail))
		}
	}
}

// text is the tail, "" if there is none.
func (s *stream) text() string {
	if s.tail.Text == nil {
		return ""
	}
	return *s.tail.Text
}

func TestTheBoardShowsTheJobsOfEveryOwner(t *testing.T) {
	host := newHost(t, jobs.Config{})
	ann := newChild(t, host, "ann")
	sub := newChild(t, ann, "sub")
	newPuppet(t, host, "top")
	newPuppet(t, ann, "build")
	quick := newPuppet(t, sub, "quick")

	srv := serve(t, host, dashboard.Options{Refresh: 20 * time.Millisecond})
	page := follow(t, srv, "")
	page.until(t, func() bool { return page.board.jobs() == 3 })
	owners := page.board.Owners
	require.Equal(t, []string{"host", "ann", "ann / sub"}, []string{owners[0].Name, owners[1].Name, owners[2].Name})
	require.Equal(t, "build", owners[1].Jobs[0].Tool)
	require.Equal(t, "running", owners[1].Jobs[0].State)

	quick.end()
	page.until(t, func() bool { return page.board.Owners[2].Jobs[0].Ended })
	require.Equal(t, "completed", page.board.Owners[2].Jobs[0].Outcome)

	_, err := sub.Close(t.Context())
	require.NoError(t, err)
	page.until(t, func() bool { return page.board.Owners[2].Closed })
	require.Len(t, page.board.Owners[2].Jobs, 1, "what a closed owner did is still shown")
}

func TestLookingTellsNobodyAndCollectsNothing(t *testing.T) {
	host := newHost(t, jobs.Config{})
	p := newPuppet(t, host, "build")
	srv := serve(t, host, dashboard.Options{Refresh: 10 * time.Millisecond})
	page := follow(t, srv, p.ID)
	p.say("made\n")
	p.end()
	page.until(t, func() bool { return page.text() == "made\n" && page.board.Owners[0].Jobs[0].Ended })

	notices := host.Drain()
	require.Len(t, notices, 1)
	require.Equal(t, jobs.EventCompleted, notices[0].Event)
	r, err := host.Collect(t.Context(), p.ID)
	require.NoError(t, err)
	require.Equal(t, "made\n", string(r.Output.Bytes()))

	page = follow(t, srv, p.ID)
	page.until(t, func() bool { return page.tail.ID != "" })
	require.Nil(t, page.tail.Text)
	require.Contains(t, page.tail.Note, "collected")
}

func TestTheBoardRemembersJobsThatAreListedNoMore(t *testing.T) {
	host := newHost(t, jobs.Config{})
	collected, reaped := newPuppet(t, host, "collected"), newPuppet(t, host, "reaped")
	srv := serve(t, host, dashboard.Options{Refresh: 10 * time.Millisecond})
	page := follow(t, srv, "")
	page.until(t, func() bool { return page.board.jobs() == 2 })
	page.leave()
	until(t, "nobody looks", func() bool { return streams() == 0 })
	collected.end()
	_, err := host.Collect(t.Context(), collected.ID)
	require.NoError(t, err)
	host.Reap(t.Context(), reaped.ID)
	require.Empty(t, host.List().Jobs)

	page = follow(t, srv, reaped.ID)
	page.until(t, func() bool {
		return page.board.jobs() == 2 && page.board.Owners[0].Jobs[0].State == "completed" &&
			page.board.Owners[0].Jobs[1].State == "gone" && strings.Contains(page.tail.Note, "no longer")
	})
}

func TestTheTailIsReadableText(t *testing.T) {
	host := newHost(t, jobs.Config{})
	p := newPuppet(t, host, "paint")
	srv := serve(t, host, dashboard.Options{Refresh: 10 * time.Millisecond})
	page := follow(t, srv, p.ID)
	p.say("\x1b]0;title\a\x1b[31mred\x1b[0m\r\n10%\r20%\r30%\n<script>alert(1)</script>\n")
	page.until(t, func() bool { return page.text() != "" })
	require.Equal(t, "red\n30%\n<script>alert(1)</script>\n", page.text())
}

func TestStandardErrorHasATailOfItsOwn(t *testing.T) {
	host := newHost(t, jobs.Config{})
	snap, err := host.Start(t.Context(), jobs.Spec{Argv: []string{"sh", "-c", "echo out; echo err >&2; sleep 60"}, SplitStderr: true})
	require.NoError(t, err)
	srv := serve(t, host, dashboard.Options{Refresh: 10 * time.Millisecond})
	page := follow(t, srv, snap.ID)
	page.until(t, func() bool { return page.tail.Stderr != nil && page.text() != "" })
	require.Equal(t, "out\n", page.text())
	require.Equal(t, "err\n", *page.tail.Stderr)
}

func TestHugeOutputAndManyJobsStayBounded(t *testing.T) {
	const many = 350
	host := newHost(t, jobs.Config{MaxRunning: many, MaxRetained: many})
	var last string
	for i := range many {
		snap, err := host.Start(t.Context(), jobs.Spec{Tool: fmt.Sprint("job ", i), Func: func(_ context.Context, out io.Writer) (any, error) {
			for range 100 {
				out.Write(bytes.Repeat([]byte("0123456789abcde\n"), 64))
			}
			return nil, nil
		}})
		require.NoError(t, err)
		last = snap.ID
	}
	srv := serve(t, host, dashboard.Options{Refresh: 20 * time.Millisecond})
	page := follow(t, srv, last)
	page.until(t, func() bool { return page.board.Hidden > 0 && page.tail.Total == 100*64*16 })
	require.Equal(t, many-300, page.board.Hidden)
	require.Equal(t, 300, page.board.jobs())
	require.LessOrEqual(t, len(page.text()), 32<<10)
	require.True(t, strings.HasSuffix(page.text(), "abcde\n"))
}
