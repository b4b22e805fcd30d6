//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package jobs

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"
)

// startProcess starts the process of a job: environment, result file, pipes,
// fork. On an error nothing of it stays.
func startProcess(ctx context.Context, j *job, spec Spec) (_ work, err error) {
	c := command{tool: j.tool, dir: spec.Dir}
	if c.argv, err = j.cfg.wrapped(spec.Argv); err != nil {
		return nil, c.fail(StageWrap, err, "")
	}
	base, err := j.cfg.hostEnv()
	if err != nil {
		return nil, c.fail(StageEnv, err, "")
	}
	j.result, err = j.s.dir.newResultFile(*j.cfg)
	if err != nil {
		return nil, c.explain(err)
	}
	j.result.touched = j.noteTime
	defer func() {
		if err != nil {
			j.s.leash.release(j.id)
			j.result.unlink()
			j.result.release()
		}
	}()
	c.env = environment(base, spec.Env, j.result.path, j.id)
	if err := c.find(); err != nil {
		return nil, err
	}
	if err := c.limit(spec.Limits); err != nil {
		return nil, err
	}
	if err := j.s.leash.announce(ctx, j); err != nil {
		if errors.Is(err, ctx.Err()) {
			return nil, err
		}
		return nil, c.fail(StageLeash, err, "")
	}
	p := new(process)
	stdio, err := p.streams.connect(j)
	var in *os.File
	if err == nil && spec.Input {
		in, err = j.connectInput()
	}
	if err == nil {
		p.tree, err = forkRetry(ctx, j, &c, in, stdio, p.streams.interrupt)
	}
	for _, end := range append(stdio, in) {
		end.Close()
	}
	if err != nil {
		p.streams.close()
		j.input.end()
		if errors.Is(err, ctx.Err()) {
			return nil, err
		}
		return nil, c.explain(err)
	}
	j.s.leash.hold(j.id, p.tree.pid())
	return p, nil
}

// connect makes the pipes and returns the ends that become the standard
// output and the standard error of the process. They may be the same file.
func (s *streams) connect(j *job) ([]*os.File, error) {
	var ends []*os.File
	for _, log := range []*RingBuf{j.out, j.errOut} {
		if log == nil {
			continue
		}
		p, end, err := newPump(j, log)
		if err != nil {
			return ends, err
		}
		s.pumps = append(s.pumps, p)
		ends = append(ends, end)
	}
	return ends, nil
}

// connectInput makes the pipe of the standard input and returns the end that the
// process gets.
func (j *job) connectInput() (*os.File, error) {
	r, w, err := newInputPipe()
	if err != nil {
		return nil, err
	}
	j.input = &inputPipe{j: j, w: w, turn: make(chan struct{}, 1)}
	return r, nil
}

// forkRetry starts the process; exited is called when it has exited. A program
// that is still open for writing (a script just saved, while another thread
// forks: golang/go#22315) is tried again for a tenth of a second.
func forkRetry(ctx context.Context, j *job, c *command, in *os.File, stdio []*os.File, exited func()) (tree, error) {
	for wait := time.Millisecond; ; wait *= 2 {
		t, err := fork(ctx, j, c, in, stdio, exited)
		if !errors.Is(err, syscall.ETXTBSY) || wait > 64*time.Millisecond {
			return t, err
		}
		pause := time.NewTimer(wait)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil, ctx.Err()
		}
	}
}

func fork(ctx context.Context, j *job, c *command, in *os.File, stdio []*os.File, exited func()) (tree, error) {
	leave, err := forks.enterBefore(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if in == nil {
		if in, err = j.s.host.null.open(os.DevNull); err != nil {
			return nil, err
		}
	}
	attr := &os.ProcAttr{
		Dir: c.dir,
		Env: c.env,
		// The last end twice where there is only one: one pipe for both
		// streams keeps their order.
		Files: []*os.File{in, stdio[0], stdio[len(stdio)-1]},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	}
	return j.s.host.start(c, attr, j.id, exited)
}

// A sharedFile is a file that many jobs read, opened once.
type sharedFile struct {
	mu   sync.Mutex // guards file
	file *os.File
}

func (s *sharedFile) open(path string) (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		s.file = f
	}
	return s.file, nil
}

func (s *sharedFile) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != nil {
		s.file.Close()
		s.file = nil
	}
}
