package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"slices"
	"strings"
)

// A tool is one of the five: how it is declared and what runs it.
type tool struct {
	name        string
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
	TailLines  *int
	FullResult bool
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
		{toolStart, textStartTool, []field{
			{"tool", "string", true, textStartToolName, func(in *input, v any) string { return setString(&in.Tool, v) }},
			{"arguments", "string", false, textStartArgs, setArguments},
		}, (*Toolset).start},
		{toolCheck, textCheckTool, []field{idField, tailLinesField}, (*Toolset).check},
		{toolCollect, textCollectTool, []field{idField, tailLinesField,
			{"full_result", "boolean", false, textFullResult, setFullResult},
		}, (*Toolset).collect},
		{toolCancel, textCancelTool, []field{idField}, (*Toolset).cancel},
		{toolList, textListTool, nil, (*Toolset).list},
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
	n, ok := v.(json.Number)
	f, err := n.Float64()
	if !ok || err != nil || f != math.Trunc(f) || f < 1 {
		return "a whole number of at least 1"
	}
	lines := int(min(f, math.MaxInt32))
	in.TailLines = &lines
	return ""
}

func setFullResult(in *input, v any) (want string) {
	full, ok := v.(bool)
	if !ok {
		return "true or false"
	}
	in.FullResult = full
	return ""
}
