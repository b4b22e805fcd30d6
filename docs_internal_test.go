package jobs

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheReferenceOfAnswersNamesEveryField(t *testing.T) {
	text, err := os.ReadFile("docs/answers.md")
	require.NoError(t, err)
	for _, part := range []any{answer{}, jobLine{}, matchLine{}, noticeView{}, Process{}} {
		for _, field := range reflect.VisibleFields(reflect.TypeOf(part)) {
			if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" {
				require.Contains(t, string(text), "`"+name+"`")
			}
		}
	}
}
