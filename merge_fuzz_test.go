package jobs_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/require"
)

// decodeExactly decodes JSON with its numbers as they are written.
func decodeExactly(t testing.TB, text []byte) (v any) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	require.NoError(t, dec.Decode(&v), "%s", text)
	return v
}

// objectIn returns the object that a result is. Space around it does not count,
// be it one that JSON does not know.
func objectIn(t testing.TB, result []byte) (members map[string]any, ok bool) {
	t.Helper()
	text := bytes.TrimSpace(result)
	if json.Valid(text) {
		members, ok = decodeExactly(t, text).(map[string]any)
	}
	return members, ok
}

// FuzzMerge merges notices, or a summary, or both into any result.
func FuzzMerge(f *testing.F) {
	for _, result := range append(slices.Clone(kept), "", "null", "[1]", `"text"`, "{broken", "\xff", "{}", `{"notices":[1],"a":2}`,
		`{"notices":{"a":1}}`, `{"pending_summary":"old","a":1.50}`, `{"notices":null}`, `{"notices":[],"notices":[2]}`, `{"result":[]}`,
		strings.Repeat(`{"a":`, 100)+"1"+strings.Repeat("}", 100), "{\"a\":\"\xff\"}", `{"a":1}}`, "\ufeff{}") {
		for _, pending := range []string{"", "look", "\x1b[31mred\u202e\x00"} {
			f.Add([]byte(result), pending, uint8(len(result)))
		}
	}
	samples := sampleNotices()
	f.Fuzz(func(t *testing.T, result []byte, pending string, n uint8) {
		notices := []jobs.Notice{samples["completed"], samples["failed"]}[:n%3]
		given := bytes.Clone(result)
		out := jobs.Texts{}.Merge(result, pending, notices)
		require.Equal(t, given, result, "the host's bytes were changed")
		if pending == "" && len(notices) == 0 {
			require.Equal(t, given, []byte(out))
			return
		}
		members := merged(t, out)
		requireMerged(t, result, members, pending, len(notices))
		requireNoticesLast(t, result, members, notices)
		again := merged(t, jobs.Texts{}.Merge(out, "more", nil))
		require.Equal(t, keysOf(members, "pending_summary"), keysOf(again), "a second time wraps again")
	})
}

// keysOf returns the names of the members, and of those that are there anyway.
func keysOf(members map[string]json.RawMessage, also ...string) []string {
	for name := range members {
		also = append(also, name)
	}
	slices.Sort(also)
	return slices.Compact(also)
}

// requireMerged fails unless what the result said is still said, and nothing
// else but notices and summary.
func requireMerged(t testing.TB, result []byte, members map[string]json.RawMessage, pending string, notices int) {
	t.Helper()
	was, isObject := objectIn(t, result)
	if !isObject {
		was = map[string]any{"result": nil}
		requireWrapped(t, result, members["result"])
	}
	added := map[string]bool{"pending_summary": pending != "", "notices": notices > 0}
	for name := range members {
		_, had := was[name]
		require.True(t, had || added[name], "%q came out of nowhere", name)
	}
	for name, value := range was {
		require.Contains(t, members, name)
		if isObject && !added[name] {
			require.Equal(t, value, decodeExactly(t, members[name]), "%q", name)
		}
	}
	if pending != "" {
		summary, ok := decodeExactly(t, members["pending_summary"]).(string)
		require.True(t, ok && utf8.ValidString(summary) && !strings.ContainsAny(summary, "\x00\x1b"), "%q", summary)
	}
}

// requireWrapped fails unless wrapped is what a result that is no object is
// wrapped as: itself, or its text.
func requireWrapped(t testing.TB, result, wrapped []byte) {
	t.Helper()
	if json.Valid(result) {
		require.Equal(t, decodeExactly(t, result), decodeExactly(t, wrapped))
		return
	}
	text, ok := decodeExactly(t, wrapped).(string)
	require.True(t, ok, "%s", wrapped)
	if plain := string(result); !strings.ContainsFunc(plain, func(r rune) bool { return r < ' ' || r > '~' }) {
		require.Equal(t, plain, text)
	}
}

// requireNoticesLast fails unless the notices stand at the end of the list, and
// before them what was there.
func requireNoticesLast(t testing.TB, result []byte, members map[string]json.RawMessage, notices []jobs.Notice) {
	t.Helper()
	if len(notices) == 0 {
		return
	}
	var list []json.RawMessage
	require.NoError(t, json.Unmarshal(members["notices"], &list))
	require.GreaterOrEqual(t, len(list), len(notices))
	for i, n := range notices {
		view, err := json.Marshal(n)
		require.NoError(t, err)
		require.JSONEq(t, string(view), string(list[len(list)-len(notices)+i]))
	}
	was, _ := objectIn(t, result)
	var old []any
	switch v := was["notices"].(type) {
	case nil:
	case []any:
		old = v
	default:
		old = []any{v}
	}
	require.Len(t, list, len(old)+len(notices))
	for i, v := range old {
		require.Equal(t, v, decodeExactly(t, list[i]))
	}
}
