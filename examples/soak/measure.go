package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/agentjobs/jobs"
)

// figures are what this process takes.
type figures struct {
	resident, heap                   int64
	threads, descriptors, goroutines int
}

func measure() figures {
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	f := figures{heap: int64(mem.HeapInuse), goroutines: runtime.NumGoroutine()}
	if statm, err := os.ReadFile("/proc/self/statm"); err == nil {
		pages, _ := strconv.ParseInt(strings.Fields(string(statm))[1], 10, 64)
		f.resident = pages * int64(os.Getpagesize())
	}
	f.threads = entries("/proc/self/task")
	f.descriptors = entries("/proc/self/fd")
	return f
}

func entries(dir string) int {
	names, _ := os.ReadDir(dir)
	return len(names)
}

// watchPeak measures until ctx is done and then gives the most it has seen.
func watchPeak(ctx context.Context, peak figures) <-chan figures {
	done := make(chan figures, 1)
	go func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			now := measure()
			peak.resident = max(peak.resident, now.resident)
			peak.threads = max(peak.threads, now.threads)
			peak.descriptors = max(peak.descriptors, now.descriptors)
			peak.goroutines = max(peak.goroutines, now.goroutines)
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
		done <- peak
	}()
	return done
}

// back says what has not come back to where it was.
func back(before figures) error {
	var now figures
	for range 500 { // goroutines end a moment after what they did is seen
		runtime.GC()
		now = measure()
		if now.goroutines <= before.goroutines+2 && now.descriptors <= before.descriptors+3 && now.heap <= before.heap+(8<<20) {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("not given back: %+v before, %+v now", before, now)
}

// marked returns the live processes of a job, wherever they went.
func marked(id string) []int {
	var pids []int
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		env, err := os.ReadFile(file)
		if err != nil || !strings.Contains("\x00"+string(env), "\x00"+jobs.EnvJob+"=") || !strings.Contains(string(env), id) {
			continue
		}
		if pid, _ := strconv.Atoi(strings.Split(file, "/")[2]); pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}
