//go:build unix

package looptest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentjobs/jobs/examples/internal/fakemodel"
)

// A transcript is a conversation under test.
type transcript struct {
	t        *testing.T
	messages []fakemodel.Message
}

func (c transcript) String() string {
	var b strings.Builder
	for i, m := range c.messages {
		fmt.Fprintf(&b, "%2d %s %s %s %v\n", i, m.Role, m.CallID, m.Text, m.Calls)
	}
	return b.String()
}

// results returns the results of all calls of a tool, in the order of the calls.
func (c transcript) results(tool string) (results []fakemodel.Message) {
	for _, m := range c.messages {
		for _, call := range m.Calls {
			if call.Name == tool {
				results = append(results, c.resultOf(call))
			}
		}
	}
	return results
}

func (c transcript) resultOf(call fakemodel.Call) fakemodel.Message {
	var found []fakemodel.Message
	for _, m := range c.messages {
		if m.CallID == call.ID {
			found = append(found, m)
		}
	}
	require.Len(c.t, found, 1, "results of %s:\n%s", call.ID, c)
	return found[0]
}

// with returns the messages of a role that hold a text.
func (c transcript) with(role, text string) (found []fakemodel.Message) {
	for _, m := range c.messages {
		if m.Role == role && strings.Contains(m.Text, text) {
			found = append(found, m)
		}
	}
	return found
}

// notices returns the places of the messages that tell of the end of a job, a
// place as often as it does.
func (c transcript) notices(id string) (at []int) {
	for i, m := range c.messages {
		text, name := m.Text, id+" ("
		if m.Role == "tool" {
			_, text, _ = strings.Cut(text, `"notices":`)
			name = fmt.Sprintf(`"id":%q`, id)
		} else if !strings.Contains(text, "Machine event") {
			continue
		}
		for range strings.Count(text, name) {
			at = append(at, i)
		}
	}
	return at
}

// tellsOf requires that the end of a job is told once, at the seam: with the
// results of the calls that the model made while the job ended, or right after
// them, before the model's next reply.
func (c transcript) tellsOf(id, seam string) {
	at := c.notices(id)
	require.Len(c.t, at, 1, "an end is told once:\n%s", c)
	i := at[0]
	require.Equal(c.t, seam, c.messages[i].Role)
	if seam == AfterResults {
		i--
	}
	require.Equal(c.t, "tool", c.messages[i].Role, "%s", c)
	require.Contains(c.t, c.results("shell"), c.messages[i], "%s", c)
	for i = at[0] + 1; c.messages[i].Role == "tool"; i++ {
	}
	require.Equal(c.t, "assistant", c.messages[i].Role, "%s", c)
}
