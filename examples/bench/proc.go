package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// resident returns how much of this process is in memory, in bytes.
func resident() (int64, error) { return statusKiB("VmRSS") }

// mostResident returns the most that ever was.
func mostResident() (int64, error) { return statusKiB("VmHWM") }

func statusKiB(field string) (int64, error) {
	n, err := status(field)
	return n << 10, err
}

// status returns a number that the system shows of this process.
func status(field string) (int64, error) {
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, rest, found := strings.Cut(string(data), "\n"+field+":")
	words := strings.Fields(rest)
	if !found || len(words) == 0 {
		return 0, fmt.Errorf("/proc/self/status has no %s", field)
	}
	return strconv.ParseInt(words[0], 10, 64)
}

func descriptors() (int64, error) {
	names, err := os.ReadDir("/proc/self/fd")
	return int64(len(names)), err
}
