package jobs

import "context"

// A limiter bounds how many goroutines do something at once that takes a thread
// each.
type limiter chan struct{}

var (
	// forks is for starting processes: every fork holds a thread until the
	// child has executed its program, and more of them than processors gain
	// nothing.
	forks = make(limiter, 4)
	// files is for the short system calls around a job's end. A few hundred
	// jobs that end together would otherwise take a thread each.
	files = make(limiter, 4)
)

// enter waits for its turn; the function it returns ends it.
func (l limiter) enter() (leave func()) {
	l <- struct{}{}
	return func() { <-l }
}

// enterBefore is enter, given up when ctx is done.
func (l limiter) enterBefore(ctx context.Context) (leave func(), err error) {
	select {
	case l <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := ctx.Err(); err != nil {
		<-l
		return nil, err
	}
	return func() { <-l }, nil
}
