package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// ScriptTools resolves tools that are executables: a tool is the file of its
// name in one of Dirs, takes its arguments as one JSON text in its last
// argument, and writes its result to $LLM_OUTPUT. Its Resolve method is meant
// for [ToolsetOptions].Resolve.
type ScriptTools struct {
	// Dirs are the directories that hold the tools, first match wins. No other
	// place is looked at. In a tool's PATH they come before the host's.
	Dirs []string
	// Args come before the JSON text, for programs that hold several tools.
	Args []string
	// Color asks tools to colour what they print, as a terminal would make
	// them. The text that a model reads has no colours.
	Color bool
	// Dir and Env are as in [Spec].
	Dir string
	Env []string
}

// Resolve returns what to run for a call of a tool. A name that is not a plain
// file name is refused.
func (st ScriptTools) Resolve(_ context.Context, tool string, args json.RawMessage) (Spec, error) {
	if tool == "" || tool != filepath.Base(tool) || strings.HasPrefix(tool, ".") || strings.ContainsAny(tool, "/\\\x00") {
		return Spec{}, fmt.Errorf("jobs: %q is not the name of a tool", tool)
	}
	dirs, err := st.absDirs()
	if err != nil {
		return Spec{}, err
	}
	for _, dir := range dirs {
		path := filepath.Join(dir, tool)
		fi, err := os.Stat(path)
		if errors.Is(err, os.ErrNotExist) || err == nil && fi.IsDir() {
			continue
		}
		return Spec{
			Tool: tool,
			Argv: append(append([]string{path}, st.Args...), string(args)),
			Dir:  st.Dir,
			Env:  st.env(dirs),
		}, nil
	}
	return Spec{}, fmt.Errorf("jobs: there is no executable for the tool %q", tool)
}

// absDirs returns the directories as the host sees them now, so that the
// directory a tool works in does not matter.
func (st ScriptTools) absDirs() ([]string, error) {
	dirs := make([]string, len(st.Dirs))
	for i, dir := range st.Dirs {
		var err error
		if dirs[i], err = filepath.Abs(dir); err != nil {
			return nil, err
		}
	}
	return dirs, nil
}

func (st ScriptTools) env(dirs []string) []string {
	path := strings.Join(dirs, string(os.PathListSeparator))
	if host := os.Getenv("PATH"); host != "" {
		path += string(os.PathListSeparator) + host
	}
	env := []string{"PATH=" + path}
	if st.Color {
		env = append(env, "CLICOLOR_FORCE=1", "FORCE_COLOR=1")
	}
	return append(env, st.Env...)
}
