package jobs_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/require"
)

// A host's own test that fails inside its Wrap ends the goroutine like this.
func TestAStartWhoseGoroutineEndsInTheHostsCodeFreesTheSlotAndTheKey(t *testing.T) {
	warmPoller()
	before := descriptors()
	s, err := jobs.New(jobs.Config{MaxRunning: 1, Wrap: func([]string) ([]string, error) {
		runtime.Goexit()
		return nil, nil
	}})
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Start(context.Background(), keyed(bash("true"), "one"))
	}()
	<-done
	requireFree(t, s) // else Close would wait for ever
	start(t, s, keyed(gated(nil, ""), "one"))
	mustClose(t, s)
	require.Equal(t, before, descriptors())
}

func TestAWriteToACollectedJobSendsNobodyToCollectIt(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	spec := bash("true")
	spec.Input = true
	id := start(t, s, spec).ID
	collect(t, s, id)
	r := ask(t, s.Toolset(jobs.ToolsetOptions{Optional: jobs.WriteTool}), "job__write", idArgs(id, `"text":"x"`))
	require.Contains(t, r.Message, "takes no input")
	require.NotContains(t, r.Message, "job__collect hands out")
}
