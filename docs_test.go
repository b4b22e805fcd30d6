package jobs_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/require"
)

// toolReference words the declarations for people.
func toolReference(t *testing.T) string {
	s := newSupervisor(t, jobs.Config{})
	set := s.Toolset(jobs.ToolsetOptions{Optional: jobs.WaitTool | jobs.OutputTool | jobs.WriteTool})
	var b strings.Builder
	b.WriteString("# The tools\n\nMade from the declarations by the tests (`go test -run ToolReference -update .`).\nWhat they answer is in [answers](answers.md).\n")
	for _, d := range set.Declarations() {
		var schema struct {
			Properties map[string]struct {
				Type, Description string
			}
			Required []string
		}
		require.NoError(t, json.Unmarshal(d.Parameters, &schema))
		fmt.Fprintf(&b, "\n## `%s`\n\n%s\n", d.Name, d.Description)
		if len(schema.Properties) == 0 {
			b.WriteString("\nIt takes no arguments.\n")
			continue
		}
		b.WriteString("\n| argument | type | |\n|---|---|---|\n")
		var names []string
		for name := range schema.Properties {
			names = append(names, name)
		}
		slices.SortFunc(names, func(a, b string) int {
			if first, second := slices.Contains(schema.Required, a), slices.Contains(schema.Required, b); first != second {
				if first {
					return -1
				}
				return 1
			}
			return strings.Compare(a, b)
		})
		for _, name := range names {
			p, needed := schema.Properties[name], ""
			if slices.Contains(schema.Required, name) {
				needed = ", needed"
			}
			fmt.Fprintf(&b, "| `%s` | %s%s | %s |\n", name, p.Type, needed, strings.ReplaceAll(p.Description, "|", `\|`))
		}
	}
	return b.String()
}

func TestTheToolReferenceIsThatOfTheDeclarations(t *testing.T) {
	const path = "docs/tools.md"
	want := toolReference(t)
	if *updateGolden {
		require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
	}
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, want, string(got))
}
