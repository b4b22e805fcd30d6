package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"time"
)

// A row is one metric of one work with what was measured of it.
type row struct {
	metric
	against string
	bare    cell
	cells   []cell // by contender, in their order
}

// A cell is what was measured of one contender.
type cell struct {
	took   bool    // it took part
	value  float64 // the median of the rounds
	ratio  float64 // of value to that of the bare alternative
	failed string  // why there is no value
	rounds []float64
}

// measure does all works, round by round, and the contenders by turns within
// each: what slows the machine for a while slows all of them.
//
// patience is how long each turn waits for a quiet machine.
func measure(ctx context.Context, works []work, z sizes, rounds int, patience time.Duration, progress io.Writer) ([]row, error) {
	var rows []row
	for _, w := range works {
		rs := newRows(w)
		for round := range rounds {
			fmt.Fprintf(progress, "%s: round %d of %d\n", w.name, round+1, rounds)
			// Each round another one begins.
			n := len(contenders) + 1
			for turn := range n {
				i := (turn + round) % n
				awaitQuiet(ctx, patience)
				w.measure(ctx, z, i, rs)
				if ctx.Err() != nil {
					return nil, ctx.Err()
				}
			}
		}
		for i := range rs {
			rs[i].finish()
		}
		rows = append(rows, rs...)
	}
	return rows, nil
}

func newRows(w work) []row {
	rows := make([]row, len(w.metrics))
	for i, m := range w.metrics {
		rows[i] = row{metric: m, against: w.against, cells: make([]cell, len(contenders))}
		rows[i].bare.took = true
		for _, c := range named(w.who) {
			for k := range contenders {
				if contenders[k].name == c.name {
					rows[i].cells[k].took = true
				}
			}
		}
	}
	return rows
}

// measure does one round of a work: by the bare alternative if i is 0, else by
// contender i-1. Who has failed is not asked again.
func (w work) measure(ctx context.Context, z sizes, i int, rows []row) {
	cellOf := func(r *row) *cell {
		if i == 0 {
			return &r.bare
		}
		return &r.cells[i-1]
	}
	if c := cellOf(&rows[0]); !c.took || c.failed != "" {
		return
	}
	t := task{Work: w.name, Sizes: z}
	if i > 0 {
		t.Contender = contenders[i-1].name
	}
	values, err := t.inChild(ctx)
	if err == nil && len(values) != len(rows) {
		err = fmt.Errorf("%d numbers for %d metrics", len(values), len(rows))
	}
	for k := range rows {
		c := cellOf(&rows[k])
		if err != nil {
			c.failed = err.Error()
		} else {
			c.rounds = append(c.rounds, values[k])
		}
	}
}

// finish makes medians of rounds.
func (r *row) finish() {
	r.bare.finish(math.NaN())
	for i := range r.cells {
		r.cells[i].finish(r.bare.value)
	}
}

func (c *cell) finish(bare float64) {
	c.value = math.NaN()
	if c.took && c.failed == "" {
		c.value = median(c.rounds)
	}
	c.ratio = c.value / bare // NaN if one of them is
}

// spread returns how far the rounds of the bare alternative were apart, as a
// part of their median.
func (r row) spread() float64 {
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, v := range r.bare.rounds {
		lo, hi = min(lo, v), max(hi, v)
	}
	return (hi - lo) / r.bare.value
}
