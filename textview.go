package jobs

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// TextCap is how many characters a [Text] holds at most, unless
// [TextOptions.Full] is set.
const TextCap = 50_000

const (
	// nulsShown is how many NULs in a row are shown one by one.
	nulsShown = 8
	// cutLimit is how far into a piece whose beginning was dropped the end of
	// its first line, or of a control string, is looked for.
	cutLimit = 4 << 10
	// binaryGap is how much text in a row ends a stretch of binary data.
	binaryGap = 32
	// binaryMin is how much evidence of either kind binary data must have.
	binaryMin = 8

	esc = 0x1B
)

// The string terminator, with seven bits and as a C1 control.
var st7, st8 = []byte("\x1b\\"), []byte("\u009c")

// TextOptions says how much of a text to show. The zero value shows the last
// [TextCap] characters.
type TextOptions struct {
	// TailLines is how many lines are shown, counted from the end. A blank line
	// is a line; a final newline ends the last line and begins none. Zero or
	// negative means no limit by lines.
	TailLines int
	// Full lifts the cap of TextCap characters; more than was kept there never
	// is. TailLines still applies.
	Full bool
}

// A Text is what a model may read of an output or a result.
//
// Body is a view of the raw bytes, made by these rules:
//
//   - It is valid UTF-8 without control characters but tab and newline. A run
//     of bytes that are not UTF-8 becomes one U+FFFD; a character cut in half by
//     the end of the bytes, or by a drop, is left out.
//   - Escape sequences vanish with their payload, also those that have not
//     ended yet. A control string, such as a window title, that does not end on
//     its line takes the rest of that line only.
//   - "\r\n" is a newline. Another "\r" begins the line anew as soon as
//     something follows it: of a progress bar the last frame stays, alone. A
//     backspace takes back the character before it. Neither crosses a newline
//     or one of the notices in brackets.
//   - NUL is shown as U+2400, more than eight in a row as a count. Other
//     control characters vanish, and so do characters that change how others
//     read or that nobody sees: bidirectional embeddings, overrides and
//     isolates, byte order marks, tags (U+E0000 to U+E007F). Joiners and other
//     characters of no width stay; scripts and emoji need them.
//   - Binary data is named, not shown, where it is that beyond doubt: a stretch
//     that has at least eight bytes that are not UTF-8 and as many control
//     characters no terminal needs, at most 32 bytes of text in a row, and text
//     for at most three quarters. Text on either side stays.
//   - Where bytes were dropped between two parts, or after the last, a line of
//     its own says how many. What follows a drop begins after its first newline
//     within 4 KiB, or else at the next character; what looks like the rest of
//     an escape sequence is left out there.
//
// The view of a view is the same view.
type Text struct {
	Body string
	// Truncated tells that Body is not all there was.
	Truncated bool
	// Shown counts the characters of Body, Total those of the view it is the
	// end of. A character is a Unicode code point.
	Shown, Total int64
	// Dropped counts the raw bytes that were no longer kept when the view was
	// made.
	Dropped int64
}

// Header returns a line, without its newline, that says how much of a
// truncated text is shown. It returns "" for one that is not truncated.
func (t Text) Header() string {
	if !t.Truncated {
		return ""
	}
	var b strings.Builder
	switch {
	case t.Shown < t.Total:
		fmt.Fprintf(&b, "[last %s of %s characters",
			grouped(t.Shown), grouped(t.Total))
	case t.Total > 0:
		fmt.Fprintf(&b, "[all %s characters that were kept", grouped(t.Total))
	default:
		b.WriteString("[nothing was kept")
	}
	if t.Dropped > 0 {
		fmt.Fprintf(&b, "; %s bytes were dropped and cannot be had", grouped(t.Dropped))
	}
	b.WriteByte(']')
	return b.String()
}

// String returns the text as a model should see it: the header, if there is
// one, on a line of its own, then the body.
func (t Text) String() string {
	if !t.Truncated {
		return t.Body
	}
	return t.Header() + "\n" + t.Body
}

// Text returns what a model may read of the log.
func (l Log) Text(o TextOptions) Text {
	var v viewer
	end := int64(0)
	for i, p := range l.Pieces {
		data := p.Data
		if p.From > end {
			if i > 0 {
				v.gap(p.From - end)
			}
			data = data[cutLen(data):]
		}
		v.piece(data)
		end = p.From + int64(len(p.Data))
	}
	if len(l.Pieces) > 0 && l.Total > end {
		v.gap(l.Total - end)
	}
	return o.text(v.out, l.Dropped)
}

// Text returns what a model may read of the result file. JSON is shown as it
// is, with no digit changed, if the file was read whole and o does not cut it.
// Only what a Text never holds is written otherwise there, without a change of
// the value: "\r" between tokens as a newline, a control or hidden character
// in a string as its \u escape.
func (r ResultFile) Text(o TextOptions) Text {
	if !r.Truncated {
		if data := bytes.TrimPrefix(r.Data, byteOrderMark); utf8.Valid(data) && json.Valid(data) {
			return o.text(visibleJSON(data), 0)
		}
	}
	size := int64(len(r.Data))
	l := Log{Total: max(r.Size, size)}
	l.Dropped = l.Total - size
	if size > 0 {
		l.Pieces = []Piece{{Data: r.Data}}
	}
	if r.Truncated && size > 0 {
		l.Pieces[0].From = l.Dropped // it is the end of the file
	}
	t := l.Text(o)
	t.Truncated = t.Truncated || r.Truncated
	return t
}

// Text returns what a model may read of the result: the text of the result
// file or, where that holds nothing but white space, of the output.
func (r Result) Text(o TextOptions) Text {
	blank := len(bytes.TrimSpace(bytes.TrimPrefix(r.File.Data, byteOrderMark))) == 0
	if blank && !r.File.Truncated {
		return r.Output.Text(o)
	}
	return r.File.Text(o)
}

// text cuts a view down to what the options allow.
func (o TextOptions) text(view []byte, dropped int64) Text {
	body := view
	if o.TailLines > 0 {
		body = lastLines(body, o.TailLines)
	}
	total := utf8.RuneCount(view[:len(view)-len(body)])
	shown := utf8.RuneCount(body)
	total += shown
	for ; !o.Full && shown > TextCap; shown-- {
		_, size := utf8.DecodeRune(body)
		body = body[size:]
	}
	return Text{
		Body:      string(body),
		Truncated: shown < total || dropped > 0,
		Shown:     int64(shown),
		Total:     int64(total),
		Dropped:   dropped,
	}
}

// lastLines returns the last n lines of b.
func lastLines(b []byte, n int) []byte {
	i := len(bytes.TrimSuffix(b, []byte("\n")))
	for ; n > 0; n-- {
		if i = bytes.LastIndexByte(b[:i], '\n'); i < 0 {
			return b
		}
	}
	return b[i+1:]
}

// A viewer makes a view out of pieces of raw bytes. The zero value is ready.
type viewer struct {
	out []byte
	// frame is where in out "\r" goes back to and backspace stops: after the
	// last newline or notice.
	frame int
	// returned tells that a "\r" was read: whatever is shown next replaces the
	// frame before it. What shows nothing, a newline or the end leaves it.
	returned bool
}

// piece adds the view of p, raw bytes without a gap. A piece that needs no
// change and comes first is not copied.
func (v *viewer) piece(p []byte) {
	p = trimPartialRune(p)
	if len(v.out) == 0 && cleanLen(p) == len(p) {
		v.out = p[:len(p):len(p)]
		return
	}
	v.out = slices.Grow(v.out, len(p))
	v.frame, v.returned = len(v.out), false
	for len(p) > 0 {
		begin, end := findBinary(p)
		v.text(p[:begin])
		if begin < end {
			v.notice("[binary data, %s bytes]", end-begin)
		}
		p = p[end:]
	}
}

// gap adds a line that says that n bytes are missing.
func (v *viewer) gap(n int64) {
	line := "[… " + grouped(n) + " bytes dropped …]\n"
	if len(v.out) > 0 && v.out[len(v.out)-1] != '\n' {
		line = "\n" + line
	}
	v.out = append(v.out, line...)
}

// text adds the view of p, bytes with no binary data among them. An escape
// sequence does not go on beyond p.
func (v *viewer) text(p []byte) {
	for len(p) > 0 {
		n := cleanLen(p)
		v.show(p[:n])
		p = p[n:]
		if len(p) > 0 {
			p = p[v.special(p):]
		}
	}
}

// special deals with what p begins with, which is not clean, and returns how
// long that is.
func (v *viewer) special(p []byte) int {
	if n := invalidLen(p); n > 0 {
		v.show([]byte("\uFFFD"))
		return n
	}
	switch p[0] {
	case 0:
		return v.nuls(p)
	case '\r':
		v.returned = true
	case '\b':
		if !v.returned && len(v.out) > v.frame {
			_, size := utf8.DecodeLastRune(v.out)
			v.out = v.out[:len(v.out)-size]
		}
	}
	return vanishingLen(p)
}

// nuls shows the NULs that p begins with.
func (v *viewer) nuls(p []byte) int {
	n := len(p) - len(bytes.TrimLeft(p, "\x00"))
	if n > nulsShown {
		v.notice("[␀ × %s]", n)
	} else {
		v.show(bytes.Repeat([]byte("␀"), n))
	}
	return n
}

// show adds clean text.
func (v *viewer) show(p []byte) {
	if len(p) == 0 {
		return
	}
	if v.returned && p[0] != '\n' {
		v.out = v.out[:v.frame]
	}
	v.returned = false
	v.out = append(v.out, p...)
	if i := bytes.LastIndexByte(p, '\n'); i >= 0 {
		v.frame = len(v.out) - len(p) + i + 1
	}
}

// notice adds a note about n bytes that stays whatever follows on its line.
func (v *viewer) notice(format string, n int) {
	v.show(fmt.Appendf(nil, format, grouped(int64(n))))
	v.frame = len(v.out)
}

// cleanLen returns how much of the start of p a view shows as it is.
func cleanLen(p []byte) int {
	i := 0
	for i < len(p) {
		if len(p)-i >= 8 && cleanWord(binary.LittleEndian.Uint64(p[i:])) {
			i += 8
			continue
		}
		if c := p[i]; c < utf8.RuneSelf {
			if c < ' ' && c != '\n' && c != '\t' || c == 0x7F {
				break
			}
			i++
			continue
		}
		r, size := utf8.DecodeRune(p[i:])
		if size == 1 || hidden(r) {
			break
		}
		i += size
	}
	return i
}

// cleanWord reports whether all eight bytes of w are printable ASCII. Plain
// text is read three times as fast this way.
func cleanWord(w uint64) bool {
	const each = 0x0101010101010101 // times b: eight bytes b
	// A byte below ' ' borrows, DEL carries into its top bit.
	return (w|(w-each*' ')|(w+each))&(each<<7) == 0
}

// hidden reports whether a view leaves out r, a character outside ASCII: a C1
// control, or one that reorders its neighbours or passes unseen.
func hidden(r rune) bool {
	switch {
	case r < 0xA0, // C1
		0x202A <= r && r <= 0x202E,   // bidirectional embeddings and overrides
		0x2066 <= r && r <= 0x2069,   // bidirectional isolates
		r == 0xFEFF,                  // byte order mark
		0xE0000 <= r && r <= 0xE007F: // tags: an ASCII that is never drawn
		return true
	}
	return false
}

// vanishingLen returns the length of what p begins with and a view leaves out:
// an escape sequence, as far as it goes, or one character.
func vanishingLen(p []byte) int {
	r, n := utf8.DecodeRune(p)
	switch r {
	case esc:
		n += escapeLen(p[n:])
	case 0x9B: // CSI
		n += csiLen(p[n:])
	case 0x90, 0x98, 0x9D, 0x9E, 0x9F: // DCS SOS OSC PM APC
		n += stringLen(p[n:])
	}
	return n
}

// escapeLen returns the length of what belongs to an ESC before p.
func escapeLen(p []byte) int {
	n := span(p, ' ', '/') // intermediate bytes: an nF escape
	switch {
	case n == len(p):
		return n
	case n > 0:
		return n + final(p[n:], '0')
	case p[0] == '[':
		return 1 + csiLen(p[1:])
	case bytes.IndexByte([]byte("]PX^_"), p[0]) >= 0: // OSC DCS SOS PM APC
		return 1 + stringLen(p[1:])
	}
	return final(p, '0')
}

// csiLen returns the length of the rest of a control sequence: parameters,
// intermediate bytes, a final byte. A byte of no such kind breaks it off.
func csiLen(p []byte) int {
	n := span(p, '0', '?')
	n += span(p[n:], ' ', '/')
	return n + final(p[n:], '@')
}

// stringLen returns the length of the rest of a control string: up to BEL or
// ST, or what breaks it off: another ESC or the end of the line.
func stringLen(p []byte) int {
	for i, c := range p {
		switch {
		case c == '\a':
			return i + 1
		case bytes.HasPrefix(p[i:], st7), bytes.HasPrefix(p[i:], st8):
			return i + 2
		case c == esc, c == '\n':
			return i
		}
	}
	return len(p)
}

// span returns how many bytes at the start of p lie between lo and hi.
func span(p []byte, lo, hi byte) int {
	n := 0
	for n < len(p) && lo <= p[n] && p[n] <= hi {
		n++
	}
	return n
}

// final returns 1 if p begins with a byte between lo and '~', else 0.
func final(p []byte, lo byte) int {
	return span(p[:min(1, len(p))], lo, '~')
}

// cutLen returns how much of p, the bytes after a drop, to leave out so that
// it does not begin in the middle of something.
func cutLen(p []byte) int {
	near := p[:min(len(p), cutLimit)]
	if i := bytes.IndexByte(near, '\n'); i >= 0 && i+1 < len(p) {
		return i + 1
	}
	// The rest of a control string shows itself by its end only. A BEL at the
	// end of all is taken for a bell.
	rest := near[:stringLen(near)]
	if bytes.HasSuffix(rest, st7) || bytes.HasSuffix(rest, st8) || bytes.HasSuffix(rest, []byte{'\a'}) && len(rest) < len(p) {
		return len(rest)
	}
	if n := span(p, 0x80, 0xBF); n > 0 {
		return min(n, utf8.UTFMax-1)
	}
	// The rest of a control sequence: parameters and a letter, or a character
	// alone where it is one that often ends a sequence without them.
	n := len(p) - len(bytes.TrimPrefix(p, []byte{'['}))
	params := span(p[n:], '0', '?')
	n += params
	if n < len(p) && (params > 0 && final(p[n:], '@') > 0 || bytes.IndexByte([]byte(`mK\`), p[n]) >= 0) {
		return n + 1
	}
	return 0
}

// A stretch is a part of raw bytes that may be binary data. It begins and ends
// with evidence: a byte that is not UTF-8, or a control character that no
// terminal needs.
type stretch struct {
	begin, end              int
	invalid, controls, text int // bytes
}

func (s stretch) binary() bool {
	return s.invalid >= binaryMin && s.controls >= binaryMin && 4*s.text <= 3*(s.end-s.begin)
}

// findBinary returns the first stretch of p that is binary data, with the NULs
// that follow it. If there is none both its ends are len(p).
func findBinary(p []byte) (begin, end int) {
	var s stretch
	text := 0 // since the last evidence
	for i := 0; i < len(p); {
		if n := textLen(p[i:]); n > 0 {
			i, text = i+n, text+n
			continue
		}
		if p[i] == 0 { // neither: texts have NULs, too
			i++
			continue
		}
		if text > binaryGap || s.end == 0 {
			if s.binary() {
				break
			}
			s, text = stretch{begin: i}, 0
		}
		if n := invalidLen(p[i:]); n > 0 {
			s.invalid += n
			i += n
		} else {
			s.controls++
			i++
		}
		s.end, s.text, text = i, s.text+text, 0
	}
	if !s.binary() {
		return len(p), len(p)
	}
	return s.begin, s.end + span(p[s.end:], 0, 0)
}

// textLen returns how much of the start of p is no sign of binary data, be it
// shown or not.
func textLen(p []byte) int {
	n := cleanLen(p)
	if n < len(p) && p[n] != 0 && !strayControl(p[n]) && invalidLen(p[n:]) == 0 {
		_, size := utf8.DecodeRune(p[n:])
		n += size
	}
	return n
}

// strayControl reports whether c is an ASCII control that terminal output has
// no use for.
func strayControl(c byte) bool {
	const used = 1<<0 | 1<<'\a' | 1<<'\b' | 1<<'\t' | 1<<'\n' | 1<<'\v' | 1<<'\f' | 1<<'\r' |
		1<<0x0E | 1<<0x0F | 1<<0x18 | 1<<0x1A | 1<<esc // SO SI CAN SUB ESC
	return c == 0x7F || c < ' ' && used>>c&1 == 0
}

// invalidLen returns how many bytes at the start of p are not UTF-8.
func invalidLen(p []byte) int {
	n := 0
	for n < len(p) && p[n] >= utf8.RuneSelf {
		if _, size := utf8.DecodeRune(p[n:]); size > 1 {
			break
		}
		n++
	}
	return n
}

// trimPartialRune leaves out a character of which p has the beginning only.
func trimPartialRune(p []byte) []byte {
	for i := len(p) - 1; i >= 0 && i > len(p)-utf8.UTFMax; i-- {
		if utf8.RuneStart(p[i]) {
			if !utf8.FullRune(p[i:]) {
				return p[:i]
			}
			break
		}
	}
	return p
}

// visibleJSON returns valid JSON without the characters a view never has.
func visibleJSON(p []byte) []byte {
	n := cleanLen(p)
	if n == len(p) {
		return p
	}
	out := make([]byte, 0, len(p)+64)
	for {
		out = append(out, p[:n]...)
		if p = p[n:]; len(p) == 0 {
			return out
		}
		r, size := utf8.DecodeRune(p)
		p = p[size:]
		switch hi, lo := utf16.EncodeRune(r); {
		case r == '\r': // white space: JSON has no raw one in strings
			if len(p) == 0 || p[0] != '\n' {
				out = append(out, '\n')
			}
		case hi != utf8.RuneError:
			out = fmt.Appendf(out, `\u%04x\u%04x`, hi, lo)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		n = cleanLen(p)
	}
}

// grouped formats n with a comma between groups of three digits.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
