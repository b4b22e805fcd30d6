package jobs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/require"
)

// FuzzToolsetCall calls a tool as a model gone astray might. The words RUNNING
// and ENDED in the arguments stand for the ids of a job that runs and of one
// that has ended. Where the call starts a job, what came of it is looked at and
// collected.
func FuzzToolsetCall(f *testing.F) {
	for _, sc := range scenes() {
		for _, args := range sc.args {
			for _, verb := range verbs {
				f.Add(verb, []byte(args))
			}
		}
	}
	for _, seed := range []struct{ name, args string }{
		{"", ""},
		{"job__stop", `{"id":"ENDED"}`},
		{"job__list", ``},
		{"job__list", `null`},
		{"job__check", `{"id":"RUNNING"}`},
		{"job__check", `{"id":"RUNNING","tail_lines":1}`},
		{"job__check", `{"id":"ENDED","tail_lines":1e99}`},
		{"job__collect", `{"id":"RUNNING"}`},
		{"job__collect", `{"id":"ENDED","full_result":true,"tail_lines":2.0}`},
		{"job__collect", `{"id":"ENDED","id":"RUNNING"}`},
		{"job__cancel", `{"id":"RUNNING"}`},
		{"job__cancel", `{"id":"ENDED"}`},
		{"job__cancel", `{"id":"\ud800\u0000\u202e"}`},
		{"job__start", `{"tool":"echo","arguments":"{\"a\":[1,2,{\"b\":null}]}"}`},
		{"job__start", `{"tool":"echo","arguments":{"n":12345678901234567890,"x":1e999}}`},
		{"job__start", `{"tool":"print","arguments":{"text":"\u001b[31mred\r\n\u0000","also":"</tool_result>"}}`},
		{"job__start", `{"tool":"fail","arguments":"{\"why\":\"\\u001b]0;title\\u0007\"}"}`},
		{"job__start", `{"tool":"panic","arguments":{"why":"no"}}`},
		{"job__start", `{"tool":"refuse","arguments":{"why":"not now"}}`},
		{"job__start", `{"tool":"user__ask"}`},
		{"job__start", `{"tool":"` + strings.Repeat("x", 300) + `"}`},
		{"job__start", `{"tool":"echo","arguments":"` + strings.Repeat(`[`, 200) + `"}`},
		{"job__start", "{\"tool\":\"print\",\"arguments\":{\"\xff\":\"\xfe\"}}"},
	} {
		f.Add(seed.name, []byte(seed.args))
	}

	f.Fuzz(func(t *testing.T, name string, args []byte) {
		s, err := jobs.New(jobs.Config{MaxRunning: 3, HeadBytes: 100, TailBytes: 1000})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		defer func() {
			_, err := s.Close(ctx)
			require.NoError(t, err)
		}()
		tools := s.Toolset(jobs.ToolsetOptions{
			Declared:  []string{"echo", "print", "fail", "panic", "refuse", "user__ask"},
			Resolve:   resolveEcho,
			ExplainID: explainWell,
			Wait:      time.Millisecond,
		})
		running, err := s.Start(ctx, jobs.Spec{Func: waits})
		require.NoError(t, err)
		ended, err := s.Start(ctx, jobs.Spec{Func: prints("\x1b[31mline 1\nline 2\n")})
		require.NoError(t, err)
		<-s.Ready()

		args = bytes.ReplaceAll(args, []byte("RUNNING"), []byte(running.ID))
		args = bytes.ReplaceAll(args, []byte("ENDED"), []byte(ended.ID))
		call := func(name string, args []byte) reply {
			given := bytes.Clone(args)
			out, isError := tools.Call(ctx, name, args)
			require.Equal(t, given, args, "the arguments were changed")
			r, fault := readReply(string(args), out, isError)
			require.Empty(t, fault, "%s %q answered %s", name, args, out)
			requirePlain(t, r)
			require.LessOrEqual(t, len(r.Notices), 8)
			return r
		}
		if r := call(name, args); r.JobID != "" {
			call("job__check", []byte(idArgs(r.JobID, `"tail_lines":3`)))
			endOf(t, s, r.JobID)
			end := call("job__collect", []byte(idArgs(r.JobID)))
			require.Contains(t, []string{"completed", "failed"}, end.Status)
			require.NotNil(t, end.Result)
		}
		// Whatever that was, the tools go on working.
		require.Equal(t, "ok", call("job__list", nil).Status)
	})
}

// resolveEcho resolves tools that do something with their arguments.
func resolveEcho(_ context.Context, tool string, args json.RawMessage) (jobs.Spec, error) {
	if tool == "refuse" {
		return jobs.Spec{}, &jobs.NotAllowedError{Tool: tool, Reason: string(args)}
	}
	return jobs.Spec{Func: func(_ context.Context, out io.Writer) (any, error) {
		switch tool {
		case "print":
			// The values themselves, not their JSON.
			var values map[string]any
			json.Unmarshal(args, &values)
			for _, name := range slices.Sorted(maps.Keys(values)) {
				text, _ := values[name].(string)
				io.WriteString(out, name+text)
			}
			return nil, nil
		case "fail":
			var values map[string]string
			json.Unmarshal(args, &values)
			return nil, errors.New(values["why"])
		case "panic":
			panic(string(args))
		}
		return args, nil
	}}, nil
}

func explainWell(id string) string {
	if strings.HasPrefix(id, "agent") {
		return "There is an agent " + id
	}
	return ""
}

// requirePlain fails if a text of an answer holds a control character. A result
// may, as an escape: it is the tool's own JSON, of which nothing is changed.
func requirePlain(t testing.TB, r reply) {
	var failure struct {
		Error string `json:"tool_call_error"`
	}
	json.Unmarshal(r.Result, &failure)
	texts := []string{r.Message, r.Hint, r.Tool, r.tail(), failure.Error}
	for _, job := range r.Jobs {
		texts = append(texts, job.Tool)
	}
	for _, text := range texts {
		i := strings.IndexFunc(text, func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || r == 0x7F })
		require.Negative(t, i, "a control character in %q", text)
	}
}
