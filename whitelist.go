package jobs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrNotAllowed means that a tool may not run as a background job. A
// [*NotAllowedError] carries the reason.
var ErrNotAllowed = errors.New("jobs: tool cannot run in the background")

// A NotAllowedError says why a tool may not run as a background job.
type NotAllowedError struct {
	Tool   string
	Reason string // a clause such as "it already runs in the background"
}

func (e *NotAllowedError) Error() string {
	return fmt.Sprintf("%v: %q: %s", ErrNotAllowed, e.Tool, e.Reason)
}

// Unwrap returns ErrNotAllowed.
func (e *NotAllowedError) Unwrap() error { return ErrNotAllowed }

// A Policy decides which tools may run as background jobs. It returns "" for
// one that may, else the reason why not, as a clause about the tool ("it asks
// the user"). It must be safe for concurrent use.
type Policy func(tool string) (reason string)

// A class is a family of tools that are no use in the background.
type class struct {
	prefixes []string
	names    []string
	reason   string
}

var foregroundOnly = []class{
	{prefixes: []string{"agent__", "job__"}, reason: "it already runs in the background; call it directly"},
	{prefixes: []string{"user__"}, reason: "it talks with the user, who would not see it; call it directly"},
	{prefixes: []string{"todo__", "memory__", "skill__", "rag__"}, reason: "it changes your own state, which you must see at once; call it directly"},
	{prefixes: []string{"fs_"}, names: []string{"ast_grep"}, reason: "it is done before a job would have started; call it directly"},
	{prefixes: []string{"mcp_search_", "mcp_describe_", "mcp_read_", "mcp_prompt_"}, reason: "it answers in less than a second; call it directly"},
}

// DefaultPolicy is the [Policy] of a Toolset that sets none. It refuses tools
// that are asynchronous already (agent__*, job__*), that talk with the user
// (user__*), that change the agent's own state (todo__*, memory__*, skill__*,
// rag__*), and that are fast anyway (fs_*, ast_grep, mcp_search_*,
// mcp_describe_*, mcp_read_*, mcp_prompt_*). All others may run in the
// background.
func DefaultPolicy(tool string) (reason string) {
	for _, c := range foregroundOnly {
		if slices.Contains(c.names, tool) || slices.ContainsFunc(c.prefixes, func(p string) bool { return strings.HasPrefix(tool, p) }) {
			return c.reason
		}
	}
	return ""
}

// Backgroundable returns nil if the tool may be started as a job through this
// Toolset, else a [*NotAllowedError]. It is the very check that job__start
// makes: the policy must allow it, and the name must be, letter for letter, one
// that was declared when the Toolset was made. No alias, path or name from PATH is
// ever tried.
func (t *Toolset) Backgroundable(tool string) error {
	reason := t.whyNot(tool)
	if reason == "" {
		return nil
	}
	return &NotAllowedError{Tool: tool, Reason: reason}
}

func (t *Toolset) whyNot(tool string) (reason string) {
	for _, name := range t.words {
		if name == tool {
			return foregroundOnly[0].reason // a job tool, perhaps under another name
		}
	}
	if reason = t.policyReason(tool); reason == "" && !slices.Contains(t.declared, tool) {
		reason = "no tool of this name was declared to you"
	}
	return reason
}

// policyReason asks the host's policy. One that panics refuses.
func (t *Toolset) policyReason(tool string) (reason string) {
	defer func() {
		if recover() != nil {
			reason = t.words.policyFailed()
		}
	}()
	return t.policy(tool)
}

// backgroundable lists the declared tools that may run as jobs.
func (t *Toolset) backgroundable() []string {
	var names []string
	for _, tool := range t.declared {
		if t.Backgroundable(tool) == nil && !slices.Contains(names, tool) {
			names = append(names, tool)
		}
	}
	return names
}
