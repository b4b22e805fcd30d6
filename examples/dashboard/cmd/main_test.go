package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOneCommandServesTheJobsUntilItIsStopped(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := run(ctx, "127.0.0.1:0", "", w)
		w.Close()
		done <- err
	}()
	said, err := bufio.NewReader(r).ReadString('\n')
	require.NoError(t, err)
	url, _, _ := strings.Cut(said, " ")
	res, err := http.Get(url + "events")
	require.NoError(t, err)
	defer res.Body.Close()
	events := bufio.NewReader(res.Body)
	_, err = events.ReadString('\n') // the name of the event
	require.NoError(t, err)
	board, err := events.ReadString('\n')
	require.NoError(t, err)
	for _, shown := range []string{"session one", "session two", "build", "download"} {
		require.Contains(t, board, shown)
	}
	stop() // with a page still open
	require.NoError(t, <-done)
}
