package main

import (
	"fmt"
	"time"
)

// sizes say how much of each work a round does.
type sizes struct {
	Starts  int           // of /bin/true
	Budget  time.Duration // for them, as one who polls needs long for each
	Workers int           // that start in parallel
	Wakes   int
	Flood   int64 // bytes
	Idle    int   // jobs
	Writers int   // jobs
	Lines   int   // of each of them
	Ring    int   // bytes
	Cancels int   // jobs
}

// A work is something that every contender does in the same way.
type work struct {
	name    string
	against string // what the bare alternative is
	metrics []metric
	who     []string // contenders that take part; nil is all
	// do and bare return one number for each metric. NaN means that there is
	// none.
	do   func(c contender, z sizes) ([]float64, error)
	bare func(z sizes) ([]float64, error)
}

// A metric is a number for which less is better.
type metric struct {
	title string
	unit  unit
	chart bool // whether it is in the chart
}

type unit int

const (
	seconds unit = iota
	octets
	count
)

// works returns what there is to do, titled by its size.
func works(z sizes) []work {
	return []work{
		trueWork(z), parallelWork(z),
		wakeWork("wake-young", "exit → collector woken, job younger than 100 ms", youngPauses),
		wakeWork("wake-old", "exit → collector woken, older job", oldPauses),
		floodWork(z), lookWork(z), idleWork(z), smallWork(z), ringWork(), cancelWork(z),
	}
}

// withHost calls f with a host of c for n jobs that is warm: it has run a job.
func withHost(c contender, n int, f func(host) ([]float64, error)) (values []float64, err error) {
	h, err := c.open(n)
	if err != nil {
		return nil, err
	}
	defer func() {
		if cerr := h.close(); err == nil {
			err = cerr
		}
	}()
	if _, err := runToEnd(h, "/bin/true"); err != nil {
		return nil, err
	}
	return f(h)
}

func runToEnd(h host, argv ...string) (output, error) {
	j, err := h.start(argv...)
	if err != nil {
		return output{}, err
	}
	return j.collect()
}

// startAll starts n jobs.
func startAll(h host, n int, argv ...string) ([]job, error) {
	js := make([]job, n)
	for i := range js {
		var err error
		if js[i], err = h.start(argv...); err != nil {
			return nil, fmt.Errorf("job %d of %d: %w", i+1, n, err)
		}
	}
	for _, j := range js {
		j.pid() // where a start returns before there is a process
	}
	return js, nil
}

// atOnce calls f for 0 to n-1 in goroutines of their own and returns one of
// the errors.
func atOnce(n int, f func(i int) error) error {
	errs := make(chan error, n)
	for i := range n {
		go func() { errs <- f(i) }()
	}
	var first error
	for range n {
		if err := <-errs; first == nil {
			first = err
		}
	}
	return first
}

func since(begun time.Time) float64 { return time.Since(begun).Seconds() }
