package jobs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"

	"github.com/agentjobs/jobs"
)

// Collect only the last lines: the failures of a build stand at its end. All
// bytes are counted, and the flag says that there was more.
func ExampleToolset_Call_tailLines() {
	ctx := context.Background()
	s, err := jobs.New(jobs.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close(ctx)
	job, err := s.Start(ctx, jobs.Spec{Tool: "build", Argv: []string{"sh", "-c", "seq 1000; echo main.c:7: error; exit 2"}})
	if err != nil {
		log.Fatal(err)
	}

	tools := s.Toolset(jobs.ToolsetOptions{})
	answer, _ := tools.Call(ctx, "job__collect", json.RawMessage(`{"id":"`+job.ID+`","tail_lines":2}`))
	var r struct {
		Status    string
		ExitCode  int    `json:"exit_code"`
		Tail      string `json:"output_tail"`
		Truncated bool   `json:"tail_truncated"`
		Bytes     int    `json:"output_bytes_captured"`
	}
	if err := json.Unmarshal(answer, &r); err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Status, r.ExitCode)
	fmt.Print(r.Tail)
	fmt.Println(r.Truncated, r.Bytes)
	// Output:
	// failed 2
	// 1000
	// main.c:7: error
	// true 3909
}
