package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"

	"github.com/agentjobs/jobs"
	"github.com/agentjobs/jobs/examples/internal/fakemodel"
)

// A block is a part of a message of the messages API.
type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	ToolUseID string          `json:"tool_use_id,omitempty"`
	Content   []block         `json:"content,omitempty"`
}

// A request is what the fake model reads of one.
type request struct {
	Messages []struct {
		Role    string
		Content []block
	}
	Tools []struct {
		Name, Description string
		InputSchema       json.RawMessage `json:"input_schema"`
	}
}

// serve returns a server that answers as the messages API does, with the replies
// of the fake model.
func serve(m *fakemodel.Model) *httptest.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/messages", func(w http.ResponseWriter, r *http.Request) {
		var in request
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			fakemodel.Refuse(w, err)
			return
		}
		var tools []jobs.Declaration
		for _, t := range in.Tools {
			tools = append(tools, jobs.Declaration{Name: t.Name, Description: t.Description, Parameters: t.InputSchema})
		}
		reply, err := m.Reply(in.conversation(), tools)
		if err != nil {
			fakemodel.Refuse(w, err)
			return
		}
		fakemodel.Answer(w, response(reply))
	})
	return httptest.NewServer(mux)
}

// conversation makes a message of each block of the user, in their order, and one
// of each reply.
func (in request) conversation() (conversation []fakemodel.Message) {
	for _, m := range in.Messages {
		reply := fakemodel.Message{Role: m.Role}
		for _, b := range m.Content {
			switch b.Type {
			case "tool_use":
				reply.Calls = append(reply.Calls, fakemodel.Call{ID: b.ID, Name: b.Name, Arguments: string(b.Input)})
			case "tool_result":
				result := fakemodel.Message{Role: "tool", CallID: b.ToolUseID}
				for _, part := range b.Content {
					result.Text += part.Text
				}
				conversation = append(conversation, result)
			case "text":
				if m.Role == "assistant" {
					reply.Text += b.Text
					continue
				}
				conversation = append(conversation, fakemodel.Message{Role: m.Role, Text: b.Text})
			}
		}
		if m.Role == "assistant" {
			conversation = append(conversation, reply)
		}
	}
	return conversation
}

func response(reply fakemodel.Message) any {
	content, stop := []block{}, "end_turn"
	if reply.Text != "" {
		content = append(content, block{Type: "text", Text: reply.Text})
	}
	for _, c := range reply.Calls {
		content = append(content, block{Type: "tool_use", ID: c.ID, Name: c.Name, Input: json.RawMessage(c.Arguments)})
		stop = "tool_use"
	}
	return map[string]any{
		"id": "msg_fake", "type": "message", "role": "assistant", "model": "fake",
		"content": content, "stop_reason": stop, "usage": map[string]int{"input_tokens": 1, "output_tokens": 1},
	}
}
