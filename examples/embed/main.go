// Embed is the smallest host: it starts a job, goes on, is told of its end,
// collects, and closes.
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

	fmt.Println(job.Tool, job.State)

	// The agent thinks on, until it is told.
	select {
	case <-s.Ready():
	case <-ctx.Done(): // Ctrl-C
	}
	for _, notice := range s.Drain() {
		result, _ := s.Collect(ctx, notice.ID) // empty if that fails
		fmt.Printf("%s\n%s", jobs.Texts{}.Plain(notice), result.Output.Bytes())
	}
}
