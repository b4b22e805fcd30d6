// Package fakemodel plays the model in the framework examples. Like a real one
// it knows only the conversation it is sent, and like a real API it refuses one
// in which anything stands between the calls of tools and their results.
package fakemodel

import (
	"fmt"
	"sync"

	"github.com/agentjobs/jobs"
)

// A Message is one message of a conversation, in words that every framework's
// messages can be turned into.
type Message struct {
	Role   string // "system", "user", "assistant" or "tool"
	Text   string
	Calls  []Call // what an assistant calls
	CallID string // the call that a tool answers
}

// A Call is a call of a tool. Arguments is a JSON object.
type Call struct {
	ID, Name, Arguments string
}

// A Model starts two jobs and one that is refused, calls a tool that does not
// exist, does other work, collects what it is told of, ends its turn too early,
// is reminded, and answers.
type Model struct {
	// Build and Test are the commands of the two jobs, Work is what it does
	// meanwhile.
	Build, Test, Work string

	// Before, if set, is called before each reply, with the number of the
	// request; the first is 1.
	Before func(request int)

	mu       sync.Mutex
	requests int
	last     []Message
	tools    []jobs.Declaration
}

// Prompt is what the model does, whatever it is asked.
const Prompt = "Build, test and deploy, and see what the release notes say."

// Demo returns a model whose commands take some seconds.
func Demo() *Model {
	return &Model{
		Build: "for p in parser engine server; do echo compiling $p; sleep 0.5; done; echo built 3 packages",
		Test:  "echo running 40 tests; sleep 4; echo '--- FAIL: TestParser'; exit 3",
		Work:  "sleep 2; echo 'release notes: nothing new'",
	}
}

// Reply answers a request that holds a conversation and the tools declared in
// it.
func (m *Model) Reply(conversation []Message, tools []jobs.Declaration) (Message, error) {
	m.mu.Lock()
	m.requests++
	n := m.requests
	m.tools = tools
	m.mu.Unlock()
	if err := check(conversation); err != nil {
		return Message{}, err
	}
	if m.Before != nil {
		m.Before(n)
	}
	reply := m.decide(read(conversation))
	reply.Role = "assistant"
	for i := range reply.Calls {
		reply.Calls[i].ID = fmt.Sprintf("call_%d_%d", n, i)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = append(conversation[:len(conversation):len(conversation)], reply)
	return reply, nil
}

// Seen returns the conversation up to the last reply, and in how many requests
// it came about.
func (m *Model) Seen() (conversation []Message, requests int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last, m.requests
}

// Tools returns the tools that the last request declared.
func (m *Model) Tools() []jobs.Declaration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tools
}

// check returns the error of an API that is sent a conversation it does not
// take.
func check(conversation []Message) error {
	open := map[string]bool{}
	for i, m := range conversation {
		switch {
		case m.Role == "tool" && !open[m.CallID]:
			return fmt.Errorf("messages.%d: a result of %q, which is no open call", i, m.CallID)
		case m.Role == "tool":
			delete(open, m.CallID)
		case len(open) > 0:
			return fmt.Errorf("messages.%d: %s stands between calls and their results", i, m.Role)
		}
		for _, c := range m.Calls {
			open[c.ID] = true
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("%d calls have no result", len(open))
	}
	if n := len(conversation); n == 0 || conversation[n-1].Role == "assistant" {
		return fmt.Errorf("there is nothing to reply to")
	}
	return nil
}
