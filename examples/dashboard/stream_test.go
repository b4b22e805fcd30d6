package dashboard_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/agentjobs/jobs/examples/dashboard"
	"github.com/stretchr/testify/require"
)

// streams counts the requests for events that are being answered.
func streams() int {
	stacks := make([]byte, 4<<20)
	return bytes.Count(stacks[:runtime.Stack(stacks, true)], []byte("(*dashboard).events("))
}

func TestAPageThatGoesLeavesNothingBehind(t *testing.T) {
	host := newHost(t, jobs.Config{})
	p := newPuppet(t, host, "build")
	srv := serve(t, host, dashboard.Options{Refresh: 10 * time.Millisecond, MaxClients: 20})
	ctx, cancel := context.WithCancel(t.Context())
	for range 20 {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL+"/events?job="+p.ID, nil)
		require.NoError(t, err)
		res, err := srv.Client().Do(req)
		require.NoError(t, err)
		defer res.Body.Close()
		require.Equal(t, http.StatusOK, res.StatusCode)
	}
	require.Equal(t, 20, streams())
	res, err := srv.Client().Get(srv.URL + "/events")
	require.NoError(t, err)
	res.Body.Close()
	require.Equal(t, http.StatusServiceUnavailable, res.StatusCode, "one page too many")

	cancel()
	until(t, "all streams are gone", func() bool { return streams() == 0 })
	follow(t, srv, "") // there is room again
}

func TestAPageThatDoesNotReadIsLetGo(t *testing.T) {
	t.Cleanup(dashboard.SetPatience(200 * time.Millisecond)) // undone once the server is closed
	host := newHost(t, jobs.Config{})
	flood, err := host.Start(t.Context(), jobs.Spec{Tool: "flood", Func: func(ctx context.Context, out io.Writer) (any, error) {
		for i := 0; ctx.Err() == nil; i++ {
			fmt.Fprintln(out, i, strings.Repeat("x", 1000))
		}
		return nil, nil
	}})
	require.NoError(t, err)
	srv := serve(t, host, dashboard.Options{Refresh: time.Millisecond})
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(4096))
	_, err = fmt.Fprintf(conn, "GET /events?job=%s HTTP/1.1\r\nHost: localhost\r\n\r\n", flood.ID)
	require.NoError(t, err)
	_, err = io.ReadFull(conn, make([]byte, 100)) // it is there, and then stops to read
	require.NoError(t, err)
	until(t, "it is let go", func() bool { return streams() == 0 })
}
