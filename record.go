package jobs

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// What a job puts on record, and when.

// record writes records, if there is a journal. If that begins to fail it is
// told once.
func (s *shared) record(rs ...record) {
	if s.store == nil {
		return
	}
	err := s.store.journal.write(rs...)
	if err == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.top.reg.notices.add(queued{Notice: Notice{Event: EventUnrecorded, ExitCode: -1, Line: readable(err.Error(), 4*nameLimit)}})
}

// recordBegin puts on record that the job is about to start, and makes its log
// files.
func (j *job) recordBegin() {
	if j.s.store == nil {
		return
	}
	r := record{
		Kind: recordBegin, ID: j.id, At: j.started,
		Tool: j.tool, Tag: j.tag, Trust: j.trust, Owner: cmp.Or(j.from, j.owner.name), Command: j.command,
		Boot: bootID(), Host: os.Getpid(),
		Keep: j.onOwnerEnd == KeepRunning, Split: j.errOut != nil,
	}
	if j.shell != "" {
		r.Detached = &pastShell{
			Shell: j.shell, Key: j.key, Timeout: j.timeout, Idle: j.idleAfter, Limit: j.limit,
			Leftovers: j.leftovers, OwnerEnd: j.onOwnerEnd, LogFull: j.logFull,
		}
	}
	if j.cfg.LogLimit > 0 {
		r.LogHead = j.openLog(j.out, false)
		if j.errOut != nil {
			r.ErrHead = j.openLog(j.errOut, true)
		}
	}
	j.s.record(r)
	j.launched = bootTicks()
}

// openLog makes the file of one log and returns how long its header is. Where
// that fails the job goes on without.
func (j *job) openLog(ring *RingBuf, stderr bool) int64 {
	l := &logFile{j: j, stderr: stderr, path: j.s.store.logPath(j.id, stderr)}
	l.most = (j.cfg.LogLimit - footerRoom) / logTailShare * (logTailShare - 1)
	header := fmt.Sprintf("# %s (%s), %s\n# %s\n\n", j.id, oneLine(j.tool), j.started.Format(time.RFC3339), strings.Join(strings.Fields(j.command), " "))
	need := int64(len(header)) + footerRoom
	j.s.store.logs.begin(l.name())
	if j.s.store.logs.grant(l.name(), need) < need {
		l.full = true
		l.setProblem(errors.New("the log files take all that they may together"))
	} else if err := l.open(header); err != nil {
		l.setProblem(err)
	}
	j.logFiles = append(j.logFiles, l)
	ring.tap(l)
	return l.head
}

// recordStart puts on record that the job runs. Only then may its id be handed
// out.
func (j *job) recordStart() {
	if j.s.store == nil {
		return
	}
	j.s.record(record{Kind: recordStart, ID: j.id, PID: j.work.pid(), Ticks: j.launched, Until: bootTicks()})
}

// recordFailure takes back the record of a job that did not start.
func (j *job) recordFailure() {
	if j.s.store == nil {
		return
	}
	for _, l := range j.logFiles {
		l.remove()
	}
	if !j.stray { // else once it is known to be none
		j.s.record(record{Kind: recordGone, ID: j.id})
	}
}

// recordEnd puts the end of the job on record. It must be called before that
// can be seen. That of a job which runs on, for the next host to find, is none.
func (j *job) recordEnd(e ending) {
	if j.s.store == nil {
		return
	}
	j.s.mu.Lock()
	state, reason := e.conclude(j.cause)
	ended, refused := j.ended, j.refused
	if j.unkilled != nil {
		e.survivors = j.unkilled
	}
	if e.err == nil {
		e.err = j.stopErr
	}
	j.s.mu.Unlock()
	if refused {
		if j.shell != "" && e.reason == ReasonUnreaped {
			j.stray = true // it may run on there, for the next host to find
		}
		j.recordFailure()
	}
	if ended || refused {
		return
	}
	past := &pastEnd{
		State: state, Reason: reason, ExitCode: e.exitCode, Signal: e.signal, Core: e.core,
		Elapsed: time.Since(j.started), CPU: e.usage.cpu, PeakRSS: e.usage.peakRSS,
		Leftovers: e.leftovers, Survivors: e.survivors,
		ResultSize: e.resultFile.Size, Problem: e.resultFile.Problem,
	}
	if e.err != nil {
		past.Err = readable(e.err.Error(), 4000)
	}
	past.Total, _ = j.out.Stats()
	if j.errOut != nil {
		past.ErrTotal, _ = j.errOut.Stats()
	}
	j.finishLogs(past)
	if data := e.resultFile.Data; len(data) <= shortResult {
		past.Result = data
	} else if err := j.s.store.saveResult(j.id, data); err != nil && past.Problem == "" {
		past.Problem = "the result was not kept: " + err.Error()
	}
	if e.lost && j.shell != "" {
		for _, l := range j.logFiles {
			l.close("") // a last line would count as output
		}
		return
	}
	defer j.closeLogs(past)
	j.s.record(record{Kind: recordEnd, ID: j.id, End: past})
}

// finishLogs completes the log files, save for their last line.
func (j *job) finishLogs(past *pastEnd) {
	for _, l := range j.logFiles {
		if l.stderr {
			past.ErrBytes = l.finish(j.errOut)
		} else {
			past.LogBytes = l.finish(j.out)
		}
	}
}

// closeLogs writes the last line of the log files.
func (j *job) closeLogs(past *pastEnd) {
	snap := Snapshot{State: past.State, Reason: past.Reason, ExitCode: past.ExitCode, Signal: past.Signal}
	for _, l := range j.logFiles {
		total := past.Total
		if l.stderr {
			total = past.ErrTotal
		}
		l.close(fmt.Sprintf("%s, after %s; %d bytes in all", snap.Outcome(), shortly(past.Elapsed), total))
	}
}

// logStopped says that a log file takes no more, once, and does to the job what
// its policy says.
func (j *job) logStopped(l *logFile) {
	l.writing.Lock()
	again := l.announced
	l.announced = true
	size, full := l.index.size, l.full
	l.writing.Unlock()
	err := l.problem()
	if again {
		return
	}
	if full && j.logFull == StopJob {
		j.requestStop(ReasonOutputLimit)
		return
	}
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	if j.ended || j.told {
		return
	}
	n := j.notice(EventLogStopped)
	n.Line = fmt.Sprintf("full at %d bytes", size)
	if err != nil {
		n.Line = readable(err.Error(), nameLimit)
	}
	j.owner.reg.notices.add(queued{Notice: n, job: j})
}

// recordNotes writes what was noted under the lock of the tables.
func (s *shared) recordNotes(rs []record) {
	s.record(rs...)
	for _, r := range rs {
		if r.saved && s.store.journal.isOpen() { // else another host's record needs it
			os.Remove(s.store.resultPath(r.ID))
		}
	}
}

// shortResult is how long a result may be to stand in the record of its end.
const shortResult = 4 << 10

// flushLogs brings what has been printed to the log files.
func (j *job) flushLogs() {
	for _, l := range j.logFiles {
		l.flush()
	}
}
