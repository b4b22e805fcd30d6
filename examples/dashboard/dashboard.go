// Package dashboard shows the jobs of a supervisor, and of all owners below it,
// as a web page: their states, a live tail of their output, a timeline, and a
// button that cancels.
//
// Looking changes nothing: no result is collected and no notice is taken, and a
// job that is cancelled here is still told to its owner.
package dashboard

import (
	"bytes"
	"crypto/rand"
	"embed"
	"errors"
	"html/template"
	"io/fs"
	"net/http"
	"time"

	"github.com/agentjobs/jobs"
)

// Defaults of [Options].
const (
	DefaultMaxClients = 32
	DefaultRefresh    = 250 * time.Millisecond
)

// Options configure a dashboard. The zero value serves this machine only.
type Options struct {
	// Hosts are names, without a port, by which browsers may reach the dashboard
	// besides localhost, 127.0.0.1 and [::1]. A request for any other is refused,
	// so that a page of a stranger whose name was made to point here reads
	// nothing.
	Hosts []string

	// MaxClients is how many pages may be open at once. Defaults to 32.
	MaxClients int

	// Refresh is how often an open page is brought up to date. Nothing is looked
	// at while none is open. Defaults to 250 ms.
	Refresh time.Duration

	// Token, if not empty, opens the dashboard to other machines, and has to be
	// given by every request: as a bearer token, or once in a login form. Choose
	// one that cannot be guessed, and put TLS before the dashboard. Without it
	// requests that do not come from a loopback address are refused.
	Token string
}

//go:embed assets
var assets embed.FS

var (
	pages     = template.Must(template.ParseFS(assets, "assets/*.html"))
	served, _ = fs.Sub(assets, "assets") // cannot fail: the name is a valid one
)

// A dashboard is the handler behind its guard.
type dashboard struct {
	guard
	board   *board
	refresh time.Duration
	clients chan struct{} // one element for each open stream
}

// New returns a handler that shows the jobs of s and of its children. It has
// nothing to be closed: it works only while a request does. It may be mounted
// below a path with [http.StripPrefix], as all its links are relative.
func New(s *jobs.Supervisor, o Options) http.Handler {
	if o.MaxClients <= 0 {
		o.MaxClients = DefaultMaxClients
	}
	if o.Refresh <= 0 {
		o.Refresh = DefaultRefresh
	}
	d := &dashboard{
		guard:   guard{hosts: o.Hosts, token: o.Token, csrf: rand.Text(), key: []byte(rand.Text())},
		board:   newBoard(s, o.Refresh),
		refresh: o.Refresh,
		clients: make(chan struct{}, o.MaxClients),
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", d.page)
	mux.Handle("GET /assets/", http.StripPrefix("/assets/", http.FileServerFS(scripts{served})))
	mux.HandleFunc("GET /events", d.events)
	mux.HandleFunc("POST /jobs/{id}/cancel", d.cancel)
	return d.wrap(mux)
}

// scripts hides the templates and the listing of the directory.
type scripts struct{ fs.FS }

func (s scripts) Open(name string) (fs.File, error) {
	switch name {
	case "app.js", "timeline.js", "style.css", "icon.svg":
		return s.FS.Open(name)
	}
	return nil, fs.ErrNotExist
}

func (d *dashboard) page(w http.ResponseWriter, _ *http.Request) {
	render(w, http.StatusOK, "index.html", struct{ CSRF string }{d.csrf})
}

func render(w http.ResponseWriter, code int, name string, data any) {
	var page bytes.Buffer
	if err := pages.ExecuteTemplate(&page, name, data); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	w.Write(page.Bytes())
}

func (d *dashboard) cancel(w http.ResponseWriter, r *http.Request) {
	err := d.board.cancel(r.PathValue("id"))
	switch {
	case err == nil:
		w.WriteHeader(http.StatusAccepted)
	case errors.Is(err, jobs.ErrEnded):
		http.Error(w, "the job has ended", http.StatusConflict)
	default:
		http.Error(w, "no such job", http.StatusNotFound)
	}
}
