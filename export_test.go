package jobs

// Drop counts n bytes as written and dropped, as large result files do.
func (b *RingBuf) Drop(n int64) { b.drop(n) }
