//go:build unix

package jobs_test

import (
	"context"
	"fmt"
	"os"

	"github.com/agentjobs/jobs"
)

// A host that is started again knows the jobs of the one before, be it that this
// one was closed or that it was killed.
func Example_records() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "records-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)

	first, err := jobs.New(jobs.Config{Dir: dir})
	if err != nil {
		panic(err)
	}
	job, err := first.Start(ctx, jobs.Spec{Tool: "build", Argv: []string{"sleep", "300"}})
	if err != nil {
		panic(err)
	}
	report, err := first.Close(ctx)
	if err != nil {
		panic(err)
	}
	fmt.Println("left by Close:", report.Stopped[0].Tool)

	second, err := jobs.New(jobs.Config{Dir: dir})
	if err != nil {
		panic(err)
	}
	defer second.Close(ctx)
	for _, s := range second.Recovered().Ended {
		fmt.Println("found again:", s.ID == job.ID, s.Outcome())
	}

	// Output:
	// left by Close: build
	// found again: true cancelled, shutdown, SIGTERM
}
