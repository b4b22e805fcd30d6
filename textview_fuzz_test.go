package jobs_test

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/require"
)

// awkward are fragments that mean something to the view.
var awkward = []string{
	"\x1b", "[", "31", "m", "]0;", "\a", "\\", "\r", "\n", "\b", "\x00", "\x00\x00\x00\x00\x00\x00\x00\x00\x00",
	"\u009b", "\u009c", "\u202e", "\xe2", "\x82", "\xac", "\xff", "\x01", "a", "bc", "日本", "\U0001f600", "\uFEFF", "(B", " ",
}

func TestTextViewIsTheSameHoweverTheOutputWasSplit(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var whole strings.Builder
		for range rng.IntN(40) {
			whole.WriteString(awkward[rng.IntN(len(awkward))])
		}
		if rng.IntN(4) == 0 {
			whole.WriteString(random(100))
		}
		in := whole.String()
		head, tail := rng.IntN(40), rng.IntN(40)
		if rng.IntN(2) == 0 {
			head, tail = 4096, 4096
		}
		want := ringView(head, tail, in)
		for i := range len(in) + 1 {
			require.Equal(t, want, ringView(head, tail, in[:i], in[i:]), "%q split at %d, head %d, tail %d", in, i, head, tail)
		}
	}
}

func ringView(head, tail int, parts ...string) jobs.Text {
	b := jobs.NewRingBuf(head, tail)
	for _, part := range parts {
		b.Write([]byte(part))
	}
	return b.Log().Text(jobs.TextOptions{})
}

func TestTextViewIsValidAndIdempotentOnRandomBytes(t *testing.T) {
	for n := range 300 {
		body := view(random(n))
		require.True(t, utf8.ValidString(body))
		require.Equal(t, body, view(body))
	}
}

func FuzzTextView(f *testing.F) {
	for _, s := range awkward {
		f.Add([]byte(s), uint16(4096), uint16(4096), int16(0))
		f.Add([]byte("a\n"+s+s+"b\n"), uint16(3), uint16(5), int16(1))
	}
	f.Add([]byte("x\x01"+random(300)+"\x01y\n"), uint16(0), uint16(200), int16(2))
	f.Add([]byte(strings.Repeat("é\n", 30_000)), uint16(4096), uint16(65535), int16(-1))
	f.Fuzz(func(t *testing.T, data []byte, head, tail uint16, lines int16) {
		b := jobs.NewRingBuf(int(head), int(tail))
		b.Write(data)
		log := b.Log()
		o := jobs.TextOptions{TailLines: int(lines)}
		text := log.Text(o)
		checkText(t, text)
		checkCounts(t, text, o)
		if text.Dropped != log.Dropped {
			t.Fatalf("%d bytes dropped, want %d", text.Dropped, log.Dropped)
		}
		again := jobs.Log{Pieces: []jobs.Piece{{Data: []byte(text.Body)}}, Total: int64(len(text.Body))}.Text(o)
		if again.Body != text.Body || again.Truncated {
			t.Fatalf("the view of %q is %q", text.Body, again.Body)
		}
		o.Full = true
		full := log.Text(o)
		checkText(t, full)
		if !strings.HasSuffix(full.Body, text.Body) || full.Total != text.Total {
			t.Fatalf("%q is no end of %q", text.Body, full.Body)
		}
	})
}

func FuzzResultFileText(f *testing.F) {
	for _, s := range append(awkward, `{"a":1,`+"\r"+`"b":"`+"\u202e\U000e0041\x7f"+`"}`, "\uFEFF{}\r\n", "[[[[", "1e400", "\"\\\u009b\"") {
		f.Add([]byte(s), false, int16(0))
		f.Add([]byte("\n"+s+"\n"), true, int16(1))
	}
	f.Fuzz(func(t *testing.T, data []byte, truncated bool, lines int16) {
		r := jobs.ResultFile{Data: data, Size: int64(len(data)), Truncated: truncated}
		if truncated {
			r.Size += 10
		}
		o := jobs.TextOptions{TailLines: int(lines)}
		text := r.Text(o)
		checkText(t, text)
		checkCounts(t, text, o)
		if json.Valid(data) && utf8.Valid(data) && !truncated && !text.Truncated && !sameJSON(data, []byte(text.Body)) {
			t.Fatalf("%q became %q", data, text.Body)
		}
		again := jobs.ResultFile{Data: []byte(text.Body), Size: int64(len(text.Body))}.Text(o)
		if again.Body != text.Body || again.Truncated {
			t.Fatalf("the view of %q is %q", text.Body, again.Body)
		}
	})
}

// checkText fails unless t holds only what a Text may hold.
func checkText(t *testing.T, text jobs.Text) {
	t.Helper()
	if !utf8.ValidString(text.Body) {
		t.Fatalf("not UTF-8: %q", text.Body)
	}
	for _, r := range text.Body {
		if unicode.IsControl(r) && r != '\n' && r != '\t' || strings.ContainsRune("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\uFEFF", r) {
			t.Fatalf("%U in %q", r, text.Body)
		}
	}
	if n := int64(utf8.RuneCountInString(text.Body)); n != text.Shown || n > text.Total {
		t.Fatalf("%d of %d characters, counted %d", text.Shown, text.Total, n)
	}
	if want := text.Shown < text.Total || text.Dropped > 0; text.Truncated != want || (text.Header() != "") != want {
		t.Fatalf("Truncated is %v, the header %q, of %+v", text.Truncated, text.Header(), text)
	}
}

// checkCounts fails unless text keeps to the limits of o.
func checkCounts(t *testing.T, text jobs.Text, o jobs.TextOptions) {
	t.Helper()
	if text.Shown > jobs.TextCap {
		t.Fatalf("%d characters", text.Shown)
	}
	if n := strings.Count(strings.TrimSuffix(text.Body, "\n"), "\n") + 1; o.TailLines > 0 && n > o.TailLines {
		t.Fatalf("%d lines, want %d", n, o.TailLines)
	}
}

// sameJSON reports whether two texts have the same JSON value. Numbers must
// agree in every digit.
func sameJSON(a, b []byte) bool {
	return canonical(a) == canonical(b)
}

func canonical(data []byte) string {
	var v any
	d := json.NewDecoder(strings.NewReader(string(data)))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return "error: " + err.Error()
	}
	out, _ := json.Marshal(v)
	return string(out)
}
