package jobs

import (
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
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
// enter. Names in it cannot be planted by others. It holds two more: one whose
// files jobs are told, and one with a link to each of them, so that a job that
// removes the directory of its result does not remove what watches it.
type privateDir struct {
	parent string

	// emptying is held for writing while the directory is removed, and for
	// reading by those who put something in it after their job has ended.
	emptying sync.RWMutex

	mu    sync.Mutex // guards the fields below
	path  string
	spare []names
	last  int // number of the last file made
}

// names are the two names of one file: what the job is told, and a link that
// it does not know. Whatever the job does to path, the space that its file
// takes can still be seen.
type names struct {
	path, link string
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
	if err != nil {
		return "", err
	}
	err = errors.Join(os.Mkdir(filepath.Join(path, toldDir), 0o700), os.Mkdir(filepath.Join(path, linkDir), 0o700))
	if err != nil {
		os.RemoveAll(path)
		return "", err
	}
	if gone != "" {
		os.RemoveAll(gone) // what is left of it
	}
	d.path, d.spare = path, nil
	return path, nil
}

// The directories inside a privateDir.
const (
	toldDir = "out"
	linkDir = "links"
)

// remove takes the directory away with all that is in it.
func (d *privateDir) remove() {
	d.emptying.Lock()
	defer d.emptying.Unlock()
	d.mu.Lock()
	path := d.path
	d.path, d.spare = "", nil
	d.mu.Unlock()
	if path != "" {
		os.RemoveAll(path)
	}
}

// newFile returns an empty file that no job has known.
func (d *privateDir) newFile() (names, error) {
	defer files.enter()()
	dir, err := d.use("")
	if err != nil {
		return names{}, err
	}
	if n, ok := d.takeSpare(dir); ok {
		return n, nil
	}
	n, err := d.create(dir)
	if spoiled(err) {
		mend(dir)
		n, err = d.create(dir)
	}
	if spoiled(err) {
		if dir, err = d.use(dir); err == nil {
			n, err = d.create(dir)
		}
	}
	return n, err
}

// spoiled reports whether a job has done something to the directory.
func spoiled(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || notADirectory(err)
}

// mend makes a directory usable again that a job has locked.
func mend(dir string) {
	for _, path := range []string{dir, filepath.Join(dir, toldDir), filepath.Join(dir, linkDir)} {
		if fi, err := os.Lstat(path); err == nil && fi.IsDir() {
			os.Chmod(path, 0o700)
		}
	}
}

func (d *privateDir) create(dir string) (names, error) {
	d.mu.Lock()
	d.last++
	link := filepath.Join(dir, linkDir, strconv.Itoa(d.last))
	d.mu.Unlock()
	f, err := os.OpenFile(link, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return names{}, err
	}
	f.Close()
	n := names{path: freshPath(dir), link: link}
	err = os.Link(link, n.path)
	if spoiled(err) && !linksForbidden(err) {
		os.Remove(link)
		return names{}, err
	}
	if err != nil {
		n.path = link // some file systems have no links
	}
	return n, nil
}

// freshPath returns a path that was never used.
func freshPath(dir string) string {
	return filepath.Join(dir, toldDir, rand.Text())
}

func (d *privateDir) takeSpare(dir string) (names, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	k := len(d.spare) - 1
	if k < 0 || d.path != dir {
		return names{}, false
	}
	n := d.spare[k]
	d.spare = d.spare[:k]
	if _, err := os.Lstat(n.path); err != nil {
		d.spare = nil // somebody has emptied the directory
		return names{}, false
	}
	return n, true
}

// recycle keeps the file behind link for another job, if it is empty and
// nobody has it open: making files is most of what results cost. Otherwise the
// file goes.
func (d *privateDir) recycle(link string) {
	defer files.enter()()
	d.emptying.RLock()
	defer d.emptying.RUnlock()
	d.mu.Lock()
	dir := d.path
	d.mu.Unlock()
	n := names{path: freshPath(dir), link: link}
	if filepath.Dir(link) != filepath.Join(dir, linkDir) || !untouched(link) || os.Link(link, n.path) != nil {
		os.Remove(link)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.spare = append(d.spare, n)
}

// A resultFile is the file that $LLM_OUTPUT names while its job lives. A nil
// *resultFile is that of a function: nothing to look at.
type resultFile struct {
	names
	dir   *privateDir
	limit int64 // of disk; 0 or less means none
	keep  int64 // how much of the end is read as the result

	made time.Time
	next atomic.Int64 // when a look may read again, as nanoseconds since made
	// mu guards the fields below. It is held while a regular file is read; a
	// look that finds it taken goes on without.
	mu      sync.Mutex
	touched func()      // called when it was written to, be it over what was there
	last    fs.FileInfo // of the file last read
	off     int64       // how much of it has joined the output
	over    bool        // final has been called
}

// newResultFile makes the file of a new job.
func (d *privateDir) newResultFile(cfg Config) (*resultFile, error) {
	n, err := d.newFile()
	if err != nil {
		return nil, err
	}
	return &resultFile{made: time.Now(), names: n, dir: d, limit: cfg.ResultFileLimit, keep: cfg.ResultBytes}, nil
}

// look adds to log what has been written to the file since the last look. Unless
// it is urgent it does so at most every lookEvery, and does not wait.
func (r *resultFile) look(log *RingBuf, urgent bool) {
	now := int64(time.Since(r.made))
	switch {
	case urgent:
		r.mu.Lock()
	case now < r.next.Load() || !r.mu.TryLock():
		return
	}
	defer r.mu.Unlock()
	if r.over {
		return
	}
	r.next.Store(now + int64(lookEvery))
	before := r.last
	grown := false
	if f := r.open(); f != nil {
		grown = r.join(f, log)
		f.Close()
	}
	if grown || r.changedSince(before) {
		r.touched()
	}
}

// changedSince reports whether the file was written to since it was seen like
// before, or nil for never: it may be as short as it was, or empty for the
// moment.
func (r *resultFile) changedSince(before fs.FileInfo) bool {
	switch {
	case r.last == nil:
		return false
	case before == nil:
		return r.last.ModTime().After(r.made)
	}
	return !before.ModTime().Equal(r.last.ModTime())
}

// final reads the result, lets the last of it join log, and takes the job's
// name of the file away.
func (r *resultFile) final(log *RingBuf) ResultFile {
	defer files.enter()()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	r.next.Store(1<<63 - 1)
	defer r.unlink()
	fi, err := os.Lstat(r.path)
	if err != nil {
		return ResultFile{Problem: problemOf(err)}
	}
	if !fi.Mode().IsRegular() {
		return ResultFile{Problem: "the result file is no longer a regular file: " + fi.Mode().Type().String()}
	}
	if fi.Size() == 0 {
		return ResultFile{}
	}
	f := r.open()
	if f == nil {
		return ResultFile{Size: fi.Size(), Problem: "the result file cannot be read"}
	}
	defer f.Close()
	r.join(f, log)
	return readEnd(f, r.keep)
}

func problemOf(err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return "the job removed its result file"
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

// join adds what is new in f to log, and reports whether there was anything.
func (r *resultFile) join(f *os.File, log *RingBuf) bool {
	fi, err := f.Stat()
	if err != nil || fi.Size() <= r.off {
		return false
	}
	from := max(r.off, fi.Size()-joinLimit)
	data, _ := io.ReadAll(io.NewSectionReader(f, from, fi.Size()-from))
	log.drop(from - r.off)
	log.Write(data)
	r.off = from + int64(len(data))
	return true
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

// unlink takes the job's name of the file away.
func (r *resultFile) unlink() {
	if os.Remove(r.path) != nil {
		os.RemoveAll(r.path) // the job has made it a directory, or removed it
	}
}

// release gives up what is left of the file once the job's end is told.
func (r *resultFile) release() {
	if r.path != r.link {
		r.dir.recycle(r.link)
	}
}

// disk returns how much disk the job's result takes, under its name and under
// that of a file it unlinked but may still be writing.
func (r *resultFile) disk() int64 {
	used, file := diskUse(r.link)
	if more, other := diskUse(r.path); other != file {
		used += more
	}
	return used
}

// A resultWatcher stops jobs whose result file takes too much disk, and lets
// those who wait for output see what is written to the file. Its goroutine
// lives while there is a file to watch.
type resultWatcher struct {
	mu      sync.Mutex // guards the fields below
	files   map[*job]struct{}
	quit    chan struct{} // of the running goroutine, nil if there is none
	stopped chan struct{}
}

func (w *resultWatcher) add(j *job) {
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
			if j.result.limit > 0 && j.result.disk() > j.result.limit {
				j.requestStop(ReasonOutputLimit)
			}
			j.flushLogs() // with what joined from the file
			if j.scanners.Load() > 0 {
				j.lookAtResult(false)
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
