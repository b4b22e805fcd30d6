package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/agentjobs/jobs"
)

// runTool is the one tool that job__start starts.
const runTool = "run"

// commands resolves calls of the run tool.
type commands struct {
	allow []string
	spec  jobs.Spec // what all jobs have in common
}

func newCommands(set settings) commands {
	c := commands{allow: set.Allow, spec: jobs.Spec{Dir: set.Dir, OutputLimit: set.OutputLimit}}
	if set.OnExit == "keep" {
		c.spec.OnOwnerEnd = jobs.KeepRunning
		c.spec.Shell = detached(set.config().EnvFilter)
	}
	return c
}

// detached returns a shell for jobs that outlive the server. It hands on what the
// filter lets through of the server's environment.
func detached(filter func(name string) bool) jobs.Shell {
	argv := []string{"env"}
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); name != "" && !filter(name) {
			argv = append(argv, "-u", name)
		}
	}
	return jobs.ShellCommand(append(argv, "sh")...)
}

// policy tells a model that took a command for a tool how it is done.
func (c commands) policy(tool string) (reason string) {
	if tool == runTool {
		return ""
	}
	return `the only tool here is "run"; name the command in its arguments`
}

// resolve checks a call against the allow-list. The command must be, letter for
// letter, an entry of the list; so a path is refused unless the path is listed,
// and a shell unless the shell is.
func (c commands) resolve(_ context.Context, _ string, args json.RawMessage) (jobs.Spec, error) {
	var call struct {
		Command string   `json:"command"`
		Args    []string `json:"args"`
	}
	dec := json.NewDecoder(bytes.NewReader(args))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&call); err != nil {
		return jobs.Spec{}, fmt.Errorf(`run takes {"command": "...", "args": ["...", "..."]}: %w`, err)
	}
	if !slices.Contains(c.allow, call.Command) {
		return jobs.Spec{}, fmt.Errorf(`the command %q is not allowed here; it must be one of %s, alone, and what follows it belongs in "args"`, call.Command, c.names())
	}
	spec := c.spec
	spec.Tool = call.Command
	spec.Argv = append([]string{call.Command}, call.Args...)
	return spec, nil
}

// names lists the commands for a model.
func (c commands) names() string {
	quoted := make([]string, len(c.allow))
	for i, name := range c.allow {
		quoted[i] = fmt.Sprintf("%q", name)
	}
	return strings.Join(quoted, ", ")
}

// usage explains the run tool, which no declaration of its own describes.
func (c commands) usage() string {
	example, _ := json.Marshal(map[string]any{"command": c.allow[0], "args": []string{"..."}}) // cannot fail
	return fmt.Sprintf(`The only tool is "run". Its arguments are the command and a list of what follows it, such as %s. `+
		`No shell reads them. Commands: %s. They run in %s.`, example, c.names(), c.spec.Dir)
}
