// Cmd starts a few jobs of two owners and shows them in the terminal. To quit
// ends the jobs.
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
	"github.com/agentjobs/jobs/examples/internal/demo"
	"github.com/agentjobs/jobs/examples/top"
)

func main() {
	// A terminal that is closed sends SIGHUP. The jobs, which have sessions of
	// their own, do not get it.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "top:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	s, err := jobs.New(jobs.Config{MaxRunning: 16, KillGrace: time.Second})
	if err != nil {
		return err
	}
	err = demo.Start(ctx, s)
	if err == nil {
		err = top.Run(ctx, s)
	}
	report, closing := s.Close(context.WithoutCancel(ctx))
	fmt.Printf("%d jobs were stopped\n", len(report.Stopped))
	return errors.Join(err, closing)
}
