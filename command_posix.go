//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package jobs

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// find sets the path of the program. A name without a slash is looked up in
// the PATH of the job, of which only absolute directories count: what a
// working directory happens to hold must not run by accident.
func (c *command) find() error {
	name := c.argv[0]
	if strings.Contains(name, "/") {
		c.path = name
		return nil
	}
	var unusable error
	for _, dir := range filepath.SplitList(lookupEnv(c.env, "PATH")) {
		if !filepath.IsAbs(dir) {
			continue
		}
		path := filepath.Join(dir, name)
		fi, err := os.Stat(path)
		if err != nil {
			continue // not there, or nobody could tell
		}
		if err = executable(path, fi); err == nil {
			c.path = path
			return nil
		}
		if unusable == nil {
			unusable = &fs.PathError{Op: "exec", Path: path, Err: err}
		}
	}
	if unusable != nil {
		return c.fail(StagePath, unusable, "found in PATH, but it cannot be executed")
	}
	return c.fail(StagePath, &exec.Error{Name: name, Err: exec.ErrNotFound}, "give its absolute path, or a PATH that has it")
}

// limit puts a shell in front of the program that sets its limits. As an exec
// that fails in there is no error of the start any more, the program is looked
// at before.
func (c *command) limit(l Limits) error {
	script := l.script()
	if script == "" {
		return nil
	}
	path := c.path
	if !filepath.IsAbs(path) {
		path = filepath.Join(c.dir, path)
	}
	fi, err := os.Stat(path)
	if err == nil {
		err = executable(path, fi)
	}
	if err == nil && isPlainText(path) {
		err = syscall.ENOEXEC // which the shell would take for a script of its own
	}
	if interpreter := shebang(path); err == nil && interpreter != "" {
		if !filepath.IsAbs(interpreter) {
			interpreter = filepath.Join(c.dir, interpreter)
		}
		if fi, err = os.Stat(interpreter); err == nil {
			err = executable(interpreter, fi)
		}
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return c.explain(errno)
	}
	c.argv = append([]string{"sh", "-c", script, "sh", c.path}, c.argv[1:]...)
	c.path = "/bin/sh"
	return nil
}

// executable returns nil if this process may execute the file.
func executable(path string, fi fs.FileInfo) error {
	if fi.IsDir() {
		return syscall.EISDIR
	}
	return unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS)
}

// explain turns an error of the system into one that says which part of the
// start it belongs to. The kernel gives one number for many causes, so the
// parts are looked at again, in the order in which the child met them.
func (c *command) explain(err error) error {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return c.fail(StageHost, err, "")
	}
	switch errno {
	case syscall.E2BIG:
		return c.fail(StageArgs, errno, c.size())
	case syscall.EMFILE, syscall.ENFILE:
		return c.fail(StageHost, err, "wait for jobs to end, or raise the limit on open files")
	case syscall.EAGAIN, syscall.ENOMEM:
		return c.fail(StageHost, err, "the system has no room for another process now; try again later")
	}
	if c.path == "" {
		return c.fail(StageFile, err, "jobs need a writable Config.TempDir")
	}
	if err := c.checkDir(); err != nil {
		return c.fail(StageDir, err, "")
	}
	path := c.path
	if !filepath.IsAbs(path) {
		path = filepath.Join(c.dir, path)
	}
	return c.fail(StagePath, &fs.PathError{Op: "exec", Path: path, Err: errno}, explainPath(path, errno))
}

// checkDir reports why a process cannot work in the command's directory.
func (c *command) checkDir() error {
	if c.dir == "" {
		return nil
	}
	fi, err := os.Stat(c.dir)
	if err != nil {
		return err
	}
	errno := error(syscall.ENOTDIR)
	if fi.IsDir() {
		errno = unix.Faccessat(unix.AT_FDCWD, c.dir, unix.X_OK, unix.AT_EACCESS)
	}
	if errno != nil {
		return &fs.PathError{Op: "chdir", Path: c.dir, Err: errno}
	}
	return nil
}

// explainPath says what is wrong with a program that gave errno.
func explainPath(path string, errno syscall.Errno) string {
	fi, err := os.Stat(path)
	switch {
	case err != nil:
		return ""
	case fi.IsDir():
		return "it is a directory"
	case errno == syscall.ENOEXEC:
		return "it is neither a program for this machine nor does it begin with #!; name its interpreter in Argv"
	case errno == syscall.ETXTBSY:
		return "somebody has it open for writing"
	case errno == syscall.EACCES && fi.Mode()&0o111 == 0:
		return "it is not executable; chmod +x it, or name its interpreter in Argv"
	}
	interpreter := shebang(path)
	missing := errno == syscall.ENOENT || errno == syscall.ENOTDIR
	switch {
	case strings.HasSuffix(interpreter, "\r"):
		return "its first line ends with a carriage return, which makes the name of its interpreter a wrong one; save it with Unix line endings"
	case missing && interpreter != "":
		return fmt.Sprintf("the file exists, but its interpreter %s does not", interpreter)
	case missing:
		return "the file exists, but its loader does not: it may be built for another system"
	case interpreter != "":
		return fmt.Sprintf("its interpreter %s cannot be executed", interpreter)
	}
	return ""
}

// isPlainText reports whether a file begins like neither a program, which has
// NULs, nor a script that names its interpreter.
func isPlainText(path string) bool {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	begin := make([]byte, 256)
	n, _ := io.ReadFull(f, begin)
	if bytes.HasPrefix(begin, []byte("#!")) {
		return shebang(path) == "" // the kernel knows of no interpreter
	}
	return !bytes.Contains(begin[:n], []byte{0})
}

// shebang returns the interpreter that a script names in its first line.
func shebang(path string) string {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	line, _ := bufio.NewReaderSize(f, 256).ReadSlice('\n')
	rest, ok := strings.CutPrefix(strings.TrimSuffix(string(line), "\n"), "#!")
	if !ok {
		return ""
	}
	// As the kernel reads it: a carriage return is part of the name.
	words := strings.FieldsFunc(rest, func(r rune) bool { return r == ' ' || r == '\t' })
	if len(words) == 0 {
		return ""
	}
	return words[0]
}
