package jobs

import (
	"context"
	"path/filepath"
	"time"
)

// begin starts a job, or finds the live one with the same key; then mine is
// false. With waiting set somebody is about to tell the job's end, as by
// expect.
func (s *Supervisor) begin(ctx context.Context, spec Spec, waiting bool) (j *job, mine bool, err error) {
	if s.cfg.Disabled {
		return nil, false, ErrDisabled
	}
	if err := spec.check(); err != nil {
		return nil, false, err
	}
	if err := ctx.Err(); err != nil {
		return nil, false, err
	}
	launched := false // also if the host's code ends the goroutine
	if spec.Key != "" {
		holder, keyErr := s.claimKey(ctx, spec.Key, waiting)
		if holder != nil || keyErr != nil {
			return holder, false, keyErr
		}
		defer func() {
			if err != nil || !launched {
				s.releaseKey(spec.Key)
			}
		}()
	}
	id, err := s.admit()
	if err != nil {
		return nil, false, err
	}
	defer func() {
		if !launched {
			s.dismiss()
		}
	}()
	j = newJob(s, id, spec)
	if waiting {
		j.waiters, j.foreground = 1, true
	}
	if s.store != nil {
		j.command = redact(spec.Argv)
	}
	j.recordBegin()
	defer func(begun *job) {
		if !launched {
			begun.recordFailure()
		}
	}(j)
	j.work, err = s.launch(ctx, j, spec)
	if err != nil {
		return nil, false, err
	}
	launched = true
	j.recordStart()
	return j, true, s.register(j)
}

// launch makes the work of a job begin.
func (s *Supervisor) launch(ctx context.Context, j *job, spec Spec) (work, error) {
	if spec.Func != nil {
		return newFunction(ctx, spec.Func), nil
	}
	if spec.Shell != nil {
		return startRemote(ctx, j, spec)
	}
	return startProcess(ctx, j, spec)
}

// admit takes a slot for a job that is about to start, here and in every
// supervisor above.
func (s *Supervisor) admit() (id string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reg.closing {
		return "", ErrClosed
	}
	if s.memory.left.Load() < s.cfg.OutputMemory/2 {
		s.top.evict(time.Now())
	}
	for o := s; o != nil; o = o.parent {
		if o.reg.slots >= o.reg.maxRunning {
			return "", &CapacityError{Running: o.reg.slots, MaxRunning: o.reg.maxRunning, Shared: o != s}
		}
	}
	s.takeSlots(1)
	s.reg.live++
	return s.newID(), nil
}

// evict forgets what is too old, here and below, which gives its memory back.
// It needs mu.
func (s *Supervisor) evict(now time.Time) {
	s.reg.evict(now)
	for c := range s.children {
		c.evict(now)
	}
}

// takeSlots changes the number of slots taken here and above. It needs mu.
func (s *Supervisor) takeSlots(n int) {
	for o := s; o != nil; o = o.parent {
		o.reg.slots += n
	}
}

// dismiss gives back the slot of a job that could not be started.
func (s *Supervisor) dismiss() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takeSlots(-1)
	s.reg.live--
	s.idle.Broadcast()
}

// register enters a job whose work has begun. If Close has begun meanwhile the
// job is killed and the start refused; nobody has learned its id.
func (s *Supervisor) register(j *job) error {
	s.mu.Lock()
	j.refused = s.reg.closing
	if !j.refused {
		s.enter(j)
		s.reg.setKey(j)
	}
	j.setTimers()
	s.mu.Unlock()
	if j.result != nil {
		s.watcher.add(j)
	}
	go j.live()
	if j.refused {
		j.requestStop(ReasonShutdown)
		j.hurry()
		<-j.done
		j.forgetOutput()
		j.recordFailure()
		return ErrClosed
	}
	return nil
}

// setTimers arms the limits on time. It needs Supervisor.mu.
func (j *job) setTimers() {
	if j.timeout > 0 {
		left := max(0, j.timeout-time.Since(j.started)) // an earlier host may have started it
		j.expiry = time.AfterFunc(left, j.stopIfOverdue)
	}
	if j.idleAfter > 0 {
		j.idleCheck = time.AfterFunc(j.idleAfter, j.stopIfIdle)
	}
}

func newJob(s *Supervisor, id string, spec Spec) *job {
	j := &job{
		s:          s.shared,
		cfg:        s.cfg,
		owner:      s,
		id:         id,
		tool:       spec.toolName(),
		tag:        spec.Tag,
		trust:      spec.Trust,
		key:        spec.Key,
		leftovers:  spec.Leftovers,
		onOwnerEnd: spec.ownerEnd(),
		logFull:    spec.LogFull,
		limit:      max(spec.OutputLimit, 0),
		timeout:    spec.Timeout,
		idleAfter:  spec.IdleTimeout,
		exited:     make(chan struct{}),
		done:       make(chan struct{}),
	}
	if spec.Shell != nil {
		j.shell = shellName(spec.Shell)
	}
	j.out = j.newLog()
	if spec.SplitStderr {
		j.errOut = j.newLog()
	}
	if j.timeout == 0 && spec.Func == nil {
		j.timeout = s.cfg.Timeout
	}
	j.hurried, j.hurry = context.WithCancel(context.Background())
	j.started = time.Now()
	return j
}

func (s Spec) toolName() string {
	switch {
	case s.Tool != "":
		return s.Tool
	case len(s.Argv) > 0:
		return filepath.Base(s.Argv[0])
	}
	return "func"
}

// newLog returns an empty log of the job.
func (j *job) newLog() *RingBuf {
	log := NewRingBuf(j.cfg.HeadBytes, j.cfg.TailBytes)
	log.share = &j.s.memory
	if j.cfg.KillOverMemory {
		log.short = func() { j.requestStop(ReasonOutputLimit) }
	}
	return log
}
