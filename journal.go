package jobs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

// recordVersion is that of the records written here. Those of another version
// are put aside.
const recordVersion = 1

// Kinds of a record. The life of a job is begin, start, any number of cuts, end,
// told, gone; a host that dies leaves it incomplete.
const (
	recordBegin = "begin" // the job is about to start; its id is in nobody's hands
	recordStart = "start" // it has; now its id may be handed out
	recordCut   = "cut"   // its log file leaves something out
	recordEnd   = "end"   // it has ended; written before that can be seen
	recordTold  = "told"  // the end has been told; written before the teller returns
	recordGone  = "gone"  // it is forgotten, or was collected
)

// A record is a line of the journal. Which fields are set depends on the kind.
type record struct {
	V    int       `json:"v"`
	Kind string    `json:"k"`
	ID   string    `json:"id"`
	At   time.Time `json:"at"`

	// Of begin.
	Tool    string `json:"tool,omitempty"`
	Tag     string `json:"tag,omitempty"`
	Trust   string `json:"trust,omitempty"`
	Owner   string `json:"owner,omitempty"`
	Command string `json:"command,omitempty"` // without its secrets
	Boot    string `json:"boot,omitempty"`    // of the system it runs on
	Host    int    `json:"host,omitempty"`    // the process that writes this
	Keep    bool   `json:"keep,omitempty"`    // it is to outlive its host

	Detached *pastShell `json:"detached,omitempty"`
	Split    bool       `json:"split,omitempty"` // standard error has a log of its own
	LogHead  int64      `json:"log_head,omitempty"`
	ErrHead  int64      `json:"err_head,omitempty"`

	// Of start. A process is known by its number and the time of its start, which
	// lies between two looks at the clock: to ask the system takes longer than all
	// else of a record, and numbers do not come round again that soon.
	PID   int    `json:"pid,omitempty"`
	Ticks uint64 `json:"ticks,omitempty"`
	Until uint64 `json:"until,omitempty"`

	// Of cut.
	Stderr bool    `json:"stderr,omitempty"`
	Cut    *logCut `json:"cut,omitempty"`

	End *pastEnd `json:"end,omitempty"`

	saved bool // a file with the result goes with the record
}

// A pastEnd is how a job ended, as far as its record tells.
type pastEnd struct {
	State      State         `json:"state"`
	Reason     Reason        `json:"reason,omitempty"`
	ExitCode   int           `json:"exit_code"`
	Signal     Signal        `json:"signal,omitempty"`
	Core       bool          `json:"core,omitempty"`
	Err        string        `json:"error,omitempty"`
	Elapsed    time.Duration `json:"elapsed,omitempty"`
	CPU        time.Duration `json:"cpu,omitempty"`
	PeakRSS    int64         `json:"peak_rss,omitempty"`
	Total      int64         `json:"total,omitempty"`
	ErrTotal   int64         `json:"err_total,omitempty"`
	Leftovers  []Process     `json:"leftovers,omitempty"`
	Survivors  []Process     `json:"survivors,omitempty"`
	LogBytes   int64         `json:"log_bytes,omitempty"` // up to where the log files go
	ErrBytes   int64         `json:"err_bytes,omitempty"`
	ResultSize int64         `json:"result_size,omitempty"`
	Result     []byte        `json:"result,omitempty"` // if it is short; else it is in a file
	Problem    string        `json:"result_problem,omitempty"`
}

// A pastShell is what it takes to go on with a job that runs detached.
type pastShell struct {
	Shell     string        `json:"shell,omitempty"`
	Key       string        `json:"key,omitempty"`
	Timeout   time.Duration `json:"timeout,omitempty"`
	Idle      time.Duration `json:"idle_timeout,omitempty"`
	Limit     int64         `json:"output_limit,omitempty"`
	Leftovers Leftovers     `json:"leftovers,omitempty"`
	OwnerEnd  OwnerEnd      `json:"owner_end,omitempty"`
	LogFull   LogFull       `json:"log_full,omitempty"`
}

// encode returns the record as a line. Start waits for its records, and with
// the caches as a fork leaves them encoding/json takes longer than the write, so
// what it does for most of them is done by hand.
func (r record) encode() []byte {
	r.V = recordVersion
	if r.At.IsZero() {
		r.At = time.Now()
	}
	if r.End != nil || r.Cut != nil {
		line, _ := json.Marshal(r) // cannot fail
		return append(line, '\n')
	}
	l := recordLine(make([]byte, 0, 256+len(r.Command)))
	l = l.number("v", int64(r.V)).text("k", r.Kind).text("id", r.ID)
	l = append(r.At.AppendFormat(append(l, `,"at":"`...), time.RFC3339Nano), '"')
	l = l.text("tool", r.Tool).text("tag", r.Tag).text("trust", r.Trust).text("owner", r.Owner)
	l = l.text("command", r.Command).text("boot", r.Boot).number("host", int64(r.Host)).flag("keep", r.Keep)
	if r.Detached != nil {
		detached, _ := json.Marshal(r.Detached) // cannot fail
		l = append(append(l, `,"detached":`...), detached...)
	}
	l = l.flag("split", r.Split).number("log_head", r.LogHead).number("err_head", r.ErrHead)
	l = l.number("pid", int64(r.PID)).number("ticks", int64(r.Ticks)).number("until", int64(r.Until))
	l[0] = '{'
	return append(l, '}', '\n')
}

// A recordLine is a record as JSON while it is being written; zero values are
// left out. Its first byte is a comma too many.
type recordLine []byte

func (l recordLine) key(name string) recordLine {
	l = append(l, ',', '"')
	l = append(l, name...)
	return append(l, '"', ':')
}

func (l recordLine) number(name string, v int64) recordLine {
	if v == 0 {
		return l
	}
	return strconv.AppendInt(l.key(name), v, 10)
}

func (l recordLine) flag(name string, v bool) recordLine {
	if !v {
		return l
	}
	return append(l.key(name), "true"...)
}

func (l recordLine) text(name, v string) recordLine {
	if v == "" {
		return l
	}
	l = l.key(name)
	for i := range len(v) {
		if c := v[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(v) // cannot fail
			return append(l, quoted...)
		}
	}
	l = append(append(l, '"'), v...)
	return append(l, '"')
}

// A journal is the file of records. It is only ever appended to, save that now
// and then what no longer matters is left out.
type journal struct {
	path string
	sync bool

	// mu guards the fields below and orders what is written, so it is held across
	// writes to the file. Nobody takes another lock under it.
	mu      sync.Mutex
	file    *os.File // nil once closed
	size    int64
	compact int64  // the size at which it is compacted
	waiting []byte // what could not be written yet
	failing bool   // the last write failed
}

const (
	// compactLeast is the size below which a journal is left as it is.
	compactLeast = 1 << 20
	// maxWaiting bounds what is kept while the journal cannot be written.
	maxWaiting = 1 << 20
)

// write appends records. After an error of the write they wait, to be written
// before the next ones; after one of the sync or of a compaction they are in the
// file. It is returned once, until a write succeeds again.
func (jl *journal) write(rs ...record) error {
	var lines []byte
	for _, r := range rs {
		lines = append(lines, r.encode()...)
	}
	jl.mu.Lock()
	defer jl.mu.Unlock()
	if jl.file == nil {
		return nil
	}
	err := jl.append(lines)
	if err == nil && jl.size > jl.compact {
		if err = jl.rewrite(); err != nil {
			err = fmt.Errorf("the journal cannot be compacted: %w", err)
		}
	}
	again := jl.failing
	jl.failing = err != nil
	if again {
		return nil
	}
	return err
}

// append needs mu.
func (jl *journal) append(lines []byte) error {
	jl.waiting = append(jl.waiting, lines...)
	if removed(jl.file) {
		jl.bound()
		return errors.New("somebody removed the journal")
	}
	n, err := jl.file.Write(jl.waiting)
	if err != nil {
		if n > 0 && jl.file.Truncate(jl.size) != nil {
			jl.size += int64(n)
			jl.waiting = append([]byte("\n"), jl.waiting...) // ends the torn line
		}
		jl.bound()
		return err
	}
	jl.size += int64(n)
	if jl.waiting = jl.waiting[:0]; n > compactLeast/16 {
		jl.waiting = nil
	}
	if jl.sync {
		return jl.file.Sync()
	}
	return nil
}

// bound drops the oldest of what waits, if it is too much. It needs mu.
func (jl *journal) bound() {
	if over := len(jl.waiting) - maxWaiting; over > 0 {
		cut := over + maxWaiting/2
		cut += bytes.IndexByte(jl.waiting[cut:], '\n') + 1
		jl.waiting = append(jl.waiting[:0], jl.waiting[cut:]...)
	}
}

// rewrite leaves out what is gone. It needs mu.
func (jl *journal) rewrite() error {
	data, err := readJournal(jl.path)
	if err != nil {
		jl.compact = 2 * jl.size
		return err
	}
	past, _ := parseRecords(data)
	return jl.replace(past)
}

// replace writes the journal anew, with the records of these jobs. It needs mu,
// or nobody else who knows the journal.
func (jl *journal) replace(past []*pastJob) error {
	var lines []byte
	for _, p := range past {
		lines = append(lines, p.lines()...)
	}
	fresh := jl.path + ".new"
	os.RemoveAll(fresh)
	f, err := openOwn(fresh, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND)
	if err == nil {
		_, err = f.Write(lines)
	}
	if err == nil && jl.sync {
		err = f.Sync()
	}
	if err == nil {
		err = os.Rename(fresh, jl.path)
	}
	jl.compact = max(compactLeast, 2*jl.size)
	if err != nil {
		if f != nil {
			f.Close()
			os.Remove(fresh)
		}
		return err
	}
	if jl.file != nil {
		jl.file.Close()
	}
	jl.file, jl.size = f, int64(len(lines))
	jl.compact = max(compactLeast, 4*jl.size)
	if jl.sync {
		return syncDir(filepath.Dir(jl.path))
	}
	return nil
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

func (jl *journal) close() {
	jl.mu.Lock()
	defer jl.mu.Unlock()
	if jl.file != nil {
		if len(jl.waiting) > 0 {
			jl.append(nil) // there may be room now
		}
		jl.file.Close()
		jl.file = nil
	}
}

func (jl *journal) isOpen() bool {
	jl.mu.Lock()
	defer jl.mu.Unlock()
	return jl.file != nil
}

// maxJournal is more than a journal grows to.
const maxJournal = 256 << 20

// readJournal returns what the journal holds; nothing if there is none.
func readJournal(path string) ([]byte, error) {
	f, err := openOwn(path, os.O_RDONLY)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxJournal))
}

// A pastJob is what a journal tells of one job.
type pastJob struct {
	begin record
	start *record
	cuts  []record
	end   *record
	told  bool
}

// lines returns the records of the job.
func (p *pastJob) lines() []byte {
	lines := p.begin.encode()
	if p.start != nil {
		lines = append(lines, p.start.encode()...)
	}
	for _, c := range p.cuts {
		lines = append(lines, c.encode()...)
	}
	if p.end != nil {
		lines = append(lines, p.end.encode()...)
	}
	if p.told {
		lines = append(lines, record{Kind: recordTold, ID: p.begin.ID, At: p.begin.At}.encode()...)
	}
	return lines
}

// parseRecords reads a journal: the jobs that are not gone, in order of their
// start, and the lines that are no records, as a host that was killed or another
// program leaves them.
func parseRecords(data []byte) (past []*pastJob, bad [][]byte) {
	byID := make(map[string]*pastJob)
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		if len(line) == 0 {
			continue
		}
		var r record
		if json.Unmarshal(line, &r) != nil || r.V != recordVersion || !validID(r.ID) {
			bad = append(bad, line)
			continue
		}
		p := byID[r.ID]
		if p == nil && r.Kind == recordBegin {
			p = &pastJob{begin: r}
			byID[r.ID] = p
			past = append(past, p)
			continue
		}
		if p == nil || !p.take(r) {
			if r.Kind != recordGone && r.Kind != recordTold {
				bad = append(bad, line)
			}
			continue
		}
		if r.Kind == recordGone {
			delete(byID, r.ID)
		}
	}
	live := past[:0]
	for _, p := range past {
		if byID[p.begin.ID] == p {
			live = append(live, p)
		}
	}
	return live, bad
}

// take adds a record to what is known of its job. It reports false if the record
// makes no sense.
func (p *pastJob) take(r record) bool {
	switch r.Kind {
	case recordBegin: // by the host that goes on with the job, which logs anew
		p.begin, p.cuts = r, nil
	case recordStart:
		p.start = &r
	case recordCut:
		if r.Cut == nil {
			return false
		}
		if k := len(p.cuts); k == 0 || *p.cuts[k-1].Cut != *r.Cut || p.cuts[k-1].Stderr != r.Stderr {
			p.cuts = append(p.cuts, r)
		}
	case recordEnd:
		if r.End == nil || !r.End.State.Ended() {
			return false
		}
		if p.end == nil { // the first one was told
			p.end = &r
		}
	case recordTold:
		p.told = p.end != nil
	case recordGone:
	default:
		return false
	}
	return true
}

// A tableLock is the mutex of the tables of jobs. What is noted while it is held
// is written to the journal once it is released, before its holder goes on: no
// lock of the tables is held across a write, and nobody is told what is not yet
// on record.
type tableLock struct {
	sync.Mutex
	write func([]record) // nil where there is no journal
	notes []record
}

// note keeps a record to be written. It needs the lock.
func (l *tableLock) note(kind, id string) {
	if l.write != nil {
		l.notes = append(l.notes, record{Kind: kind, ID: id})
	}
}

// noteGone keeps the record that a job is gone; saved says that there is a file
// with its result. It needs the lock.
func (l *tableLock) noteGone(id string, saved bool) {
	if l.write != nil {
		l.notes = append(l.notes, record{Kind: recordGone, ID: id, saved: saved})
	}
}

// resultSaved reports whether the result of an ended job may have a file of its
// own. It needs the lock of the tables.
func (j *job) resultSaved() bool { return j.end.resultFile.Size > shortResult }

// Unlock releases the lock and writes the notes.
func (l *tableLock) Unlock() {
	notes := l.notes
	l.notes = nil
	l.Mutex.Unlock()
	if len(notes) > 0 {
		l.write(notes)
	}
}
