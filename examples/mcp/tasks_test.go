package main

import (
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

// task calls one of the methods about a task that must answer.
func (w *wire) task(method, id string) map[string]any {
	w.t.Helper()
	result, err := w.request(method, map[string]any{"taskId": id})
	require.NoError(w.t, err)
	require.Equal(w.t, "complete", result["resultType"])
	return result
}

// finish waits for a job and returns its task.
func (w *wire) finish(id string) map[string]any {
	w.t.Helper()
	w.call("job__wait", map[string]any{"ids": id})
	return w.task("tasks/get", id)
}

func TestACollectThatWouldWaitIsATaskForAClientThatKnowsTasks(t *testing.T) {
	t.Parallel()
	set := testSettings(t)
	w := wireTo(t, set, modern(tasksExtension))
	id := w.start(gated("echo one; echo two; exit 3"))

	created := w.call("job__collect", map[string]any{"id": id, "tail_lines": 1})
	require.Equal(t, "task", created["resultType"])
	require.Equal(t, id, created["taskId"])
	require.Equal(t, "working", created["status"])
	for _, when := range []string{"createdAt", "lastUpdatedAt"} {
		at, err := time.Parse(time.RFC3339, created[when].(string))
		require.NoError(t, err)
		require.WithinDuration(t, time.Now(), at, patience)
	}
	require.Positive(t, created["ttlMs"])
	require.Positive(t, created["pollIntervalMs"])

	require.Equal(t, "working", w.task("tasks/get", id)["status"])
	require.NotContains(t, w.task("tasks/update", id), "status")
	openGate(t, set.Dir)
	done := w.finish(id)
	require.Equal(t, "completed", done["status"], "of the call, not of the job")
	result := done["result"].(map[string]any)
	require.Equal(t, "failed", structured(result)["status"])
	require.EqualValues(t, 3, structured(result)["exit_code"])
	require.Equal(t, "two\n", structured(result)["output_tail"], "the arguments of the call are forgotten")
	require.Equal(t, result, w.task("tasks/get", id)["result"], "a result can be asked for again")
	require.Equal(t, true, w.call("job__collect", map[string]any{"id": id})["isError"])
}

func TestACollectThatNeedNotWaitIsNoTask(t *testing.T) {
	t.Parallel()
	w := wireTo(t, testSettings(t), modern(tasksExtension))
	id := w.start("exit 0")
	w.call("job__wait", map[string]any{"ids": id})
	ended := w.call("job__collect", map[string]any{"id": id})
	require.Equal(t, "complete", ended["resultType"])
	require.Equal(t, "completed", structured(ended)["status"])

	running := w.start(gated(""))
	for _, args := range []map[string]any{{"id": running, "tails": 1}, {"id": "job_x"}, {}} {
		require.Equal(t, true, w.call("job__collect", args)["isError"])
	}
}

func TestAClientThatDoesNotDeclareTasksGetsNone(t *testing.T) {
	t.Parallel()
	set := testSettings(t)
	set.Wait = duration(time.Millisecond)
	w := wireTo(t, set, modern())
	id := w.start(gated(""))
	now := w.call("job__collect", map[string]any{"id": id})
	require.Equal(t, "complete", now["resultType"])
	require.Equal(t, "running", structured(now)["status"])
	for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
		_, err := w.request(method, map[string]any{"taskId": id})
		require.EqualValues(t, mcp.CodeMissingRequiredClientCapabilities, codeOf(err), "%v", err)
	}
	require.Equal(t, "running", structured(w.call("job__check", map[string]any{"id": id}))["status"])
}

func TestAnOlderClientGetsNoTaskWhateverItDeclares(t *testing.T) {
	t.Parallel()
	set := testSettings(t)
	set.Wait = duration(time.Millisecond)
	w := wireTo(t, set, nil)
	_, err := w.request("initialize", map[string]any{
		"protocolVersion": "2025-11-25",
		"clientInfo":      map[string]any{"name": "old", "version": "1"},
		"capabilities":    map[string]any{"extensions": map[string]any{tasksExtension: map[string]any{}}},
	})
	require.NoError(t, err)
	id := w.start(gated(""))
	require.Equal(t, "running", structured(w.call("job__collect", map[string]any{"id": id}))["status"])
	w.meta = modern(tasksExtension)
	w.meta[mcp.MetaKeyProtocolVersion] = "2025-11-25"
	require.Equal(t, "running", structured(w.call("job__collect", map[string]any{"id": id}))["status"])
}

func TestCancellingATaskStopsItsJob(t *testing.T) {
	t.Parallel()
	set := testSettings(t)
	w := wireTo(t, set, modern(tasksExtension))
	life := newLifeline(t, set.Dir)
	id := w.start("exec 3>life; echo ready >&3; sleep 300 & wait")
	require.Equal(t, "task", w.call("job__collect", map[string]any{"id": id})["resultType"])
	require.Equal(t, "ready", life.next(t))
	require.NotContains(t, w.task("tasks/cancel", id), "status")
	life.ended(t)
	done := w.finish(id)
	require.Equal(t, "cancelled", done["status"])
	require.NotContains(t, done, "result")
}

func TestAnUnknownTaskIsAnInvalidParameter(t *testing.T) {
	t.Parallel()
	w := wireTo(t, testSettings(t), modern(tasksExtension))
	for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
		for _, id := range []string{"", "nobody", "job_0123456789abcdef0123"} {
			_, err := w.request(method, map[string]any{"taskId": id})
			require.EqualValues(t, jsonrpc.CodeInvalidParams, codeOf(err), "%v", err)
		}
	}
}

func TestATasksHandleOutlivesTheServerWithRecords(t *testing.T) {
	t.Parallel()
	dir, state := t.TempDir(), t.TempDir()
	args := []string{"-allow", "sh", "-dir", dir, "-state", state, "-leash=false"}
	p := startProcess(t, modern(tasksExtension), args...)
	life := newLifeline(t, dir)
	finished := p.start("echo all of it; exit 3")
	p.call("job__wait", map[string]any{"ids": finished})
	id := p.start("exec 3>life; echo ready >&3; sleep 300 & wait")
	require.Equal(t, "ready", life.next(t))
	require.Equal(t, "task", p.call("job__collect", map[string]any{"id": id})["resultType"])
	require.NoError(t, p.Process.Kill())
	p.Wait()

	p = startProcess(t, modern(tasksExtension), args...)
	lost := p.task("tasks/get", id)
	life.ended(t) // killed by the new server, as there was no leash
	require.Equal(t, "completed", lost["status"])
	require.Equal(t, "lost", structured(lost["result"].(map[string]any))["status"])
	whole := structured(p.task("tasks/get", finished)["result"].(map[string]any))
	require.Equal(t, "failed", whole["status"])
	require.EqualValues(t, 3, whole["exit_code"])
}

func TestAJobThatWasKeptIsPickedUpByTheNextServer(t *testing.T) {
	t.Parallel()
	dir, state := t.TempDir(), t.TempDir()
	args := []string{"-allow", "sh", "-dir", dir, "-state", state, "-on-exit", "keep"}
	p := startProcess(t, modern(), args...)
	life := newLifeline(t, dir)
	id := p.start("exec 3>life; echo ready >&3; " + gated("echo done >&3"))
	require.Equal(t, "ready", life.next(t))
	require.NoError(t, p.in.Close())
	require.NoError(t, p.Wait())

	p = startProcess(t, modern(), args...)
	require.Equal(t, "running", structured(p.call("job__check", map[string]any{"id": id}))["status"])
	openGate(t, dir)
	require.Equal(t, "done", life.next(t))
	life.ended(t)
	require.Equal(t, "completed", structured(p.call("job__collect", map[string]any{"id": id}))["status"])
}
