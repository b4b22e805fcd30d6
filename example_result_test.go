package jobs_test

import (
	"context"
	"fmt"
	"log"

	"github.com/agentjobs/jobs"
)

// A tool writes its result to the file that $LLM_OUTPUT names; what it prints
// is only telemetry. JSON comes through to the digit.
func ExampleResultFile_JSON() {
	ctx := context.Background()
	s, err := jobs.New(jobs.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close(ctx)
	for _, script := range []string{
		`echo working; echo '{"id": 9007199254740993}' >"$LLM_OUTPUT"`,
		`printf 'all is <well>' >"$LLM_OUTPUT"`,
		`echo nothing to tell`,
	} {
		job, err := s.Start(ctx, jobs.Spec{Argv: []string{"sh", "-c", script}})
		if err != nil {
			log.Fatal(err)
		}
		result, err := s.Collect(ctx, job.ID)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s\n", result.File.JSON())
	}
	// Output:
	// {"id": 9007199254740993}
	// {"output":"all is <well>"}
	// "DONE"
}
