package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"strings"
	"time"

	"github.com/agentjobs/jobs"
)

// A kind is a family of jobs.
type kind struct {
	name string
	make func(*rand.Rand) call
}

// A call is one job: what is done with it, and how it must end.
type call struct {
	play  func(context.Context, *jobs.Supervisor) (jobs.Result, error)
	check func(jobs.Result) error
	// byNotice says that play has only started the job: its end is to be told by
	// a notice before its result is taken.
	byNotice bool
}

var kinds = []kind{
	{"plain", plain},
	{"failing", failing},
	{"signalled", signalled},
	{"flooding", flooding},
	{"over their limit", overLimit},
	{"with a result", withResult},
	{"leaving processes", leaving},
	{"stubborn", stubborn},
	{"hidden", hidden},
	{"too long", tooLong},
	{"silent", silent},
	{"demoted", demoted},
	{"told", told},
	{"awaited", awaited},
	{"typed into", typedInto},
	{"of a session", ofSession},
	{"functions", function},
	{"panicking", panicking},
}

func sh(script string, args ...any) jobs.Spec {
	return jobs.Spec{Tool: "sh", Argv: []string{"sh", "-c", fmt.Sprintf(script, args...)}}
}

// collected starts a job and takes its result.
func collected(spec jobs.Spec) func(context.Context, *jobs.Supervisor) (jobs.Result, error) {
	return func(ctx context.Context, s *jobs.Supervisor) (jobs.Result, error) {
		snap, err := s.Start(ctx, spec)
		if err != nil {
			return jobs.Result{}, err
		}
		return s.Collect(ctx, snap.ID)
	}
}

// cancelled starts a job, waits until it says that it is ready, and stops it.
func cancelled(spec jobs.Spec) func(context.Context, *jobs.Supervisor) (jobs.Result, error) {
	return func(ctx context.Context, s *jobs.Supervisor) (jobs.Result, error) {
		snap, err := s.Start(ctx, spec)
		if err == nil {
			err = ready(ctx, s, snap.ID)
		}
		if err != nil {
			return jobs.Result{}, err
		}
		if _, err := s.Cancel(ctx, snap.ID); err != nil {
			return jobs.Result{}, err
		}
		return s.Collect(ctx, snap.ID)
	}
}

func ready(ctx context.Context, s *jobs.Supervisor, id string) error {
	r, err := s.Wait(ctx, jobs.WaitSpec{IDs: []string{id}, Pattern: regexp.MustCompile("^ready$")})
	if err == nil && r.Match == nil {
		err = errors.New("it never said that it is ready")
	}
	return err
}

// ended checks how a job ended; a code below 0 means none.
func ended(state jobs.State, reason jobs.Reason, code int) func(jobs.Result) error {
	return func(r jobs.Result) error {
		switch {
		case r.State != state || r.Reason != reason:
			return fmt.Errorf("want %s, %s", state, reason)
		case code >= 0 && r.ExitCode != code:
			return fmt.Errorf("want exit code %d", code)
		case len(r.Survivors) > 0:
			return fmt.Errorf("%d survivors", len(r.Survivors))
		case r.OutputTotal-r.OutputDropped != int64(len(r.Output.Bytes())):
			return fmt.Errorf("%d bytes written, %d dropped, %d kept", r.OutputTotal, r.OutputDropped, len(r.Output.Bytes()))
		}
		return nil
	}
}

func both(checks ...func(jobs.Result) error) func(jobs.Result) error {
	return func(r jobs.Result) error {
		for _, check := range checks {
			if err := check(r); err != nil {
				return err
			}
		}
		return nil
	}
}

func printed(text string) func(jobs.Result) error {
	return func(r jobs.Result) error {
		if got := string(r.Output.Bytes()); got != text {
			return fmt.Errorf("want the output %.100q", text)
		}
		return nil
	}
}

func plain(rnd *rand.Rand) call {
	var want strings.Builder
	n := 1 + rnd.IntN(2000)
	for i := range n {
		fmt.Fprintln(&want, i+1)
	}
	return call{play: collected(sh("seq %d", n)), check: both(ended(jobs.Completed, jobs.ReasonExit, 0), printed(want.String()))}
}

func failing(rnd *rand.Rand) call {
	code := 1 + rnd.IntN(255)
	return call{play: collected(sh("echo no >&2; exit %d", code)), check: both(ended(jobs.Failed, jobs.ReasonExit, code), printed("no\n"))}
}

func signalled(*rand.Rand) call {
	return call{play: collected(sh("echo last; kill -9 $$")), check: both(ended(jobs.Failed, jobs.ReasonSignal, -1), printed("last\n"))}
}

func flooding(rnd *rand.Rand) call {
	n := rnd.Int64N(64 << 20)
	return call{play: collected(sh("head -c %d /dev/zero", n)), check: both(ended(jobs.Completed, jobs.ReasonExit, 0), func(r jobs.Result) error {
		if r.OutputTotal != n {
			return fmt.Errorf("%d bytes of %d", r.OutputTotal, n)
		}
		return nil
	})}
}

func overLimit(*rand.Rand) call {
	spec := sh("yes")
	spec.OutputLimit = 1 << 20
	return call{play: collected(spec), check: ended(jobs.Failed, jobs.ReasonOutputLimit, -1)}
}

func withResult(rnd *rand.Rand) call {
	n := rnd.Uint64()
	return call{play: collected(sh(`echo %d >"$LLM_OUTPUT"`, n)), check: both(ended(jobs.Completed, jobs.ReasonExit, 0), func(r jobs.Result) error {
		if got := string(r.File.JSON()); got != fmt.Sprint(n) {
			return fmt.Errorf("the result is %s, not %d", got, n)
		}
		return nil
	})}
}

func leaving(rnd *rand.Rand) call {
	n := 1 + rnd.IntN(3)
	return call{play: collected(sh("for i in $(seq %d); do sleep 600 & done", n)), check: both(ended(jobs.Completed, jobs.ReasonExit, 0), func(r jobs.Result) error {
		if len(r.Leftovers) != n {
			return fmt.Errorf("%d leftovers, want %d", len(r.Leftovers), n)
		}
		return nil
	})}
}

func stubborn(*rand.Rand) call {
	return call{play: cancelled(sh("trap '' TERM; sleep 600 & echo ready; while :; do wait; done")), check: ended(jobs.Cancelled, jobs.ReasonCancelled, -1)}
}

func hidden(*rand.Rand) call {
	return call{play: cancelled(sh("(setsid sleep 600 >/dev/null 2>&1 &); env -i setsid sleep 600 & echo ready; wait")), check: ended(jobs.Cancelled, jobs.ReasonCancelled, -1)}
}

func tooLong(*rand.Rand) call {
	spec := sh("while :; do echo on; sleep 0.05; done")
	spec.Timeout = 300 * time.Millisecond
	return call{play: collected(spec), check: ended(jobs.Failed, jobs.ReasonTimeout, -1)}
}

func silent(*rand.Rand) call {
	spec := sh("sleep 600")
	spec.IdleTimeout = 300 * time.Millisecond
	return call{play: collected(spec), check: ended(jobs.Failed, jobs.ReasonIdle, -1)}
}

// demoted sends a call to the background about when it ends: whichever comes
// first, it has one result.
func demoted(rnd *rand.Rand) call {
	grace := time.Duration(rnd.IntN(100)) * time.Millisecond
	return call{play: func(ctx context.Context, s *jobs.Supervisor) (jobs.Result, error) {
		r, err := s.Run(ctx, sh("echo a; sleep 0.05; echo b"), grace)
		if err != nil || r.Ended() {
			return r, err
		}
		return s.Collect(ctx, r.ID)
	}, check: both(ended(jobs.Completed, jobs.ReasonExit, 0), printed("a\nb\n"))}
}

// told leaves a call in the background until its notice comes.
func told(rnd *rand.Rand) call {
	code := rnd.IntN(3)
	state := jobs.Completed
	if code > 0 {
		state = jobs.Failed
	}
	return call{play: func(ctx context.Context, s *jobs.Supervisor) (jobs.Result, error) {
		snap, err := s.Start(ctx, sh("echo told; exit %d", code))
		return jobs.Result{Snapshot: snap}, err
	}, check: both(ended(state, jobs.ReasonExit, code), printed("told\n")), byNotice: true}
}

func awaited(rnd *rand.Rand) call {
	n := rnd.IntN(3000)
	return call{play: func(ctx context.Context, s *jobs.Supervisor) (jobs.Result, error) {
		snap, err := s.Start(ctx, sh("seq %d; echo ready; read forever </dev/zero", n))
		if err == nil {
			err = ready(ctx, s, snap.ID)
		}
		if err != nil {
			return jobs.Result{}, err
		}
		s.Cancel(ctx, snap.ID)
		return s.Collect(ctx, snap.ID)
	}, check: ended(jobs.Cancelled, jobs.ReasonCancelled, -1)}
}

func typedInto(rnd *rand.Rand) call {
	text := strings.Repeat("0123456789abcde\n", 1+rnd.IntN(4000))
	spec := sh("cat")
	spec.Input = true
	return call{play: func(ctx context.Context, s *jobs.Supervisor) (jobs.Result, error) {
		snap, err := s.Start(ctx, spec)
		if err != nil {
			return jobs.Result{}, err
		}
		in, err := s.Input(snap.ID)
		if err != nil {
			return jobs.Result{}, err
		}
		if _, err = io.WriteString(in, text); err == nil {
			err = in.Close()
		}
		if err != nil {
			return jobs.Result{}, err
		}
		return s.Collect(ctx, snap.ID)
	}, check: both(ended(jobs.Completed, jobs.ReasonExit, 0), printed(text))}
}

// ofSession closes the owner of a running job.
func ofSession(*rand.Rand) call {
	return call{play: func(ctx context.Context, s *jobs.Supervisor) (jobs.Result, error) {
		c, err := s.Child(jobs.ChildConfig{Name: "session"})
		if err != nil {
			return jobs.Result{}, err
		}
		snap, err := c.Start(ctx, sh("sleep 600 & echo ready; wait"))
		if err == nil {
			err = ready(ctx, c, snap.ID)
		}
		report, closeErr := c.Close(ctx)
		if err = errors.Join(err, closeErr); err != nil {
			return jobs.Result{}, err
		}
		if len(report.Stopped) != 1 {
			return jobs.Result{}, fmt.Errorf("%d jobs were stopped with their owner", len(report.Stopped))
		}
		return c.Collect(ctx, snap.ID)
	}, check: ended(jobs.Cancelled, jobs.ReasonOwnerClosed, -1)}
}

func function(rnd *rand.Rand) call {
	n := rnd.IntN(100_000)
	spec := jobs.Spec{Func: func(_ context.Context, out io.Writer) (any, error) {
		fmt.Fprint(out, strings.Repeat("x", n))
		return n, nil
	}}
	return call{play: collected(spec), check: both(ended(jobs.Completed, jobs.ReasonExit, -1), func(r jobs.Result) error {
		if r.OutputTotal != int64(n) || string(r.File.JSON()) != fmt.Sprint(n) {
			return fmt.Errorf("want %d", n)
		}
		return nil
	})}
}

func panicking(*rand.Rand) call {
	spec := jobs.Spec{Func: func(context.Context, io.Writer) (any, error) { panic("on purpose") }}
	return call{play: collected(spec), check: ended(jobs.Failed, jobs.ReasonInternal, -1)}
}
