package jobs

import "sync/atomic"

// A budget is memory that many logs take from. A nil budget has no end.
type budget struct {
	left atomic.Int64
}

// take takes n bytes, or reports false if there are not as many left. With
// force it takes them all the same.
func (b *budget) take(n int64, force bool) bool {
	if b == nil {
		return true
	}
	// Not subtracted first and given back: meanwhile others would find too little.
	for {
		left := b.left.Load()
		if left < n && !force {
			return false
		}
		if b.left.CompareAndSwap(left, left-n) {
			return true
		}
	}
}

func (b *budget) give(n int64) {
	if b != nil {
		b.left.Add(n)
	}
}
