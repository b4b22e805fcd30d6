package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"os/exec"
)

// floodWork is a lot of output.
func floodWork(z sizes) work {
	return work{
		name:    "flood",
		against: "the same program before `| cat >/dev/null`",
		metrics: []metric{
			{size(z.Flood) + " of output through one job", seconds, true},
			{"… how far the host's memory grew", octets, false},
		},
		do: func(c contender, z sizes) ([]float64, error) {
			return withHost(c, 1, func(h host) ([]float64, error) {
				before, err := resident()
				if err != nil {
					return nil, err
				}
				var took float64
				if took, err = timed(func() error { return flood(h, z.Flood, nil) }); err != nil {
					return nil, err
				}
				most, err := mostResident()
				return []float64{took, float64(max(0, most-before))}, err
			})
		},
		bare: func(z sizes) ([]float64, error) {
			c, err := bareFlood(z.Flood)
			if err != nil {
				return nil, err
			}
			took, err := timed(c.Run)
			return []float64{took, math.NaN()}, err
		},
	}
}

// flood runs a job that prints n bytes and checks what it left. beside, if not
// nil, is called once the job has started; what it returns is called when the
// job has been collected.
func flood(h host, n int64, beside func(job) (func() error, error)) error {
	argv, err := emitter(n)
	if err != nil {
		return err
	}
	j, err := h.start(argv...)
	if err != nil {
		return err
	}
	if beside != nil {
		finish, err := beside(j)
		if err != nil {
			return err
		}
		defer finish()
	}
	out, err := j.collect()
	if err != nil {
		return err
	}
	if out.total != n {
		return fmt.Errorf("%d bytes of %d", out.total, n)
	}
	if want := endOfFlood(n, lookSize); !bytes.HasSuffix(out.last, want) {
		return fmt.Errorf("the last %d bytes are others", len(want))
	}
	return nil
}

// emitter returns the command that prints a flood of n bytes: this program.
func emitter(n int64) ([]string, error) {
	self, err := os.Executable()
	return []string{self, emitArg, fmt.Sprint(n)}, err
}

func bareFlood(n int64) (*exec.Cmd, error) {
	argv, err := emitter(n)
	if err != nil {
		return nil, err
	}
	return exec.Command("/bin/sh", append([]string{"-c", `"$@" | cat >/dev/null`, "sh"}, argv...)...), nil
}
