package main

import (
	"fmt"
	"os/exec"
	"time"
)

func bareTrue() error { return exec.Command("/bin/true").Run() }

// trueWork is what a job costs that does nothing.
func trueWork(sizes) work {
	return work{
		name:    "true",
		against: "`exec.Command(\"/bin/true\").Run()`, output to the null device",
		metrics: []metric{{"start → collect of `/bin/true`", seconds, true}},
		who:     runners,
		do: func(c contender, z sizes) ([]float64, error) {
			return withHost(c, 1, func(h host) ([]float64, error) {
				return oneByOne(z, func() error {
					_, err := runToEnd(h, "/bin/true")
					return err
				})
			})
		},
		bare: func(z sizes) ([]float64, error) { return oneByOne(z, bareTrue) },
	}
}

func oneByOne(z sizes, f func() error) ([]float64, error) {
	var took []float64
	for all := time.Now(); len(took) < z.Starts && time.Since(all) < z.Budget; {
		begun := time.Now()
		if err := f(); err != nil {
			return nil, err
		}
		took = append(took, since(begun))
	}
	return []float64{median(took)}, nil
}

// parallelWork is the same by several goroutines at once.
func parallelWork(z sizes) work {
	return work{
		name:    "true-parallel",
		against: "the same by as many goroutines",
		metrics: []metric{{fmt.Sprintf("start → collect, %d at a time, for each job", z.Workers), seconds, true}},
		who:     runners,
		do: func(c contender, z sizes) ([]float64, error) {
			return withHost(c, z.Workers, func(h host) ([]float64, error) {
				return manyAtATime(z, func() error {
					_, err := runToEnd(h, "/bin/true")
					return err
				})
			})
		},
		bare: func(z sizes) ([]float64, error) { return manyAtATime(z, bareTrue) },
	}
}

func manyAtATime(z sizes, f func() error) ([]float64, error) {
	done := make([]int, z.Workers)
	begun := time.Now()
	err := atOnce(z.Workers, func(i int) error {
		for done[i] < max(1, z.Starts/z.Workers) && time.Since(begun) < z.Budget {
			if err := f(); err != nil {
				return err
			}
			done[i]++
		}
		return nil
	})
	took, n := since(begun), 0
	for _, k := range done {
		n += k
	}
	return []float64{took / float64(n)}, err
}
