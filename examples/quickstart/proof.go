package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/agentjobs/jobs"
)

// goFiles returns the Go files of the module's root.
func goFiles() ([]string, error) {
	names, err := filepath.Glob("*.go")
	if err == nil && len(names) == 0 {
		err = errors.New("no Go files here: run it in the root of the module")
	}
	return names, err
}

// alive reports whether a process runs. A zombie does not: it waits for its
// parent to read its exit code.
func alive(pid int) bool {
	if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
		_, state, _ := strings.Cut(string(stat), ") ")
		return !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
	}
	p, err := os.FindProcess(pid)
	return err == nil && p.Signal(syscall.Signal(0)) == nil
}

// marked returns the live processes that carry the id of one of the jobs in
// their environment, where the system shows it.
func marked(ids []string) []int {
	var pids []int
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		env, _ := os.ReadFile(file)
		var pid int
		fmt.Sscanf(file, "/proc/%d/", &pid)
		for _, id := range ids {
			if bytes.Contains(env, []byte(jobs.EnvJob+"=")) && bytes.Contains(env, []byte(id)) && alive(pid) {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}
