package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Each contender does each round of each work in a process of its own: it may
// crash for want of threads, leak, or fill the heap, and must not be measured
// in what another left. The processes are this program with other arguments.
const (
	emitArg  = "emit"  // print a flood
	childArg = "child" // do one round of one work
)

const childTimeout = 2 * time.Minute

// A task is what a child has to do. With no contender it is the bare
// alternative.
type task struct {
	Work, Contender string
	Sizes           sizes
}

// asChild plays the other parts of this program, if its arguments say so, and
// reports whether it has.
func asChild(args []string, w io.Writer) (bool, error) {
	if len(args) != 2 {
		return false, nil
	}
	switch args[0] {
	case emitArg:
		n, err := strconv.ParseInt(args[1], 10, 64)
		if err != nil {
			return true, err
		}
		return true, emit(w, n)
	case childArg:
		var t task
		if err := json.Unmarshal([]byte(args[1]), &t); err != nil {
			return true, err
		}
		values, err := t.do()
		if err != nil {
			return true, err
		}
		for _, v := range values {
			fmt.Fprintln(w, v) // JSON has no NaN
		}
		return true, nil
	}
	return false, nil
}

func (t task) do() ([]float64, error) {
	for _, w := range works(t.Sizes) {
		if w.name != t.Work {
			continue
		}
		if t.Contender == "" {
			return w.bare(t.Sizes)
		}
		for _, c := range contenders {
			if c.name == t.Contender {
				return w.do(c, t.Sizes)
			}
		}
	}
	return nil, fmt.Errorf("no work %q or no contender %q", t.Work, t.Contender)
}

// inChild does a task in a process of its own.
func (t task) inChild(ctx context.Context) ([]float64, error) {
	args, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, childTimeout)
	defer cancel()
	c := exec.CommandContext(ctx, self, childArg, string(args))
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	// A group of its own, so that what a crash leaves behind can be killed.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = time.Second
	if err := c.Start(); err != nil {
		return nil, err
	}
	// As long as the leader is not reaped the number of its group is no one
	// else's.
	for unix.Waitid(unix.P_PID, c.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
	if err := c.Wait(); err != nil {
		if said := reason(stderr.String()); said != "" {
			err = errors.New(said)
		}
		return nil, err
	}
	var values []float64
	for _, word := range strings.Fields(stdout.String()) {
		v, err := strconv.ParseFloat(word, 64)
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	return values, nil
}

// reason returns the line of a child's last words that says why it died.
func reason(stderr string) string {
	first, _, _ := strings.Cut(stderr, "\n")
	for line := range strings.Lines(stderr) {
		if fatal, ok := strings.CutPrefix(line, "fatal error: "); ok {
			return "crashed: " + strings.TrimSpace(fatal)
		}
	}
	return first
}
