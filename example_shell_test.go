//go:build unix

package jobs_test

import (
	"context"
	"fmt"
	"os"

	"github.com/agentjobs/jobs"
)

// A job behind a shell runs detached: with "ssh", "host" in place of "sh" on
// another machine. It needs neither the host nor a connection.
func ExampleShellCommand() {
	ctx := context.Background()
	home, err := os.MkdirTemp("", "machine-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(home)
	machine := jobs.ShellCommand("env", "HOME="+home, "sh")

	s, err := jobs.New(jobs.Config{})
	if err != nil {
		panic(err)
	}
	defer s.Close(ctx)
	job, err := s.Start(ctx, jobs.Spec{Argv: []string{"sh", "-c", "echo trained; exit 3"}, Shell: machine})
	if err != nil {
		panic(err)
	}
	result, err := s.Collect(ctx, job.ID)
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s: %s", result.Outcome(), result.Output.Bytes())

	// Output:
	// failed, exit 3: trained
}
