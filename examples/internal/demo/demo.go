// Package demo runs jobs that are worth looking at, for the live views.
package demo

import (
	"context"

	"github.com/agentjobs/jobs"
)

// A script stands for a tool call.
type script struct {
	tool, tag, text string
}

// sessions are the owners and what they run.
var sessions = []struct {
	name    string
	scripts []script
}{
	{"session one", []script{
		{"build", "release", `for f in scan.go parse.go check.go emit.go link.go; do echo "compiling $f"; sleep 2; done; echo built`},
		{"test", "", `i=0; while [ $i -lt 400 ]; do i=$((i+1)); echo "ok   case $i"; sleep 0.3; done`},
		{"lint", "", `sleep 3; echo "main.go:12: unused variable"; exit 1`},
	}},
	{"session two", []script{
		{"serve", "port 8080", `echo listening; n=0; while :; do sleep 1; n=$((n+1)); echo "GET /item/$n 200"; done`},
		{"download", "", `for p in 10 30 50 70 90 100; do printf '\r%s%%' $p; sleep 1; done; echo; echo saved`},
		{"page", "prints HTML", `while :; do echo '<b>bold?</b> <script>document.title = "taken over"</script>'; sleep 2; done`},
		{"paint", "paints the screen", `while :; do printf '\033[2J\033[31mred\033[0m \033]2;taken over\a'; date; sleep 2; done`},
	}},
}

// Start gives each session an owner of its own and starts its jobs.
func Start(ctx context.Context, s *jobs.Supervisor) error {
	for _, session := range sessions {
		owner, err := s.Child(jobs.ChildConfig{Name: session.name, MaxRunning: 8})
		if err != nil {
			return err
		}
		for _, sc := range session.scripts {
			_, err := owner.Start(ctx, jobs.Spec{Tool: sc.tool, Tag: sc.tag, Argv: []string{"sh", "-c", sc.text}})
			if err != nil {
				return err
			}
		}
	}
	return nil
}
