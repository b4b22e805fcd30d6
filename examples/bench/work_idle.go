package main

import (
	"fmt"
	"runtime/debug"
	"time"
)

// idleWork is what jobs cost that run and do nothing.
func idleWork(z sizes) work {
	idle := func(c contender, z sizes) ([]float64, error) {
		return withHost(c, z.Idle, func(h host) ([]float64, error) { return idleJobs(h, z.Idle) })
	}
	return work{
		name:    "idle",
		against: "a goroutine in `exec.Cmd.Wait` for each, no pipe, no output",
		metrics: []metric{
			{fmt.Sprintf("%d idle jobs: threads of the host", z.Idle), count, true},
			{"… descriptors, for each of them", count, false},
			{"… resident memory, for each idle job", octets, true},
		},
		who:  runners,
		do:   idle,
		bare: func(z sizes) ([]float64, error) { return idle(contender{open: execHost(nil)}, z) },
	}
}

func idleJobs(h host, n int) ([]float64, error) {
	before, err := usageNow()
	if err != nil {
		return nil, err
	}
	js, err := startAll(h, n, sleeper...)
	if err != nil {
		return nil, err
	}
	time.Sleep(200 * time.Millisecond) // for whatever the last starts have begun
	after, err := usageNow()
	if err != nil {
		return nil, err
	}
	if err := atOnce(n, func(i int) error { return js[i].stop() }); err != nil {
		return nil, err
	}
	each := func(before, after int64) float64 { return float64(max(0, after-before)) / float64(n) }
	return []float64{
		float64(after.threads),
		each(before.descriptors, after.descriptors),
		each(before.resident, after.resident),
	}, nil
}

// usage is what this process takes.
type usage struct{ threads, descriptors, resident int64 }

// usageNow leaves out what is garbage.
func usageNow() (u usage, err error) {
	debug.FreeOSMemory()
	if u.threads, err = status("Threads"); err != nil {
		return u, err
	}
	if u.descriptors, err = descriptors(); err != nil {
		return u, err
	}
	u.resident, err = resident()
	return u, err
}
