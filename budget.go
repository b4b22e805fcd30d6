package jobs

import "sync/atomic"

// A budget is memory that many logs take from. A nil budget has no end.
type budget struct {
	left atomic.Int64
}

// take takes n bytes, or reports false if there are not as many left. With
// force it takes them all the same.
func (b *budget) take(n int64, force bool) bool {
	if b == nil || b.left.Add(-n) >= 0 || force {
		return true
	}
	b.left.Add(n)
	return false
}

func (b *budget) give(n int64) {
	if b != nil {
		b.left.Add(n)
	}
}
