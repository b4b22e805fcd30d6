package main

import (
	"errors"
	"slices"
	"time"

	"github.com/go-cmd/cmd"
)

type goCmdHost struct{}

func openGoCmd(int) (host, error) { return goCmdHost{}, nil }

func (goCmdHost) start(argv ...string) (job, error) {
	c := cmd.NewCmdOptions(cmd.Options{CombinedOutput: true}, argv[0], argv[1:]...)
	c.Start() // the process does not exist yet when it returns
	return goCmdJob{c}, nil
}

func (goCmdHost) close() error { return nil }

type goCmdJob struct{ c *cmd.Cmd }

func (j goCmdJob) pid() int {
	for {
		if s := j.c.Status(); s.PID != 0 || s.Error != nil {
			return s.PID
		}
		time.Sleep(50 * time.Microsecond)
	}
}

func (j goCmdJob) look(p []byte) ([]byte, error) {
	return lastOfLines(j.c.Status().Stdout, p), nil
}

func (j goCmdJob) collect() (output, error) {
	<-j.c.Done()
	s := j.c.Status()
	if s.Error != nil && s.Exit != -1 { // -1 is one that was killed
		return output{}, s.Error
	}
	return output{sizeOfLines(s.Stdout), lastOfLines(s.Stdout, make([]byte, lookSize))}, nil
}

func (j goCmdJob) stop() error {
	j.pid()
	if err := j.c.Stop(); err != nil {
		return err
	}
	<-j.c.Done()
	if s := j.c.Status(); s.Error == nil {
		return errors.New("go-cmd: the job ended by itself")
	}
	return nil
}

// goCmdBuffer is what go-cmd keeps output in: bytes that become lines when
// somebody looks.
type goCmdBuffer struct{ *cmd.OutputBuffer }

func newGoCmdBuffer() store { return goCmdBuffer{cmd.NewOutputBuffer()} }

func (b goCmdBuffer) total() int64 { return sizeOfLines(b.Lines()) }

func (b goCmdBuffer) last(p []byte) []byte { return lastOfLines(b.Lines(), p) }

// sizeOfLines returns how many bytes lines had with their newlines.
func sizeOfLines(lines []string) int64 {
	n := int64(len(lines))
	for _, l := range lines {
		n += int64(len(l))
	}
	return n
}

// lastOfLines puts the end of the text of lines into p.
func lastOfLines(lines []string, p []byte) []byte {
	at := len(p)
	for _, l := range slices.Backward(lines) {
		if at == 0 {
			break
		}
		at--
		p[at] = '\n'
		n := min(len(l), at)
		at -= n
		copy(p[at:], l[len(l)-n:])
	}
	return p[at:]
}
