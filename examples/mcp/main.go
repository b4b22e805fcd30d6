// Jobs-mcp is an MCP server that runs commands of an allow-list as background
// jobs: a client starts them, goes on, and looks at, waits for, collects or
// cancels them later.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// exitGrace is how long jobs have to end by themselves once the client is gone.
// Clients send SIGTERM two seconds after they have closed the connection, and
// SIGKILL two seconds later.
const exitGrace = 1500 * time.Millisecond

func main() {
	stdout := os.Stdout
	os.Stdout = os.Stderr // for whatever prints without asking: the client reads JSON-RPC only
	if err := run(os.Args[1:], os.Stdin, stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "jobs-mcp:", err)
		os.Exit(1)
	}
}

// run serves one client, until it closes in or a signal comes.
func run(args []string, in io.ReadCloser, out, stderr io.Writer) error {
	set, err := parse(args, stderr)
	if err != nil {
		return err
	}
	// A client that was killed leaves broken pipes, and a Go program that writes
	// to one of its standard files then dies of SIGPIPE, with its jobs left
	// running. Listening for the signal prevents that. Ignoring it would too, but
	// every job would inherit that.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: set.logLevel()}))

	s, err := jobs.New(set.config())
	if err != nil {
		return err
	}
	server := newServer(s, set, log)
	go server.board.run(ctx)
	err = server.mcp.Run(ctx, &mcp.IOTransport{Reader: in, Writer: keepOpen{out}})
	if ctx.Err() != nil {
		err = nil // a signal is no failure
	}
	return errors.Join(err, end(s, log))
}

// end stops or lets go of the jobs.
func end(s *jobs.Supervisor, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(context.Background(), exitGrace)
	defer cancel()
	report, err := s.Close(ctx)
	for _, job := range report.Stopped {
		log.Info("stopped", "job", job.ID, "command", job.Tool)
	}
	for _, job := range report.Kept {
		log.Warn("left running", "job", job.ID, "command", job.Tool, "processes", job.Survivors)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return nil // some had to be killed
	}
	return err
}

// keepOpen is a writer that is not closed with its connection.
type keepOpen struct{ io.Writer }

func (keepOpen) Close() error { return nil }
