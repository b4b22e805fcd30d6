package jobs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The reasons of the default policy, by class.
const (
	async      = "it already runs in the background; call it directly"
	withUser   = "it talks with the user, who would not see it; call it directly"
	ownState   = "it changes your own state, which you must see at once; call it directly"
	fast       = "it is done before a job would have started; call it directly"
	mcpLookups = "it answers in less than a second; call it directly"
)

// policyTable holds names of tools and why they may not run in the background.
var policyTable = []struct{ tool, reason string }{
	{"agent__spawn", async},
	{"agent__wait", async},
	{"agent__", async},
	{"job__start", async},
	{"job__list", async},
	{"user__ask", withUser},
	{"user__confirm", withUser},
	{"todo__add", ownState},
	{"memory__store", ownState},
	{"skill__load", ownState},
	{"rag__search", ownState},
	{"fs_cat", fast},
	{"fs_write", fast},
	{"ast_grep", fast},
	{"mcp_search_github", mcpLookups},
	{"mcp_describe_github", mcpLookups},
	{"mcp_read_github", mcpLookups},
	{"mcp_prompt_github", mcpLookups},

	{"build", ""},
	{"execute_command", ""},
	{"web_search", ""},
	{"mcp_invoke_github", ""},
	// Names that only look like those above.
	{"agent", ""},
	{"agent_spawn", ""},
	{"my_agent__spawn", ""},
	{"Agent__spawn", ""},
	{"user_ask", ""},
	{"fsck", ""},
	{"fs-cat", ""},
	{"ast_grep_all", ""},
	{"mcp_searching", ""},
	{" fs_cat", ""},
	{"", ""},
}

func TestTheDefaultPolicyRefusesWhatIsNoUseInTheBackground(t *testing.T) {
	for _, c := range policyTable {
		assert.Equal(t, c.reason, jobs.DefaultPolicy(c.tool), "%q", c.tool)
	}
}

func TestARefusalReadsAsOneSentence(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	tools := s.Toolset(jobs.ToolsetOptions{})
	for _, c := range policyTable {
		if c.reason == "" {
			continue
		}
		require.True(t, strings.HasPrefix(c.reason, "it "), "%q is no clause", c.reason)
		r := ask(t, tools, "job__start", fmt.Sprintf(`{"tool":%q}`, c.tool))
		require.Contains(t, r.Message, fmt.Sprintf("%q cannot run as a job: %s. ", c.tool, c.reason))
	}
}

// Hosts use Backgroundable to decide what to offer, so it must be what a start
// decides, in every case.
func TestBackgroundableIsWhatAStartDecides(t *testing.T) {
	var declared []string
	for i, c := range policyTable {
		if i%3 != 0 {
			declared = append(declared, c.tool)
		}
	}
	for name, policy := range map[string]jobs.Policy{
		"default": nil,
		"of the host": func(tool string) string {
			if len(tool)%2 == 0 {
				return "its name is even"
			}
			return ""
		},
		"panicking": func(tool string) string {
			if strings.HasPrefix(tool, "mcp_") {
				panic("no such server")
			}
			return ""
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSupervisor(t, jobs.Config{})
			var resolved string
			tools := s.Toolset(jobs.ToolsetOptions{
				Declared: declared,
				Policy:   policy,
				Resolve: func(_ context.Context, tool string, _ json.RawMessage) (jobs.Spec, error) {
					resolved = tool
					return jobs.Spec{Func: returns(1)}, nil
				},
			})
			allowed := 0
			for _, c := range policyTable {
				if c.tool == "" {
					continue // not a value that the field takes
				}
				resolved = ""
				err := tools.Backgroundable(c.tool)
				r := ask(t, tools, "job__start", fmt.Sprintf(`{"tool":%q}`, c.tool))
				if err == nil {
					allowed++
					require.Equal(t, "ok", r.Status, "%q: %s", c.tool, r.text)
					require.Equal(t, c.tool, resolved)
					collect(t, s, r.JobID)
					continue
				}
				require.True(t, r.failed(), "%q: %s", c.tool, r.text)
				require.Empty(t, resolved, "asked for a tool that is refused")
				var refused *jobs.NotAllowedError
				require.ErrorAs(t, err, &refused)
				require.ErrorIs(t, err, jobs.ErrNotAllowed)
				require.Equal(t, c.tool, refused.Tool)
				require.Contains(t, r.Message, refused.Reason)
			}
			require.NotZero(t, allowed)
			require.Less(t, allowed, len(policyTable)-1)
		})
	}
}

func TestAHostsPolicyReplacesTheDefault(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	tools := funcs{"fs_cat": returns(1), "build": returns(1)}.toolset(s, jobs.ToolsetOptions{
		Policy: func(tool string) string {
			if tool == "build" {
				return "it is frozen until Monday"
			}
			return ""
		},
	})
	begin(t, tools, "fs_cat")
	err := tools.Backgroundable("build")
	require.EqualError(t, err, `jobs: tool cannot run in the background: "build": it is frozen until Monday`)
}

// The model's word never widens what the request declared, and neither does
// what becomes of the host's slice afterwards.
func TestTheListOfDeclaredToolsIsCopiedWhenTheToolsetIsMade(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	declared := make([]string, 1, 4)
	declared[0] = "build"
	tools := funcs{"build": returns(1), "deploy": returns(1)}.toolset(s, jobs.ToolsetOptions{Declared: declared})
	_ = append(declared, "deploy")
	require.ErrorIs(t, tools.Backgroundable("deploy"), jobs.ErrNotAllowed)
	declared[0] = "deploy"
	require.ErrorIs(t, tools.Backgroundable("deploy"), jobs.ErrNotAllowed)
	require.NoError(t, tools.Backgroundable("build"))
	r := ask(t, tools, "job__start", `{"tool":"deploy"}`)
	require.True(t, r.failed())
	require.Contains(t, r.Message, "no tool of this name was declared")
	begin(t, tools, "build")
}

func TestEachRequestHasItsOwnDeclaredTools(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	f := funcs{"build": returns(1), "test": returns(1)}
	first := f.toolset(s, jobs.ToolsetOptions{Declared: []string{"build"}})
	second := f.toolset(s, jobs.ToolsetOptions{Declared: []string{"test"}})
	require.NoError(t, first.Backgroundable("build"))
	require.Error(t, first.Backgroundable("test"))
	require.Error(t, second.Backgroundable("build"))
	require.NoError(t, second.Backgroundable("test"))
	// A job is one of the supervisor, whoever started it.
	id := begin(t, first, "build")
	require.Equal(t, "completed", ask(t, second, "job__collect", idArgs(id)).Status)
}
