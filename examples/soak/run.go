package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/agentjobs/jobs"
)

// A run is what all workers share.
type run struct {
	s    *jobs.Supervisor
	fail func(error)

	mu        sync.Mutex // guards the fields below
	jobs      int
	kinds     map[string]int
	bytes     int64
	stopped   int
	leftovers int
	told      map[string]int // notices by id
	news      chan struct{}  // closed and replaced when told changes
}

// work runs one job after another until ctx is done.
func (r *run) work(ctx context.Context, rnd *rand.Rand) {
	for ctx.Err() == nil {
		k := kinds[rnd.IntN(len(kinds))]
		if err := r.one(k, rnd); err != nil {
			r.fail(fmt.Errorf("%s: %w", k.name, err))
			return
		}
	}
}

// one runs a job of a kind to its end, whatever the time, and checks it.
func (r *run) one(k kind, rnd *rand.Rand) error {
	ctx := context.Background()
	c := k.make(rnd)
	res, err := c.play(ctx, r.s)
	if err == nil && c.byNotice {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if err = r.awaitNotice(ctx, res.ID); err == nil {
			res, err = r.s.Collect(ctx, res.ID)
		}
	}
	if err != nil {
		return err
	}
	if err := c.check(res); err != nil {
		return fmt.Errorf("%s, %s, output %.200q: %w", res.ID, res.Outcome(), res.Output.Bytes(), err)
	}
	if pids := marked(res.ID); len(pids) > 0 {
		return fmt.Errorf("%s, %s: processes %v are left", res.ID, res.Outcome(), pids)
	}
	r.count(k, res)
	return nil
}

func (r *run) count(k kind, res jobs.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.jobs++
	r.kinds[k.name]++
	r.bytes += res.OutputTotal
	r.leftovers += len(res.Leftovers)
	if res.Reason != jobs.ReasonExit && res.Reason != jobs.ReasonSignal {
		r.stopped++
	}
}

// awaitNotice waits until the end of a job has been told by a notice.
func (r *run) awaitNotice(ctx context.Context, id string) error {
	for {
		r.mu.Lock()
		told, news := r.told[id] > 0, r.news
		r.mu.Unlock()
		if told {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return fmt.Errorf("the end of %s was never told", id)
		}
	}
}

// take is the consumer of notices.
func (r *run) take(_ context.Context, notices []jobs.Notice) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.news)
	r.news = make(chan struct{})
	for _, n := range notices {
		if r.told[n.ID]++; r.told[n.ID] > 1 {
			r.fail(fmt.Errorf("the end of %s was told %d times", n.ID, r.told[n.ID]))
		}
	}
	return nil
}

// left says what is wrong with what was left to Close.
func (r *run) left(report jobs.Report) error {
	if n := len(report.Stopped) + len(report.Kept) + len(report.HandedUp); n > 0 {
		return fmt.Errorf("%d jobs still ran at the end", n)
	}
	return nil
}

func (r *run) print(peak figures) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for _, k := range kinds {
		names = append(names, fmt.Sprintf("%d %s", r.kinds[k.name], k.name))
	}
	fmt.Printf("%d jobs: %s\n", r.jobs, strings.Join(names, ", "))
	fmt.Printf("%d MB of output, %d jobs stopped, %d leftovers killed, %d ends told by notice\n",
		r.bytes>>20, r.stopped, r.leftovers, len(r.told))
	fmt.Printf("at most %d MB resident, %d threads, %d descriptors, %d goroutines\n",
		peak.resident>>20, peak.threads, peak.descriptors, peak.goroutines)
}
