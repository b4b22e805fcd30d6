package jobs

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// A ResultFile is what a job's result file held when the job ended.
type ResultFile struct {
	// Data is the content, or as much of its end as [Config.ResultBytes]
	// allows.
	Data []byte
	// Size is the length of the whole file.
	Size int64
	// Truncated tells that Data is not all of it.
	Truncated bool
	// Problem says why there is no data, or not all, where the job did
	// something strange to the file; such as removing it, or putting a
	// directory in its place. It does not make the job fail.
	Problem string
}

var byteOrderMark = []byte("\xef\xbb\xbf")

// JSON returns the result as one JSON value that is always valid: the content
// verbatim where it is JSON itself, so that no digit of a large number is
// lost; other text as {"output": "…"}, with what is not valid UTF-8 replaced;
// the string "DONE" where the file held nothing but white space.
func (r ResultFile) JSON() json.RawMessage {
	switch {
	case r.blank():
		return json.RawMessage(`"DONE"`)
	case r.isJSON():
		return r.content()
	}
	text, _ := encodeJSON(struct { // cannot fail: strings always have an encoding
		Output string `json:"output"`
	}{string(bytes.ToValidUTF8(r.Data, []byte("\uFFFD")))})
	return text
}

// content is the data without a byte order mark and the white space around it.
func (r ResultFile) content() []byte {
	return bytes.TrimSpace(bytes.TrimPrefix(r.Data, byteOrderMark))
}

// blank reports whether the file held nothing but white space.
func (r ResultFile) blank() bool { return !r.Truncated && len(r.content()) == 0 }

// isJSON reports whether the file held one JSON value and nothing else.
func (r ResultFile) isJSON() bool {
	data := r.content()
	return !r.Truncated && utf8.Valid(data) && json.Valid(data) && !loneSurrogate(data)
}

// loneSurrogate reports whether valid JSON holds the escape of half a character,
// which many readers refuse, with all that is around it.
func loneSurrogate(text []byte) bool {
	for {
		i := bytes.IndexByte(text, '\\')
		if i < 0 {
			return false
		}
		r, n := escape(text[i:])
		if utf16.IsSurrogate(r) {
			low, m := escape(text[i+n:])
			if utf16.DecodeRune(r, low) == utf8.RuneError {
				return true
			}
			n += m
		}
		text = text[i+n:]
	}
}

// escape reads the escape that valid JSON begins with: a character that is
// written as a number, or else 0, and the length of the escape.
func escape(text []byte) (rune, int) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, min(2, len(text))
	}
	code, _ := strconv.ParseUint(string(text[2:6]), 16, 16)
	return rune(code), 6
}
