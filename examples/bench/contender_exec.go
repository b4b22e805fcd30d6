package main

import (
	"errors"
	"os/exec"
	"syscall"
)

// execHost returns how to open a host that is os/exec with a store as the
// command's output. With no store the output goes to the null device.
func execHost(newStore func() store) func(int) (host, error) {
	return func(int) (host, error) { return exechost{newStore}, nil }
}

type exechost struct{ newStore func() store }

func (h exechost) start(argv ...string) (job, error) {
	j := &execJob{cmd: exec.Command(argv[0], argv[1:]...), done: make(chan struct{})}
	if h.newStore != nil {
		j.out = h.newStore()
		j.cmd.Stdout, j.cmd.Stderr = j.out, j.out // one pipe, as they are equal
	}
	if err := j.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(j.done)
		// A job that was killed has ended too.
		if err := j.cmd.Wait(); !errors.As(err, new(*exec.ExitError)) {
			j.err = err
		}
	}()
	return j, nil
}

func (exechost) close() error { return nil }

type execJob struct {
	cmd  *exec.Cmd
	out  store
	done chan struct{} // closed when err is set
	err  error
}

func (j *execJob) pid() int { return j.cmd.Process.Pid }

func (j *execJob) look(p []byte) ([]byte, error) { return j.out.last(p), nil }

func (j *execJob) collect() (output, error) {
	<-j.done
	if j.err != nil || j.out == nil {
		return output{}, j.err
	}
	return output{j.out.total(), j.out.last(make([]byte, lookSize))}, nil
}

func (j *execJob) stop() error {
	if err := j.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	<-j.done
	return j.err
}
