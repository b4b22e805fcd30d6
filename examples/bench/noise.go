package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

// Whatever else the machine does is noise. It cannot be taken out of a number,
// but it can be waited for, and told.

// awaitQuiet waits until the machine does little, but no longer than patience.
func awaitQuiet(ctx context.Context, patience time.Duration) {
	const look, little = 100 * time.Millisecond, .15
	for begun := time.Now(); time.Since(begun) < patience && ctx.Err() == nil; {
		before := machineTime()
		time.Sleep(look)
		if after := machineTime(); after.busy-before.busy < little*(after.all-before.all) {
			return
		}
	}
}

// A noiseMeter measures which part of the machine others take.
type noiseMeter struct {
	machine times
	own     float64
}

func startNoiseMeter() noiseMeter { return noiseMeter{machineTime(), ownTime()} }

// others returns the part of the processors that was busy since the start, but
// not for this program and its children.
func (m noiseMeter) others() float64 {
	now := machineTime()
	busy := now.busy - m.machine.busy - (ownTime() - m.own)
	return max(0, busy/(now.all-m.machine.all))
}

// times are seconds of all processors since the machine was started.
type times struct{ busy, all float64 }

// machineTime returns zeros where the system does not show them.
func machineTime() (t times) {
	const userHZ = 100 // of every platform that Go runs on
	data, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(data), "\n")
	for i, word := range strings.Fields(line) {
		var ticks float64
		if i == 0 || i > 8 { // the name; guests, which are counted as user too
			continue
		}
		fmt.Sscan(word, &ticks)
		t.all += ticks / userHZ
		if idle := i == 4 || i == 5; !idle { // 5 waits for a disk
			t.busy += ticks / userHZ
		}
	}
	return t
}

// ownTime returns what this program took, and all it has waited for.
func ownTime() float64 {
	var sum time.Duration
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var r syscall.Rusage
		if syscall.Getrusage(who, &r) == nil {
			sum += time.Duration(r.Utime.Nano() + r.Stime.Nano())
		}
	}
	return sum.Seconds()
}
