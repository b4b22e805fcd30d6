// Cmd starts a few jobs of two owners and shows them on a web page. Ctrl-C ends
// it and the jobs. The environment variable DASHBOARD_TOKEN, if set, is the
// token that the page asks for.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/agentjobs/jobs/examples/dashboard"
	"github.com/agentjobs/jobs/examples/internal/demo"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8787", "address to serve on")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *addr, os.Getenv("DASHBOARD_TOKEN"), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "dashboard:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, addr, token string, out io.Writer) error {
	s, err := jobs.New(jobs.Config{MaxRunning: 16, KillGrace: time.Second})
	if err != nil {
		return err
	}
	defer s.Close(context.WithoutCancel(ctx))
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	srv := &http.Server{
		Handler:           dashboard.New(s, dashboard.Options{Token: token}),
		ReadHeaderTimeout: 10 * time.Second,
	}
	// Pages hold a stream open for as long as they are, so there is nothing to
	// wait for at the end.
	defer context.AfterFunc(ctx, func() { srv.Close() })()
	if err := demo.Start(ctx, s); err != nil {
		return errors.Join(err, l.Close())
	}
	fmt.Fprintf(out, "http://%s/ shows the jobs; Ctrl-C ends them\n", l.Addr())
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
