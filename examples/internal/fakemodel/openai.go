package fakemodel

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"

	"github.com/agentjobs/jobs"
)

// OpenAI returns a server that answers chat completions with the replies of the
// model. The caller closes it; its URL goes where the one of an API goes.
func (m *Model) OpenAI() *httptest.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /chat/completions", m.chatCompletion)
	return httptest.NewServer(mux)
}

// A chatMessage is a message of the chat completions API.
type chatMessage struct {
	Role       string     `json:"role"`
	Content    string     `json:"content"`
	ToolCalls  []chatCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
}

type chatCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

func (m *Model) chatCompletion(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Messages []chatMessage
		Tools    []struct{ Function jobs.Declaration }
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		Refuse(w, err)
		return
	}
	var conversation []Message
	for _, c := range in.Messages {
		message := Message{Role: c.Role, Text: c.Content, CallID: c.ToolCallID}
		for _, call := range c.ToolCalls {
			message.Calls = append(message.Calls, Call{call.ID, call.Function.Name, call.Function.Arguments})
		}
		conversation = append(conversation, message)
	}
	var tools []jobs.Declaration
	for _, tool := range in.Tools {
		tools = append(tools, tool.Function)
	}
	reply, err := m.Reply(conversation, tools)
	if err != nil {
		Refuse(w, err)
		return
	}
	out := chatMessage{Role: reply.Role, Content: reply.Text}
	finish := "stop"
	for _, c := range reply.Calls {
		call := chatCall{ID: c.ID, Type: "function"}
		call.Function.Name, call.Function.Arguments = c.Name, c.Arguments
		out.ToolCalls = append(out.ToolCalls, call)
		finish = "tool_calls"
	}
	Answer(w, map[string]any{
		"object":  "chat.completion",
		"model":   "fake",
		"choices": []any{map[string]any{"index": 0, "message": out, "finish_reason": finish}},
	})
}

// Answer writes the answer of an API.
func Answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v)
}

// Refuse writes the answer of an API to a request that it does not take.
func Refuse(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadRequest)
	Answer(w, map[string]any{"error": map[string]string{"type": "invalid_request_error", "message": err.Error()}})
}
