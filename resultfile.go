package jobs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// lookEvery is how often at most a look at a job reads its result file.
	lookEvery = 100 * time.Millisecond
	// joinLimit is how much of a result file one look adds to the output. The
	// rest is counted as dropped: a large result must not flush the log.
	joinLimit = 8 << 10
)

// A privateDir is the one directory of a supervisor that only its user can
// enter. Names in it cannot be planted by others.
type privateDir struct {
	parent string
	mu     sync.Mutex // guards path
	path   string
}

// use returns the directory and makes it if need be: on first use, and again
// if somebody removed the one named gone.
func (d *privateDir) use(gone string) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.path != gone {
		return d.path, nil
	}
	path, err := os.MkdirTemp(d.parent, "agentjobs-")
	if err == nil {
		d.path = path
	}
	return path, err
}

func (d *privateDir) remove() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.path != "" {
		os.RemoveAll(d.path)
		d.path = ""
	}
}

// A resultFile is the file that $LLM_OUTPUT names while its job lives. A nil
// *resultFile is that of a function: nothing to look at.
type resultFile struct {
	path string
	// link is a second name of the same file. Whatever the job does to path,
	// the space it takes can still be seen.
	link  string
	limit int64 // of disk; 0 or less means none
	keep  int64 // how much of the end is read as the result

	next atomic.Int64 // when a look may read again, as Unix nanoseconds
	// mu guards the fields below. It is held while a regular file is read; a
	// look that finds it taken goes on without.
	mu   sync.Mutex
	last fs.FileInfo // of the file last read
	off  int64       // how much of it has joined the output
	over bool        // final has been called
}

// newResultFile makes the empty file of a new job.
func (d *privateDir) newResultFile(id string, cfg Config) (*resultFile, error) {
	gone := ""
	for {
		dir, err := d.use(gone)
		if err != nil {
			return nil, err
		}
		path := filepath.Join(dir, id)
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if errors.Is(err, fs.ErrNotExist) && gone == "" {
			gone = dir
			continue
		}
		if err != nil {
			return nil, err
		}
		f.Close()
		r := &resultFile{path: path, link: path + ".link", limit: cfg.ResultFileLimit, keep: cfg.ResultBytes}
		if os.Link(path, r.link) != nil {
			r.link = path // some file systems have no links
		}
		return r, nil
	}
}

// look adds to log what has been written to the file since the last look.
func (r *resultFile) look(log *RingBuf) {
	if r == nil {
		return
	}
	now := time.Now().UnixNano()
	if now < r.next.Load() || !r.mu.TryLock() {
		return
	}
	defer r.mu.Unlock()
	r.next.Store(now + int64(lookEvery))
	if !r.over {
		if f := r.open(); f != nil {
			r.join(f, log)
			f.Close()
		}
	}
}

// final reads the result, lets the last of it join log, and removes the file.
func (r *resultFile) final(log *RingBuf) ResultFile {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	r.next.Store(1<<63 - 1)
	defer r.remove()
	fi, err := os.Lstat(r.path)
	if err != nil {
		return ResultFile{Problem: problemOf(err)}
	}
	if !fi.Mode().IsRegular() {
		return ResultFile{Problem: "it is no longer a regular file: " + fi.Mode().Type().String()}
	}
	if fi.Size() == 0 {
		return ResultFile{}
	}
	f := r.open()
	if f == nil {
		return ResultFile{Size: fi.Size(), Problem: "it cannot be read"}
	}
	defer f.Close()
	r.join(f, log)
	return readEnd(f, r.keep)
}

func problemOf(err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return "the job removed it"
	}
	return err.Error()
}

// open returns the file if it is a regular one with something in it to read,
// else nil. It neither follows a link nor waits for the other end of a FIFO.
func (r *resultFile) open() *os.File {
	fi, err := os.Lstat(r.path)
	if err != nil || !fi.Mode().IsRegular() {
		return nil
	}
	if r.last != nil && !os.SameFile(r.last, fi) || fi.Size() < r.off {
		r.off = 0 // replaced or rewritten: it begins anew
	}
	r.last = fi
	if fi.Size() == 0 {
		return nil
	}
	f, err := openNoFollow(r.path)
	if err != nil {
		return nil
	}
	if now, err := f.Stat(); err != nil || !now.Mode().IsRegular() {
		f.Close()
		return nil
	}
	return f
}

// join adds what is new in f to log.
func (r *resultFile) join(f *os.File, log *RingBuf) {
	fi, err := f.Stat()
	if err != nil || fi.Size() <= r.off {
		return
	}
	from := max(r.off, fi.Size()-joinLimit)
	data, _ := io.ReadAll(io.NewSectionReader(f, from, fi.Size()-from))
	log.Skip(from - r.off)
	log.Write(data)
	r.off = from + int64(len(data))
}

// readEnd reads the last keep bytes of f.
func readEnd(f *os.File, keep int64) ResultFile {
	fi, err := f.Stat()
	if err != nil {
		return ResultFile{Problem: err.Error()}
	}
	from := afterHole(f, max(0, fi.Size()-keep))
	data, err := io.ReadAll(io.NewSectionReader(f, from, fi.Size()-from))
	res := ResultFile{Data: data, Size: fi.Size(), Truncated: from > 0}
	if err != nil {
		res.Problem = err.Error()
	}
	return res
}

// remove takes both names of the file away. It is safe to call twice.
func (r *resultFile) remove() {
	os.RemoveAll(r.path) // the job may have made it a directory
	os.Remove(r.link)
}

// disk returns how much disk the job's result takes, under its name and under
// that of a file it unlinked but may still be writing.
func (r *resultFile) disk() int64 {
	used, links := diskUse(r.link)
	if links < 2 && r.link != r.path {
		more, _ := diskUse(r.path)
		used += more
	}
	return used
}

// A resultWatcher stops jobs whose result file takes too much disk. Its
// goroutine lives while there is a file to watch.
type resultWatcher struct {
	mu      sync.Mutex // guards the fields below
	files   map[*job]struct{}
	quit    chan struct{} // of the running goroutine, nil if there is none
	stopped chan struct{}
}

func (w *resultWatcher) add(j *job) {
	if j.result.limit <= 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.files == nil {
		w.files = make(map[*job]struct{})
	}
	w.files[j] = struct{}{}
	if w.quit == nil {
		w.quit, w.stopped = make(chan struct{}), make(chan struct{})
		go w.run(w.quit, w.stopped)
	}
}

func (w *resultWatcher) remove(j *job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.files, j)
}

// close ends the goroutine and waits for it.
func (w *resultWatcher) close() {
	w.mu.Lock()
	quit, stopped := w.quit, w.stopped
	w.quit = nil
	w.mu.Unlock()
	if quit != nil {
		close(quit)
		<-stopped
	}
}

func (w *resultWatcher) run(quit, stopped chan struct{}) {
	defer close(stopped)
	pause := time.NewTimer(lookEvery)
	defer pause.Stop()
	var files []*job
	for {
		select {
		case <-pause.C:
		case <-quit:
			return
		}
		if files = w.watched(files[:0]); len(files) == 0 {
			return
		}
		begun := time.Now()
		for _, j := range files {
			if j.result.disk() > j.result.limit {
				j.requestStop(ReasonOutputLimit)
			}
		}
		clear(files)
		// However many jobs there are, watching takes a twentieth of one
		// processor at most.
		pause.Reset(max(lookEvery, 20*time.Since(begun)))
	}
}

// watched appends the jobs to watch. If there is none the goroutine is over.
func (w *resultWatcher) watched(files []*job) []*job {
	w.mu.Lock()
	defer w.mu.Unlock()
	for j := range w.files {
		files = append(files, j)
	}
	if len(files) == 0 {
		w.quit = nil
	}
	return files
}
