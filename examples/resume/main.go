//go:build unix

// Resume shows what a restart of the host does to its jobs. It starts itself as
// a host with records in a directory, lets that start four jobs and kill itself,
// opens the directory again, and is told what became of each.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/agentjobs/jobs"
)

// hostEnv is set in the host that dies, to the directory of records.
const hostEnv = "RESUME_HOST_DIR"

func main() {
	log.SetFlags(0)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	run := show
	if os.Getenv(hostEnv) != "" {
		run = dyingHost
	}
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

// open opens the records as both hosts do.
func open(dir string) (*jobs.Supervisor, error) {
	return jobs.New(jobs.Config{Dir: dir, LogLimit: 1 << 20, MaxRunning: 8})
}

// dyingHost starts jobs and kills itself.
func dyingHost(ctx context.Context) error {
	dir := os.Getenv(hostEnv)
	s, err := open(dir)
	if err != nil {
		return err
	}
	for _, spec := range []jobs.Spec{
		{Tool: "build", Argv: []string{"sh", "-c", "echo built; exit 3"}},
		{Tool: "server", Argv: []string{"sh", "-c", "echo listening; (setsid sleep 300 &); exec sleep 300"}},
		// A job with a shell does not need its host.
		{Tool: "training", Argv: []string{"sh", "-c", "for i in 1 2 3; do echo epoch $i; sleep 1; done"}, Shell: machine(dir)},
	} {
		job, err := s.Start(ctx, spec)
		if err != nil {
			return err
		}
		fmt.Printf("  started %s, %s\n", job.ID, job.Tool)
	}
	for done := false; !done; { // the build ends, and nobody is told
		for _, job := range s.List().Jobs {
			done = done || job.Ended()
		}
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Println("  the host kills itself")
	return syscall.Kill(os.Getpid(), syscall.SIGKILL)
}

// machine is where the detached job runs: here, with its files in dir.
func machine(dir string) jobs.Shell { return jobs.ShellCommand("env", "HOME="+dir, "sh") }

// show runs the host that dies, and takes over what it leaves.
func show(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "resume-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := runHost(ctx, dir); err != nil {
		return err
	}
	s, err := open(dir)
	if err != nil {
		return err
	}
	defer s.Close(context.WithoutCancel(ctx))
	fmt.Printf("a new host finds %d lost, %d ended, and %d that runs\n",
		len(s.Recovered().Lost), len(s.Recovered().Ended), s.List().Running)
	told := 0
	untilAll, stop := context.WithCancel(ctx)
	defer stop()
	err = s.Deliver(untilAll, func(ctx context.Context, notices []jobs.Notice) error {
		for _, n := range notices {
			fmt.Println("  " + jobs.Texts{}.Plain(n))
			r, err := s.Collect(ctx, n.ID)
			if err != nil {
				return err
			}
			fmt.Printf("    %q\n", r.Output.Text(jobs.TextOptions{}).Body)
		}
		if told += len(notices); told == 3 {
			stop()
		}
		return nil
	})
	if errors.Is(err, context.Canceled) && ctx.Err() == nil {
		return nil
	}
	return err
}

// runHost runs the host that kills itself.
func runHost(ctx context.Context, dir string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	host := exec.CommandContext(ctx, self)
	host.Env = append(os.Environ(), hostEnv+"="+dir)
	host.Stdout, host.Stderr = os.Stdout, os.Stderr
	var died *exec.ExitError
	if err := host.Run(); !errors.As(err, &died) || died.ExitCode() >= 0 {
		return fmt.Errorf("the host did not die as it should: %v", err)
	}
	return nil
}
