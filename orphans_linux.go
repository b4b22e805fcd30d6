package jobs

import (
	"bytes"
	"os"
	"sync"
)

// bootID tells this run of the system from all others: no process outlives it.
var bootID = sync.OnceValue(func() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return string(bytes.TrimSpace(id))
})

// orphans returns what is left of a process job whose host died, as a tree
// without a leader of ours. It returns nil if nothing can be left. A number
// alone proves nothing: the leader must have the start time on record.
func (h *host) orphans(p *pastJob) tree {
	if p.begin.Boot != bootID() || !procUsable() || p.start != nil && p.start.PID == 0 {
		return nil
	}
	// As if its group had been told to end: it has no leader to name it by, so
	// each member is told by itself.
	exit := make(chan struct{})
	close(exit)
	t := &linuxTree{host: h, id: p.begin.ID, leader: noLeader, pidfd: -1, exit: exit, reaped: true, terminated: true}
	if p.start == nil || p.start.Ticks == 0 {
		return t
	}
	t.ticks = p.start.Ticks
	leader, ok := readStat(p.start.PID, make([]byte, 512))
	if !ok || leader.start < p.start.Ticks || leader.start > p.start.Until || leader.kernel {
		return t
	}
	// What carries its number as that of a session, and is older than this
	// moment, is of the job.
	t.leader = leader.pid
	t.exitTicks.Store(bootTicks() + 1)
	if m := newMember(leader, true); m != nil {
		t.members = append(t.members, m)
	}
	return t
}

// noLeader is the number of no process.
const noLeader = -1
