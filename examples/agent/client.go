package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// A message is one of a conversation with the chat completions API.
type message struct {
	Role       string     `json:"role"`
	Content    string     `json:"content"`
	ToolCalls  []toolCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
}

// A toolCall is a call that the model makes. Its arguments are JSON in a string.
type toolCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// A client asks a model behind an endpoint that speaks chat completions.
type client struct {
	baseURL, key, model string
}

// complete returns the next message of the model.
func (c client) complete(ctx context.Context, conversation []message, tools []tool) (message, error) {
	body, err := json.Marshal(map[string]any{"model": c.model, "messages": conversation, "tools": tools})
	if err != nil {
		return message{}, err
	}
	url := strings.TrimSuffix(c.baseURL, "/") + "/chat/completions"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return message{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return message{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil {
		return message{}, err
	}
	if resp.StatusCode != http.StatusOK {
		return message{}, fmt.Errorf("%s: %s: %.500s", url, resp.Status, text)
	}
	var out struct {
		Choices []struct{ Message message }
	}
	if err := json.Unmarshal(text, &out); err != nil {
		return message{}, fmt.Errorf("%s: %w: %.500s", url, err, text)
	}
	if len(out.Choices) == 0 {
		return message{}, errors.New(url + ": the model has no reply")
	}
	return out.Choices[0].Message, nil
}
