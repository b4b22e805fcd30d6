package main

import (
	"fmt"
	"syscall"
	"time"
)

// cancelWork stops many jobs at once and waits until each is gone.
func cancelWork(z sizes) work {
	cancel := func(c contender, z sizes) ([]float64, error) {
		return withHost(c, z.Cancels, func(h host) ([]float64, error) { return cancelJobs(h, z.Cancels) })
	}
	return work{
		name:    "cancel",
		against: "SIGTERM and `exec.Cmd.Wait` for each, no pipe",
		metrics: []metric{{fmt.Sprintf("cancel of %d jobs at once", z.Cancels), seconds, true}},
		who:     runners,
		do:      cancel,
		bare:    func(z sizes) ([]float64, error) { return cancel(contender{open: execHost(nil)}, z) },
	}
}

func cancelJobs(h host, n int) ([]float64, error) {
	js, err := startAll(h, n, sleeper...)
	if err != nil {
		return nil, err
	}
	time.Sleep(100 * time.Millisecond) // until all of them sleep
	took, err := timed(func() error {
		return atOnce(n, func(i int) error { return js[i].stop() })
	})
	if err != nil {
		return nil, err
	}
	for _, j := range js {
		if pid := j.pid(); pid > 1 && syscall.Kill(pid, 0) != syscall.ESRCH {
			return nil, fmt.Errorf("process %d is still there", pid)
		}
	}
	return []float64{took}, nil
}
