// Quickstart plays an agent host on real work: it starts jobs in the
// background, does something else meanwhile, checks, collects, cancels a
// runaway, and proves at the end that no process is left.
//
// Run it in the root of the module:
//
//	go run ./examples/quickstart
//
// It exits with a code other than 0 if anything it shows is not true.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/agentjobs/jobs"
)

func main() {
	// Jobs have sessions of their own, so Ctrl-C does not reach them: the host
	// catches it and closes the supervisor.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "\nquickstart:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	s, err := jobs.New(jobs.Config{KillGrace: time.Second})
	if err != nil {
		return err
	}
	t := newTour(ctx, s)
	err = t.walk()
	// Whatever happened, and with a context that is not done: stop what runs.
	return errors.Join(err, t.leave(context.WithoutCancel(ctx)))
}

// summary counts the Go code of the module and writes what it found to the
// result file; what it prints is only for whoever looks meanwhile.
const summary = `
files=$(ls *.go)
for f in $files; do echo "reading $f"; done
printf '{"files": %d, "lines": %d}\n' "$(echo "$files" | wc -l)" "$(cat $files | wc -l)" >"$LLM_OUTPUT"
`

// runaway ignores SIGTERM and leaves a child in a session of its own, out of
// reach of a signal to its process group.
const runaway = `
trap '' TERM
setsid sleep 600 &
echo "$$ $!"
while :; do sleep 1; done
`

// walk is the tour. Each step prints what the host learns and checks it.
func (t *tour) walk() error {
	t.title("The agent starts four jobs, and has an id for each at once")
	vet := t.start("vet", "go", "vet", ".")
	test := t.start("test", "go", "test", "-count=1", "-run", "TestRingBuf", ".")
	count := t.start("count", "sh", "-c", summary)
	wild := t.start("runaway", "sh", "-c", runaway)
	if t.err != nil {
		return t.err
	}

	t.title("It goes on thinking: it counts the module's code itself")
	files, lines := t.countCode()

	t.title("It looks at a job; looking changes nothing")
	t.check(vet)
	t.check(wild)

	t.title("It collects results, each as soon as its job ends")
	r := t.collect(count)
	t.sameNumbers(r, files, lines)
	t.passed(t.collect(vet))
	t.passed(t.collect(test))
	t.collectedOnce(test)

	t.title("It cancels the job that will not stop: TERM, 1 s grace, KILL, proof")
	t.cancelRunaway(wild)

	t.title("Nothing is left to do")
	t.listIsEmpty(wild)
	return t.err
}
