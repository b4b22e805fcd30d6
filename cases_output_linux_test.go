package jobs_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// RW-041: TestTextWithoutANewlineIsVisibleWhileTheJobRuns
// RW-065: TestTextViewNeverShowsAnUnfinishedSequence
// RW-076: TestAGigabyteOfOutputCostsNoMemory
func TestOutputReachesItsReaderWholeAndReadable(t *testing.T) {
	const done = "completed, exit 0"
	requireFaults(t, []fault{
		{
			id: "RW-035", claim: "the last lines of much",
			script: `seq 1 200000; echo LAST`,
			want:   done,
			see: func(t *testing.T, r jobs.Result, _ trial) {
				requireExact(t, r, int64(len(seq(1, 200_000))+len("LAST\n")))
				assert.Equal(t, "200000\nLAST\n", r.Text(jobs.TextOptions{TailLines: 2}).Body)
			},
		},
		{
			id: "RW-037", claim: "the last character of a million",
			script: `head -c 1000000 /dev/zero | tr '\0' a; printf Z`,
			want:   done,
			see: func(t *testing.T, r jobs.Result, _ trial) {
				requireExact(t, r, 1_000_001)
				assert.Equal(t, strings.Repeat("a", jobs.TextCap-1)+"Z", r.Text(jobs.TextOptions{}).Body)
			},
		},
		{
			id: "RW-039", claim: "all that was said before a violent death",
			script: `for i in $(seq 1 50); do echo $i; done; kill -9 $$`,
			want:   "failed, signal, SIGKILL", text: seq(1, 50),
		},
		{
			id: "RW-043", claim: "both streams in the order of time",
			script: `for i in 1 2 3; do echo o$i; sleep 0.1; echo e$i >&2; sleep 0.1; done`,
			want:   done, text: "o1\ne1\no2\ne2\no3\ne3\n",
		},
		{
			id: "RW-045", claim: "a character in two writes",
			script: `printf 'cleanup \xe2'; sleep 0.1; printf '\x80\x94 end'`,
			want:   done, text: "cleanup \u2014 end",
		},
		{
			id: "RW-047", claim: "an end inside a character",
			script: `printf 'abc\xe2\x82'`,
			want:   done, text: "abc",
		},
		{
			id: "RW-051", claim: "bytes of another encoding",
			script: `printf 'caf\xe9 \xff\xfe\x80 end\n'`,
			want:   done, text: "caf\uFFFD \uFFFD end\n",
		},
		{
			id: "RW-052", claim: "NULs",
			script: `printf 'before\0after\n'; head -c 4096 /dev/zero; echo tail`,
			want:   done, text: "before␀after\n[␀ × 4,096]tail\n",
		},
		{
			id: "RW-054", claim: "the overstrike of a manual page",
			script: `printf 'N\bNA\bAM\bME\bE\n'`,
			want:   done, text: "NAME\n",
		},
		{
			id: "RW-056", claim: "the frames of a progress bar",
			script: `for i in $(seq 0 100); do printf '\rReceiving objects: %3d%%' $i; done; echo ', done.'`,
			want:   done, text: "Receiving objects: 100%, done.\n",
		},
		{
			id: "RW-058", claim: "CRLF in two writes",
			script: `printf 'a\r'; sleep 0.2; printf '\nb\r\n'`,
			want:   done, text: "a\nb\n",
		},
		{
			id: "RW-060", claim: "a frame that is shorter than the one before",
			script: `printf 'aaaaaaaa\rbb\n'`,
			want:   done, text: "bb\n",
		},
		{
			id: "RW-061", claim: "a window title and a clipboard",
			script: `printf '\033]0;title\007A\033]52;c;aGk=\007B\n'`,
			want:   done, text: "AB\n",
		},
		{
			id: "RW-063", claim: "a window title that does not end",
			script: `printf '\033]0;evil\nline2\nline3\n'`,
			want:   done, text: "\nline2\nline3\n",
		},
		{
			id: "RW-067", claim: "a cut beside a colour",
			script: `printf '\033[31m'; printf 'x%.0s' {1..49998}; printf '\033[0m'; printf 'y%.0s' {1..10}; echo`,
			want:   done,
			see: func(t *testing.T, r jobs.Result, _ trial) {
				text := r.Text(jobs.TextOptions{})
				assert.Equal(t, strings.Repeat("x", jobs.TextCap-11)+strings.Repeat("y", 10)+"\n", text.Body)
				assert.True(t, text.Truncated)
			},
		},
		{
			id: "RW-070", claim: "a line of fifty million characters",
			script: `head -c 50000000 /dev/zero | tr '\0' q`,
			want:   done,
			see: func(t *testing.T, r jobs.Result, _ trial) {
				requireExact(t, r, 50_000_000)
				text := r.Text(jobs.TextOptions{TailLines: 1})
				assert.Equal(t, strings.Repeat("q", jobs.TextCap), text.Body)
				assert.True(t, text.Truncated)
				assert.Equal(t, r.OutputDropped, text.Dropped)
			},
		},
		{
			id: "RW-072", claim: "a flood, at its timeout",
			script: `yes`,
			spec:   jobs.Spec{Timeout: time.Second}, within: 3*time.Second + slack,
			want: "failed, timeout, SIGTERM", see: seeFlood,
		},
		{
			id: "RW-072", claim: "a flood, at a cancel",
			script: `yes`,
			do: func(t *testing.T, job trial) jobs.Result {
				require.True(t, eventually(func() bool { return checkJob(t, job.s, job.id).OutputDropped > 0 }))
				return cancelled(t, job)
			},
			want: "cancelled, SIGTERM", see: seeFlood,
		},
		{
			id: "like RW-043", claim: "one writer on two descriptors, thousands of times",
			script: `for i in {1..3000}; do echo $i; echo $i >&2; done`,
			want:   done,
			see: func(t *testing.T, r jobs.Result, _ trial) {
				lines := strings.Fields(string(r.Output.Bytes()))
				if assert.Len(t, lines, 6000) {
					for i := range 3000 {
						assert.Equal(t, lines[2*i], lines[2*i+1])
					}
				}
			},
		},
		{
			id: "like RW-045", claim: "characters one byte at a time",
			script: `for b in e6 97 a5 e6 9c ac e8 aa 9e f0 9f 98 80; do printf "\x$b"; sleep 0.01; done`,
			want:   done, text: "日本語\U0001f600",
		},
		{
			id: "like RW-047", claim: "surrogates and overlong forms",
			script: `printf 'a\xed\xa0\xbd\xed\xb8\x80b\xc0\x80c\xf5\x80\x80\x80d'`,
			want:   done, text: "a\uFFFDb\uFFFDc\uFFFDd",
		},
		{
			id: "like RW-052", claim: "an image between two lines",
			script: `echo before; head -c 3000 /bin/sh; echo; echo after`,
			want:   done,
			see: func(t *testing.T, r jobs.Result, _ trial) {
				text := r.Text(jobs.TextOptions{}).String()
				assert.Regexp(t, `^before\n`, text)
				assert.Regexp(t, `\nafter\n$`, text)
				assert.Less(t, len(text), 3000)
			},
		},
		{
			id: "like RW-054", claim: "backspaces beyond the start of the line",
			script: `printf 'keep\n\b\b\b\b\b\bx\n'`,
			want:   done, text: "keep\nx\n",
		},
		{
			id: "like RW-056", claim: "a hundred thousand frames without a newline",
			script: `printf '\r%s%%' {1..100000}`,
			want:   done,
			see: func(t *testing.T, r jobs.Result, _ trial) {
				assert.Equal(t, "100000%", r.Text(jobs.TextOptions{TailLines: 1}).Body)
			},
		},
		{
			id: "like RW-058", claim: "many CRs before one LF",
			script: `printf 'a\r\r\r'; sleep 0.1; printf '\r\n\r\r\nb'`,
			want:   done, text: "a\n\nb",
		},
		{
			id: "like RW-061", claim: "a link, an image and a charset",
			script: `printf '\033]8;;http://x\033\\text\033]8;;\033\\ \033Pq#0;2;0;0\033\\\033(0end\033(B\n'`,
			want:   done, text: "text end\n",
		},
		{
			id: "like RW-063", claim: "a control sequence of endless parameters",
			script: `printf '\033['; head -c 70000 /dev/zero | tr '\0' 1; printf '\nafter\n'`,
			want:   done,
			see: func(t *testing.T, r jobs.Result, _ trial) {
				assert.Equal(t, "after\n", r.Text(jobs.TextOptions{TailLines: 1}).Body)
				assert.NotContains(t, r.Text(jobs.TextOptions{}).Body, "\x1b")
			},
		},
		{
			id: "like RW-070", claim: "ten million empty lines",
			script: `head -c 10000000 /dev/zero | tr '\0' '\n'`,
			want:   done,
			see: func(t *testing.T, r jobs.Result, _ trial) {
				requireExact(t, r, 10_000_000)
				assert.Equal(t, "\n\n\n", r.Text(jobs.TextOptions{TailLines: 3}).Body)
				assert.Len(t, r.Text(jobs.TextOptions{}).Body, jobs.TextCap)
			},
		},
		{
			id: "like RW-072", claim: "a flood from many writers on both streams",
			script: `for i in 1 2 3 4; do yes & yes >&2 & done; wait`,
			spec:   jobs.Spec{SplitStderr: true},
			do:     cancelledAt("y\ny\n"), within: 2*time.Second + slack,
			want: "cancelled, SIGTERM",
			see: func(t *testing.T, r jobs.Result, job trial) {
				assert.Equal(t, r.StderrTotal, int64(len(r.Stderr.Bytes()))+r.StderrDropped)
			},
		},
	})
}

func seeFlood(t *testing.T, r jobs.Result, _ trial) {
	text := r.Text(jobs.TextOptions{})
	assert.Regexp(t, `^y\n`, text.Body)
	assert.LessOrEqual(t, text.Shown, int64(jobs.TextCap))
	assert.True(t, text.Truncated)
	assert.Positive(t, r.OutputDropped)
}

// The texts of RW-180 and RW-182 end without a newline: what is cut and counted
// must be exact.
func TestTheCapOfATextIsExact(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	for n, truncated := range map[int]bool{49_999: false, 50_000: false, 50_001: true} { // RW-180
		text := runScript(t, s, fmt.Sprintf(`printf 'x%%.0s' {1..%d}`, n)).Text(jobs.TextOptions{})
		assert.Equal(t, strings.Repeat("x", min(n, jobs.TextCap)), text.Body)
		assert.Equal(t, truncated, text.Truncated)
		assert.EqualValues(t, n, text.Total)
	}
	for script, want := range map[string]map[int]string{ // RW-182
		`printf 'a\n\n\n'`:      {1: "\n", 2: "\n\n", 3: "a\n\n\n", 100: "a\n\n\n", 0: "a\n\n\n", -1: "a\n\n\n"},
		`true`:                  {1: "", 2: "", 0: "", -1: ""},
		`printf '\n'`:           {1: "\n", 2: "\n", 0: "\n", -1: "\n"},
		`printf 'a\r\n\r\nb\r'`: {1: "b", 2: "\nb", 3: "a\n\nb", 0: "a\n\nb"}, // like RW-182
	} {
		r := runScript(t, s, script)
		for lines, body := range want {
			assert.Equal(t, body, r.Text(jobs.TextOptions{TailLines: lines}).Body, "the last %d lines of %s", lines, script)
		}
	}
	// RW-184, and like it with wide characters, of which fewer are kept than
	// the cap allows.
	for script, want := range map[string]string{
		`echo first; head -c 10000000 /dev/zero | tr '\0' w; echo`:   strings.Repeat("w", jobs.TextCap-1) + "\n",
		`echo first; printf '\xf0\x9f\x98\x80%.0s' {1..50001}; echo`: strings.Repeat("\U0001f600", jobs.DefaultTailBytes/4-1) + "\n",
	} {
		r := runScript(t, s, script)
		for lines := 1; lines <= 2; lines++ {
			text := r.Text(jobs.TextOptions{TailLines: lines})
			assert.True(t, strings.HasSuffix(text.Body, want), "%d lines of %s", lines, script)
			assert.NotContains(t, text.Body, "first")
			assert.LessOrEqual(t, text.Shown, int64(jobs.TextCap))
			assert.True(t, text.Truncated)
			assert.Positive(t, text.Dropped)
		}
		assert.Regexp(t, `^first\n`, r.Text(jobs.TextOptions{Full: true}).Body)
	}
}

// RW-074: what a write costs must not grow with what was written before.
func TestTheCostOfAWriteDoesNotGrow(t *testing.T) {
	costs := strings.Fields(runHelper(t, "host of many small writes"))
	require.Len(t, costs, 2)
	few, err := time.ParseDuration(costs[0])
	require.NoError(t, err)
	many, err := time.ParseDuration(costs[1])
	require.NoError(t, err)
	limit := 2 * time.Second
	if underRace() {
		limit *= 10
	}
	assert.Less(t, many, limit)
	assert.Less(t, many, 8*few+100*time.Millisecond, "four times as many writes")
}

func init() {
	hostHelper("host of many small writes", func() {
		s := orExit(jobs.New(jobs.Config{}))
		spent := func() time.Duration {
			var usage unix.Rusage
			check(unix.Getrusage(unix.RUSAGE_SELF, &usage) == nil, "getrusage")
			return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
		}
		warmUp(s)
		for _, count := range []int{250_000, 1_000_000} {
			before := spent()
			r := runIn(s, jobs.Spec{Argv: []string{"dd", "if=/dev/zero", "bs=1", "status=none", fmt.Sprint("count=", count)}})
			check(r.OutputTotal == int64(count), "%d bytes, %s", r.OutputTotal, r.Outcome())
			fmt.Println(spent() - before)
		}
		orExit(s.Close(context.Background()))
		os.Stdout.Sync()
	})
}
