package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// A Shell runs POSIX sh scripts on some machine. It must be safe for concurrent
// use. See [ShellCommand] for one that runs a program for it.
type Shell interface {
	// Run feeds a script to a POSIX sh on that machine and returns what it
	// printed to its standard output. ctx bounds it. After an error it is open
	// whether the script ran; what it printed is looked at all the same.
	Run(ctx context.Context, script string) ([]byte, error)
	// String names the machine in records and messages, the same for the same
	// machine. It is recorded as it is, so it should hold no secret.
	String() string
}

// ShellCommand returns a Shell that writes each script to the standard input of
// a program: of "sh", of "ssh" with a host and, where the login shell there is
// no POSIX one, "sh"; of "docker" with "exec", "-i", a container and "sh"; of
// "kubectl" with "exec", "-i", a pod, "--" and "sh". Give ssh what it needs to
// ask nothing, such as "-o", "BatchMode=yes". The program has the environment of
// the host, which a local sh hands on to its jobs, and a session of its own, so
// that a Ctrl-C does not reach it.
//
// The String of such a Shell is its argv as a JSON array.
func ShellCommand(argv ...string) Shell {
	return shellCommand(append([]string(nil), argv...))
}

type shellCommand []string

const (
	// mostPrinted is how much of the end of what a script prints is kept: the
	// largest answer has 256 KiB of output and 1 MiB of result, in base64.
	mostPrinted = 2 << 20
	// mostComplained is the same for standard error.
	mostComplained = 4 << 10
	// heldPipe is how long a pipe of a program that has ended is waited for, be
	// it that a master connection of ssh holds it.
	heldPipe = time.Second
)

func (c shellCommand) String() string {
	text, _ := json.Marshal([]string(c)) // strings always can be
	return string(text)
}

func (c shellCommand) Run(ctx context.Context, script string) ([]byte, error) {
	if err := checkArgv(c); err != nil {
		return nil, &unsentError{err}
	}
	out, complaint := NewRingBuf(0, mostPrinted), NewRingBuf(0, mostComplained)
	cmd := exec.Command(c[0], c[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(script), out, complaint
	cmd.WaitDelay = heldPipe
	err := runAlone(ctx, cmd)
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	if err != nil {
		if text := strings.TrimSpace(string(complaint.Log().Bytes())); text != "" {
			err = fmt.Errorf("%w: %s", err, readable(text, mostComplained))
		}
		err = fmt.Errorf("%s: %w", c[0], err)
	}
	return out.Log().Bytes(), err
}

// An unsentError is an error from before a script was sent.
type unsentError struct{ err error }

func (e *unsentError) Error() string { return e.err.Error() }
func (e *unsentError) Unwrap() error { return e.err }

// A machine bounds how many scripts run there at once: sshd drops connections
// when more than ten are starting. Those that stop jobs are counted apart, so
// that they wait for no others.
type machine struct {
	scripts, stops limiter
}

// scriptsAtOnce is how many scripts of either kind a machine gets at once.
const scriptsAtOnce = 4

// A farSide is what all jobs of a tree have together that run through Shells.
type farSide struct {
	mu       sync.Mutex // guards the fields below
	machines map[string]*machine
	closed   bool
	quit     chan struct{} // closed when the chores must end; nil before the first
	chores   sync.WaitGroup
}

// machine returns the machine of that name.
func (f *farSide) machine(name string) *machine {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.machines[name]
	if m == nil {
		if f.machines == nil {
			f.machines = make(map[string]*machine)
		}
		m = &machine{make(limiter, scriptsAtOnce), make(limiter, scriptsAtOnce)}
		f.machines[name] = m
	}
	return m
}

// chore does something in the background that nobody waits for but close. It
// does nothing once that has been called.
func (f *farSide) chore(bound time.Duration, do func(context.Context)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	if f.quit == nil {
		f.quit = make(chan struct{})
	}
	quit := f.quit
	f.chores.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), bound)
		defer cancel()
		go func() {
			select {
			case <-quit:
				cancel()
			case <-ctx.Done():
			}
		}()
		do(ctx)
	})
}

// choresGrace is how long close lets chores go on.
const choresGrace = 3 * time.Second

// close waits for the chores, and ends those that take too long or, if hurried
// is done, at once.
func (f *farSide) close(hurried context.Context) {
	f.mu.Lock()
	f.closed = true
	quit := f.quit
	f.mu.Unlock()
	if quit == nil {
		return
	}
	ctx, cancel := context.WithTimeout(hurried, choresGrace)
	defer cancel()
	over := context.AfterFunc(ctx, func() { close(quit) })
	f.chores.Wait()
	over()
}
