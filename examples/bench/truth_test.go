package main

import (
	"bytes"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The numbers mean something only if all contenders do the same.

func eachContender(t *testing.T, f func(t *testing.T, c contender)) {
	for _, c := range contenders {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f(t, c)
		})
	}
}

func hostOf(t *testing.T, c contender) host {
	t.Helper()
	h, err := c.open(8)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.close()) })
	return h
}

func TestEveryContenderCollectsTheSameBytes(t *testing.T) {
	flood, err := emitter(5000 * lineSize)
	require.NoError(t, err)
	for _, job := range []struct {
		argv []string
		want []byte // all that is printed
	}{
		{[]string{"/bin/true"}, nil},
		{[]string{"/bin/sh", "-c", "echo out; echo error >&2; exit 3"}, []byte("out\nerror\n")},
		{smallWriter(100), bytes.Repeat([]byte(smallLine+"\n"), 100)},
		{flood, endOfFlood(5000*lineSize, 5000*lineSize)},
	} {
		t.Run(job.argv[0], func(t *testing.T) {
			eachContender(t, func(t *testing.T, c contender) {
				out, err := runToEnd(hostOf(t, c), job.argv...)
				require.NoError(t, err)
				require.EqualValues(t, len(job.want), out.total)
				require.Equal(t, string(end(job.want, lookSize)), string(end(out.last, lookSize)))
			})
		})
	}
}

func TestEveryContenderShowsTheSameEndWhileTheJobRuns(t *testing.T) {
	eachContender(t, func(t *testing.T, c contender) {
		h := hostOf(t, c)
		j, err := h.start("/bin/sh", "-c", `i=0; while [ $i -lt 2000 ]; do echo "line $i"; i=$((i+1)); done; exec sleep 60`)
		require.NoError(t, err)
		var all bytes.Buffer
		for i := range 2000 {
			all.WriteString("line ")
			all.WriteString(count.format(float64(i)))
			all.WriteByte('\n')
		}
		want := string(end(all.Bytes(), lookSize))
		require.Eventually(t, func() bool {
			p, err := j.look(make([]byte, lookSize))
			return err == nil && string(p) == want
		}, 10*time.Second, 10*time.Millisecond)
		require.NoError(t, j.stop())
	})
}

func TestEveryContenderStopsAJobForGood(t *testing.T) {
	eachContender(t, func(t *testing.T, c contender) {
		j, err := hostOf(t, c).start(sleeper...)
		require.NoError(t, err)
		pid := j.pid()
		require.Greater(t, pid, 1)
		require.NoError(t, j.stop())
		require.Equal(t, syscall.ESRCH, syscall.Kill(pid, 0))
	})
}

func TestEveryContenderReturnsWhenAJobIsKilled(t *testing.T) {
	eachContender(t, func(t *testing.T, c contender) {
		j, err := hostOf(t, c).start(sleeper...)
		require.NoError(t, err)
		require.NoError(t, syscall.Kill(j.pid(), syscall.SIGKILL))
		out, err := j.collect()
		require.NoError(t, err)
		require.Zero(t, out.total)
	})
}

func TestEveryStoreKeepsTheSameEnd(t *testing.T) {
	// Whole lines, as one store keeps lines; as chunks they are not whole.
	const n = 3000 * lineSize
	all := endOfFlood(n, n)
	for _, chunk := range []int{1, 100, 1 << 10, 4 << 10, ringSize, 2*ringSize + 1} {
		for _, c := range contenders {
			s := c.store()
			for rest := all; len(rest) > 0; {
				k, err := s.Write(rest[:min(chunk, len(rest))])
				require.NoError(t, err)
				rest = rest[k:]
			}
			require.EqualValues(t, n, s.total(), "%s, %d", c.name, chunk)
			for _, size := range []int{0, 1, 1000, lookSize} {
				require.Equal(t, string(end(all, size)), string(s.last(make([]byte, size))), "%s, %d, %d", c.name, chunk, size)
			}
		}
	}
}

func TestAFloodIsAsLongAsItSays(t *testing.T) {
	for _, n := range []int64{0, 1, int64(len(block)), int64(len(block)) + 1} {
		var b bytes.Buffer
		require.NoError(t, emit(&b, n))
		require.EqualValues(t, n, b.Len())
		require.Equal(t, string(end(b.Bytes(), lookSize)), string(endOfFlood(n, lookSize)))
	}
	require.Len(t, block, 64<<10)
	for line := range bytes.Lines(block) {
		require.Len(t, line, lineSize)
	}
}
