package jobs_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An sshServer is a real one, on a port of the loopback.
type sshServer struct {
	pid  int
	dir  string
	home string
	port string
}

// startSSH starts a server that ends with the test.
func startSSH(t *testing.T) *sshServer {
	t.Helper()
	const sshd = "/usr/sbin/sshd"
	_, err := os.Stat(sshd)
	require.NoError(t, err, "install it: apt-get install openssh-server openssh-client")
	require.NoError(t, os.MkdirAll("/run/sshd", 0o755)) // which it wants as root
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &sshServer{dir: t.TempDir(), home: t.TempDir(), port: strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)}
	listener.Close()
	for _, key := range []string{"host", "key", "other"} {
		require.NoError(t, exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", s.path(key)).Run())
	}
	config := fmt.Sprintf("ListenAddress 127.0.0.1\nPort %s\nHostKey %s\nAuthorizedKeysFile %s\nUsePAM no\nStrictModes no\nPidFile none\nPermitRootLogin yes\nSetEnv HOME=%s\n",
		s.port, s.path("host"), s.path("key.pub"), s.home)
	require.NoError(t, os.WriteFile(s.path("cfg"), []byte(config), 0o600))
	log, err := os.Create(s.path("log"))
	require.NoError(t, err)
	defer log.Close()
	cmd := exec.Command(sshd, "-D", "-e", "-f", s.path("cfg"))
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(t, cmd.Start())
	s.pid = cmd.Process.Pid
	t.Cleanup(func() {
		for _, pid := range s.connections() {
			killPID(pid)
		}
		cmd.Process.Kill()
		cmd.Wait()
	})
	require.True(t, eventually(func() bool {
		conn, err := net.Dial("tcp", "127.0.0.1:"+s.port)
		if err == nil {
			conn.Close()
		}
		return err == nil
	}))
	host, err := os.ReadFile(s.path("host.pub"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(s.path("known"), []byte(fmt.Sprintf("[127.0.0.1]:%s %s", s.port, host)), 0o600))
	return s
}

func (s *sshServer) path(name string) string { return filepath.Join(s.dir, name) }

// shell returns a Shell on the server.
func (s *sshServer) shell(key, host string, command ...string) jobs.Shell {
	argv := []string{"ssh", "-F", "none", "-i", s.path(key), "-p", s.port, "-o", "IdentitiesOnly=yes",
		"-o", "UserKnownHostsFile=" + s.path("known"), "-o", "BatchMode=yes", "-o", "ConnectTimeout=20", "root@" + host}
	return jobs.ShellCommand(append(argv, command...)...)
}

// connections returns the processes of the server that serve one connection
// each.
func (s *sshServer) connections() []int {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", s.pid, s.pid))
	var ps []int
	for field := range strings.FieldsSeq(string(data)) {
		pid, _ := strconv.Atoi(field)
		ps = append(ps, pid)
	}
	return ps
}

func sshFar(t *testing.T) far {
	s := startSSH(t)
	return far{s.shell("key", "127.0.0.1", "exec dash -l"), s.home}
}

func sshBashFar(t *testing.T) far {
	s := startSSH(t)
	profile := "echo welcome to this machine; echo AAAA begin; printf 'no newline'\n"
	require.NoError(t, os.WriteFile(filepath.Join(s.home, ".bash_profile"), []byte(profile), 0o644))
	return far{s.shell("key", "127.0.0.1"), s.home}
}

// slowScripts makes each script wait on the other side before it begins.
type slowScripts struct{ jobs.Shell }

func (s slowScripts) Run(ctx context.Context, script string) ([]byte, error) {
	return s.Shell.Run(ctx, "sleep 0.5\n"+script)
}

func TestASSHConnectionThatDropsInALookLosesNothing(t *testing.T) {
	server := startSSH(t)
	gate := farGate(t)
	f := far{slowScripts{server.shell("key", "127.0.0.1")}, server.home}
	s := newSupervisor(t, jobs.Config{})
	snap := start(t, s, f.spec("echo one; read x <"+gate+"; echo two; exit 5"))
	awaitOutput(t, s, snap.ID, "one\n")
	for range 3 {
		var serving []int
		require.True(t, eventually(func() bool { serving = server.connections(); return len(serving) > 0 }))
		for _, pid := range serving {
			killPID(pid)
		}
	}
	now, err := s.Check(snap.ID)
	require.NoError(t, err)
	assert.Equal(t, jobs.Running, now.State)
	require.NoError(t, os.WriteFile(gate, []byte("go\n"), 0))
	r := collect(t, s, snap.ID)
	assert.Equal(t, 5, r.ExitCode)
	assert.Equal(t, "one\ntwo\n", string(r.Output.Bytes()))
}

func TestTwentySSHJobsAtOnce(t *testing.T) {
	server := startSSH(t)
	f := far{server.shell("key", "127.0.0.1"), server.home}
	s := newSupervisor(t, jobs.Config{MaxRunning: 20})
	ctx, done := context.WithTimeout(context.Background(), 3*patience)
	defer done()
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			snap, err := s.Start(ctx, f.spec(fmt.Sprintf("echo %d; exit %d", i, i)))
			if !assert.NoError(t, err) {
				return
			}
			r, err := s.Collect(ctx, snap.ID)
			assert.NoError(t, err)
			assert.Equal(t, i, r.ExitCode)
			assert.Equal(t, fmt.Sprintln(i), string(r.Output.Bytes()))
		})
	}
	all.Wait()
}

func TestSSHErrorsNameTheirCause(t *testing.T) {
	server := startSSH(t)
	s := newSupervisor(t, jobs.Config{})
	for _, c := range []struct {
		shell jobs.Shell
		text  string
	}{
		{server.shell("other", "127.0.0.1"), "Permission denied"},
		{server.shell("key", "localhost"), "Host key verification failed"},
		{server.shell("key", "no-such-host.invalid"), "resolve"},
	} {
		ctx, done := context.WithTimeout(context.Background(), patience)
		_, err := s.Start(ctx, far{shell: c.shell}.spec("true"))
		done()
		var start *jobs.StartError
		if assert.ErrorAs(t, err, &start) {
			assert.Equal(t, jobs.StageShell, start.Stage)
			assert.Contains(t, err.Error(), c.text)
		}
	}
	begun := time.Now()
	_, err := s.Close(testContext(t))
	require.NoError(t, err)
	assert.Less(t, time.Since(begun), patience/2, "what is tried in the background ends with Close")
}
