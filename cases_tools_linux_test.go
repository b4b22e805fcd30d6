package jobs_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// requireStrict fails unless text is JSON for readers that refuse a lone
// surrogate, and its strings hold nothing that a terminal or a model obeys.
func requireStrict(t testing.TB, text string) {
	t.Helper()
	require.True(t, json.Valid([]byte(text)) && utf8.ValidString(text), "%.200q", text)
	require.Empty(t, loneSurrogate(text), "of %.200q", text)
	var v any
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	require.NoError(t, dec.Decode(&v))
	eachString(v, func(s string) {
		for _, r := range s {
			require.False(t, r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0, "%q in %.200q", r, s)
		}
	})
}

var escapes = regexp.MustCompile(`\\(u[0-9a-fA-F]{4}|.)`)

// loneSurrogate returns an escape in a JSON text that is half of a pair, "" if
// there is none.
func loneSurrogate(text string) string {
	high, end := "", -1
	for _, at := range escapes.FindAllStringIndex(text, -1) {
		esc := text[at[0]:at[1]]
		code, err := strconv.ParseUint(strings.TrimPrefix(esc, `\u`), 16, 32)
		surrogate := err == nil && len(esc) == 6 && utf16.IsSurrogate(rune(code))
		low := surrogate && code >= 0xdc00
		switch {
		case high != "" && !(low && at[0] == end):
			return high
		case low && high == "":
			return esc
		}
		high, end = "", at[1]
		if surrogate && !low {
			high = esc
		}
	}
	return high
}

// eachString calls f for every string in a decoded JSON value, names included.
func eachString(v any, f func(string)) {
	switch v := v.(type) {
	case string:
		f(v)
	case []any:
		for _, v := range v {
			eachString(v, f)
		}
	case map[string]any:
		for name, v := range v {
			f(name)
			eachString(v, f)
		}
	}
}

// RW-041, RW-049, RW-051, RW-060, RW-065 and like them, as a model sees them:
// in every kind of answer, and in the notice.
func TestEveryPayloadIsStrictWhateverAJobPrints(t *testing.T) {
	for _, c := range []struct{ id, script, begins string }{
		{"RW-041", `printf 'Password: '`, "Password: "},
		{"RW-049", `printf '\xf0\x9f\x98\x80%.0s' {1..50001}`, ""},
		{"RW-051", `printf 'caf\xe9 \xff\xfe\x80 end\n'`, "caf\uFFFD \uFFFD end\n"},
		{"RW-060", `printf 'aaaaaaaa\rbb\n'`, "bb\n"},
		{"RW-065", `printf '\033[31mred\033'`, "red"},
		{"like RW-049", `printf 'x'; printf '\xf0\x9f\x98\x80%.0s' {1..50001}`, ""},
		{"like RW-051", `printf '\x9b31m\xc2\x9b31m\x7f\x01\xe2\x80\xaeevil\n'`, ""},
		{"like RW-051", `head -c 20000 /dev/urandom`, ""},
		{"like RW-065", `printf 'a\033]8;;http://x\nb\033P'`, "a\nb"},
	} {
		t.Run(fmt.Sprintf("%s %.40q", c.id, c.script), func(t *testing.T) {
			s := newSupervisor(t, jobs.Config{})
			tools := s.Toolset(jobs.ToolsetOptions{})
			gate := newGate(t)
			id := start(t, s, gate.gated(c.script+`; read -r _ <"$GATE"`)).ID
			require.True(t, eventually(func() bool { return checkJob(t, s, id).Idle > 0 && checkJob(t, s, id).OutputTotal > 0 }))
			var live reply
			require.True(t, eventually(func() bool {
				live = ask(t, tools, "job__check", idArgs(id, `"tail_lines":1000`))
				return strings.HasPrefix(live.tail(), c.begins) && live.tail() != ""
			}), live.text)
			requireStrict(t, live.text)
			requireStrict(t, ask(t, tools, "job__list", `{}`).text)
			gate.open(t)
			awaitEnd(t, s, id)
			listed := ask(t, tools, "job__list", `{}`)
			requireStrict(t, listed.text)
			require.Len(t, listed.Notices, 1)
			final := ask(t, tools, "job__collect", idArgs(id))
			requireStrict(t, final.text)
			assert.Equal(t, "completed", final.Status)
			assert.True(t, strings.HasPrefix(final.tail(), c.begins), final.text)
		})
	}
}

// RW-182 and RW-184, through the tool: a limit of lines that is none is refused.
func TestTailLinesOfTheToolCountAsDocumented(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	tools := s.Toolset(jobs.ToolsetOptions{})
	for lines, want := range map[string]string{"1": "\n", "2": "\n\n", "3": "a\n\n\n", "100": "a\n\n\n", "1e300": "a\n\n\n"} {
		id := start(t, s, bash(`printf 'a\n\n\n'`)).ID
		assert.Equal(t, want, ask(t, tools, "job__collect", idArgs(id, `"tail_lines":`+lines)).tail(), lines)
	}
	id := start(t, s, bash(`printf 'a\n\n\n'`)).ID
	for _, lines := range []string{"0", "-1", "1.5", `"1"`, "-1e300", "[]", "true"} {
		r := ask(t, tools, "job__collect", idArgs(id, `"tail_lines":`+lines))
		assert.True(t, r.failed(), "%s: %s", lines, r.text)
	}
	assert.Equal(t, "completed", ask(t, tools, "job__collect", idArgs(id)).Status, "a refused call uses nothing up")

	for _, lines := range []int{1, 2} {
		id := start(t, s, bash(`echo first; head -c 10000000 /dev/zero | tr '\0' w; echo`)).ID
		r := ask(t, tools, "job__collect", idArgs(id, fmt.Sprintf(`"tail_lines":%d`, lines)))
		assert.True(t, r.TailTruncated)
		assert.LessOrEqual(t, utf8.RuneCountInString(r.tail()), jobs.TextCap+200, "and a header")
		assert.NotContains(t, r.tail(), "first")
		assert.EqualValues(t, 10_000_007, *r.Captured)
	}
}
