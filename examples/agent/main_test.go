package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentjobs/jobs"
	"github.com/agentjobs/jobs/examples/internal/fakemodel"
	"github.com/agentjobs/jobs/examples/internal/looptest"
)

func TestTheModelIsToldBetweenTurnsAndGetsEachResultOnce(t *testing.T) {
	var out strings.Builder
	looptest.Conversation(t, looptest.AfterResults, func(ctx context.Context, s *jobs.Supervisor, m *fakemodel.Model) (string, error) {
		server := m.OpenAI()
		defer server.Close()
		return converse(ctx, s, client{baseURL: server.URL, model: "fake"}, "go", &out)
	})
	looptest.Progress(t, out.String())
}

func TestAnInterruptedRunLeavesNoProcess(t *testing.T) {
	looptest.Interrupted(t, func(ctx context.Context, m *fakemodel.Model) error {
		server := m.OpenAI()
		defer server.Close()
		return run(ctx, client{baseURL: server.URL, model: "fake"}, "go", io.Discard)
	})
}

func TestTheEnvironmentNamesTheEndpoint(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		want client
		err  string
	}{
		{want: client{}},
		{env: map[string]string{"OPENAI_API_KEY": "k"}, want: client{}}, // a key alone starts nothing that costs
		{env: map[string]string{"OPENAI_API_KEY": "k", "AGENT_MODEL": "m"}, want: client{"https://api.openai.com/v1", "k", "m"}},
		{env: map[string]string{"OPENAI_BASE_URL": "http://a", "AGENT_MODEL": "m"}, want: client{"http://a", "", "m"}},
		{env: map[string]string{"OPENAI_BASE_URL": "http://a", "AGENT_BASE_URL": "http://b", "AGENT_MODEL": "m"}, want: client{"http://b", "", "m"}},
		{env: map[string]string{"AGENT_BASE_URL": "http://b"}, err: "AGENT_MODEL must name a model of http://b"},
	} {
		got, err := endpoint(func(name string) string { return c.env[name] })
		if c.err != "" {
			require.EqualError(t, err, c.err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
}

func TestWhatAnEndpointRefusesIsShown(t *testing.T) {
	for answer, want := range map[string]string{"no such model": "404 Not Found: no such model", "<html>": "invalid character", `{"choices":[]}`: "the model has no reply"} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			require.Equal(t, "Bearer k", r.Header.Get("Authorization"))
			if answer == "no such model" {
				w.WriteHeader(http.StatusNotFound)
			}
			io.WriteString(w, answer)
		}))
		err := run(t.Context(), client{server.URL + "/", "k", "m"}, "go", io.Discard)
		server.Close()
		require.ErrorContains(t, err, want)
	}
}
