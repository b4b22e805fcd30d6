//go:build !linux

package jobs

func bootID() string { return "" }

func bootTicks() uint64 { return 0 }

// orphans finds nothing: only Linux shows which processes were a job's.
func (*host) orphans(*pastJob) tree { return nil }
