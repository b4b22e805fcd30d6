package main

import (
	"context"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	jobScheme = "job://"
	listURI   = jobScheme + "list"

	// shownTail is how much of the end of its output a job's resource shows.
	shownTail = 16 << 10

	// lookEvery is how often jobs are looked at for the sake of subscribers.
	lookEvery = 500 * time.Millisecond
)

// A board shows jobs as resources, the list of them and one for each, and tells
// subscribers of what changes.
type board struct {
	jobs *jobs.Supervisor
	mcp  *mcp.Server
	wake chan struct{} // holds a value when somebody has subscribed

	mu      sync.Mutex
	shown   map[string]mark // by URI
	watched map[string]bool // by URI
}

// A mark is what a job's resource looked like.
type mark struct {
	state  jobs.State
	output int64
}

func newBoard(s *jobs.Supervisor) *board {
	return &board{jobs: s, wake: make(chan struct{}, 1), watched: make(map[string]bool)}
}

func (b *board) register(s *mcp.Server) {
	b.mcp = s
	s.AddResource(&mcp.Resource{URI: listURI, Name: "jobs", Description: "The jobs that run or wait to be collected.", MIMEType: "text/plain"}, b.read)
	s.AddResourceTemplate(&mcp.ResourceTemplate{URITemplate: jobScheme + "{id}", Name: "job", Description: "The state of a job and the end of its output.", MIMEType: "text/plain"}, b.read)
	b.look()
}

// run tells subscribers of changes until ctx is done. Nobody tells of new
// output, so that it has to be looked for while somebody wants to know.
func (b *board) run(ctx context.Context) {
	for {
		var tick <-chan time.Time
		if b.isWatched() {
			tick = time.After(lookEvery)
		}
		select {
		case <-b.jobs.Ready(): // an end; its notice stays for the model
		case <-b.wake:
		case <-tick:
		case <-ctx.Done():
			return
		}
		b.look()
	}
}

// look compares the jobs with what is shown.
func (b *board) look() {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := make(map[string]mark)
	for _, snap := range b.jobs.List().Jobs {
		uri := jobScheme + snap.ID
		now[uri] = mark{snap.State, snap.OutputTotal}
		if _, ok := b.shown[uri]; !ok {
			b.mcp.AddResource(&mcp.Resource{URI: uri, Name: snap.ID, Title: snap.Tool, MIMEType: "text/plain"}, b.read)
		}
	}
	if maps.Equal(now, b.shown) {
		return
	}
	for uri, was := range b.shown {
		is, ok := now[uri]
		if !ok {
			b.mcp.RemoveResources(uri)
		}
		if is != was {
			b.updated(uri)
		}
	}
	b.updated(listURI)
	b.shown = now
}

// updated tells those who have subscribed. It fails for nobody: a client that
// cannot be reached is about to be gone.
func (b *board) updated(uri string) {
	b.mcp.ResourceUpdated(context.Background(), &mcp.ResourceUpdatedNotificationParams{URI: uri})
}

func (b *board) subscribe(_ context.Context, req *mcp.SubscribeRequest) error {
	b.watch(req.Params.URI, true)
	select {
	case b.wake <- struct{}{}:
	default:
	}
	return nil
}

func (b *board) unsubscribe(_ context.Context, req *mcp.UnsubscribeRequest) error {
	b.watch(req.Params.URI, false)
	return nil
}

func (b *board) watch(uri string, on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if on {
		b.watched[uri] = true
	} else {
		delete(b.watched, uri)
	}
}

func (b *board) isWatched() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.watched) > 0
}

// read answers with the list, or with a job. It uses nothing up: the result of
// the job can still be collected.
func (b *board) read(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	uri := req.Params.URI
	text := ""
	if uri == listURI {
		text = jobs.FormatList(b.jobs.List())
	} else {
		snap, err := b.jobs.Check(strings.TrimPrefix(uri, jobScheme))
		if err != nil {
			return nil, mcp.ResourceNotFoundError(uri)
		}
		text = jobs.FormatJob(snap, b.tail(snap.ID))
	}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: uri, MIMEType: "text/plain", Text: text}}}, nil
}

// tail returns the end of a job's output, nothing if it is collected.
func (b *board) tail(id string) jobs.Log {
	c, err := b.jobs.Output(id, -shownTail, shownTail)
	if err != nil || len(c.Data) == 0 {
		return jobs.Log{}
	}
	return jobs.Log{
		Pieces:  []jobs.Piece{{From: c.From, Data: c.Data}},
		Total:   c.Total,
		Dropped: c.Total - int64(len(c.Data)),
	}
}
