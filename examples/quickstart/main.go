// Quickstart plays a model and its host on real work. The model starts jobs in
// the background, thinks on, looks, waits, collects, is woken, and cancels a
// runaway, all by tool calls whose JSON is shown both ways; the host proves at
// the end that no process is left.
//
// Run it in the root of the module:
//
//	go run ./examples/quickstart
//
// It exits with a code other than 0 if anything it shows is not true.
package main

import (
	"context"
	"encoding/json"
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
echo "reading $(echo "$files" | wc -l) files"
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

// walk is the dialogue, turn by turn. Each step shows what the model calls and
// what it reads, and checks that it is true.
func (t *tour) walk() error {
	t.title("The model starts four jobs, and has an id for each at once")
	vet := t.start("go_vet", nil)
	test := t.start("go_test", map[string]string{"run": "TestRingBuf"})
	count := t.start("count", nil)
	wild := t.start("runaway", nil)

	t.title("It goes on thinking; meanwhile the host counts the module's code itself")
	files, lines := t.countCode()

	t.title("It looks at jobs; looking changes nothing")
	t.look(vet)
	t.look(wild)

	t.title("It collects results, each as soon as its job ends")
	t.sameNumbers(t.collect(count), files, lines)
	t.passed(t.collect(vet))
	t.passed(t.collect(test))
	t.collectedOnce(test)

	t.title("It starts a server and waits for the line that says it is ready")
	server := t.start("server", nil)
	t.awaitLine(server, "listening on :[0-9]+")
	t.stop(server)

	t.title("A foreground call takes too long and goes to the background; its end wakes the idle model")
	t.demoteAndWake()

	t.title("It cancels the job that will not stop: TERM, 1 s grace, KILL, proof")
	t.cancelRunaway(wild)

	t.title("It asks for what must not run in the background, and is told why")
	t.refused("user__ask")

	t.title("Nothing is left to do")
	t.listIsEmpty()
	return t.err
}

// resolve turns a call of one of the declared tools into what to run.
func resolve(_ context.Context, tool string, args json.RawMessage) (jobs.Spec, error) {
	var in struct{ Run string }
	if err := json.Unmarshal(args, &in); err != nil {
		return jobs.Spec{}, err
	}
	switch tool {
	case "go_vet":
		return jobs.Spec{Argv: []string{"go", "vet", "."}}, nil
	case "go_test":
		return jobs.Spec{Argv: []string{"go", "test", "-count=1", "-run", in.Run, "."}}, nil
	case "count":
		return jobs.Spec{Argv: []string{"sh", "-c", summary}}, nil
	case "server":
		return jobs.Spec{Argv: []string{"sh", "-c", "echo starting; sleep 0.2; echo listening on :8080; exec sleep 600"}}, nil
	case "runaway":
		return jobs.Spec{Argv: []string{"sh", "-c", runaway}}, nil
	}
	return jobs.Spec{}, fmt.Errorf("no such tool: %s", tool)
}
