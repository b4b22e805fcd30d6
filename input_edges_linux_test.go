package jobs_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A host makes a child for each of its sessions and closes it at their end.
func TestAClosedOwnerGivesTheMemoryOfItsOutputBack(t *testing.T) {
	s := newSupervisor(t, jobs.Config{OutputMemory: 2 * (headKept + tailKept)})
	for round := range 5 {
		child, err := s.Child(jobs.ChildConfig{})
		require.NoError(t, err)
		endedFunc(t, child, printsMuch(80<<10))
		_, err = child.Close(testContext(t))
		require.NoError(t, err)
		require.Equal(t, int64(headKept+tailKept), keptByANewJob(t, s), "round %d", round)
	}
}

func TestAJobThatHasBeenGivenInputDoesNotSeemToWaitForIt(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	job := start(t, s, listening(`printf 'name? '; read -r x; exec sleep 300`))
	awaitPrompt(t, s, job.ID)
	typeInto(t, s, job.ID, "bob")
	require.True(t, eventually(func() bool { return comm(job.PID) == "sleep" }))
	require.False(t, checkJob(t, s, job.ID).WaitingForInput, "all was read and nobody waits for more")
}

func TestAModelIsNotToldThatAJobHasEndedThatRuns(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	id := start(t, s, listening("exec 0<&-; echo up; exec sleep 300")).ID
	awaitOutput(t, s, id, "up")
	r := ask(t, moreTools(s), "job__write", idArgs(id, `"text":"x"`))
	require.True(t, r.failed())
	require.NotContains(t, r.Message, "has ended", "it runs")
}

func TestACharacterIsNeverCutByTheSizeOfAPiece(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	id := endedFunc(t, s, prints("é🙂日x\n"))
	for size := range 4 {
		got, _ := walk(t, moreTools(s), id, fmt.Sprintf(`"max_bytes":%d`, size+1))
		assert.Equal(t, "é🙂日x\n", got, "by %d", size+1)
	}
}

func TestACharacterOfWhichTheRestIsStillToComeIsNotLost(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	p := newPuppet()
	id := start(t, s, jobs.Spec{Func: p.run}).ID
	p.print("caf\xc3")
	first := askOutput(t, moreTools(s), idArgs(id))
	p.print("\xa9\n")
	second := askOutput(t, moreTools(s), idArgs(id, fmt.Sprintf(`"from":%d`, *first.Next)))
	require.Equal(t, "café\n", *first.Output+*second.Output)
}

func TestSecretsOftenMeantBySuchNamesAreStripped(t *testing.T) {
	for _, name := range []string{"PGPASSWORD", "MYSQL_PWD", "DB_PWD", "SSHPASS", "LDAPPASSWORD", "npm_config_//registry.npmjs.org/:_authToken", "AUTHTOKEN", "GITHUB_ACCESSTOKEN", "MONGODB_URI", "REDIS_URL", "OPENAI_KEY", "SLACK_WEBHOOK_URL"} {
		assert.False(t, jobs.StripSecrets(name), "%s passes", name)
	}
	for _, name := range []string{"PWD", "OLDPWD", "BASE_URL", "KEY"} {
		assert.True(t, jobs.StripSecrets(name), "%s does not pass", name)
	}
}

func TestModelEnvRefusesNamesThatItsErrorSaysItRefuses(t *testing.T) {
	for _, name := range []string{"A B", "A-B", "A.B", "1A", "é", "A\nB", "A%", " A"} {
		_, err := jobs.ModelEnv(map[string]string{name: "x"})
		assert.Error(t, err, "%q", name)
	}
}

func TestModelEnvRefusesMoreThatRunsCode(t *testing.T) {
	for name := range strings.FieldsSeq(`MAKEFILES GNUMAKEFLAGS MAKE TAR_OPTIONS RSYNC_RSH SVN_SSH CVS_RSH SYSTEMD_PAGER AWS_PAGER PSQL_PAGER HGEDITOR FCEDIT
		PYTHONPYCACHEPREFIX PYTHONEXECUTABLE PYTHONPLATLIBDIR GOTOOLCHAIN GOPATH GOBIN GOTOOLDIR RUSTUP_TOOLCHAIN RUSTUP_HOME JAVA_HOME GRADLE_USER_HOME
		LD AR VIMINIT EXINIT EMACSLOADPATH PIP_INDEX_URL UV_INDEX_URL R_PROFILE JULIA_LOAD_PATH ERL_FLAGS ERL_LIBS PKG_CONFIG BASH_LOADABLES_PATH
		WGETRC CURL_HOME KUBECONFIG AWS_CONFIG_FILE DOCKER_CONFIG QT_PLUGIN_PATH GTK_MODULES GTK_PATH GIO_EXTRA_MODULES DOTNET_ROOT PHP_PEAR_PHP_BIN`) {
		_, err := jobs.ModelEnv(map[string]string{name: "x"})
		assert.Error(t, err, "%s", name)
	}
}

// The proof that it matters, for one of them.
func TestAVariableThatModelEnvPassesMakesNoProgramRunItsValue(t *testing.T) {
	dir := t.TempDir()
	evil := writeFile(t, dir, "evil.mk", 0o644, "$(shell touch "+dir+"/ran)\n")
	writeFile(t, dir, "Makefile", 0o644, "all:\n\t@true\n")
	env, err := jobs.ModelEnv(map[string]string{"MAKEFILES": evil})
	if err != nil {
		return // refused, as it should be
	}
	s := newSupervisor(t, jobs.Config{})
	collect(t, s, start(t, s, jobs.Spec{Argv: []string{"make"}, Dir: dir, Env: env}).ID)
	_, err = os.Stat(filepath.Join(dir, "ran"))
	require.ErrorIs(t, err, os.ErrNotExist, "the model's code has run")
}

func TestALimitOfMemoryThatIsTooSmallIsNotLeftOut(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	spec := bash("echo unlimited")
	spec.Limits.Memory = 1000
	snap, err := s.Start(testContext(t), spec)
	if err == nil {
		require.NotEqual(t, "unlimited\n", string(collect(t, s, snap.ID).Output.Bytes()))
	}
}

// Without limits this is a StartError; with them the shell runs it as a script.
func TestUnderLimitsATextIsNoProgramEither(t *testing.T) {
	dir := t.TempDir()
	text := writeFile(t, dir, "text", 0o755, "touch "+dir+"/ran\n")
	s := newSupervisor(t, jobs.Config{})
	_, err := s.Start(testContext(t), jobs.Spec{Argv: []string{text}})
	require.Error(t, err)
	snap, err := s.Start(testContext(t), jobs.Spec{Argv: []string{text}, Limits: jobs.Limits{OpenFiles: 100}})
	if err == nil {
		collect(t, s, snap.ID)
	}
	_, err = os.Stat(filepath.Join(dir, "ran"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// A status file that is written anew is written, whatever its length.
func TestAResultOfTheSameLengthKeepsAJobFromBeingIdle(t *testing.T) {
	s := newSupervisor(t, jobs.Config{})
	spec := bash(`for i in 1 2 3 4 5 6; do echo $i >"$LLM_OUTPUT"; sleep 0.5; done`)
	spec.IdleTimeout = time.Second
	r := collect(t, s, start(t, s, spec).ID)
	require.Equal(t, jobs.Completed, r.State, r.Outcome())
}

// What the parent of the host had, before the host became a program of its own,
// is no part of what its jobs get.
func TestPeakMemoryIsKnownWhateverTheParentOfTheHostHad(t *testing.T) {
	large := bytes.Repeat([]byte{1}, 400<<20)
	peaks := pids(t, runHelper(t, "peak memory"))
	require.InDelta(t, 325, peaks[0], 75)
	runtime.KeepAlive(large)
}
