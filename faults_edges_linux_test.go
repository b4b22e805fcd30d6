package jobs_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/require"
)

func TestASummaryAloneLeavesTheNoticesOfAResultAsTheyAre(t *testing.T) {
	for _, value := range []string{`{}`, `[]`, `null`, `"pay by Friday"`, `[1]`} {
		members := merged(t, jobs.Texts{}.Merge(json.RawMessage(`{"notices":`+value+`,"a":1}`), "look", nil))
		require.Equal(t, value, string(members["notices"]))
	}
}

// A clock that is set back must not put anything off. What the machine's clock
// says to others is no time to count on.
func TestNothingIsTimedByTheWallClock(t *testing.T) {
	goFiles := func(fi fs.FileInfo) bool { return !strings.HasSuffix(fi.Name(), "_test.go") }
	packages, err := parser.ParseDir(token.NewFileSet(), ".", goFiles, 0)
	require.NoError(t, err)
	for name, file := range packages["jobs"].Files {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.SelectorExpr)
			if ok && strings.HasPrefix(call.Sel.Name, "Unix") {
				on, _ := call.X.(*ast.Ident)
				// time.Unix(1, 0) is any time in the past.
				require.True(t, on != nil && (on.Name == "unix" || on.Name == "time" && call.Sel.Name == "Unix"), "%s: %s", name, call.Sel.Name)
			}
			return true
		})
	}
}

// The moment between the KILL and the death is short, so it is tried for.
func TestAHostThatWasStoppedAsItKilledSaysOfNoDeadLeaderThatItLives(t *testing.T) {
	for _, after := range []time.Duration{-4, -1, 2, 5, 8, 12, 16, 20} {
		t.Run(fmt.Sprint(int(after)), func(t *testing.T) {
			t.Parallel()
			requireTruthAfterStop(t, killGraceOfStopped+after*time.Millisecond)
		})
	}
}
