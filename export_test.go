package jobs

// Drop counts n bytes as written and dropped, as large result files do.
func (b *RingBuf) Drop(n int64) { b.drop(n) }

// Resume takes up a job that runs elsewhere under an id known from before.
func (s *Supervisor) Resume(shell Shell, id string) error {
	w, err := newRemote(&s.far, shell, id)
	if err != nil {
		return err
	}
	if _, err := s.admit(); err != nil {
		return err
	}
	j := newJob(s, id, Spec{Shell: shell, Argv: []string{"resumed"}})
	j.work = w
	return s.register(j)
}
