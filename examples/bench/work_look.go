package main

import (
	"fmt"
	"sync"
	"time"
)

// lookWork is a look at the end of what a job prints while it prints a lot.
func lookWork(z sizes) work {
	return work{
		name:    "look",
		against: "a copy of as much from memory, under a mutex, while the flood goes through `cat`",
		metrics: []metric{
			{"last 4 KiB, while " + size(z.Flood) + " flows", seconds, true},
			{"… the slowest look of a hundred", seconds, false},
		},
		do: func(c contender, z sizes) ([]float64, error) {
			return withHost(c, 1, func(h host) ([]float64, error) {
				var l *looker
				err := flood(h, z.Flood, func(j job) (func() error, error) {
					l = startLooker(j.look)
					return l.stop, nil
				})
				if err != nil {
					return nil, err
				}
				return l.result()
			})
		},
		bare: func(z sizes) ([]float64, error) {
			c, err := bareFlood(z.Flood)
			if err != nil {
				return nil, err
			}
			var mu sync.Mutex
			l := startLooker(func(p []byte) ([]byte, error) {
				mu.Lock()
				defer mu.Unlock()
				return p[:copy(p, block)], nil
			})
			err = c.Run()
			l.stop()
			if err != nil {
				return nil, err
			}
			return l.result()
		},
	}
}

// A looker looks a thousand times a second.
type looker struct {
	quit, done chan struct{}
	took       []float64
	err        error
}

func startLooker(look func([]byte) ([]byte, error)) *looker {
	l := &looker{quit: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(l.done)
		buf := make([]byte, lookSize)
		for tick := time.Tick(time.Millisecond); ; {
			select {
			case <-l.quit:
				return
			case <-tick:
			}
			begun := time.Now()
			p, err := look(buf)
			took := since(begun)
			if err != nil {
				l.err = err
				return
			}
			// Before the first page there is nothing to compare.
			if len(p) == lookSize {
				l.took = append(l.took, took)
			}
		}
	}()
	return l
}

func (l *looker) stop() error {
	close(l.quit)
	<-l.done
	return l.err
}

func (l *looker) result() ([]float64, error) {
	if len(l.took) == 0 {
		return nil, fmt.Errorf("the flood was over before the first look")
	}
	return []float64{median(l.took), quantile(l.took, .99)}, l.err
}
