package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

// A lifeline is a pipe that processes of a job hold: it says what they write,
// and when the last of them is dead.
type lifeline struct {
	path  string
	lines chan string
}

func newLifeline(t *testing.T, dir string) *lifeline {
	t.Helper()
	l := &lifeline{path: filepath.Join(dir, "life"), lines: make(chan string, 100)}
	require.NoError(t, syscall.Mkfifo(l.path, 0o600))
	go func() {
		defer close(l.lines)
		f, err := os.Open(l.path) // waits for a writer
		if err != nil {
			return
		}
		defer f.Close()
		for in := bufio.NewScanner(f); in.Scan(); {
			l.lines <- in.Text()
		}
	}()
	return l
}

// next returns the next line, "" once nobody holds the pipe any more.
func (l *lifeline) next(t *testing.T) string {
	t.Helper()
	select {
	case line := <-l.lines:
		return line
	case <-time.After(patience):
		t.Fatal("nothing came through the pipe of the job")
		return ""
	}
}

func (l *lifeline) ended(t *testing.T) {
	t.Helper()
	require.Empty(t, l.next(t), "a process of the job writes on")
}

// testSettings are those of most tests: a few commands, in a directory of the
// test's own.
func testSettings(t *testing.T) settings {
	set := defaults()
	set.Allow = []string{"sh", "cat", "env", "pwd"}
	set.Dir = t.TempDir()
	return set
}

// newTestServer returns a server in this process.
func newTestServer(t *testing.T, set settings) *server {
	t.Helper()
	require.NoError(t, set.check())
	s, err := jobs.New(set.config())
	require.NoError(t, err)
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel() // at once
		s.Close(ended)
	})
	return newServer(s, set, slog.New(slog.DiscardHandler))
}

// connect returns a client of the SDK, connected to a new server.
func connect(t *testing.T, set settings, options *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	there, here := mcp.NewInMemoryTransports()
	_, err := newTestServer(t, set).mcp.Connect(t.Context(), there, nil)
	require.NoError(t, err)
	session, err := mcp.NewClient(&mcp.Implementation{Name: "inside", Version: "1"}, options).Connect(t.Context(), here, nil)
	require.NoError(t, err)
	t.Cleanup(func() { session.Close() })
	return session
}

// An answer holds what the tests read in answers of tools.
type answer struct {
	Status     string `json:"status"`
	JobID      string `json:"job_id"`
	Message    string `json:"message"`
	ExitCode   *int   `json:"exit_code"`
	OutputTail string `json:"output_tail"`
}

func callTool(t *testing.T, ctx context.Context, c *mcp.ClientSession, name string, args any) (answer, error) {
	t.Helper()
	var a answer
	result, err := c.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: args})
	if err == nil {
		text := result.Content[0].(*mcp.TextContent).Text
		require.NoError(t, json.Unmarshal([]byte(text), &a))
		require.Equal(t, a.Status == "error", result.IsError)
	}
	return a, err
}

func runArgs(command string, args ...string) map[string]any {
	return map[string]any{"tool": "run", "arguments": map[string]any{"command": command, "args": args}}
}

// A wire is a connection on which requests are written by hand.
type wire struct {
	t    *testing.T
	conn mcp.Connection
	meta map[string]any // of every request
	last int64
}

// modern is what a client of 2026-07-28 says with each request; with tasks or
// without.
func modern(extensions ...string) map[string]any {
	known := map[string]any{}
	for _, e := range extensions {
		known[e] = map[string]any{}
	}
	return map[string]any{
		mcp.MetaKeyProtocolVersion:    "2026-07-28",
		mcp.MetaKeyClientInfo:         map[string]any{"name": "by hand", "version": "1"},
		mcp.MetaKeyClientCapabilities: map[string]any{"extensions": known},
	}
}

// wireTo connects to a new server in this process.
func wireTo(t *testing.T, set settings, meta map[string]any) *wire {
	t.Helper()
	there, here := mcp.NewInMemoryTransports()
	_, err := newTestServer(t, set).mcp.Connect(t.Context(), there, nil)
	require.NoError(t, err)
	conn, err := here.Connect(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return &wire{t: t, conn: conn, meta: meta}
}

// A process is a server in a process of its own.
type process struct {
	*exec.Cmd
	*wire
	in io.Closer
}

func startProcess(t *testing.T, meta map[string]any, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), "HOME="+home, roleEnv+"=server")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	conn, err := (&mcp.IOTransport{Reader: out, Writer: in}).Connect(t.Context())
	require.NoError(t, err)
	return &process{cmd, &wire{t: t, conn: conn, meta: meta}, in}
}

// request sends a request and returns the result, with notifications skipped.
func (w *wire) request(method string, params map[string]any) (map[string]any, error) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	w.last++
	full := map[string]any{"_meta": w.meta}
	for name, value := range params {
		full[name] = value
	}
	text, err := json.Marshal(full)
	require.NoError(w.t, err)
	id, err := jsonrpc.MakeID(float64(w.last))
	require.NoError(w.t, err)
	require.NoError(w.t, w.conn.Write(ctx, &jsonrpc.Request{ID: id, Method: method, Params: text}))
	for {
		message, err := w.conn.Read(ctx)
		require.NoError(w.t, err)
		if response, ok := message.(*jsonrpc.Response); ok {
			require.Equal(w.t, id, response.ID)
			var result map[string]any
			if response.Error == nil {
				require.NoError(w.t, json.Unmarshal(response.Result, &result))
			}
			return result, response.Error
		}
	}
}

// call calls a tool and returns the whole result.
func (w *wire) call(name string, args map[string]any) map[string]any {
	w.t.Helper()
	result, err := w.request("tools/call", map[string]any{"name": name, "arguments": args})
	require.NoError(w.t, err)
	return result
}

// start starts a shell and returns the id of its job.
func (w *wire) start(script string) string {
	w.t.Helper()
	result := w.call("job__start", runArgs("sh", "-c", script))
	id, _ := structured(result)["job_id"].(string)
	require.NotEmpty(w.t, id, "%v", result)
	return id
}

func structured(result map[string]any) map[string]any {
	content, _ := result["structuredContent"].(map[string]any)
	return content
}

// codeOf returns the code of a JSON-RPC error.
func codeOf(err error) int64 {
	var rpc *jsonrpc.Error
	if errors.As(err, &rpc) {
		return rpc.Code
	}
	return 0
}

// gated is a script that goes on once dir has a file named go.
func gated(then string) string {
	return "until [ -e go ]; do sleep 0.05; done; " + then
}

func openGate(t *testing.T, dir string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
}
