// Soak runs random jobs of many kinds for a while and checks every end: state,
// reason, exit code, each byte of output, and that no process is left. At the
// end it checks that memory, goroutines, threads and descriptors are back where
// they were, and prints what it did.
//
//	go run ./examples/soak -for 15m
//
// It exits with a code other than 0 at the first end that is not as it must be.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/agentjobs/jobs"
)

func main() {
	length := flag.Duration("for", time.Minute, "how long to run")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the random choices")
	workers := flag.Int("workers", 8, "how many jobs to run at once")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, *length)
	defer cancel()
	fmt.Printf("seed %d, %d workers, %v\n", *seed, *workers, *length)
	if err := soak(ctx, *seed, *workers); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

// soak runs jobs until ctx is done or something is wrong.
func soak(ctx context.Context, seed uint64, workers int) error {
	before := measure()
	s, err := jobs.New(jobs.Config{MaxRunning: 4 * workers, KillGrace: time.Second, DrainGrace: 5 * time.Second})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	r := &run{s: s, fail: cancel, kinds: make(map[string]int), told: make(map[string]int), news: make(chan struct{})}
	var all sync.WaitGroup
	for n := range workers {
		all.Go(func() { r.work(ctx, rand.New(rand.NewPCG(seed, uint64(n)))) })
	}
	told := make(chan struct{})
	go func() {
		defer close(told)
		s.Deliver(ctx, r.take)
	}()
	peak := watchPeak(ctx, before)
	all.Wait()
	err = context.Cause(ctx)
	cancel(nil)
	<-told
	r.take(ctx, s.Drain())
	report, closeErr := s.Close(context.WithoutCancel(ctx))
	err = errors.Join(unlessDone(err), closeErr, r.left(report), back(before))
	r.print(<-peak)
	return err
}

// unlessDone returns err unless it says no more than that the time is over.
func unlessDone(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
