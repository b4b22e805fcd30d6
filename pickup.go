package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"
)

// pickUp goes on with a detached job of an earlier host.
func (s *Supervisor) pickUp(p *pastJob) {
	w, err := s.findWork(p)
	switch {
	case err != nil && p.start == nil:
		s.record(record{Kind: recordGone, ID: p.begin.ID}) // nobody has its id
	case err != nil:
		p.end = &record{
			Kind: recordEnd, ID: p.begin.ID, At: time.Now(),
			End: &pastEnd{State: Lost, Reason: ReasonLost, ExitCode: -1, Err: err.Error()},
		}
		s.store.measure(p)
		s.record(*p.end)
	case p.start == nil:
		s.far.chore(strayBound, func(ctx context.Context) { w.stopStray(ctx, s.shared) })
	default:
		j := s.resume(p, w)
		s.mu.Lock()
		s.recovered.Running = append(s.recovered.Running, j.snapshot())
		s.mu.Unlock()
	}
}

// findWork returns the work of a detached job, which may run still.
func (s *Supervisor) findWork(p *pastJob) (*remote, error) {
	name := p.begin.Detached.Shell
	shell, err := s.findShell(name)
	if err != nil {
		return nil, err
	}
	if shell == nil {
		return nil, fmt.Errorf("its machine, %s, is not known here; Config.FindShell can tell what it is", readable(name, nameLimit))
	}
	return newRemote(&s.far, shell, p.begin.ID)
}

func (s *Supervisor) findShell(name string) (shell Shell, err error) {
	if s.cfg.FindShell != nil {
		err = protect(func() error {
			shell = s.cfg.FindShell(name)
			return nil
		})
	}
	var argv []string
	if shell == nil && err == nil && json.Unmarshal([]byte(name), &argv) == nil && len(argv) > 0 {
		shell = ShellCommand(argv...)
	}
	return shell, err
}

// shellName is what a Shell is on record as.
func shellName(shell Shell) (name string) {
	protect(func() error {
		name = shell.String()
		return nil
	})
	return name
}

// resume makes a job that an earlier host started a live one of s. Its output
// comes once more, from the beginning.
func (s *Supervisor) resume(p *pastJob, w *remote) *job {
	b, d := p.begin, p.begin.Detached
	j := newJob(s, b.ID, Spec{
		Tool: b.Tool, Tag: b.Tag, Trust: b.Trust, Key: d.Key, Shell: w.shell,
		Timeout: d.Timeout, IdleTimeout: d.Idle, OutputLimit: d.Limit,
		Leftovers: d.Leftovers, OnOwnerEnd: d.OwnerEnd, LogFull: d.LogFull,
	})
	j.work, j.started, j.from, j.command, j.recovered = w, b.At, b.Owner, b.Command, true
	j.noteTime() // its silence counts from now on
	s.store.logs.remove(filepath.Base(s.store.logPath(j.id, false)))
	j.recordBegin()
	s.mu.Lock()
	s.takeSlots(1)
	s.reg.live++
	s.enter(j)
	s.reg.note(j.id, ErrExpired) // once it is forgotten
	if j.from == s.name {        // another owner's key is its own
		s.reg.resetKey(j)
	}
	j.setTimers()
	s.mu.Unlock()
	poke(w.wake)
	go j.live()
	return j
}
