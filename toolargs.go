package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"time"
	"unicode"
)

// A tool is what is declared under one name, and what runs it.
type tool struct {
	name        string
	optional    OptionalTools // 0 for those that every Toolset has
	description string
	fields      []field
	run         func(*Toolset, context.Context, input) answer
}

// A field is an argument of a tool.
type field struct {
	name        string
	kind        string // of JSON Schema: string, integer or boolean
	required    bool
	description string
	set         func(in *input, value any) (want string) // want says what would have been right
}

// input holds the arguments of a call.
type input struct {
	Tool       string
	Arguments  json.RawMessage // always an object
	ID         string
	IDs        []string
	TailLines  *int
	FullResult bool
	All        bool
	Pattern    *regexp.Regexp
	Timeout    *time.Duration
	From       int64
	MaxBytes   int
	Text       string
	Close      bool
}

func (in input) tailLines() int {
	if in.TailLines == nil {
		return 0
	}
	return *in.TailLines
}

var (
	idField = field{name: "id", kind: "string", required: true, description: textJobID,
		set: func(in *input, v any) string { return setString(&in.ID, v) }}
	tailLinesField = field{name: "tail_lines", kind: "integer", description: textTailLines, set: setTailLines}
)

// toolTable holds the tools in the order of their declaration. It is filled in
// by init because the tools' methods refer to it.
var toolTable []tool

func init() {
	toolTable = []tool{
		{toolStart, 0, textStartTool, []field{
			{"tool", "string", true, textStartToolName, func(in *input, v any) string { return setString(&in.Tool, v) }},
			{"arguments", "string", false, textStartArgs, setArguments},
		}, (*Toolset).start},
		{toolCheck, 0, textCheckTool, []field{idField, tailLinesField}, (*Toolset).check},
		{toolCollect, 0, textCollectTool, []field{idField, tailLinesField,
			{"full_result", "boolean", false, textFullResult, func(in *input, v any) string { return setBool(&in.FullResult, v) }},
		}, (*Toolset).collect},
		{toolCancel, 0, textCancelTool, []field{idField}, (*Toolset).cancel},
		{toolList, 0, textListTool, nil, (*Toolset).list},
		{toolWait, WaitTool, textWaitTool, []field{
			{"ids", "string", false, textWaitIDs, setIDs},
			{"all", "boolean", false, textWaitAll, func(in *input, v any) string { return setBool(&in.All, v) }},
			{"pattern", "string", false, textWaitPattern, setPattern},
			{"timeout_secs", "integer", false, textWaitTimeout, setTimeout},
		}, (*Toolset).await},
		{toolOutput, OutputTool, textOutputTool, []field{idField,
			{"from", "integer", false, textOutputFrom, func(in *input, v any) string { return setInteger(&in.From, v, -1<<62) }},
			{"max_bytes", "integer", false, textOutputMax, setMaxBytes},
		}, (*Toolset).output},
		{toolWrite, WriteTool, textWriteTool, []field{idField,
			{"text", "string", false, textWriteText, setText},
			{"close", "boolean", false, textWriteClose, func(in *input, v any) string { return setBool(&in.Close, v) }},
		}, (*Toolset).write},
	}
}

// schema returns the JSON Schema of the tool's arguments.
func (t tool) schema() json.RawMessage {
	type property struct {
		Type        string `json:"type"`
		Description string `json:"description"`
	}
	schema := struct {
		Type       string              `json:"type"`
		Properties map[string]property `json:"properties"`
		Required   []string            `json:"required"`
		Additional bool                `json:"additionalProperties"`
	}{Type: "object", Properties: map[string]property{}, Required: []string{}}
	for _, f := range t.fields {
		schema.Properties[f.name] = property{f.kind, f.description}
		if f.required {
			schema.Required = append(schema.Required, f.name)
		}
	}
	text, _ := encodeJSON(schema) // cannot fail
	return text
}

// read checks the arguments of a call. fault is the sentence that says what is
// wrong with them, "" if nothing is.
func (t tool) read(w words, args json.RawMessage) (in input, fault string) {
	in.Arguments = json.RawMessage("{}")
	values, ok := object(args)
	if !ok {
		return in, w.notAnObject(t.name, t.fieldNames())
	}
	var unknown []string
	for name := range values {
		if !slices.ContainsFunc(t.fields, func(f field) bool { return f.name == name }) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 {
		return in, w.unknownField(t.name, slices.Min(unknown), t.fieldNames())
	}
	for _, f := range t.fields {
		value, given := values[f.name]
		if !given || value == nil { // models write null for "left out"
			if f.required {
				return in, w.missingField(t.name, f.name)
			}
			continue
		}
		if want := f.set(&in, value); want != "" {
			return in, w.wrongType(t.name, f.name, want)
		}
	}
	return in, ""
}

func (t tool) fieldNames() []string {
	var names []string
	for _, f := range t.fields {
		names = append(names, f.name)
	}
	return names
}

// object decodes a JSON object; nothing and null are empty ones. Numbers keep
// their digits.
func object(text json.RawMessage) (map[string]any, bool) {
	text = bytes.TrimSpace(text)
	if len(text) == 0 || string(text) == "null" {
		return nil, true
	}
	if !json.Valid(text) || text[0] != '{' {
		return nil, false
	}
	var values map[string]any
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	return values, dec.Decode(&values) == nil
}

func setString(field *string, v any) (want string) {
	s, ok := v.(string)
	if !ok || strings.TrimSpace(s) == "" {
		return "a string that is not empty"
	}
	*field = s
	return ""
}

// setArguments takes JSON text, as declared, and an object too: models write
// both.
func setArguments(in *input, v any) (want string) {
	var text []byte
	switch v := v.(type) {
	case string:
		text = []byte(v)
	case map[string]any:
		text, _ = encodeJSON(v)
	default:
		text = []byte("[]")
	}
	values, ok := object(text)
	if !ok {
		return `the JSON text of an object, such as {"path":"."}`
	}
	if values != nil {
		in.Arguments = bytes.TrimSpace(text)
	}
	return ""
}

func setTailLines(in *input, v any) (want string) {
	var n int64
	if want = setInteger(&n, v, 1); want == "" {
		lines := int(n)
		in.TailLines = &lines
	}
	return want
}

func setMaxBytes(in *input, v any) (want string) {
	n := int64(0)
	want = setInteger(&n, v, 1)
	in.MaxBytes = int(n)
	return want
}

func setTimeout(in *input, v any) (want string) {
	n := int64(0)
	if want = setInteger(&n, v, 0); want == "" {
		d := time.Duration(min(n, math.MaxInt32)) * time.Second
		in.Timeout = &d
	}
	return want
}

// setInteger takes a whole number of at least least; one too large for use
// counts as the largest that is not.
func setInteger(field *int64, v any, least int64) (want string) {
	n, ok := v.(json.Number)
	f, err := n.Float64()
	if !ok || err != nil || f != math.Trunc(f) || f < float64(least) {
		want = "a whole number"
		if least >= 0 {
			want = fmt.Sprintf("a whole number of at least %d", least)
		}
		return want + unquoted(v)
	}
	*field = int64(min(f, 1<<52))
	return ""
}

func setBool(field *bool, v any) (want string) {
	b, ok := v.(bool)
	if !ok {
		return "true or false" + unquoted(v)
	}
	*field = b
	return ""
}

// unquoted says what is wrong with a value that was written as text.
func unquoted(v any) string {
	if _, ok := v.(string); ok {
		return ", without quotes"
	}
	return ""
}

// setIDs takes ids in one text, as declared, and in an array too.
func setIDs(in *input, v any) (want string) {
	switch v := v.(type) {
	case string:
		if ids := strings.FieldsFunc(v, func(r rune) bool { return r == ',' || unicode.IsSpace(r) }); len(ids) > 0 {
			in.IDs = ids
		}
	case []any:
		for _, id := range v {
			text, ok := id.(string)
			if !ok {
				return "job ids, separated by spaces"
			}
			in.IDs = append(in.IDs, text)
		}
	default:
		return "job ids, separated by spaces"
	}
	return ""
}

func setPattern(in *input, v any) (want string) {
	text, ok := v.(string)
	if !ok || text == "" {
		return "a regular expression"
	}
	if isCostly(text) {
		return "a simpler regular expression, with fewer and smaller repeat counts"
	}
	var err error
	if in.Pattern, err = regexp.Compile(text); err != nil {
		return "a regular expression of the RE2 kind, without look-around or back-references: " + readable(err.Error(), 400)
	}
	return ""
}

// A line takes its length times the instructions of a pattern to be tested, and
// the job that printed it waits meanwhile.
const (
	patternLimit = 1000 // bytes of a model's pattern
	programLimit = 500  // instructions
)

// isCostly reports whether a pattern passes the limits.
func isCostly(pattern string) bool {
	if len(pattern) > patternLimit {
		return true
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return false
	}
	prog, err := syntax.Compile(parsed.Simplify())
	return err == nil && len(prog.Inst) > programLimit
}

func setText(in *input, v any) (want string) {
	text, ok := v.(string)
	if !ok {
		return "a string"
	}
	in.Text = text
	return ""
}
