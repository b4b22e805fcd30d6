package main

import (
	"slices"
	"time"
)

func median(values []float64) float64 { return quantile(values, .5) }

// quantile returns the value below which the part q of the values is.
func quantile(values []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func timed(f func() error) (float64, error) {
	begun := time.Now()
	err := f()
	return since(begun), err
}
