package jobs

import (
	"fmt"
	"time"
)

// Limits are what the system lets each process of a job take. A field that is 0
// sets no limit. A process inherits the limits of the host where those are
// lower. They are set by a small sh that then becomes the program; one that the
// system does not know, as Memory on macOS, is not set. They are not for function
// jobs.
type Limits struct {
	// CPU is processor time, in whole seconds; a process that takes more gets
	// SIGXCPU, and SIGKILL two seconds later. The job then ends with
	// [ReasonResourceLimit].
	CPU time.Duration
	// FileSize is how large, in bytes, a file may become by writing; in steps of
	// 512. A write past it gets SIGXFSZ, or fails.
	FileSize int64
	// OpenFiles is how many descriptors a process may have.
	OpenFiles int
	// Memory is the size of the address space in bytes, in steps of 1024. Much
	// of it may be reserved and never used: a Go or Java program needs some
	// gigabytes to start.
	Memory int64
}

// fault says what is wrong with the limits, "" if nothing is.
func (l Limits) fault() string {
	for _, f := range []struct {
		name  string
		value int64
	}{{"CPU", int64(l.CPU)}, {"FileSize", l.FileSize}, {"OpenFiles", int64(l.OpenFiles)}, {"Memory", l.Memory}} {
		if f.value < 0 {
			return "Limits." + f.name + " is negative"
		}
	}
	switch {
	case l.CPU > 0 && l.CPU < time.Second:
		return "Limits.CPU is less than a second"
	case l.FileSize > 0 && l.FileSize < 512:
		return "Limits.FileSize is less than 512 bytes"
	case l.OpenFiles > 0 && l.OpenFiles < 4:
		return "Limits.OpenFiles is less than 4, too few to start a program"
	case l.Memory > 0 && l.Memory < 1024:
		return "Limits.Memory is less than 1024 bytes"
	}
	return ""
}

// script returns what a POSIX sh has to do to set the limits and become its
// arguments; "" if there is nothing to set. A limit that the host may not raise
// to stays what it is.
func (l Limits) script() string {
	var script string
	set := func(flag string, soft, hard int64) {
		if soft > 0 {
			// The soft limit first: it must never be above the hard one.
			script += fmt.Sprintf("ulimit -S -%[1]s %[2]d; ulimit -H -%[1]s %[3]d; ", flag, soft, hard)
		}
	}
	secs := int64(l.CPU / time.Second)
	set("t", secs, secs+2)
	set("f", l.FileSize/512, l.FileSize/512)
	set("n", int64(l.OpenFiles), int64(l.OpenFiles))
	set("v", l.Memory/1024, l.Memory/1024)
	if script == "" {
		return ""
	}
	return "{ " + script + "} 2>/dev/null; exec \"$@\""
}
