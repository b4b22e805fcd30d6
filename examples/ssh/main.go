//go:build unix

// Ssh runs a command on another machine, detached: it goes on when the
// connection breaks, and when this program ends. Started again it finds the
// command by its records and shows its output from the beginning.
//
//	go run ./examples/ssh -via "ssh -o BatchMode=yes user@host" make -C project
//
// Without a command it only takes up what runs. Ctrl-C leaves the command
// running; -stop stops it.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/agentjobs/jobs"
)

func main() {
	log.SetFlags(0)
	cache, _ := os.UserCacheDir()
	via := flag.String("via", "sh", "the `command` that runs a POSIX shell on the machine: sh, ssh host, docker exec -i name sh")
	dir := flag.String("dir", filepath.Join(cmp.Or(cache, os.TempDir()), "agentjobs-ssh"), "where the records are")
	stop := flag.Bool("stop", false, "stop what runs")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := run(ctx, strings.Fields(*via), *dir, *stop, flag.Args()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, via []string, dir string, stop bool, command []string) error {
	s, err := jobs.New(jobs.Config{Dir: dir, Timeout: -1})
	if err != nil {
		return err
	}
	defer s.Close(context.WithoutCancel(ctx)) // a job with a shell goes on
	if len(command) > 0 {
		job, err := s.Start(ctx, jobs.Spec{Argv: command, Shell: jobs.ShellCommand(via...)})
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "%s runs on %s\n", job.ID, strings.Join(via, " "))
	}
	list := s.List().Jobs
	if len(list) == 0 {
		fmt.Fprintln(os.Stderr, "nothing runs")
	}
	for _, job := range list {
		if stop {
			s.Cancel(ctx, job.ID)
		}
		if err := follow(ctx, s, job.ID); err != nil {
			return err
		}
	}
	return nil
}

// follow prints what a job prints until it has ended.
func follow(ctx context.Context, s *jobs.Supervisor, id string) error {
	for from := int64(0); ; {
		c, err := s.Output(id, from, 0)
		if err != nil {
			return err
		}
		if c.Dropped > 0 {
			fmt.Fprintf(os.Stderr, "[%d bytes are not kept]\n", c.Dropped)
		}
		os.Stdout.Write(c.Data)
		if from = c.Next; c.EOF {
			break
		}
		if len(c.Data) > 0 {
			continue
		}
		_, err = s.Wait(ctx, jobs.WaitSpec{IDs: []string{id}, Timeout: time.Second})
		if errors.Is(err, context.Canceled) {
			fmt.Fprintf(os.Stderr, "%s goes on; start this program again without a command to see it\n", id)
			return nil
		}
	}
	r, err := s.Collect(ctx, id)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%s: %s\n", id, r.Outcome())
	return nil
}
