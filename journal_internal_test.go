package jobs

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestARecordWrittenByHandReadsAsItWas(t *testing.T) {
	full := everyField[record]()
	full.V, full.Cut, full.Stderr, full.End = recordVersion, nil, false, nil
	requireSameRecord(t, full)
	for _, awkward := range []string{`"`, `\`, "\n", "\x00", "\x7f", "é", "\u2028", "<&>", "'", "\U0001f600", " ", `{"v":2}`} {
		r := record{V: recordVersion, Kind: recordBegin, ID: "a-1", At: full.At, Tool: awkward, Tag: "x" + awkward, Command: awkward + "x"}
		requireSameRecord(t, r)
	}
	for _, kind := range []string{recordBegin, recordStart, recordTold, recordGone} {
		requireSameRecord(t, record{V: recordVersion, Kind: kind, ID: "a-1", At: full.At})
	}
}

func TestARecordIsOneLineWhateverIsInIt(t *testing.T) {
	full := everyField[record]()
	full.Command, full.End.Err, full.Tag = "a\nb", "c\r\nd", "\u2028\n"
	for _, r := range []record{full, {Kind: recordBegin, ID: "a-1", Command: "a\nb\n"}} {
		line := string(r.encode())
		require.Equal(t, 1, strings.Count(line, "\n"))
		require.True(t, strings.HasSuffix(line, "}\n"))
	}
}

// requireSameRecord checks a record against what encoding/json makes of it.
func requireSameRecord(t testing.TB, r record) {
	t.Helper()
	byHand := r.encode()
	var read record
	require.NoError(t, json.Unmarshal(byHand, &read), "%s", byHand)
	require.Equal(t, r, read)
	byReflection, err := json.Marshal(r)
	require.NoError(t, err)
	require.JSONEq(t, string(byReflection), string(byHand))
}

// everyField returns a struct with no zero value in it.
func everyField[T any]() (v T) {
	fill(reflect.ValueOf(&v).Elem())
	return v
}

func fill(v reflect.Value) {
	switch {
	case !v.CanSet():
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Date(2026, 5, 4, 3, 2, 1, 987654321, time.UTC)))
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case v.Kind() == reflect.String:
		v.SetString("x")
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.CanInt():
		v.SetInt(7)
	case v.CanUint():
		v.SetUint(8)
	}
}
