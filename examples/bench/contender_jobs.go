package main

import (
	"context"
	"errors"

	"github.com/agentjobs/jobs"
)

// jobsHost is the library, with its defaults.
type jobsHost struct{ s *jobs.Supervisor }

func openJobs(n int) (host, error) {
	s, err := jobs.New(jobs.Config{MaxRunning: n})
	if err != nil {
		return nil, err
	}
	return jobsHost{s}, nil
}

func (h jobsHost) start(argv ...string) (job, error) {
	snap, err := h.s.Start(context.Background(), jobs.Spec{Argv: argv})
	if err != nil {
		return nil, err
	}
	return jobsJob{h.s, snap}, nil
}

func (h jobsHost) close() error {
	_, err := h.s.Close(context.Background())
	return err
}

type jobsJob struct {
	s    *jobs.Supervisor
	snap jobs.Snapshot
}

func (j jobsJob) pid() int { return j.snap.PID }

func (j jobsJob) look(p []byte) ([]byte, error) {
	c, err := j.s.ReadOutput(j.snap.ID, -int64(len(p)), p)
	if errors.Is(err, jobs.ErrCollected) {
		return nil, nil // the end came between two looks
	}
	return c.Data, err
}

func (j jobsJob) collect() (output, error) {
	r, err := j.s.Collect(context.Background(), j.snap.ID)
	return output{r.OutputTotal, r.Output.Bytes()}, err
}

func (j jobsJob) stop() error {
	_, err := j.s.Cancel(context.Background(), j.snap.ID)
	return err
}

type ringBuf struct{ *jobs.RingBuf }

func newRingBuf() store {
	return ringBuf{jobs.NewRingBuf(jobs.DefaultHeadBytes, ringSize)}
}

func (b ringBuf) total() int64 {
	total, _ := b.Stats()
	return total
}

func (b ringBuf) last(p []byte) []byte {
	return b.Chunk(p, -int64(len(p))).Data
}
