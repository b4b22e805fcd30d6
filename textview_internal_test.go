package jobs

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestTextViewBeginsCleanlyAfterADrop(t *testing.T) {
	far := strings.Repeat("w", cutLimit) + "\nline\n"
	for _, c := range []struct{ name, in, want string }{
		{"after the first newline", "rest\nline\n", "line\n"},
		{"not where nothing follows it", "rest\n", "rest\n"},
		{"not where it is far away", far, far},
		{"rest of a character", "\x80\x94 end", " end"},
		{"bytes that are no rest of one", "\x80\x94\x80\x80x", "\x80x"},
		{"rest of parameters", "1;31mred", "red"},
		{"after ESC", "[31mred", "red"},
		{"final byte", "mred", "red"},
		{"a private one", "?25lred", "red"},
		{"rest of a title", "itle\x1b\\red", "red"},
		{"rest of a title that ends in C1 ST", "itle\u009cred", "red"},
		{"rest of a title that ends in BEL", "itle\ared", "red"},
		{"a bell at the end is one", "sure? \a", "sure? \a"},
		{"a sequence after text", "text\x1b[0m\a", "text\x1b[0m\a"},
		{"a time is kept", "12:30:45 error", "12:30:45 error"},
		{"a tag is kept", "[error] x", "[error] x"},
		{"words are kept", "word", "word"},
		{"nothing", "", ""},
		{"only parameters", "123", "123"},
	} {
		require.Equal(t, c.want, c.in[cutLen([]byte(c.in)):], c.name)
		log := Log{Pieces: []Piece{{From: 9, Data: []byte(c.in)}}, Total: 9 + int64(len(c.in)), Dropped: 9}
		whole := Log{Pieces: []Piece{{Data: []byte(c.want)}}}
		require.Equal(t, whole.Text(TextOptions{}).Body, log.Text(TextOptions{}).Body, c.name)
	}
}

func TestTextViewLeavesNoRestOfASequenceWhereverADropCutsIt(t *testing.T) {
	for _, seq := range []string{"\x1b[31m", "\x1b[1;31m", "\x1b[K", "\x1b[?25h", "\x1b]0;title\a", "\x1b]8;;url\x1b\\", "\u009b0m"} {
		for i := range seq {
			if seq[i:] == "h" {
				continue // like any letter; only m and K are known alone
			}
			data := []byte(seq[i:] + "RED")
			log := Log{Pieces: []Piece{{Data: []byte("x\n")}, {From: 9, Data: data}}}
			require.Equal(t, "x\n[… 7 bytes dropped …]\nRED", log.Text(TextOptions{}).Body, "%q", data)
		}
	}
}

func TestTextViewReadsEightBytesAsOneByOne(t *testing.T) {
	for b := range 256 {
		for at := range 8 {
			for _, other := range []byte{' ', '~', 0x80, 0xFF, 0x7F, 0x1F, 0} {
				p := bytes.Repeat([]byte{'a'}, 8)
				p[(at+7)%8], p[at] = other, byte(b)
				clean := bytes.IndexFunc(p, func(r rune) bool { return r < ' ' || r >= 0x7F }) < 0
				if got := cleanWord(binary.LittleEndian.Uint64(p)); got && !clean || !got && clean && bytes.Count(p, []byte{' '}) == 0 {
					t.Fatalf("%q: %v", p, got)
				}
			}
		}
	}
}

func TestTextViewKnowsTheLengthOfASequence(t *testing.T) {
	for _, c := range []struct{ seq, rest string }{
		{"\x1b[31m", "m"},
		{"\x1b[m", "m"},
		{"\x1b[31", ""},
		{"\x1b[31", "\n"},
		{"\x1b[2 q", "q"},
		{"\x1b]t\a", "\a"},
		{"\x1b]t", "\nm\a"},
		{"\x1b]t", "\x1b[0m\a"},
		{"\x1b]t\x1b\\", "\\"},
		{"\x1b(B", "B"},
		{"\x1b(", "\n"},
		{"\x1bc", "c"},
		{"\x1b", "\x7f"},
		{"\x1b", "é"},
		{"\u009b1m", "m"},
		{"\u0085", "x"},
		{"\u202e", "x"},
	} {
		require.Equal(t, len(c.seq), vanishingLen([]byte(c.seq+c.rest)), "%q", c.seq+c.rest)
	}
}

func TestTextViewFindsBinaryDataInOnePass(t *testing.T) {
	for _, s := range []string{"\xff", "\x01", "\x1b]", "\x00", "\r", "\b", "\xff" + strings.Repeat("x", binaryGap+1), "a\xe2\x82"} {
		data := []byte(strings.Repeat(s, 1<<18/len(s)))
		body := Log{Pieces: []Piece{{Data: data}}}.Text(TextOptions{}).Body
		require.True(t, utf8.ValidString(body)) // and before the test times out
	}
}

func TestTextViewGroupsDigits(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 50_000: "50,000", 1234567: "1,234,567", -999: "-999", -1000: "-1,000"} {
		require.Equal(t, want, grouped(n))
	}
}
