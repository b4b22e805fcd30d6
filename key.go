package jobs

import "context"

// A keyed is a Spec.Key in use: by a live job, or by a Start under way.
type keyed struct {
	job   *job          // nil while it is being started
	ready chan struct{} // closed when that has succeeded or failed
}

func (r *registry) setKey(j *job) {
	if k := r.keys[j.key]; k != nil {
		k.job = j
		close(k.ready)
	}
}

// resetKey gives a live job its key back, unless that is taken.
func (r *registry) resetKey(j *job) {
	if j.key != "" && !j.ended && r.keys[j.key] == nil {
		r.keys[j.key] = &keyed{ready: make(chan struct{})}
		r.setKey(j)
	}
}

// dropKey makes the key of a job that has ended, or gone elsewhere, free.
func (r *registry) dropKey(j *job) {
	if k := r.keys[j.key]; k != nil && k.job == j {
		delete(r.keys, j.key)
	}
}

// claimKey returns the live job with the key. If there is none the key is the
// caller's, who starts the job and then calls registry.setKey or releaseKey; a
// second caller waits for that.
func (s *Supervisor) claimKey(ctx context.Context, key string, waiting bool) (*job, error) {
	for {
		j, starting := s.keyHolder(key, waiting)
		if starting == nil {
			return j, nil
		}
		select {
		case <-starting:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// keyHolder returns the job that has the key, or a channel that is closed when
// the Start that has it is done. If it returns neither, the key is claimed.
func (s *Supervisor) keyHolder(key string, waiting bool) (j *job, starting <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.reg.keys[key]
	switch {
	case k == nil:
		s.reg.keys[key] = &keyed{ready: make(chan struct{})}
	case k.job == nil:
		return nil, k.ready
	case waiting:
		j = k.job
		j.waiters++
	default:
		j = k.job
		j.found = true
	}
	return j, nil
}

// releaseKey gives up a claimed key whose job did not start.
func (s *Supervisor) releaseKey(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.reg.keys[key]; k != nil && k.job == nil {
		close(k.ready)
		delete(s.reg.keys, key)
	}
}
