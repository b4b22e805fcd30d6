package dashboard

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/agentjobs/jobs"
)

// Bounds of a tail.
const (
	tailBytes = 32 << 10
	tailLines = 400
)

type boardView struct {
	Hidden int         `json:"hidden"` // jobs that are left out
	Owners []ownerView `json:"owners"`
}

type ownerView struct {
	Number  int    `json:"number"`
	Name    string `json:"name"`
	Running int    `json:"running"`
	Max     int    `json:"max"`
	Closed  bool   `json:"closed"`
	Jobs    []row  `json:"jobs"`
}

// A row is a job on the board. Times are in milliseconds.
type row struct {
	ID      string `json:"id"`
	Tool    string `json:"tool"`
	Tag     string `json:"tag"`
	State   string `json:"state"`
	Outcome string `json:"outcome"`
	Ended   bool   `json:"ended"`
	Started int64  `json:"started"` // since 1970
	Elapsed int64  `json:"elapsed"` // of a job that ended
}

func (e *entry) row() row {
	s := e.snap
	r := row{
		ID:      s.ID,
		Tool:    line(s.Tool),
		Tag:     line(s.Tag),
		State:   string(s.State),
		Outcome: s.Outcome(),
		Ended:   e.ended(),
		Started: s.Started.UnixMilli(),
	}
	if e.gone {
		r.State, r.Outcome = "gone", "ended, and forgotten before anybody looked here"
	}
	if r.Ended {
		r.Elapsed = s.Elapsed.Milliseconds()
	}
	return r
}

// A tail is the end of a job's output.
type tail struct {
	ID      string `json:"id"`
	Note    string `json:"note"`    // what else there is to say
	Total   int64  `json:"total"`   // bytes written
	Dropped int64  `json:"dropped"` // of which are no longer kept
	// Text and Stderr are nil where they cannot be had any more: a page that has
	// them goes on showing them.
	Text   *string `json:"text"`
	Stderr *string `json:"stderr"`
}

// tail returns the JSON of the end of a job's output, as it may be read: the
// library's view of it has no escape sequences, and the page shows it as text.
func (b *board) tail(id string) []byte {
	t := tail{ID: id}
	s, e, ok := b.find(id)
	switch {
	case !ok:
		t.ID, t.Note = "", "There is no such job."
	case s == nil:
		t.Note = "Its owner is closed."
	case e.gone:
		t.Note = "It is no longer remembered."
	default:
		t.read(s)
	}
	data, _ := json.Marshal(t) // cannot fail
	return data
}

func (t *tail) read(s *jobs.Supervisor) {
	snap, err := s.Check(t.ID)
	if err != nil {
		t.Note = "It is no longer remembered."
		return
	}
	t.Total = snap.OutputTotal + snap.StderrTotal
	t.Dropped = snap.OutputDropped + snap.StderrDropped
	var notes []string
	if snap.WaitingForInput {
		notes = append(notes, "It seems to wait for input.")
	}
	if snap.Err != nil {
		notes = append(notes, line(fmt.Sprint(snap.Err)))
	}
	text, err := readable(t.ID, s.Output)
	if errors.Is(err, jobs.ErrCollected) {
		notes = append(notes, "Its result was collected, and its output with it.")
	}
	if err == nil {
		t.Text = &text
	}
	if stderr, err := readable(t.ID, s.Stderr); err == nil && stderr != "" {
		t.Stderr = &stderr
	}
	t.Note = strings.Join(notes, " ")
}

// readable returns the end of an output that read, a method of a supervisor,
// gives piece by piece.
func readable(id string, read func(id string, from int64, max int) (jobs.Chunk, error)) (string, error) {
	var log jobs.Log
	for from, left := int64(-tailBytes), tailBytes; left > 0; {
		c, err := read(id, from, left)
		if err != nil {
			return "", err
		}
		log.Total = c.Next // what came since is for the next look
		if len(c.Data) == 0 {
			break
		}
		log.Pieces = append(log.Pieces, jobs.Piece{From: c.From, Data: c.Data})
		from, left = c.Next, left-len(c.Data)
	}
	return log.Text(jobs.TextOptions{TailLines: tailLines}).Body, nil
}

// line makes a name, which may come from a model, fit to stand in a line.
func line(s string) string {
	const most = 200
	log := jobs.Log{Pieces: []jobs.Piece{{Data: []byte(s)}}, Total: int64(len(s))}
	s = strings.Join(strings.Fields(log.Text(jobs.TextOptions{}).Body), " ")
	if runes := []rune(s); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return s
}
