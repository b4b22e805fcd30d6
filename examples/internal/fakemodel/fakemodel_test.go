package fakemodel

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAConversationThatAnAPIWouldRefuseIsRefused(t *testing.T) {
	user := Message{Role: "user", Text: "go"}
	calls := Message{Role: "assistant", Calls: []Call{{ID: "a"}, {ID: "b"}}}
	a, b := Message{Role: "tool", CallID: "a"}, Message{Role: "tool", CallID: "b"}
	for want, conversation := range map[string][]Message{
		"":                                          {user, calls, b, a, user},
		"there is nothing to reply to":              {user, {Role: "assistant"}},
		"stands between calls and their results":    {user, calls, a, user, b},
		"user stands between":                       {user, calls, user, a, b},
		"1 calls have no result":                    {user, calls, b},
		`a result of "a", which is no open call`:    {user, calls, a, a, b},
		`a result of "b", which is no open call`:    {b},
		"messages.2: assistant stands between call": {user, calls, calls},
	} {
		_, err := new(Model).Reply(conversation, nil)
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, want)
	}
}
