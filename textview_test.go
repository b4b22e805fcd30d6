package jobs_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/require"
)

// logOf is what a log with the default capacities keeps of parts, written one
// by one.
func logOf(parts ...string) jobs.Log {
	b := jobs.NewRingBuf(jobs.DefaultHeadBytes, jobs.DefaultTailBytes)
	for _, part := range parts {
		b.Write([]byte(part))
	}
	return b.Log()
}

// view is the body of the whole view of what parts, written one by one, make.
func view(parts ...string) string {
	return logOf(parts...).Text(jobs.TextOptions{Full: true}).Body
}

// random returns n bytes that are no text. The same ones each time.
func random(n int) string {
	data := make([]byte, n)
	rand.NewChaCha8([32]byte{1}).Read(data)
	return string(data)
}

// viewTable runs a table of inputs and the views they must have.
func viewTable(t *testing.T, table []struct{ name, in, want string }) {
	t.Helper()
	for _, c := range table {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, view(c.in), "of %q", c.in)
			require.Equal(t, c.want, view(c.want), "the view of the view")
		})
	}
}

func TestTextViewIsValidUTF8(t *testing.T) {
	viewTable(t, []struct{ name, in, want string }{
		{"plain", "hello\n\tworld\n", "hello\n\tworld\n"},
		{"empty", "", ""},
		{"many scripts", "Grüße 日本語 \U0001f600 e\u0301", "Grüße 日本語 \U0001f600 e\u0301"},
		{"RW-047 ends inside a character", "abc\xe2\x82", "abc"},
		{"ends inside an astral one", "abc\xf0\x9f\x98", "abc"},
		{"ends in a byte that begins nothing", "abc\xff", "abc\uFFFD"},
		{"RW-051 legacy bytes", "caf\xe9 \xff\xfe\x80 end\n", "caf\uFFFD \uFFFD end\n"},
		{"encoded surrogate", "a\xed\xa0\x80b", "a\uFFFDb"},
		{"overlong", "a\xc0\xafb", "a\uFFFDb"},
		{"a real U+FFFD stays", "a\uFFFD\uFFFDb", "a\uFFFD\uFFFDb"},
		{"no sequence is made of what a removed one parted", "\xe2\x1b[0m\x80\x94", "\uFFFD\uFFFD"},
	})
	require.Equal(t, "cleanup \u2014 end", view("cleanup \xe2", "\x80\x94 end"), "RW-045")
}

func TestTextViewStripsEscapeSequences(t *testing.T) {
	viewTable(t, []struct{ name, in, want string }{
		{"RW-061 title and clipboard", "\x1b]0;title\aA\x1b]52;c;aGk=\aB\n", "AB\n"},
		{"RW-063 unterminated OSC", "\x1b]0;evil\nline2\nline3\n", "\nline2\nline3\n"},
		{"unterminated OSC before CRLF", "\x1b]0;evil\r\nline2\n", "\nline2\n"},
		{"RW-065 colours", "\x1b[31mred\x1b[0m\n", "red\n"},
		{"long parameters", "\x1b[38;2;1;2;3;48:5:7mx", "x"},
		{"private and intermediate", "a\x1b[?25lb\x1b[2 qc\x1b[!pd", "abcd"},
		{"OSC 8 link with ST", "\x1b]8;;http://x\x1b\\text\x1b]8;;\x1b\\", "text"},
		{"DCS SOS PM APC", "a\x1bPq#1\x1b\\b\x1bXs\x1b\\c\x1b^p\x1b\\d\x1b_a\x1b\\e", "abcde"},
		{"string ended by C1 ST", "a\x1b]0;t\u009cb", "ab"},
		{"a sequence breaks a string off", "\x1b]0;t\x1b[31mred", "red"},
		{"two bytes", "a\x1b7b\x1b=c\x1bMd\x1b\\e", "abcde"},
		{"nF", "a\x1b(Bb\x1b#8c\x1b %Gd", "abcd"},
		{"C1 CSI", "a\u009b31mb", "ab"},
		{"C1 OSC and DCS", "a\u009d0;t\ab\u0090q\u009cc", "abc"},
		{"other C1", "a\u0085b\u0099c", "abc"},
		{"lone ESC before text of no sequence", "a\x1b\u00e9", "a\u00e9"},
		{"two ESC", "a\x1b\x1b[31mb", "ab"},
		{"newline inside a CSI", "a\x1b[31\nb", "a\nb"},
		{"CSI broken off by a character", "a\x1b[31éb", "aéb"},
	})
}

func TestTextViewNeverShowsAnUnfinishedSequence(t *testing.T) {
	for _, text := range []string{
		"\x1b[31mred\x1b[0m\n",
		"\x1b]0;red\x1b\\red\n",
		"\x1b]0;red\ared\n",
		"\x1b(Bred\u009b0m\x1b[2 q\n",
		"\u0090pq\u009cred\x1bc\n",
	} {
		for i := range text {
			live := view(text[:i])
			require.True(t, strings.HasPrefix("red\n", live), "%q shows %q", text[:i], live)
			require.Equal(t, "red\n", view(text[:i], text[i:]))
		}
	}
}

func TestTextViewFoldsCarriageReturnsIntoTheLastFrame(t *testing.T) {
	var git, frames strings.Builder
	for i := range 101 {
		fmt.Fprintf(&git, "\rReceiving objects: %3d%%", i)
	}
	for i := range 1000 {
		fmt.Fprintf(&frames, "frame %d\r", i)
	}
	viewTable(t, []struct{ name, in, want string }{
		{"RW-056 git", git.String() + ", done.\n", "Receiving objects: 100%, done.\n"},
		{"1,000 frames", frames.String(), "frame 999"},
		{"RW-058 CRLF", "a\r\nb\r\n", "a\nb\n"},
		{"RW-060 shorter frame", "aaaaaaaa\rbb\n", "bb\n"},
		{"CR CR LF", "a\r\r\nb", "a\nb"},
		{"only its own line", "keep\n10%\r20%\nkeep\n", "keep\n20%\nkeep\n"},
		{"a trailing CR keeps the frame", "10%\r", "10%"},
		{"a frame of nothing visible keeps the one before", "10%\r\x1b[K\n", "10%\n"},
		{"cleared and written again", "10%\r\x1b[2K\rdone\n", "done\n"},
	})
	for i := range "a\r\nb\r\n" {
		require.Equal(t, "a\nb\n", view("a\r\nb\r\n"[:i], "a\r\nb\r\n"[i:]), "RW-058")
	}
}

func TestTextViewAppliesBackspaces(t *testing.T) {
	viewTable(t, []struct{ name, in, want string }{
		{"RW-054 overstrike", "N\bNA\bAM\bME\bE\n", "NAME\n"},
		{"underline", "_\bN_\bo", "No"},
		{"spinner", "|\b/\b-\b\\", "\\"},
		{"erase", "abc\b \b", "ab"},
		{"whole characters", "aé\b日\b\U0001f600\b.", "a."},
		{"not past the line", "a\n\b\bb", "a\nb"},
		{"not past the start", "\b\ba", "a"},
		{"nothing to take back after CR", "ab\r\bc", "c"},
		{"not into a notice", strings.Repeat("\x00", 9) + "\b\b.", "[␀ × 9]."},
	})
}

func TestTextViewShowsNULs(t *testing.T) {
	nul := func(n int) string { return strings.Repeat("\x00", n) }
	viewTable(t, []struct{ name, in, want string }{
		{"RW-052", "before\x00after\n" + nul(4096) + "tail\n", "before␀after\n[␀ × 4,096]tail\n"},
		{"eight", nul(8), "␀␀␀␀␀␀␀␀"},
		{"nine", nul(9), "[␀ × 9]"},
		{"find -print0", "a b\x00c\x00d\x00", "a b␀c␀d␀"},
		{"UTF-16 stays legible", "h\x00i\x00\n\x00", "h␀i␀\n␀"},
		{"a new frame leaves the notice", nul(9) + "x\ry", "[␀ × 9]y"},
	})
}

func TestTextViewDropsOtherControlAndHiddenCharacters(t *testing.T) {
	var controls strings.Builder
	for c := range rune(' ') {
		if !strings.ContainsRune("\x00\b\t\n\r\x1b", c) {
			controls.WriteRune(c)
		}
	}
	viewTable(t, []struct{ name, in, want string }{
		{"C0 and DEL", "a" + controls.String() + "\x7fb", "ab"},
		{"bidirectional overrides", "a\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069b", "ab"},
		{"byte order marks", "\uFEFF\uFEFFa\uFEFFb", "ab"},
		{"tags", "a\U000e0001\U000e0041\U000e007fb", "ab"},
		{"joiners and marks of direction stay", "\u200b\u200c\u200d\u200e\u200f\u2060", "\u200b\u200c\u200d\u200e\u200f\u2060"},
	})
}

func TestTextViewNamesBinaryData(t *testing.T) {
	blob := "\x01" + random(4094) + "\x01"
	viewTable(t, []struct{ name, in, want string }{
		{"between text", "before\x00after\n" + blob + "tail\n", "before␀after\n[binary data, 4,096 bytes]tail\n"},
		{"alone", blob, "[binary data, 4,096 bytes]"},
		{"the NULs behind it are part of it", blob + strings.Repeat("\x00", 100) + "tail", "[binary data, 4,196 bytes]tail"},
		{"twice", blob + strings.Repeat("text ", 10) + blob,
			"[binary data, 4,096 bytes]" + strings.Repeat("text ", 10) + "[binary data, 4,096 bytes]"},
		{"stays when the line begins anew", "x" + blob + "10%\r20%\n", "x[binary data, 4,096 bytes]20%\n"},
		{"a frame of binary data", "10%\r" + blob, "[binary data, 4,096 bytes]"},
	})
	for name, text := range map[string]string{
		"Latin-1":      strings.Repeat("d\xe9j\xe0 vu, \xe0 bient\xf4t\n", 100),
		"KOI8-R":       strings.Repeat("\xf0\xd2\xc9\xd7\xc5\xd4 ", 100),
		"records":      strings.Repeat("a\x1fb\x1fc\x1e", 100),
		"few controls": strings.Repeat("\x01\xff", 7),
		"colours":      strings.Repeat("\x1b[31mx\x1b[0m\b\a", 100),
	} {
		require.NotContains(t, view(text), "binary", name)
	}
}

func TestTextViewMarksWhatWasDropped(t *testing.T) {
	b := jobs.NewRingBuf(10, 10)
	b.Write([]byte("head\nhalf of a line and\nlast\n"))
	text := b.Log().Text(jobs.TextOptions{})
	require.Equal(t, "head\nhalf \n[… 9 bytes dropped …]\nlast\n", text.Body)
	require.Equal(t, int64(9), text.Dropped)
	require.True(t, text.Truncated)
	require.Equal(t, text.Total, text.Shown)
	require.Equal(t, "[all 38 characters that were kept; 9 bytes were dropped and cannot be had]", text.Header())

	onlyHead := jobs.NewRingBuf(4, 0)
	onlyHead.Write([]byte("head\x1b[31m"))
	require.Equal(t, "head\n[… 5 bytes dropped …]\n", onlyHead.Log().Text(jobs.TextOptions{}).Body)

	nothing := jobs.NewRingBuf(0, 0)
	nothing.Write([]byte("gone"))
	text = nothing.Log().Text(jobs.TextOptions{})
	require.Equal(t, jobs.Text{Truncated: true, Dropped: 4}, text)
	require.Equal(t, "[nothing was kept; 4 bytes were dropped and cannot be had]\n", text.String())
}

func TestTextViewMarkerBeginsALineAfterALineOfAnyKind(t *testing.T) {
	for head, want := range map[string]string{
		"a":        "a\n",
		"a\n":      "a\n",
		"a\r":      "a\n",
		"\x1b]0;t": "",
		"a\xe2":    "a\n",
	} {
		log := jobs.Log{
			Pieces:  []jobs.Piece{{Data: []byte(head)}, {From: 1234567, Data: []byte("x\nb\bc\rd")}},
			Total:   1234574,
			Dropped: 1234567 - int64(len(head)),
		}
		got := log.Text(jobs.TextOptions{}).Body
		require.Regexp(t, `^`+want+`\[… 1,234,56\d bytes dropped …\]\nd$`, got, "after %q", head)
	}
}

func TestTextViewNeverShowsPartOfACharacterTheRingCut(t *testing.T) {
	const text = "日本語日本語日本語"
	for head := range 8 {
		for tail := range 8 {
			b := jobs.NewRingBuf(head, tail)
			for i := range len(text) {
				b.Write([]byte{text[i]})
				body := b.Log().Text(jobs.TextOptions{}).Body
				require.NotContains(t, body, "\uFFFD", "head %d, tail %d, %d bytes", head, tail, i+1)
			}
		}
	}
}

// border is the text of n characters with the options given.
func border(n int, o jobs.TextOptions) jobs.Text {
	return logOf(strings.Repeat("x", n)).Text(o)
}

func TestTextViewKeepsTheLast50000Characters(t *testing.T) {
	for _, n := range []int{49_999, 50_000} { // RW-180
		text := border(n, jobs.TextOptions{})
		require.Equal(t, int64(n), text.Shown)
		require.Equal(t, n, len(text.Body))
		require.False(t, text.Truncated)
		require.Empty(t, text.Header())
		require.Equal(t, text.Body, text.String())
	}
	text := logOf("a" + strings.Repeat("b", 50_000)).Text(jobs.TextOptions{})
	require.Equal(t, strings.Repeat("b", 50_000), text.Body)
	require.Equal(t, int64(50_000), text.Shown)
	require.Equal(t, int64(50_001), text.Total)
	require.True(t, text.Truncated)
	require.Equal(t, "[last 50,000 of 50,001 characters]", text.Header())
	require.Equal(t, text.Header()+"\n"+text.Body, text.String())

	full := border(50_001, jobs.TextOptions{Full: true})
	require.Equal(t, 50_001, len(full.Body))
	require.False(t, full.Truncated)
}

func TestTextViewCutsBetweenCharactersAfterSanitising(t *testing.T) {
	data := strings.Repeat("\U0001f600", 50_001) + "\n" // RW-049
	text := jobs.ResultFile{Data: []byte(data), Size: int64(len(data))}.Text(jobs.TextOptions{})
	require.Equal(t, strings.Repeat("\U0001f600", 49_999)+"\n", text.Body)
	require.True(t, text.Truncated)

	text = logOf("\x1b[31m" + strings.Repeat("x", 49_998) + "\x1b[0m" + strings.Repeat("y", 10) + "\n").Text(jobs.TextOptions{})
	require.Regexp(t, `^[xy]+\n$`, text.Body) // RW-067
	require.Equal(t, int64(50_009), text.Total)
}

func TestTextViewBoundsAFloodWithoutNewlines(t *testing.T) {
	b := jobs.NewRingBuf(jobs.DefaultHeadBytes, jobs.DefaultTailBytes)
	chunk := bytes.Repeat([]byte("q"), 1_000_000)
	for range 50 { // RW-070
		b.Write(chunk)
	}
	text := b.Log().Text(jobs.TextOptions{TailLines: 1})
	require.Equal(t, 50_000, len(text.Body))
	require.True(t, text.Truncated)
}

func TestTextViewCountsTailLines(t *testing.T) {
	all := func(s string) map[int]string {
		return map[int]string{0: s, -1: s, 1: s, 2: s, 3: s, 100: s}
	}
	with := func(m map[int]string, n int, s string) map[int]string { m[n] = s; return m }
	for in, want := range map[string]map[int]string{ // RW-182
		"a\n\n\n": with(with(all("a\n\n\n"), 1, "\n"), 2, "\n\n"),
		"":        all(""),
		"\n":      all("\n"),
		"a\nb":    with(all("a\nb"), 1, "b"),
		"a\nb\n":  with(all("a\nb\n"), 1, "b\n"),
		"a\r\nb\r\n\r\nc": with(with(with(all("a\nb\n\nc"), 1, "c"), 2, "\nc"),
			3, "b\n\nc"),
	} {
		for n, body := range want {
			text := logOf(in).Text(jobs.TextOptions{TailLines: n})
			require.Equal(t, body, text.Body, "the last %d lines of %q", n, in)
			require.Equal(t, text.Shown < text.Total, text.Truncated)
			full := logOf(in).Text(jobs.TextOptions{TailLines: n, Full: true})
			require.Equal(t, text, full)
		}
	}
}

func TestTextViewHoldsTheLineLimitAndTheCapTogether(t *testing.T) {
	log := logOf("first\n", strings.Repeat("w", 10_000_000), "\n") // RW-184
	for _, lines := range []int{1, 2} {
		text := log.Text(jobs.TextOptions{TailLines: lines})
		require.Equal(t, strings.Repeat("w", 49_999)+"\n", text.Body)
		require.True(t, text.Truncated)
	}
	full := log.Text(jobs.TextOptions{Full: true})
	require.Regexp(t, `^first\nw+\n\[… 9,930,375 bytes dropped …\]\nw+\n$`, full.Body)
	require.Equal(t, log.Dropped, full.Dropped)
	require.True(t, full.Truncated)
}

func TestTextViewLeavesTheLogAlone(t *testing.T) {
	data := []byte("plain\n")
	log := jobs.Log{
		Pieces:  []jobs.Piece{{Data: data[:5]}, {From: 10, Data: []byte("a\nb\n")}},
		Total:   14,
		Dropped: 5,
	}
	text := log.Text(jobs.TextOptions{})
	require.Equal(t, "plain\n[… 5 bytes dropped …]\nb\n", text.Body)
	require.Equal(t, "plain\n", string(data))
	data[0] = 'X'
	require.True(t, strings.HasPrefix(text.Body, "plain"))
}

func TestTextViewOfPlainTextAllocatesNoMoreThanTheText(t *testing.T) {
	log := logOf(strings.Repeat("all work and no play\n", 2000))
	require.LessOrEqual(t, testing.AllocsPerRun(10, func() { log.Text(jobs.TextOptions{}) }), 1.0)
}

func resultText(data string, o jobs.TextOptions) jobs.Text {
	return jobs.ResultFile{Data: []byte(data), Size: int64(len(data))}.Text(o)
}

func TestResultTextShowsJSONVerbatim(t *testing.T) {
	for _, data := range []string{
		`{"id":9007199254740993,"big":123456789012345678901234567890}`, // RW-174
		"42", "-0", "1e400", `"str"`, "null", "true", "[1,2]", "{}", "", " \n", "{} {}", "[1] x", // RW-176
		`{"a": [1, 2`, // RW-178
		"{\n  \"a\": \"<b>\\u202e\\n\"\n}\n",
		strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000),
		`"` + strings.Repeat("x", 49_998) + `"`,
	} {
		require.Equal(t, jobs.Text{Body: data, Shown: int64(len(data)), Total: int64(len(data))}, resultText(data, jobs.TextOptions{}))
	}
	require.Equal(t, "{}", resultText("\uFEFF{}", jobs.TextOptions{}).Body)
}

func TestResultTextWritesHiddenCharactersOfJSONAsEscapes(t *testing.T) {
	for in, want := range map[string]string{
		"{\"a\":1,\r\"b\":2}":                 "{\"a\":1,\n\"b\":2}",
		"[1,\r\n2]\r\n":                       "[1,\n2]\n",
		"\"a\u202eb\"":                        `"a\u202eb"`,
		"\"a\u009b31\"":                       `"a\u009b31"`,
		"\"\x7f\"":                            `"\u007f"`,
		"\"\U000e0041\uFEFF\"":                `"\udb40\udc41\ufeff"`,
		"\"\\\\\u202e\"":                      `"\\\u202e"`,
		"[\"\U0001f600\",9007199254740993\r]": "[\"\U0001f600\",9007199254740993\n]",
	} {
		require.Equal(t, want, resultText(in, jobs.TextOptions{}).Body)
		require.JSONEq(t, in, want)
	}
}

func TestResultTextCutsLongJSONAsText(t *testing.T) {
	data := `"` + strings.Repeat("x", 49_999) + `"`
	text := resultText(data, jobs.TextOptions{})
	require.Equal(t, data[1:], text.Body)
	require.True(t, text.Truncated)
	require.Equal(t, data, resultText(data, jobs.TextOptions{Full: true}).Body)
	require.Equal(t, "]\n", resultText("[\n1\n]\n", jobs.TextOptions{TailLines: 1, Full: true}).Body)
}

func TestResultTextOfTheEndOfAFileBeginsCleanly(t *testing.T) {
	text := jobs.ResultFile{Data: []byte("2}\n{\"a\":1}\n"), Size: 100, Truncated: true}.Text(jobs.TextOptions{})
	require.Equal(t, jobs.Text{Body: "{\"a\":1}\n", Truncated: true, Shown: 8, Total: 8, Dropped: 89}, text)

	unknown := jobs.ResultFile{Data: []byte("end"), Truncated: true}.Text(jobs.TextOptions{})
	require.Equal(t, "[all 3 characters that were kept]\nend", unknown.String())

	unread := jobs.ResultFile{Size: 100, Problem: "it cannot be read"}.Text(jobs.TextOptions{})
	require.Equal(t, jobs.Text{Truncated: true, Dropped: 100}, unread)

	short := jobs.ResultFile{Data: []byte("begin"), Size: 100, Problem: "read error"}.Text(jobs.TextOptions{})
	require.Equal(t, "begin\n[… 95 bytes dropped …]\n", short.Body)
}

func TestResultTextIsThatOfTheOutputWhereTheFileIsEmpty(t *testing.T) {
	output := logOf("\x1b[1mprinted\n")
	for _, data := range []string{"", " \n\t", "\uFEFF", "\uFEFF\r\n"} {
		r := jobs.Result{File: jobs.ResultFile{Data: []byte(data), Size: int64(len(data))}, Output: output}
		require.Equal(t, "printed\n", r.Text(jobs.TextOptions{}).Body, "%q", data)
	}
	r := jobs.Result{File: jobs.ResultFile{Data: []byte("told\n"), Size: 5}, Output: output}
	require.Equal(t, "told\n", r.Text(jobs.TextOptions{}).Body)
}

func TestResultTextOfRealJobs(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	for script, want := range map[string]string{
		`printf 'cleanup \xe2'; sleep 0.05; printf '\x80\x94 end'`:        "cleanup \u2014 end",
		`printf 'a\r'; sleep 0.05; printf '\nb\r\n'`:                      "a\nb\n",
		`printf '\033'; sleep 0.05; printf '[31mred\033'; printf '[0m\n'`: "red\n",
		`printf 'before\0after\n'; head -c 4096 /dev/zero; echo tail`:     "before␀after\n[␀ × 4,096]tail\n",
		`echo text; printf '{"id":9007199254740993}' >"$LLM_OUTPUT"`:      `{"id":9007199254740993}`,
		`rm -f "$LLM_OUTPUT"; echo text`:                                  "text\n",
		`printf 'caf\xe9 end\n' >"$LLM_OUTPUT"`:                           "caf\uFFFD end\n",
	} {
		require.Equal(t, want, runScript(t, s, script).Text(jobs.TextOptions{}).Body, script)
	}
}
