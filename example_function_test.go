package jobs_test

import (
	"context"
	"fmt"
	"io"
	"log"

	"github.com/agentjobs/jobs"
)

// Work inside the host, such as a call to an MCP server, is a job like any
// other.
func ExampleSpec_func() {
	ctx := context.Background()
	s, err := jobs.New(jobs.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close(ctx)
	job, err := s.Start(ctx, jobs.Spec{
		Tool: "search",
		Func: func(ctx context.Context, out io.Writer) (any, error) {
			fmt.Fprintln(out, "asking the server")
			// A real call would pass ctx on: it is done when the job is stopped.
			return map[string]int{"hits": 3}, nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	result, err := s.Collect(ctx, job.ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s %s %s", result.State, result.File.JSON(), result.Output.Bytes())
	// Output: completed {"hits":3} asking the server
}
