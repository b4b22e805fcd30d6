package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/agentjobs/jobs"
)

// settings are what the operator decides. In a configuration file they have the
// names of the flags.
type settings struct {
	Allow       []string `json:"allow"`
	Dir         string   `json:"dir"`
	FlatNames   bool     `json:"flat-names"`
	Leash       bool     `json:"leash"`
	Max         int      `json:"max"`
	OnExit      string   `json:"on-exit"`
	OutputLimit int64    `json:"output-limit"`
	Pass        []string `json:"pass"`
	State       string   `json:"state"`
	Timeout     duration `json:"timeout"`
	Verbose     bool     `json:"v"`
	Wait        duration `json:"wait"`
}

func defaults() settings {
	return settings{
		Dir:     ".",
		Leash:   runtime.GOOS == "linux", // the only system that has it
		Max:     jobs.DefaultMaxRunning,
		OnExit:  "kill",
		Timeout: duration(jobs.DefaultTimeout),
		Wait:    duration(jobs.DefaultToolWait),
	}
}

// flags returns the flags that set s; file gets the name of the configuration
// file.
func (s *settings) flags(file *string) *flag.FlagSet {
	fs := flag.NewFlagSet("jobs-mcp", flag.ContinueOnError)
	list := func(name string, to *[]string, usage string) {
		fs.Func(name, usage, func(text string) error {
			*to = strings.FieldsFunc(text, func(r rune) bool { return r == ',' })
			return nil
		})
	}
	list("allow", &s.Allow, "the `commands` that may be run, separated by commas, each exactly as a call has to name it")
	fs.StringVar(file, "config", "", "a JSON `file` that sets what no flag sets, by the names of the flags")
	fs.StringVar(&s.Dir, "dir", s.Dir, "the `directory` that commands run in")
	fs.BoolVar(&s.FlatNames, "flat-names", s.FlatNames, "name the tools job_start instead of job__start")
	fs.BoolVar(&s.Leash, "leash", s.Leash, "let a small shell end the jobs if this server is killed outright")
	fs.IntVar(&s.Max, "max", s.Max, "how many jobs may run at once")
	fs.StringVar(&s.OnExit, "on-exit", s.OnExit, "what becomes of jobs when the client goes: `kill or keep`")
	fs.Int64Var(&s.OutputLimit, "output-limit", s.OutputLimit, "stop a job that prints more `bytes` than this; 0 for no limit")
	list("pass", &s.Pass, "environment `variables` that jobs get although their names look like those of secrets")
	fs.StringVar(&s.State, "state", s.State, "a `directory` for records, so that job ids outlive this server; empty for none")
	fs.TextVar(&s.Timeout, "timeout", s.Timeout, "stop a job that runs longer than this `duration`; 0 for no limit")
	fs.BoolVar(&s.Verbose, "v", s.Verbose, "say more on standard error")
	fs.TextVar(&s.Wait, "wait", s.Wait, "how long one call waits for a job at most, a `duration` below the client's own timeout")
	return fs
}

// parse reads the command line, and the configuration file that it names.
func parse(args []string, stderr io.Writer) (settings, error) {
	var file string
	set := defaults()
	fs := set.flags(&file)
	fs.SetOutput(stderr)
	if err := fs.Parse(args); err != nil {
		return settings{}, err
	}
	if fs.NArg() > 0 {
		return settings{}, fmt.Errorf("what is %q for? commands are allowed with -allow", fs.Arg(0))
	}
	if file != "" {
		set = defaults()
		if err := set.load(file); err != nil {
			return settings{}, fmt.Errorf("%s: %w", file, err)
		}
		set.flags(&file).Parse(args) // once more, over the file; it went well before
	}
	return set, set.check()
}

// load reads a configuration file. Its relative directories are relative to the
// file's own.
func (s *settings) load(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(s); err != nil {
		return err
	}
	for _, dir := range []*string{&s.Dir, &s.State} {
		if *dir != "" && !filepath.IsAbs(*dir) {
			*dir = filepath.Join(filepath.Dir(file), *dir)
		}
	}
	return nil
}

func (s *settings) check() (err error) {
	switch {
	case len(s.Allow) == 0 || slices.Contains(s.Allow, ""):
		return errors.New("no command is allowed; name some, such as -allow go,npm")
	case s.OnExit != "kill" && s.OnExit != "keep":
		return fmt.Errorf("on-exit is %q; it must be kill or keep", s.OnExit)
	case s.Max < 1:
		return fmt.Errorf("max is %d; it must be 1 or more", s.Max)
	case s.Timeout < 0 || s.OutputLimit < 0 || s.Wait <= 0:
		return errors.New("timeout and output-limit must not be negative, and wait must be more than 0")
	}
	if s.Dir, err = filepath.Abs(s.Dir); err != nil {
		return err
	}
	if fi, err := os.Stat(s.Dir); err != nil {
		return err
	} else if !fi.IsDir() {
		return fmt.Errorf("%s is not a directory", s.Dir)
	}
	return nil
}

func (s *settings) logLevel() slog.Level {
	if s.Verbose {
		return slog.LevelInfo
	}
	return slog.LevelWarn
}

// config returns what the settings mean for the supervisor.
func (s *settings) config() jobs.Config {
	cfg := jobs.Config{
		Dir:        s.State,
		Leash:      s.Leash,
		MaxRunning: s.Max,
		Timeout:    time.Duration(s.Timeout),
		EnvFilter:  func(name string) bool { return slices.Contains(s.Pass, name) || jobs.StripSecrets(name) },
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = -1 // the library's word for none
	}
	return cfg
}

// A duration is one that files and flags write as "90s" or "1h30m".
type duration time.Duration

func (d duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

func (d *duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = duration(v)
	return err
}
