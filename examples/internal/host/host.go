// Package host is what the agents of the framework examples have in common: a
// shell, as a tool that answers in the foreground and that can be started as a
// job.
package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/agentjobs/jobs"
)

// System is the system prompt of the examples.
const System = "You are an agent with a shell and with background jobs. " +
	"What takes long you start with job__start and go on; you are told when it ends."

// Foreground is how long a call of the shell may keep the model waiting. A
// command that takes longer goes on as a job.
const Foreground = 10 * time.Second

// ShellTool declares the shell to the model.
var ShellTool = jobs.Declaration{
	Name:        "shell",
	Description: "Runs a command with sh and answers with what it printed. Short work only: start what takes longer with job__start.",
	Parameters: json.RawMessage(`{"type":"object","properties":{"command":{"type":"string","description":"A line of sh."}},` +
		`"required":["command"],"additionalProperties":false}`),
}

// New returns a supervisor whose jobs do not see the keys of the model.
func New() (*jobs.Supervisor, error) {
	return jobs.New(jobs.Config{EnvFilter: jobs.StripSecrets, KillGrace: time.Second})
}

// Toolset returns the job tools of a request that declares the shell besides.
func Toolset(s *jobs.Supervisor) *jobs.Toolset {
	return s.Toolset(jobs.ToolsetOptions{Declared: []string{ShellTool.Name}, Resolve: resolve})
}

// resolve turns a call of the shell into what to run, for a job as for the
// foreground.
func resolve(_ context.Context, tool string, args json.RawMessage) (jobs.Spec, error) {
	var in struct{ Command string }
	if err := json.Unmarshal(args, &in); err != nil {
		return jobs.Spec{}, fmt.Errorf("the arguments of the shell are wrong: %w", err)
	}
	if in.Command == "" {
		return jobs.Spec{}, errors.New(`the shell needs a "command"`)
	}
	return jobs.Spec{Tool: tool, Argv: []string{"sh", "-c", in.Command}}, nil
}

// Shell answers a call of the shell. What goes wrong is an answer too: the model
// can mend it, a broken loop cannot.
func Shell(ctx context.Context, s *jobs.Supervisor, args json.RawMessage) string {
	spec, err := resolve(ctx, ShellTool.Name, args)
	if err != nil {
		return "error: " + err.Error()
	}
	r, err := s.Run(ctx, spec, Foreground)
	switch {
	case err != nil:
		return "error: " + err.Error()
	case !r.Ended():
		return jobs.Texts{}.Demoted(r.Snapshot)
	}
	return r.Outcome() + "\n" + r.Text(jobs.TextOptions{}).String()
}

// News returns what the model is to be told now, "" if that is nothing. What it
// returns counts as told.
func News(s *jobs.Supervisor) string {
	var texts []string
	for _, n := range s.Drain() {
		texts = append(texts, jobs.Texts{}.Turn(n, ""))
	}
	return strings.Join(texts, "\n\n")
}

var saying sync.Mutex

// Say prints a step of a run, each line of it below its title. It is safe for
// concurrent use.
func Say(out io.Writer, title, text string) {
	saying.Lock()
	defer saying.Unlock()
	text = strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n"+strings.Repeat(" ", 10))
	fmt.Fprintf(out, "%-8s  %s\n", title, text)
}
