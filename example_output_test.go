package jobs_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/agentjobs/jobs"
)

// Follow the output of a job by offsets. Reading consumes nothing, so any
// number of readers can do this at once, and each learns exactly what it
// missed.
func ExampleSupervisor_Output() {
	ctx := context.Background()
	s, err := jobs.New(jobs.Config{HeadBytes: 8, TailBytes: 16})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close(ctx)
	job, err := s.Start(ctx, jobs.Spec{Argv: []string{"sh", "-c", "seq 1000 1099"}})
	if err != nil {
		log.Fatal(err)
	}

	for next := int64(0); ; {
		chunk, err := s.Output(job.ID, next, 4096)
		if err != nil {
			log.Fatal(err)
		}
		next = chunk.Next
		if chunk.EOF {
			fmt.Println("end at", chunk.Total)
			break
		}
		time.Sleep(10 * time.Millisecond) // the job prints on
	}

	// What is kept of a log this small: its head and its tail.
	chunk, _ := s.Output(job.ID, 0, 4096)
	fmt.Printf("from %d: %q\n", chunk.From, chunk.Data)
	chunk, _ = s.Output(job.ID, chunk.Next, 4096)
	fmt.Printf("dropped %d, from %d: %q\n", chunk.Dropped, chunk.From, chunk.Data)
	// Output:
	// end at 500
	// from 0: "1000\n100"
	// dropped 476, from 484: "\n1097\n1098\n1099\n"
}
