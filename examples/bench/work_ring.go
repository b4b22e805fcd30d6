package main

import (
	"bytes"
	"fmt"
	"time"
)

var ringChunks = []int{4 << 10, 1 << 10}

// ringWork is the memory alone: no process, no pipe.
func ringWork() work {
	return work{
		name:    "ring",
		against: "a `copy` to the next place of a 64 KiB slice",
		metrics: []metric{
			{"write of 4 KiB to the store", seconds, true},
			{"write of 1 KiB to the store", seconds, true},
		},
		do: func(c contender, z sizes) ([]float64, error) {
			return eachChunk(func(chunk int) (float64, error) {
				s := c.store()
				took := writes(z.Ring, chunk, func(p []byte) { s.Write(p) })
				n := z.Ring / chunk * chunk
				got := s.last(make([]byte, chunk))
				if want := endOfFlood(int64(n), chunk); s.total() != int64(n) || !bytes.Equal(got, want) {
					return 0, fmt.Errorf("%d bytes of %d, or not the last ones", s.total(), n)
				}
				return took, nil
			})
		},
		bare: func(z sizes) ([]float64, error) {
			return eachChunk(func(chunk int) (float64, error) {
				mem, off := make([]byte, ringSize), 0
				return writes(z.Ring, chunk, func(p []byte) {
					copy(mem[off:], p)
					off = (off + len(p)) % len(mem)
				}), nil
			})
		},
	}
}

// eachChunk returns the median of a few calls of f for each size of a chunk: a
// call is short, so one interruption would double it.
func eachChunk(f func(chunk int) (float64, error)) ([]float64, error) {
	var values []float64
	for _, chunk := range ringChunks {
		var took []float64
		for range 5 {
			s, err := f(chunk)
			if err != nil {
				return nil, err
			}
			took = append(took, s)
		}
		values = append(values, median(took))
	}
	return values, nil
}

// writes writes a flood of n bytes in chunks and returns what one chunk took.
func writes(n, chunk int, write func([]byte)) float64 {
	calls := n / chunk
	begun := time.Now()
	for i := range calls {
		at := i * chunk % len(block)
		write(block[at : at+chunk])
	}
	return since(begun) / float64(calls)
}
