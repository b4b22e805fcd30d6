package jobs

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// A command is a process to start. It shares no memory with the Spec.
type command struct {
	tool string
	path string // what to execute; empty until found
	argv []string
	env  []string
	dir  string
}

// quietEnv overlays the host's environment: nothing may wait for a terminal
// that is not there. Spec.Env can override each.
var quietEnv = []string{
	"PAGER=cat",
	"GIT_PAGER=cat",
	"MANPAGER=cat",
	"SYSTEMD_PAGER=cat",
	"GIT_TERMINAL_PROMPT=0",
	"SSH_ASKPASS_REQUIRE=never",
	"DEBIAN_FRONTEND=noninteractive",
	"PYTHONUNBUFFERED=1",
}

// check reports what is wrong with a Spec, as a *StartError.
func (s Spec) check() error {
	hint, err := s.fault()
	if err == nil {
		return nil
	}
	return &StartError{Tool: s.toolName(), Stage: StageSpec, Hint: hint, Err: err}
}

func (s Spec) fault() (hint string, err error) {
	switch {
	case len(s.Argv) == 0 && s.Func == nil:
		return "set Argv or Func", errors.New("nothing to run")
	case len(s.Argv) > 0 && s.Func != nil:
		return "set one of them", errors.New("both Argv and Func are set")
	case s.Func != nil && (s.Dir != "" || len(s.Env) > 0 || s.SplitStderr || s.Input || s.Limits != Limits{}):
		return "leave them out for a Func", errors.New("the fields Dir, Env, Input, Limits and SplitStderr are for processes")
	case s.Shell != nil && s.Func != nil:
		return "leave Shell out for a Func", errors.New("a function runs in the host, not through a Shell")
	case s.Shell != nil && (s.SplitStderr || s.Input || s.Limits != Limits{}):
		return "leave them out with a Shell", errors.New("the fields Input, Limits and SplitStderr do not work through a Shell")
	case s.OnOwnerEnd < DefaultOwnerEnd || s.OnOwnerEnd > KeepRunning:
		return "", fmt.Errorf("unknown OnOwnerEnd policy %d", s.OnOwnerEnd)
	case s.LogFull != CutLog && s.LogFull != StopJob:
		return "", fmt.Errorf("unknown LogFull policy %d", s.LogFull)
	case s.Limits.fault() != "":
		return "leave it 0 for no limit", errors.New(s.Limits.fault())
	case s.Leftovers != KillLeftovers && s.Leftovers != KeepLeftovers:
		return "", fmt.Errorf("unknown Leftovers policy %d", s.Leftovers)
	case strings.Contains(s.Dir, "\x00"):
		return "", errors.New("the working directory contains a NUL byte")
	}
	if s.Func == nil {
		if err := checkArgv(s.Argv); err != nil {
			return "", err
		}
	}
	for i, kv := range s.Env {
		if err := checkEnvEntry(kv); err != nil {
			return "", fmt.Errorf("entry Env[%d]: %w", i, err)
		}
		if key, _, _ := strings.Cut(kv, "="); key == EnvResult || key == EnvJob {
			return "leave it out", fmt.Errorf("entry Env[%d] sets %s, which belongs to the supervisor", i, key)
		}
	}
	return "", nil
}

// checkEnvEntry reports what is wrong with one "KEY=value". The error names
// the key at most: a value may be a secret.
func checkEnvEntry(kv string) error {
	key, value, ok := strings.Cut(kv, "=")
	switch {
	case !ok:
		return fmt.Errorf(`an entry of %d bytes has no "="`, len(kv))
	case key == "":
		return errors.New("the key is empty")
	case strings.Contains(key, "\x00"):
		return errors.New("the key contains a NUL byte")
	case strings.Contains(value, "\x00"):
		return fmt.Errorf("the value of %q contains a NUL byte", key)
	}
	return nil
}

// environment is the environment of a job: the host's, quiet defaults, the
// Spec's own, then what belongs to the supervisor. Of one key the last counts.
func environment(base, own []string, resultPath, id string) []string {
	chain := id
	env := make([]string, 0, len(base)+len(quietEnv)+len(own)+2)
	place := make(map[string]int, cap(env))
	set := func(kv string) {
		key, _, ok := strings.Cut(kv, "=")
		if !ok || key == "" || strings.Contains(kv, "\x00") {
			return // a host can inherit such things; no program expects them
		}
		if i, ok := place[key]; ok {
			env[i] = kv
			return
		}
		place[key] = len(env)
		env = append(env, kv)
	}
	for _, kvs := range [][]string{base, quietEnv, own} {
		for _, kv := range kvs {
			set(kv)
		}
	}
	// The chain goes on from the host's own environment, whatever the job's
	// base is: the sweep of an outer supervisor relies on it.
	if outer := os.Getenv(EnvJob); outer != "" {
		chain = outer + ":" + id
	}
	set(EnvResult + "=" + resultPath)
	set(EnvJob + "=" + chain)
	return env
}

// lookupEnv returns the value of key in env, which has no duplicates.
func lookupEnv(env []string, key string) string {
	for _, kv := range env {
		if k, v, _ := strings.Cut(kv, "="); k == key {
			return v
		}
	}
	return ""
}

// hostEnv returns the environment that jobs start from.
func (c Config) hostEnv() ([]string, error) {
	env := c.Env
	if env == nil {
		env = os.Environ()
	}
	if c.EnvFilter == nil {
		return env, nil
	}
	var passed []string
	err := protect(func() error {
		for _, kv := range env {
			if name, _, _ := strings.Cut(kv, "="); c.EnvFilter(name) {
				passed = append(passed, kv)
			}
		}
		return nil
	})
	return passed, err
}

// wrapped returns what to execute for argv.
func (c Config) wrapped(argv []string) (wrapped []string, err error) {
	wrapped = append(wrapped, argv...)
	if c.Wrap == nil {
		return wrapped, nil
	}
	err = protect(func() error {
		wrapped, err = c.Wrap(wrapped)
		return err
	})
	if err == nil {
		err = checkArgv(wrapped)
	}
	return append([]string(nil), wrapped...), err
}

func checkArgv(argv []string) error {
	if len(argv) == 0 || argv[0] == "" {
		return errors.New("the program, Argv[0], is empty")
	}
	for i, arg := range argv {
		if strings.Contains(arg, "\x00") {
			return fmt.Errorf("argument Argv[%d] contains a NUL byte; pass binary data through a file", i)
		}
	}
	return nil
}

func (c command) fail(stage Stage, err error, hint string) error {
	return &StartError{Tool: c.tool, Stage: stage, Hint: hint, Err: err}
}

// size describes how large arguments and environment are, without quoting
// them.
func (c command) size() string {
	total, largest, name := 0, 0, ""
	measure := func(label string, s string) {
		total += len(s) + 1
		if len(s) > largest {
			largest, name = len(s), label
		}
	}
	for i, arg := range c.argv {
		measure(fmt.Sprintf("Argv[%d]", i), arg)
	}
	for _, kv := range c.env {
		key, _, _ := strings.Cut(kv, "=")
		measure("environment variable "+key[:min(len(key), 64)], kv)
	}
	return fmt.Sprintf("arguments and environment take %d bytes; the largest is %s with %d; "+
		"Linux allows 131072 for one and about 2 MiB for all; pass large data through a file", total, name, largest)
}
