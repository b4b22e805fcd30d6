package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait of the tests. None that passes comes near it.
const patience = 60 * time.Second

const (
	// roleEnv makes the test binary be something else: the server, or a proxy in
	// front of it.
	roleEnv = "JOBS_MCP_ROLE"
	// behindEnv is the role of what is behind the proxy.
	behindEnv = "JOBS_MCP_BEHIND"
	// lieEnv makes the proxy replace what matches a pattern: "pattern=>text".
	lieEnv = "JOBS_MCP_LIE"
	// markEnv marks every process that the tests start, and theirs.
	markEnv = "JOBS_MCP_MARK"
)

// home is that of the servers: detached jobs have their files there.
var home string

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case "noisy":
		fmt.Println("hello")
		fallthrough
	case "server":
		main()
		os.Exit(0)
	case "proxy":
		os.Exit(proxy())
	}
	mark := fmt.Sprint(os.Getpid(), "-", time.Now().UnixNano())
	os.Setenv(markEnv, mark)
	home, _ = os.MkdirTemp("", "jobs-mcp-home-")
	code := m.Run()
	os.RemoveAll(home)
	if clientDir != "" {
		os.RemoveAll(clientDir)
	}
	var left map[int]string
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if left = marked(mark); len(left) == 0 {
			os.Exit(code)
		}
	}
	fmt.Printf("FAIL: left running, and killed now: %v\n", left)
	for pid := range left {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	os.Exit(1)
}

// marked returns the processes, other than this one, whose environment has the
// mark, with their command lines.
func marked(mark string) map[int]string {
	found := make(map[int]string)
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range environs {
		proc := filepath.Dir(path)
		pid, _ := strconv.Atoi(filepath.Base(proc))
		env, err := os.ReadFile(path)
		if err != nil || pid == os.Getpid() || !bytes.Contains(env, []byte(markEnv+"="+mark+"\x00")) {
			continue
		}
		cmd, _ := os.ReadFile(filepath.Join(proc, "cmdline"))
		found[pid] = strings.ReplaceAll(string(cmd), "\x00", " ")
	}
	return found
}

// proxy runs the server and hands on what it says, if that is JSON-RPC and
// nothing else, or a lie.
func proxy() int {
	server := exec.Command(os.Args[0], os.Args[1:]...)
	server.Env = append(os.Environ(), roleEnv+"="+cmp.Or(os.Getenv(behindEnv), "server"))
	server.Stdin, server.Stderr = os.Stdin, os.Stderr
	out, err := server.StdoutPipe()
	if err == nil {
		err = server.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	go func() { server.Process.Signal(<-signals) }()

	pattern, lie, _ := strings.Cut(os.Getenv(lieEnv), "=>")
	for lines := bufio.NewReader(out); ; {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 && !isMessage(line) {
			fmt.Fprintf(os.Stderr, "the server said what is no JSON-RPC: %q\n", line)
			server.Process.Kill()
			server.Wait()
			return 1
		}
		if pattern != "" {
			line = regexp.MustCompile(pattern).ReplaceAll(line, []byte(lie))
		}
		os.Stdout.Write(line)
		if err != nil {
			break
		}
	}
	server.Wait()
	return server.ProcessState.ExitCode()
}

// isMessage reports whether a line is one message of JSON-RPC.
func isMessage(line []byte) bool {
	var message struct {
		Version string `json:"jsonrpc"`
	}
	return bytes.HasSuffix(line, []byte("}\n")) && json.Unmarshal(line, &message) == nil && message.Version == "2.0"
}
