package main

import (
	"syscall"
	"time"
)

// wakeWork is how long after a job's end the one who waits for it knows. The
// job is killed from outside, which is the one moment of its end that both
// sides see.
func wakeWork(name, title string, pause func(i, n int) time.Duration) work {
	wakes := func(c contender, z sizes) ([]float64, error) {
		return withHost(c, 1, func(h host) ([]float64, error) {
			var took []float64
			for i := range z.Wakes {
				s, err := wake(h, pause(i, z.Wakes))
				if err != nil {
					return nil, err
				}
				took = append(took, s)
			}
			return []float64{median(took)}, nil
		})
	}
	return work{
		name:    name,
		against: "a goroutine in `exec.Cmd.Wait`, no pipe",
		metrics: []metric{{title, seconds, true}},
		who:     runners,
		do:      wakes,
		bare:    func(z sizes) ([]float64, error) { return wakes(contender{open: execHost(nil)}, z) },
	}
}

// youngPauses spreads the ages of jobs over 5 to 95 ms.
func youngPauses(i, n int) time.Duration {
	return 5*time.Millisecond + 90*time.Millisecond*time.Duration(i)/time.Duration(n)
}

// oldPauses spreads them over one turn of a poll.
func oldPauses(i, n int) time.Duration {
	return 150*time.Millisecond + pollEvery*time.Duration(i)/time.Duration(n)
}

func wake(h host, pause time.Duration) (float64, error) {
	j, err := h.start(sleeper...)
	if err != nil {
		return 0, err
	}
	type end struct {
		at  time.Time
		err error
	}
	ended := make(chan end)
	pid := j.pid()
	go func() {
		_, err := j.collect()
		ended <- end{time.Now(), err}
	}()
	time.Sleep(pause)
	begun := time.Now()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return 0, err
	}
	e := <-ended
	return e.at.Sub(begun).Seconds(), e.err
}

// sleeper is a job that prints nothing. It ends by itself some time, in case
// its host crashes.
var sleeper = []string{"/bin/sleep", "120"}
