package jobs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// A LogFull is a policy for jobs whose log file may grow no more.
type LogFull int

const (
	// CutLog lets the job go on. Its log file keeps the beginning of the output
	// and, once the job has ended, what memory kept of the end; how much is
	// missing between is written there.
	CutLog LogFull = iota
	// StopJob stops the job with [ReasonOutputLimit].
	StopJob
)

// A logCut is a place where a log file leaves something out.
type logCut struct {
	End  int64 `json:"end"`  // offset of the first byte left out
	Next int64 `json:"next"` // and of the first one after that
	Pos  int64 `json:"pos"`  // where in the file that is
}

// logTailShare is the part of a log file that is kept free for the end of a long
// output, and footerRoom what its last line may take.
const (
	logTailShare = 4
	footerRoom   = 512
	markRoom     = 100 // for the line that says what is missing
	logQueue     = 256 << 10
)

// A logFile is the file that one log of a job is streamed to. It sees what is
// written as a tap of the RingBuf; flush brings it to the disk.
type logFile struct {
	j      *job
	stderr bool
	path   string
	head   int64 // how long the header is
	most   int64 // of the stream to write while it comes

	// mu guards what has been seen and is not written yet.
	mu     sync.Mutex
	queue  []byte
	box    *[]byte // of queuePool, which queue came from; nil while there is none
	seen   int64   // offset after the last byte seen
	gaps   []logCut
	behind bool  // bytes were left out as the disk is too slow
	err    error // why the file is not whole, if something went wrong

	// writing guards the fields below. It is held across writes to the file.
	writing sync.Mutex
	file    *os.File // nil once nothing more is written
	index   logIndex
	full    bool // the stream is longer than the file may be
	made    fs.FileInfo

	announced bool // that nothing more is written
}

// leastLog is the least that a log file may take.
const leastLog = 16 << 10

func (l *logFile) name() string { return filepath.Base(l.path) }

// problem returns why the file is not whole, nil if it is, as far as it goes.
func (l *logFile) problem() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *logFile) setProblem(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
	}
}

// remove takes the file away again.
func (l *logFile) remove() {
	l.writing.Lock()
	defer l.writing.Unlock()
	if l.file != nil {
		l.file.Close()
		l.file = nil
		os.Remove(l.path)
	}
	l.j.s.store.logs.done(l.name())
}

// A logIndex says which bytes of a stream a log file holds, and where.
type logIndex struct {
	runs []logRun
	size int64 // of the file
}

type logRun struct{ off, pos, n int64 }

// open makes the file, with a header for people.
func (l *logFile) open(header string) error {
	f, err := openOwn(l.path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND)
	if err != nil {
		return err
	}
	made, err := f.Stat()
	if err == nil {
		_, err = f.WriteString(header)
	}
	if err != nil {
		f.Close()
		os.Remove(l.path)
		return err
	}
	l.file, l.made, l.head = f, made, int64(len(header))
	l.index = logIndex{runs: []logRun{{pos: l.head}}, size: l.head}
	return nil
}

// feed is called with all that is written to the log, under the lock of the
// RingBuf: it must not wait.
func (l *logFile) feed(p []byte, off int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if off > l.seen {
		l.gaps = append(l.gaps, logCut{End: l.seen, Next: off, Pos: int64(len(l.queue))})
	}
	l.seen = off + int64(len(p))
	// One piece of any size is fine: who wrote it flushes it next.
	if len(l.queue) > 0 && len(l.queue)+len(p) > logQueue {
		l.behind = true
	}
	if l.behind {
		return // for good: what comes now would be in the wrong place
	}
	if l.box == nil {
		l.box = queuePool.Get().(*[]byte)
		l.queue = (*l.box)[:0]
	}
	l.queue = append(l.queue, p...)
}

// queuePool holds buffers of queues: a job that prints nothing has none.
var queuePool = sync.Pool{New: func() any { return new([]byte) }}

func (l *logFile) gap()      {}
func (l *logFile) end(int64) {}

// take returns what waits to be written, as pieces without a gap inside, and the
// box that its buffer goes back in.
func (l *logFile) take() (data []byte, box *[]byte, gaps []logCut, behind bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	data, box, gaps, behind = l.queue, l.box, l.gaps, l.behind
	l.queue, l.box, l.gaps = nil, nil, nil
	return data, box, gaps, behind
}

// recycle gives the buffer of a queue back. A large one is not worth keeping.
func recycle(data []byte, box *[]byte) {
	if box != nil && cap(data) <= logQueue {
		*box = data
		queuePool.Put(box)
	}
}

// flush writes what has been seen. It must not be called under any other lock.
func (l *logFile) flush() {
	l.writing.Lock()
	stopped := l.flushQueue()
	l.writing.Unlock()
	if stopped {
		l.j.logStopped(l)
	}
}

// flushQueue needs writing. It reports whether nothing more will be written from
// now on.
func (l *logFile) flushQueue() (stopped bool) {
	data, box, gaps, behind := l.take()
	defer recycle(data, box)
	if l.file == nil || l.full {
		return !l.announced
	}
	done := int64(0)
	for _, g := range gaps {
		l.write(data[done:g.Pos])
		l.skip(g.End, g.Next)
		done = g.Pos
	}
	l.write(data[done:])
	if behind && l.file != nil {
		l.fail(errors.New("the disk is too slow for what the job prints"))
	}
	return (l.full || l.file == nil) && !l.announced
}

// write appends bytes of the stream to the file. It needs writing, as do all
// below.
func (l *logFile) write(p []byte) {
	if l.file == nil || l.full || len(p) == 0 {
		return
	}
	if room := l.most - l.index.size; int64(len(p)) > room {
		l.full = true
		p = p[:max(room, 0)]
	}
	if granted := l.j.s.store.logs.grant(l.name(), int64(len(p))); granted < int64(len(p)) {
		l.full = true
		p = p[:granted]
	}
	l.put(p)
}

// put writes what there is room for.
func (l *logFile) put(p []byte) {
	if l.file == nil || len(p) == 0 {
		return
	}
	last := &l.index.runs[len(l.index.runs)-1]
	n, err := l.file.Write(p)
	last.n += int64(n)
	l.index.size += int64(n)
	if err != nil {
		l.fail(err)
	}
}

// fail gives the file up.
func (l *logFile) fail(err error) {
	l.setProblem(err)
	l.file.Close()
	l.file = nil
}

// skip notes that the file leaves out what is between two offsets. It is on
// record first, so that a host that dies in between leaves no mark that would
// count as output.
func (l *logFile) skip(end, next int64) {
	if l.file == nil || l.full {
		return
	}
	mark := fmt.Sprintf("\n# %d bytes are not in this file\n", next-end)
	c := logCut{End: end, Next: next, Pos: l.index.size + int64(len(mark))}
	l.j.s.record(record{Kind: recordCut, ID: l.j.id, Stderr: l.stderr, Cut: &c})
	n, err := l.file.WriteString(mark)
	l.index.size += int64(n)
	if err != nil {
		l.fail(err)
		return
	}
	l.index.runs = append(l.index.runs, logRun{off: c.Next, pos: c.Pos})
}

// finish writes the end of the output, if the file had no room for all. It
// returns up to which offset the file goes.
func (l *logFile) finish(ring *RingBuf) (end int64) {
	l.flush()
	l.writing.Lock()
	defer l.writing.Unlock()
	if l.file != nil && l.full {
		l.full, l.most = false, l.most+l.most/(logTailShare-1)
		l.writeTail(ring.Log())
	}
	if l.file == nil {
		return l.index.end()
	}
	if err := tampered(l.file, l.index.size); err != nil {
		l.fail(err)
		l.index.runs = []logRun{{}}
	}
	return l.index.end()
}

// close writes the footer, if there is one. The end of the output is on record by
// then: a host that dies in between leaves no footer that would count as output.
func (l *logFile) close(footer string) {
	l.writing.Lock()
	if l.file != nil {
		if footer != "" {
			footer = "\n# " + footer + "\n"
		}
		n, err := l.file.WriteString(footer)
		l.index.size += int64(n)
		l.file.Close()
		l.file = nil
		l.announced = true // unless it has to be now
		if err != nil {
			l.setProblem(err)
		}
	}
	announced := l.announced
	l.writing.Unlock()
	if !announced {
		l.j.logStopped(l)
	}
	l.j.s.store.logs.done(l.name())
}

// writeTail adds what memory kept of the end, as far as there is room, and says
// what is missing before it.
func (l *logFile) writeTail(kept Log) {
	have, end := l.index.end(), kept.Total
	last := Piece{From: end}
	if k := len(kept.Pieces) - 1; k >= 0 && kept.Pieces[k].From+int64(len(kept.Pieces[k].Data)) == end {
		last = kept.Pieces[k]
	}
	from := max(have, last.From, end-max(0, l.most-l.index.size-markRoom))
	from = end - l.j.s.store.logs.grant(l.name(), end-from)
	if from > have {
		l.skip(have, from)
	}
	l.put(last.Data[from-last.From:])
}

// end returns the offset after the last byte in the file.
func (x logIndex) end() int64 {
	if len(x.runs) == 0 {
		return 0 // there never was a file
	}
	last := x.runs[len(x.runs)-1]
	return last.off + last.n
}

// find returns the first offset at or after from that the file holds, where it
// is, and how many bytes follow without a gap.
func (x logIndex) find(from int64) (off, pos, n int64) {
	for _, r := range x.runs {
		if r.off+r.n > from {
			off = max(from, r.off)
			return off, r.pos + off - r.off, r.off + r.n - off
		}
	}
	return from, 0, 0
}

// chunk reads from the offset from on into p. ok is false if there is nothing.
func (l *logFile) chunk(p []byte, from int64) (c Chunk, ok bool) {
	l.writing.Lock()
	off, pos, n := l.index.find(from)
	size := l.index.size
	l.writing.Unlock()
	if n == 0 {
		return Chunk{}, false
	}
	f, err := openOwn(l.path, os.O_RDONLY)
	if err != nil {
		return Chunk{}, false
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || fi.Size() < size || l.made != nil && !os.SameFile(fi, l.made) {
		return Chunk{}, false // somebody has cut or replaced it
	}
	p = p[:min(int64(len(p)), n)]
	got, err := f.ReadAt(p, pos)
	return Chunk{From: off, Next: off + int64(got), Dropped: off - from, Data: p[:got]}, err == nil || got > 0
}

// reach returns the first offset at or after from that the file holds, and how
// many bytes follow without a gap: 0 if there is none.
func (l *logFile) reach(from int64) (off, n int64) {
	l.writing.Lock()
	defer l.writing.Unlock()
	off, _, n = l.index.find(from)
	return off, n
}

// refill puts into the ring what it would have kept, had it seen what is in the
// file.
func (l *logFile) refill(ring *RingBuf, total int64) {
	f, err := openOwn(l.path, os.O_RDONLY)
	if err == nil {
		defer f.Close()
	}
	at := int64(0)
	copyRun := func(r logRun, from, to int64) {
		if from, to = max(from, r.off, at), min(to, r.off+r.n); f == nil || from >= to {
			return
		}
		data := make([]byte, to-from)
		n, _ := io.ReadFull(io.NewSectionReader(f, r.pos+from-r.off, to-from), data)
		ring.drop(from - at)
		ring.Write(data[:n])
		at = from + int64(n)
	}
	for _, r := range l.index.runs {
		copyRun(r, 0, int64(ring.headCap))
	}
	for _, r := range l.index.runs {
		copyRun(r, total-int64(ring.tailCap), total)
	}
	ring.drop(total - at)
}

// logDir is the directory of log files, and what they may take together.
type logDir struct {
	path   string
	budget int64
	age    time.Duration

	mu    sync.Mutex // guards the fields below
	used  int64
	live  map[string]int64 // what files that are written to were granted
	swept time.Time        // when old files were last looked for
}

// grant takes n bytes of the budget for a file, or what is left of it once old
// logs have made room.
func (d *logDir) grant(name string, n int64) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.used+n > d.budget {
		d.makeRoom(d.used+n-d.budget, time.Time{})
	}
	n = max(0, min(n, d.budget-d.used))
	d.used += n
	d.live[name] += n
	return n
}

// begin makes a file one that is written to.
func (d *logDir) begin(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.live[name] = 0
	if now := time.Now(); now.Sub(d.swept) > min(d.age, sweepLogsEvery) {
		d.swept = now
		d.makeRoom(0, now.Add(-d.age))
	}
}

// sweepLogsEvery is how often at most old files are looked for.
const sweepLogsEvery = time.Hour

// done makes a file one that may have to make room, and gives back what it was
// granted and did not take.
func (d *logDir) done(name string) {
	size := int64(0)
	if fi, err := os.Lstat(filepath.Join(d.path, name)); err == nil && fi.Mode().IsRegular() {
		size = fi.Size()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.used += size - d.live[name]
	delete(d.live, name)
}

// remove removes a file that nobody writes to.
func (d *logDir) remove(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	path := filepath.Join(d.path, name)
	if fi, err := os.Lstat(path); err == nil && os.Remove(path) == nil && fi.Mode().IsRegular() {
		d.used -= min(fi.Size(), d.used)
	}
}

// makeRoom removes the oldest files that nobody writes to, until need bytes are
// free, and all that were last written before old. It needs mu.
func (d *logDir) makeRoom(need int64, old time.Time) {
	for _, f := range d.files() {
		if _, live := d.live[f.name]; live || need <= 0 && !f.written.Before(old) {
			continue
		}
		if os.Remove(filepath.Join(d.path, f.name)) == nil {
			need -= f.size
			d.used -= min(f.size, d.used)
		}
	}
}

// count finds out what the files take, and removes those that are too many or
// too old. It runs before there is a live one.
func (d *logDir) count() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.used, d.swept = 0, time.Now()
	for _, f := range d.files() {
		d.used += f.size
	}
	d.makeRoom(d.used-d.budget, d.swept.Add(-d.age))
}

type oldLog struct {
	name    string
	size    int64
	written time.Time
}

// files lists the files, the oldest first.
func (d *logDir) files() []oldLog {
	entries, _ := os.ReadDir(d.path)
	var logs []oldLog
	for _, e := range entries {
		if fi, err := e.Info(); err == nil && fi.Mode().IsRegular() {
			logs = append(logs, oldLog{e.Name(), fi.Size(), fi.ModTime()})
		}
	}
	slices.SortFunc(logs, func(a, b oldLog) int { return a.written.Compare(b.written) })
	return logs
}
