package main

import "fmt"

// smallWork is many jobs at once that print little at a time.
func smallWork(z sizes) work {
	small := func(h host, check bool, z sizes) ([]float64, error) {
		argv := smallWriter(z.Lines)
		took, err := timed(func() error {
			js, err := startAll(h, z.Writers, argv...)
			if err != nil {
				return err
			}
			for _, j := range js {
				out, err := j.collect()
				if err != nil {
					return err
				}
				if want := int64(z.Lines * (len(smallLine) + 1)); check && out.total != want {
					return fmt.Errorf("%d bytes of %d", out.total, want)
				}
			}
			return nil
		})
		return []float64{took}, err
	}
	return work{
		name:    "small",
		against: "os/exec, output read and thrown away",
		metrics: []metric{{fmt.Sprintf("%d jobs × %s lines of 80 bytes, a write each", z.Writers, thousands(float64(z.Lines))), seconds, true}},
		do: func(c contender, z sizes) ([]float64, error) {
			return withHost(c, z.Writers, func(h host) ([]float64, error) { return small(h, true, z) })
		},
		bare: func(z sizes) ([]float64, error) {
			return withHost(contender{open: execHost(newDiscard)}, z.Writers, func(h host) ([]float64, error) {
				return small(h, false, z)
			})
		},
	}
}
