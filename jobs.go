// Package jobs runs the tool calls of an LLM agent in the background.
//
// An agent starts a build, a test run, a dev server, and must go on thinking.
// A [Supervisor] starts each such call as a job, keeps a bounded log of what
// it prints, and answers through plain methods that a host wraps as tool
// calls: [Supervisor.Start], [Supervisor.Check], [Supervisor.Output],
// [Supervisor.Wait], [Supervisor.Collect], [Supervisor.Cancel] and
// [Supervisor.List]. [Supervisor.Run] is for calls that begin in the foreground
// and go on in the background if they take long. [Supervisor.Close] ends what
// is left.
//
// What a model reads is made by a [Toolset], tools with declarations and
// answers in JSON, and by [Texts]. [Supervisor.Child] makes a supervisor for
// each session, chat or sub-agent, with jobs of its own.
//
// # What a job is
//
// A job is a process ([Spec.Argv]) or a function ([Spec.Func]). A process job
// is the leader of a new session and so of its own process group, without a
// controlling terminal; its standard input is the null device, or a pipe if it
// asks for one, and no other descriptor of the host reaches it. Standard output
// and standard error share one pipe, so the log has their exact order. Besides,
// every process job finds the path of an empty regular file in $LLM_OUTPUT:
// what it writes there is its result, apart from what it prints.
//
// A job runs until its leader exits. What it left running behind is then
// killed, inside its process group and outside it, unless [Spec.Leftovers]
// says [KeepLeftovers]; either way [Snapshot.Leftovers] names it.
//
// Every job ends exactly once, in one of the states [Completed], [Failed],
// [Cancelled] and [Lost]; [Snapshot.Reason] says why. A cause is fixed by
// whichever comes first, the exit of the leader or the request to stop it.
//
// # Jobs elsewhere
//
// With [Spec.Shell] a job runs on another machine, in a container, or detached
// on this one, and survives the host and the connection. It is looked at now and
// then, by short scripts, so what is known of it can be some seconds old.
//
// # Who is told of an end
//
// Each end is told once. Who waits for it with Collect, Cancel, Run or Wait, or
// ends it with Reap, Reset or Close, is told by the answer. Of any other end
// there is a [Notice], which waits until somebody takes it: with
// [Supervisor.Drain], in the answer of a tool, or with [Supervisor.Deliver],
// which offers it again until it was taken well. At the end of a turn
// [Supervisor.TurnEnd] finds what a model is about to forget.
//
// # Signals and the host's end
//
// Jobs have sessions of their own, so a Ctrl-C at the host's terminal does not
// reach them. A host should catch it with [os/signal.NotifyContext] and call
// [Supervisor.Close]. A host that is killed outright leaves its jobs running,
// unless [Config.Leash] is set: then they die with it. Signals that the host
// ignores ([os/signal.Ignore]) are ignored by its jobs too, as the system hands
// that on through exec; a stop then takes the whole kill grace and ends with
// SIGKILL.
//
// # What outlives the host
//
// With [Config.Dir] every job is on record: before its id is returned, before
// its end can be seen, and before whoever is told of the end goes on. The next
// host that opens the directory finds every id that was given out as ended, as
// lost, or as running still, and is told each end that nobody was told before;
// see [Supervisor.Recovered]. With [Config.LogLimit] the whole output is there
// too.
//
// A job with a [Spec.Shell] goes on without any host; the next one with its Dir
// picks it up.
//
// # Platforms
//
// Descriptors that the host has inherited, or that C code opened, may lack the
// close-on-exec flag. On Linux each Start sets it on all but the standard
// three, so that none reaches a job; a host that means to hand descriptors on
// through [syscall.Exec] must clear it again.
//
// On Linux a running job costs two descriptors, one more for each log file, one
// goroutine and no thread; where the kernel has no pidfd (before 5.4, or hidden
// by a sandbox) it costs a thread. Stray processes outside the job's group are
// found through /proc. On macOS and the BSDs a stop reaches the process group
// only. Elsewhere process jobs answer [ErrUnsupported] and function jobs work.
//
// What a job scrubbed of its environment, moved to a session of its own and
// orphaned before anybody looked (a daemon that covers its tracks) is not
// found on any platform.
package jobs

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// A Spec says what to run. Exactly one of Argv and Func must be set. Start
// copies all it needs: later changes to the Spec, to its slices or to the
// host's environment do not reach the job.
type Spec struct {
	// Argv is the program and its arguments. A name without a slash is looked
	// up in the PATH of the job's environment; a relative path is resolved in
	// Dir. No shell is involved.
	Argv []string

	// Func is work inside the host, such as a call to an MCP server. Its
	// context is done when the job is stopped, and carries the values of the
	// context given to Start, not its end. What it writes to out is the job's
	// output; out never blocks, must be used only until Func returns, and is
	// safe for concurrent use. The value it returns, encoded as JSON, is the
	// job's result; an error makes the job [Failed]. A panic is contained and
	// ends the job with [ReasonInternal].
	//
	// A Func that is stopped and does not return within the kill grace ends
	// its job with [ReasonUnreaped]; its slot stays taken until it returns.
	Func func(ctx context.Context, out io.Writer) (any, error)

	// Dir is the working directory. Empty means the host's.
	Dir string

	// Env overlays the job's environment, as "KEY=value"; of two entries with
	// one key the last counts. [EnvResult] and [EnvJob] cannot be set.
	Env []string

	// IdleTimeout stops the job with [ReasonIdle] once it has printed nothing,
	// and written nothing to its result file, for this long. Zero or negative
	// means none.
	IdleTimeout time.Duration

	// Input gives the process a pipe as standard input, written to through
	// [Supervisor.Input], in place of the null device.
	Input bool

	// Key, if not empty, makes the start idempotent: while a job with this key
	// lives, Start and Run of this supervisor find that job instead of starting
	// another, whatever else the Spec says.
	Key string

	// Leftovers says what happens to processes that outlive the job's leader.
	Leftovers Leftovers

	// Limits are what the system lets each process of the job take. The zero
	// value sets none.
	Limits Limits

	// LogFull says what happens once the job's log file may grow no more.
	LogFull LogFull

	// OnOwnerEnd says what happens to the job if it runs when its supervisor is
	// closed. Defaults to [KillWithOwner], with a Shell to [KeepRunning].
	OnOwnerEnd OwnerEnd

	// OutputLimit stops the job with [ReasonOutputLimit] once it has written
	// more bytes than this to standard output and error. Zero or negative
	// means no limit: what is kept is bounded anyway.
	OutputLimit int64

	// Shell, if set, is where Argv runs: detached, so that it survives the host
	// and the connection. All that is asked about the job, and its stop, is a
	// short script there.
	//
	// Dir and Env apply there. Of the host's environment nothing goes there but
	// what the Shell itself hands on; [Config.Env], [Config.EnvFilter] and
	// [Config.Wrap] have no say. The exit code is that of a shell: 128 plus n can
	// be a death by signal n. Input, Limits and SplitStderr are not possible, and
	// [Snapshot.PID] is 0. A machine keeps the first 4 MiB and the last 12 MiB of
	// the output. What a job writes to its result file does not join the output,
	// and of a result the last 1 MiB is fetched at most. Timeout, IdleTimeout,
	// OutputLimit and [Config.ResultFileLimit] are watched from here, so they
	// come late where looks are rare and do nothing without a host.
	//
	// It takes setsid and base64 there beside what every system has. What is
	// kept of a job is in a directory .agentjobs in the user's home, or in
	// TMPDIR where there is none, until the job is collected or for a week.
	// Where systemd ends the processes of those who log out
	// (KillUserProcesses=yes), "loginctl enable-linger" lets them live.
	Shell Shell

	// SplitStderr gives standard error a log of its own, read with
	// [Supervisor.Stderr]. The order between the two streams is then lost.
	SplitStderr bool

	// Tag is an opaque note that every Snapshot and every Notice of the job
	// carries.
	Tag string

	// Timeout stops the job with [ReasonTimeout] after this long. Zero means
	// [Config.Timeout] for a process and none for a Func; negative means none.
	Timeout time.Duration

	// Tool is the name of the tool call, for people and models. Defaults to
	// the base name of the program, or "func".
	Tool string

	// Trust is what the host thinks of the one who asked for the job. It is
	// opaque and carried like Tag, but never shown to a model; empty should mean
	// no trust.
	Trust string
}

// Leftovers is a policy for processes that outlive the leader of their job.
type Leftovers int

const (
	// KillLeftovers kills them before the job's end is told.
	KillLeftovers Leftovers = iota
	// KeepLeftovers leaves them running when the leader exits by itself. They
	// take no slot. What they still print is counted and thrown away, until
	// Close closes their pipe. A job that is stopped loses them all the same.
	// A result file that they go on writing is no longer watched.
	KeepLeftovers
)

// EnvResult is the environment variable that holds the path of a job's result
// file.
const EnvResult = "LLM_OUTPUT"

// EnvJob is the environment variable by which stray processes of a job are
// known. Its value is a chain of job ids, outermost first, separated by
// colons, since agents run agents.
const EnvJob = "AGENT_JOB_ID"

// A Supervisor runs jobs. Make one with [New], and more below it with
// [Supervisor.Child]; all methods are safe for concurrent use.
type Supervisor struct {
	*shared
	cfg    *Config
	name   string
	number int         // among the supervisors of the tree, the top is 1
	parent *Supervisor // nil at the top

	// Guarded by mu.
	reg      registry
	idle     sync.Cond // reg.live or reg.releasing has become less
	children map[*Supervisor]struct{}
	urgent   urgency

	delivery chan struct{} // holds a value while a Deliver is at work

	recovered Recovery // set by New

	hurried context.Context // done when Close may wait no longer
	hurry   context.CancelFunc
	closed  chan struct{} // closed at the end of Close, when report is final
	report  Report
}

// shared is what all supervisors of a tree have together.
type shared struct {
	// mu guards the registries and every job's published fields. No call that
	// can wait, and no code of the host, runs under it.
	mu  tableLock
	seq int // number of the last job registered

	top    *Supervisor
	owners *atomic.Int64 // supervisors made so far
	store  *store        // nil without Config.Dir

	host    *host  // what the platform needs once per tree
	leash   *leash // nil without Config.Leash
	dir     privateDir
	watcher resultWatcher
	kept    keptPipes
	far     farSide
	memory  budget
	idKey   [16]byte
}

// New returns a Supervisor. It starts no process, opens no file and makes no
// directory before the first job needs it, save for [Config.Dir]. What an
// earlier host left there is taken over before New returns, which takes up to a
// second where processes of it still run, and some seconds where one cannot be
// killed.
//
// New fails if the Config has a value that is not allowed, or if Dir cannot be
// used: it returns [ErrDirInUse] if another process uses it.
func New(cfg Config) (*Supervisor, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	sh := &shared{host: new(host), owners: new(atomic.Int64)}
	sh.dir.parent, err = filepath.Abs(cmp.Or(cfg.TempDir, os.TempDir()))
	if err != nil {
		return nil, fmt.Errorf("jobs: Config.TempDir: %w", err)
	}
	rand.Read(sh.idKey[:]) // never fails
	sh.memory.left.Store(cfg.OutputMemory)
	s := newSupervisor(sh, &cfg)
	sh.top = s
	sh.leash = newLeash(s)
	if cfg.Dir == "" {
		s.number = int(sh.owners.Add(1))
		return s, nil
	}
	if err := s.openDir(); err != nil {
		return nil, fmt.Errorf("jobs: Config.Dir %q: %w", cfg.Dir, err)
	}
	return s, nil
}

// openDir opens the directory of records and makes the jobs in it known.
func (s *Supervisor) openDir() error {
	st, past, aside, err := openStore(s.cfg)
	if err != nil {
		return err
	}
	s.store, s.owners, s.idKey = st, &st.owners, st.idKey
	if s.number = int(s.owners.Add(1)); s.number == 1 {
		// The owners to come must not be taken for those that an earlier host
		// gave the same numbers: the top alone is the same in each.
		s.owners.Add(1 + mathrand.Int64N(1<<30))
	}
	s.mu.write = s.recordNotes
	s.recover(past, aside)
	return nil
}

func newSupervisor(sh *shared, cfg *Config) *Supervisor {
	s := &Supervisor{shared: sh, cfg: cfg, closed: make(chan struct{}), delivery: make(chan struct{}, 1)}
	s.idle.L = &s.mu
	s.reg.init(cfg)
	s.urgent.changed = make(chan struct{})
	s.hurried, s.hurry = context.WithCancel(context.Background())
	return s
}

// Start starts a job and returns at once with its first Snapshot, whose ID
// every other method takes. That a job was started does not say that its
// command will succeed.
//
// The context can abort the start: if it is done before the process exists,
// Start returns its error and leaves no record. It never ends the job.
//
// Start returns a [*StartError] if the Spec is not valid or the process cannot
// be started; it names the stage and keeps the system's cause. It returns
// [ErrAtCapacity] if [Config.MaxRunning] jobs run, [ErrDisabled], [ErrClosed]
// once Close has been called, and [ErrUnsupported] for a process where the
// platform has none. Whenever Start returns an error nothing runs and nothing
// stays behind, save with a [Spec.Shell] whose answer did not come: whether the
// job runs there is not known then. It is stopped in the background, by the
// next host with the same [Config.Dir] if need be.
//
// A second Start with the same [Spec.Key], while the first job lives, returns
// that job's Snapshot.
func (s *Supervisor) Start(ctx context.Context, spec Spec) (Snapshot, error) {
	j, _, err := s.begin(ctx, spec, false)
	if err != nil {
		return Snapshot{}, err
	}
	return s.snapshotOf(j), nil
}

// Check returns what is known of a job. It changes nothing: not what Collect
// will return, not whether the end counts as told.
//
// A collected job still answers, with [Snapshot.Collected] set, until it is
// forgotten. Check returns [ErrNotFound] for an id that was never given out,
// which [ErrForeign] is too, for one of another owner, and [ErrExpired] for one
// that was forgotten.
func (s *Supervisor) Check(id string) (Snapshot, error) {
	return s.inspect(id, nil)
}

// inspect is Check that calls note, unless it is nil, under mu.
func (s *Supervisor) inspect(id string, note func(*job, Snapshot)) (Snapshot, error) {
	j, err := s.lookup(id)
	if err != nil {
		return Snapshot{}, err
	}
	j.lookAtResult(false)
	waiting := j.awaitsInput()
	s.mu.Lock()
	defer s.mu.Unlock()
	snap := j.snapshot()
	snap.WaitingForInput = waiting && !snap.Ended()
	if note != nil {
		note(j, snap)
	}
	return snap, nil
}

// Output returns up to max bytes of a job's output, exactly as written, from
// the absolute offset from; a negative from counts back from the end, and max
// below 1 means as much as is there. See [Chunk] for how a reader goes on.
// Reading never consumes: the same offset gives the same bytes until they are
// dropped. Where memory has dropped them and the job has a log file, see
// [Config.LogLimit], they are read from that, at most 1 MiB at once.
//
// The output is what the job prints, joined by what it writes to its result
// file as it is seen: the last 8 KiB of what is new at each look, the rest
// counts as dropped. It stays readable after the end until the job is
// collected; then Output returns [ErrCollected]. Other errors are those of
// [Supervisor.Check].
func (s *Supervisor) Output(id string, from int64, max int) (Chunk, error) {
	return s.read(id, from, roomFor(max), false)
}

// ReadOutput is [Supervisor.Output] into a buffer of the caller: it returns up
// to len(buf) bytes and allocates nothing.
func (s *Supervisor) ReadOutput(id string, from int64, buf []byte) (Chunk, error) {
	return s.read(id, from, func(int64) []byte { return buf }, false)
}

// Stderr is [Supervisor.Output] for the standard error of a job started with
// [Spec.SplitStderr]. For other jobs it returns an empty Chunk.
func (s *Supervisor) Stderr(id string, from int64, max int) (Chunk, error) {
	return s.read(id, from, roomFor(max), true)
}

// roomFor returns a function that makes room for n bytes, or for all that is
// there if n is below 1, but for no more than that.
func roomFor(n int) func(there int64) []byte {
	return func(there int64) []byte {
		if n < 1 || int64(n) > there {
			return make([]byte, there)
		}
		return make([]byte, n)
	}
}

func (s *Supervisor) read(id string, from int64, room func(there int64) []byte, stderr bool) (Chunk, error) {
	j, err := s.lookup(id)
	if err != nil {
		return Chunk{}, err
	}
	j.lookAtResult(false)
	s.mu.Lock()
	ended := j.ended
	s.mu.Unlock()
	c := j.chunk(from, room, stderr)
	c.EOF = ended && c.Next == c.Total
	// Looked at last: the log may have been handed out meanwhile.
	s.mu.Lock()
	collected := j.collected
	s.mu.Unlock()
	if collected {
		return Chunk{}, s.jobError(j, ErrCollected)
	}
	return c, nil
}

// Collect waits for a job's end and returns its result. It consumes the
// result: of any number of calls for one job exactly one gets it, the others
// get a [*JobError] with [ErrCollected] that carries the final Snapshot.
//
// The context ends the wait, never the job: Collect then returns the context's
// error beside a Result that holds only the present Snapshot, and uses nothing
// up. So it does with [ErrPending] where the host has something more urgent,
// see [Supervisor.SetPending]. Other errors are those of [Supervisor.Check].
func (s *Supervisor) Collect(ctx context.Context, id string) (Result, error) {
	j, err := s.lookup(id)
	if err != nil {
		return Result{}, err
	}
	if err := s.awaitUnlessUrgent(ctx, j); err != nil {
		return Result{Snapshot: s.snapshotOf(j)}, err
	}
	return s.consume(j)
}

// Cancel stops a job and waits until that is done: SIGTERM to all its
// processes, [Config.KillGrace] for them to end, SIGKILL for those that did
// not. It returns how the job ended and what it had printed. Processes that
// could not be killed are named in [Snapshot.Survivors].
//
// Cancel does not consume the result; Collect still returns it. Cancelling a
// finished job changes nothing, signals nobody and returns how it ended; once
// the result is collected it returns [ErrCollected]. Of several calls at once
// each returns the one end.
//
// The context ends the wait only; the stop goes on. Cancel then returns the
// context's error beside the present Snapshot. Other errors are those of
// [Supervisor.Check].
func (s *Supervisor) Cancel(ctx context.Context, id string) (Result, error) {
	j, err := s.lookup(id)
	if err != nil {
		return Result{}, err
	}
	j.requestStop(ReasonCancelled)
	if err := j.await(ctx); err != nil {
		return Result{Snapshot: s.snapshotOf(j)}, err
	}
	return s.peek(j)
}

// List returns the jobs that run and those that ended and wait to be
// collected, in the order they were started. Jobs that Cancel has stopped are
// left out once it has returned: nobody waits for them, though Collect still
// has their results.
func (s *Supervisor) List() List {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reg.list()
}

// A List is the state of a Supervisor at one moment.
type List struct {
	// Jobs holds the jobs by order of start.
	Jobs []Snapshot
	// Running counts the slots taken, MaxRunning is how many there are.
	Running, MaxRunning int
}
