// Embed is the smallest host: it starts a job, goes on, collects, and closes.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/agentjobs/jobs"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	s, err := jobs.New(jobs.Config{MaxRunning: 8})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close(context.WithoutCancel(ctx)) // stops what still runs

	job, err := s.Start(ctx, jobs.Spec{Tool: "build", Argv: []string{"sh", "-c", "echo compiling; sleep 1; echo done"}})
	if err != nil {
		log.Print(err) // says what failed: the program, the directory, the limits
		return
	}

	// The agent thinks on. Whenever it likes, it looks.
	now, _ := s.Check(job.ID)
	fmt.Println(now.Tool, now.State)

	result, err := s.Collect(ctx, job.ID) // waits; Ctrl-C ends the wait
	if err != nil {
		log.Print(err)
		return
	}
	fmt.Printf("%s: %s\n%s", result.Tool, result.Outcome(), result.Output.Bytes())
}
