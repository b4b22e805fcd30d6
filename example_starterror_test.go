package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"

	"github.com/agentjobs/jobs"
)

// A start that fails says which part of it failed, keeps the system's cause,
// and leaves nothing behind.
func ExampleStartError() {
	ctx := context.Background()
	s, err := jobs.New(jobs.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close(ctx)
	_, err = s.Start(ctx, jobs.Spec{Tool: "build", Argv: []string{"/bin/sh"}, Dir: "/no/such/place"})
	var failed *jobs.StartError
	if errors.As(err, &failed) {
		fmt.Println(failed.Stage)
	}
	fmt.Println(errors.Is(err, fs.ErrNotExist))
	fmt.Println(err)
	fmt.Println(s.List().Running, "slots taken")
	// Output:
	// working directory
	// true
	// jobs: cannot start "build": working directory: stat /no/such/place: no such file or directory
	// 0 slots taken
}
