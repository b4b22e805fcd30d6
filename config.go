package jobs

import (
	"fmt"
	"math"
	"time"
)

// Defaults of [Config].
const (
	DefaultMaxRunning      = 5
	DefaultHeadBytes       = 4 << 10
	DefaultTailBytes       = 64 << 10
	DefaultKillGrace       = 5 * time.Second
	DefaultDrainGrace      = 2 * time.Second
	DefaultTimeout         = 30 * time.Minute
	DefaultResultBytes     = 1 << 20
	DefaultResultFileLimit = 256 << 20
	DefaultMaxRetained     = 32
	DefaultRetainFor       = 30 * time.Minute
	DefaultOutputMemory    = 256 << 20
	DefaultLogBudget       = 1 << 30
	DefaultLogAge          = 7 * 24 * time.Hour
	DefaultWatchFor        = 6 * time.Hour
)

// Config configures a [Supervisor]. The zero value is ready to use. A field
// that is negative where its comment does not allow that makes [New] fail.
type Config struct {
	// Disabled makes Start refuse every job with [ErrDisabled].
	Disabled bool

	// Dir is a directory where the supervisor keeps records, so that a host that
	// is started again knows what became of the jobs of the one before: their
	// ids answer again, ends that were not told are told, jobs that ran when
	// their host died are [Lost], and what is left of their processes is killed,
	// save where the job has [KeepRunning]; see [Supervisor.Recovered]. The
	// directory is made if need be, open to its user only. One process uses it
	// at a time, which may have several supervisors there; another gets
	// [ErrDirInUse]. Commands are recorded without the secrets that can be told
	// by their looks, the environment not at all. Empty means no records. It
	// works where there are file locks: on Linux, macOS and the BSDs.
	Dir string

	// DrainGrace bounds how long a job whose leader has exited waits for more
	// output while another process holds its pipe. The wait ends earlier when
	// the pipe has been silent for 200 ms. Defaults to 2 seconds.
	DrainGrace time.Duration

	// Env is the environment that jobs start from, as "KEY=value". Nil means
	// the host's own at the time of each Start. Non-interactive defaults (no
	// pagers, no prompts) overlay it, then [Spec.Env].
	Env []string

	// EnvFilter says which variables of Env, or of the host's environment, jobs
	// get. Nil passes all. See [AllowEnv] and [StripSecrets]. It is called at
	// each Start and must be safe for concurrent use.
	EnvFilter func(name string) bool

	// FindShell returns the Shell of a name, its String, so that detached jobs of
	// an earlier host can be picked up from Dir. Nil, or one that returns nil,
	// finds those of [ShellCommand] only.
	FindShell func(name string) Shell

	// HeadBytes is how much of the beginning of each job's output is kept.
	// Defaults to 4 KiB. Negative keeps no beginning.
	HeadBytes int

	// KillGrace is how long a job's processes have between SIGTERM and
	// SIGKILL. Defaults to 5 seconds.
	KillGrace time.Duration

	// KillOverMemory makes a job whose output finds no room in OutputMemory stop
	// with [ReasonOutputLimit], instead of keeping less of it.
	KillOverMemory bool

	// Leash makes the jobs die with the host, even if that is killed outright:
	// their processes get SIGTERM, then SIGKILL 0.3 seconds later, wherever they
	// went, within what can be found (see the end of the package comment). It is
	// a small shell process, one for all jobs of the supervisor and its children,
	// that is started with the first process job and ended by Close. A host that
	// exits without Close, or replaces itself by exec, counts as killed; one that
	// is stopped does not. Jobs with [KeepRunning], and what [KeepLeftovers]
	// keeps, are not held.
	//
	// A leash that dies, or does not listen for a second, is replaced, of which
	// there is a notice with [EventLeashLost]. The sixth loss within a minute
	// makes that say that no job is held any more.
	//
	// It needs Linux with /proc, /bin/sh, and cat, grep, sed, sleep and tr in the
	// host's PATH. Where something is missing the start of a process job fails
	// with [StageLeash].
	Leash bool

	// LogAge is how old a log file may grow. Defaults to 7 days.
	LogAge time.Duration

	// LogBudget is what all log files in Dir may take together. Where it is used
	// up the oldest go, and then a job's log is full. Defaults to 1 GiB. Where
	// several supervisors share Dir the first one's counts.
	LogBudget int64

	// LogLimit, if not 0, streams the whole output of each job to a file in Dir,
	// which may grow that long, 16 KiB at least. [Supervisor.Output] then goes back
	// to what memory has dropped, also after the host was started again. See
	// [Spec.LogFull] for what happens beyond. A log that cannot be written costs
	// the job nothing; [Snapshot.LogErr] and a notice say so.
	LogLimit int64

	// MaxRetained is how many finished jobs are remembered, collected or not.
	// Past it the oldest is forgotten: collected ones first, then those whose
	// end was told, and only then those whose end nobody knows yet. Defaults to
	// 32, or MaxRunning if that is more.
	MaxRetained int

	// MaxRunning is how many jobs may run at once. Defaults to 5. To switch
	// jobs off use Disabled.
	MaxRunning int

	// OutputMemory bounds the memory that the kept output of all jobs takes
	// together, finished ones included. Where it is used up a log keeps what it
	// holds and less of what is to come, but always its last 4 KiB; what it
	// drops is counted as ever. What a forgotten job or a closed child kept counts
	// no more. Defaults to 256 MiB. Negative means no bound.
	OutputMemory int64

	// ResultBytes is how much of the end of a result file is read. Defaults to
	// 1 MiB.
	ResultBytes int64

	// ResultFileLimit is how much disk a job's result file may take before the
	// job is stopped with [ReasonOutputLimit]. It is watched several times a
	// second, not enforced by the system, so a fast writer can pass it by what
	// it writes in between. Defaults to 256 MiB. Negative means no limit.
	ResultFileLimit int64

	// RetainFor is how long a finished job is remembered once its end has been
	// told. Defaults to 30 minutes.
	RetainFor time.Duration

	// Sync makes records survive a loss of power, at the cost of a disk's answer
	// for each. Without it they survive the death of the host, however it comes.
	Sync bool

	// TailBytes is how much of the end of each job's output is kept. Defaults
	// to 64 KiB. Negative keeps no end.
	TailBytes int

	// TempDir is where the supervisor makes its private directory for result
	// files, on the first Start that needs it. Defaults to [os.TempDir].
	TempDir string

	// Timeout is how long a process job may run before it is stopped with
	// [ReasonTimeout], unless its Spec says otherwise. Defaults to 30 minutes.
	// Negative means no timeout.
	Timeout time.Duration

	// WatchFor is how long a job with a Shell is looked at while nobody asks
	// about it. Then a notice with [EventUnwatched] says that it goes on
	// unwatched; who checks it, waits for it or stops it makes it be watched for
	// as long again. Defaults to 6 hours. Negative means without end.
	WatchFor time.Duration

	// Wrap, if set, is asked at each Start what to execute instead of argv, such
	// as the same behind "nice", "bwrap" or "systemd-run --scope". A stop
	// reaches what the wrapper runs as it reaches all of the job. An error, or a
	// panic, refuses the start. It must be safe for concurrent use.
	Wrap func(argv []string) ([]string, error)
}

func (c Config) withDefaults() (Config, error) {
	for _, f := range []struct {
		name  string
		value *int64
		def   int64
	}{
		{"DrainGrace", (*int64)(&c.DrainGrace), int64(DefaultDrainGrace)},
		{"KillGrace", (*int64)(&c.KillGrace), int64(DefaultKillGrace)},
		{"LogAge", (*int64)(&c.LogAge), int64(DefaultLogAge)},
		{"LogBudget", &c.LogBudget, DefaultLogBudget},
		{"RetainFor", (*int64)(&c.RetainFor), int64(DefaultRetainFor)},
		{"ResultBytes", &c.ResultBytes, DefaultResultBytes},
	} {
		if *f.value < 0 {
			return c, fmt.Errorf("jobs: Config.%s is negative; leave it 0 for the default", f.name)
		}
		setDefault(f.value, f.def)
	}
	if c.MaxRunning < 0 {
		return c, fmt.Errorf("jobs: Config.MaxRunning is negative; set Disabled to switch jobs off")
	}
	if c.MaxRetained < 0 {
		return c, fmt.Errorf("jobs: Config.MaxRetained is negative; leave it 0 for the default")
	}
	switch {
	case c.LogLimit != 0 && c.Dir == "":
		return c, fmt.Errorf("jobs: Config.LogLimit needs Config.Dir for the log files")
	case c.LogLimit != 0 && c.LogLimit < leastLog:
		return c, fmt.Errorf("jobs: Config.LogLimit is less than %d; leave it 0 for no log files", leastLog)
	}
	for i, kv := range c.Env {
		if err := checkEnvEntry(kv); err != nil {
			return c, fmt.Errorf("jobs: Config.Env[%d]: %w", i, err)
		}
	}
	setDefault(&c.MaxRunning, DefaultMaxRunning)
	setDefault(&c.MaxRetained, max(DefaultMaxRetained, c.MaxRunning))
	setDefault(&c.HeadBytes, DefaultHeadBytes)
	setDefault(&c.TailBytes, DefaultTailBytes)
	setDefault(&c.Timeout, DefaultTimeout)
	setDefault(&c.ResultFileLimit, DefaultResultFileLimit)
	setDefault(&c.OutputMemory, DefaultOutputMemory)
	setDefault(&c.WatchFor, DefaultWatchFor)
	if c.OutputMemory < 0 {
		c.OutputMemory = math.MaxInt64
	}
	if c.Env != nil {
		c.Env = append([]string{}, c.Env...)
	}
	return c, nil
}

func setDefault[T int | int64 | time.Duration](field *T, def T) {
	if *field == 0 {
		*field = def
	}
}
