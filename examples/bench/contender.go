package main

// A contender is one way to run a command in the background and to keep what
// it prints.
type contender struct {
	name string
	// open returns a host for up to n jobs at a time.
	open func(n int) (host, error)
	// store returns what the contender keeps output in, or what is nearest to
	// that; it must be safe for a reader beside the writer.
	store func() store
}

// A host starts jobs.
type host interface {
	start(argv ...string) (job, error)
	close() error
}

// A job is a command that was started. Both its standard streams go to one
// place, and whether anybody calls collect or not, somebody waits for its end.
type job interface {
	// pid returns the process.
	pid() int
	// look returns the last len(p) bytes printed so far, or all if there are
	// fewer. It may use p.
	look(p []byte) ([]byte, error)
	// collect waits for the end.
	collect() (output, error)
	// stop asks the job to end by SIGTERM and waits until it has.
	stop() error
}

// An output is what a finished job left.
type output struct {
	total int64  // bytes printed
	last  []byte // what is kept of their end, at least lookSize
}

// A store keeps output.
type store interface {
	Write(p []byte) (int, error)
	total() int64
	last(p []byte) []byte
}

const (
	lookSize = 4 << 10
	ringSize = 64 << 10 // of every ring, as it is the library's default
)

// contenders are in the order of the columns.
var contenders = []contender{
	{name: "jobs", open: openJobs, store: newRingBuf},
	{name: "os/exec + bytes.Buffer", open: execHost(newBytesBuffer), store: newBytesBuffer},
	{name: "go-cmd", open: openGoCmd, store: newGoCmdBuffer},
	{name: "os/exec + circbuf", open: execHost(newCircbuf), store: newCircbuf},
	{name: "os/exec + ringbuffer", open: execHost(newRingbuffer), store: newRingbuffer},
	{name: "1 KiB pump, 200 ms poll", open: openPoll, store: newByteRing},
}

// runners are the contenders that differ in how they start jobs and learn of
// their ends; the others are os/exec with another store.
var runners = []string{"jobs", "os/exec + bytes.Buffer", "go-cmd", "1 KiB pump, 200 ms poll"}

// named returns the contenders with these names, all if there are none.
func named(names []string) []contender {
	if names == nil {
		return contenders
	}
	var cs []contender
	for _, c := range contenders {
		for _, name := range names {
			if c.name == name {
				cs = append(cs, c)
			}
		}
	}
	return cs
}
