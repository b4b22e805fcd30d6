package fakemodel

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
)

// A view is what a conversation tells about the jobs.
type view struct {
	begun, worked bool
	started       []string        // ids, in order
	told          map[string]bool // ids that news were about
	results       map[string]answer
}

// An answer is what the model needs of the answer of a job tool.
type answer struct {
	Status   string `json:"status"`
	ID       string `json:"id"`
	JobID    string `json:"job_id"`
	ExitCode int    `json:"exit_code"`
	Tail     string `json:"output_tail"`
	Notices  []struct {
		ID string `json:"id"`
	} `json:"notices"`
}

// read reads a conversation. News come in a message of their own, or in the
// answer of any tool.
func read(conversation []Message) view {
	v := view{told: map[string]bool{}, results: map[string]answer{}}
	names := map[string]string{}
	for _, m := range conversation {
		v.begun = v.begun || m.Role == "assistant"
		for _, c := range m.Calls {
			names[c.ID] = c.Name
			v.worked = v.worked || c.Name == "shell"
		}
		if m.Role == "user" {
			for _, id := range v.started {
				v.told[id] = v.told[id] || strings.Contains(m.Text, id)
			}
		}
		if m.Role != "tool" {
			continue
		}
		var a answer
		if json.Unmarshal([]byte(m.Text), &a) != nil {
			continue // what the shell printed
		}
		for _, n := range a.Notices {
			v.told[n.ID] = true
		}
		switch names[m.CallID] {
		case "job__start":
			if a.JobID != "" {
				v.started = append(v.started, a.JobID)
			}
		case "job__collect":
			if a.Status != "running" {
				v.results[a.ID] = a
			}
		}
	}
	return v
}

// decide says what to do next.
func (m *Model) decide(v view) Message {
	if !v.begun {
		return Message{Text: "I start the build and the tests, and try to deploy.", Calls: []Call{
			start("shell", m.Build), start("shell", m.Test), start("deploy", "now"),
			{Name: "fetch", Arguments: "{}"}, // models make tools up
		}}
	}
	if !v.worked {
		return Message{Text: "While they run I look at the release notes.", Calls: []Call{
			{Name: "shell", Arguments: object("command", m.Work)},
			{Name: "shell", Arguments: object("comand", m.Work)}, // models misspell
		}}
	}
	var collect []Call
	open := 0
	for _, id := range v.started {
		if _, done := v.results[id]; done {
			continue
		}
		open++
		if v.told[id] {
			collect = append(collect, Call{Name: "job__collect", Arguments: object("id", id)})
		}
	}
	switch {
	case len(collect) > 0:
		return Message{Calls: collect}
	case open > 0:
		return Message{Text: "The other work is done; I wait for what still runs."}
	case len(v.started) < 2:
		return Message{Text: "I could not start the jobs."}
	}
	build, test := v.results[v.started[0]], v.results[v.started[1]]
	return Message{Text: fmt.Sprintf("The build ended with exit code %d (%s), the tests with exit code %d (%s). Nothing was deployed.",
		build.ExitCode, lastLine(build.Tail), test.ExitCode, lastLine(test.Tail))}
}

func start(tool, command string) Call {
	args, _ := json.Marshal(map[string]string{"tool": tool, "arguments": object("command", command)})
	return Call{Name: "job__start", Arguments: string(args)}
}

func object(name, value string) string {
	text, _ := json.Marshal(map[string]string{name: value})
	return string(text)
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return cmp.Or(lines[len(lines)-1], "no output")
}
