package dashboard

import "time"

// SetPatience sets how long a page may take to read, and returns how to undo it.
func SetPatience(d time.Duration) (undo func()) {
	before := patience
	patience = d
	return func() { patience = before }
}
