package main

import (
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// pollHost is written here in the manner of older systems: it reads pipes in
// chunks of 1 KiB, feeds a ring byte by byte, and asks five times a second
// whether the process has ended.
type pollHost struct{}

const (
	pollChunk = 1 << 10
	pollEvery = 200 * time.Millisecond
)

func openPoll(int) (host, error) { return pollHost{}, nil }

func (pollHost) start(argv ...string) (job, error) {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return nil, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	p, err := os.StartProcess(path, argv, &os.ProcAttr{Files: []*os.File{null, w, w}})
	if err != nil {
		r.Close()
		return nil, err
	}
	j := &pollJob{id: p.Pid, out: newByteRing(), done: make(chan struct{})}
	p.Release() // the poll reaps it by number
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer r.Close()
		buf := make([]byte, pollChunk)
		for {
			n, err := r.Read(buf)
			j.out.Write(buf[:n])
			if err != nil {
				return
			}
		}
	}()
	go func() {
		defer close(j.done)
		j.err = pollEnd(j.id)
		<-read
	}()
	return j, nil
}

// pollEnd waits for the end of a child and reaps it.
func pollEnd(pid int) error {
	for range time.Tick(pollEvery) {
		var status syscall.WaitStatus
		switch ended, err := syscall.Wait4(pid, &status, syscall.WNOHANG, nil); {
		case ended == pid:
			return nil
		case err != nil && err != syscall.EINTR:
			return err
		}
	}
	return nil // a tick never ends
}

func (pollHost) close() error { return nil }

type pollJob struct {
	id   int
	out  store
	done chan struct{} // closed when err is set
	err  error
}

func (j *pollJob) pid() int { return j.id }

func (j *pollJob) look(p []byte) ([]byte, error) { return j.out.last(p), nil }

func (j *pollJob) collect() (output, error) {
	<-j.done
	return output{j.out.total(), j.out.last(make([]byte, lookSize))}, j.err
}

func (j *pollJob) stop() error {
	if err := syscall.Kill(j.id, syscall.SIGTERM); err != nil {
		return err
	}
	<-j.done
	return j.err
}

// byteRing is a ring that takes one byte at a time.
type byteRing struct {
	mu      sync.Mutex
	mem     []byte
	written int
}

func newByteRing() store { return &byteRing{mem: make([]byte, ringSize)} }

func (b *byteRing) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range p {
		b.mem[b.written%len(b.mem)] = c
		b.written++
	}
	return len(p), nil
}

func (b *byteRing) total() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return int64(b.written)
}

func (b *byteRing) last(p []byte) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	p = p[:min(len(p), b.written, len(b.mem))]
	for i := range p {
		p[i] = b.mem[(b.written-len(p)+i)%len(b.mem)]
	}
	return p
}
