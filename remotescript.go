package jobs

import (
	"bytes"
	"crypto/rand"
	_ "embed"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

//go:embed remote.sh
var farText string

// farFunctions is farText without what only people read.
var farFunctions = sync.OnceValue(func() string {
	var b strings.Builder
	for line := range strings.Lines(farText) {
		if text := strings.TrimSpace(line); text != "" && text[0] != '#' {
			b.WriteString(line)
		}
	}
	return b.String()
})

// farProgram is what the processes run that stay with a job. It learns from its
// own path where it is.
const farProgram = `aj_d=${0%/*}
aj_id=${aj_d##*/}
aj_do=$1
shift
"aj_$aj_do" "$@"
`

// A farScript is a script for a Shell and the mark of its answer. The mark is
// fresh, and stands in the script apart from what follows it in the answer: so
// neither the output of a job nor an echo of the script can pass for it.
type farScript struct {
	text, nonce string
}

// newFarScript returns a script that calls one of the functions of remote.sh.
// vars are names and values of variables, which are words that need no quotes.
func newFarScript(call, id string, vars ...any) farScript {
	s := farScript{nonce: rand.Text()}
	var b strings.Builder
	b.WriteString("[ -z \"${ZSH_VERSION-}\" ] || emulate sh\n")
	vars = append(vars, "nonce", s.nonce, "id", id)
	for i := 0; i < len(vars); i += 2 {
		fmt.Fprintf(&b, "aj_%v=%v\n", vars[i], vars[i+1])
	}
	b.WriteString(farFunctions())
	fmt.Fprintf(&b, "aj_frame aj_%s </dev/null\n", call)
	s.text = b.String()
	return s
}

// farCommand returns the script that becomes the job's command: it goes to the
// directory, sets the environment, and gives way to the program.
func farCommand(spec Spec) string {
	var b strings.Builder
	b.WriteString(farDir(spec.Dir) + " || exit\n")
	var odd []string
	for _, kv := range uniqueEnv(quietEnv, spec.Env) {
		key, value, _ := strings.Cut(kv, "=")
		if plainName(key) && !matches(key, shellsOwn) {
			fmt.Fprintf(&b, "export %s=%s\n", key, quote(value))
		} else {
			odd = append(odd, quote(kv))
		}
	}
	b.WriteString("exec")
	if len(odd) > 0 {
		b.WriteString(" env -- " + strings.Join(odd, " "))
		if strings.Contains(spec.Argv[0], "=") {
			b.WriteString(` sh -c 'exec "$@"' sh`) // env would take it for a variable
		}
	}
	for _, arg := range spec.Argv {
		b.WriteString(" " + quote(arg))
	}
	b.WriteString("\n")
	return b.String()
}

// shellsOwn are variables that some shell does not let be set.
var shellsOwn = []string{"BASH*", "DIRSTACK", "EPOCH*", "EUID", "FUNCNAME", "GROUPS", "HISTCMD", "LINENO", "OPTARG", "OPTIND",
	"PIPESTATUS", "PPID", "RANDOM", "SECONDS", "SHELLOPTS", "SRANDOM", "UID", "_"}

// farDir returns a script that goes to a directory.
func farDir(dir string) string {
	switch dir {
	case "":
		return ":"
	case "-":
		dir = "./-"
	}
	return "CDPATH= cd -- " + quote(dir) + " >/dev/null"
}

// uniqueEnv returns the entries of all lists; of one key the last counts.
func uniqueEnv(lists ...[]string) []string {
	var env []string
	for _, kv := range slices.Concat(lists...) {
		key, _, _ := strings.Cut(kv, "=")
		env = slices.DeleteFunc(env, func(old string) bool { return strings.HasPrefix(old, key+"=") })
		env = append(env, kv)
	}
	return env
}

// quote makes one word of s for a shell.
func quote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func base64Of(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// farStart returns the script that starts a job.
func farStart(j *job, spec Spec) farScript {
	keep := "kill"
	if spec.Leftovers == KeepLeftovers {
		keep = "keep"
	}
	command := farCommand(spec)
	return newFarScript("start", j.id,
		"text", base64Of(farFunctions()+farProgram),
		"command", base64Of(command),
		"length", len(command),
		"where", base64Of(farDir(spec.Dir)+"\n"),
		"keep", keep,
		"piece", farOutputLimit/farPieces,
		"drain", max(1, j.cfg.DrainGrace.Milliseconds()/100))
}

// farPieces is how many files the output is kept in there: the first, and the
// last ones.
const farPieces = 4

// farOutputLimit is how much output a machine keeps of one job.
const farOutputLimit = 16 << 20

// A farAnswer is what a script said.
type farAnswer struct {
	state string // "started", "running", "ended", "lost", or "none" if it is not known there
	code  int    // of one that has ended

	fault, cause string // what a start stumbled over

	total, lost int64 // bytes stored, deleted ones included, and bytes there was no room for
	from        int64 // offset of data among those stored
	data        []byte

	result     string // "-" for a file, "none", or the mode of what it is instead
	size, disk int64
	text       []byte // the end of the result, of a job that has ended

	left []Process
}

// answer finds the answer to s in what a shell printed, among whatever a login
// prints. ok is false if it is not there, or not all of it.
func (s farScript) answer(printed []byte) (a farAnswer, ok bool) {
	_, rest, ok := bytes.Cut(printed, []byte("\n"+s.nonce+" begin\n"))
	if !ok {
		return a, false
	}
	body, _, ok := bytes.Cut(rest, []byte(s.nonce+" end\n"))
	if !ok {
		return a, false
	}
	var section *[]byte
	for line := range strings.Lines(string(body)) {
		word, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch {
		case word == "data:":
			section = &a.data
		case word == "text:":
			section = &a.text
		case rest != "":
			a.line(word, rest)
		case section != nil:
			*section = append(*section, word...)
		}
	}
	for _, text := range []*[]byte{&a.data, &a.text} {
		n, err := base64.StdEncoding.Decode(*text, *text)
		if err != nil {
			return farAnswer{}, false
		}
		*text = (*text)[:n]
	}
	return a, true
}

// line reads one line of an answer. What is no number counts as 0.
func (a *farAnswer) line(word, rest string) {
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return
	}
	number := func(i int) int64 {
		if i >= len(fields) {
			return 0
		}
		n, _ := strconv.ParseInt(fields[i], 10, 64)
		return max(n, 0)
	}
	switch word {
	case "state":
		a.state, a.code = fields[0], int(number(1))
	case "error":
		a.fault, a.cause, _ = strings.Cut(rest, " ")
	case "output":
		a.total, a.lost, a.from = number(0), number(1), number(2)
	case "result":
		a.result, a.size, a.disk = fields[0], number(1), number(2)
	case "left":
		_, name, _ := strings.Cut(rest, " ")
		a.left = append(a.left, Process{PID: int(number(0)), Name: name})
	}
}

// resultFile is the result of a job that has ended.
func (a farAnswer) resultFile() ResultFile {
	switch a.result {
	case "-":
		return ResultFile{Data: a.text, Size: a.size, Truncated: int64(len(a.text)) < a.size}
	case "none", "":
		return ResultFile{Problem: "the job removed its result file"}
	}
	return ResultFile{Problem: "the result file is no longer a regular file: " + a.result}
}
