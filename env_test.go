package jobs_test

import (
	"strings"
	"testing"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Names of variables that hold secrets, and of some that only sound like it.
var (
	secretNames = []string{
		"AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "GITHUB_TOKEN", "GH_TOKEN", "NPM_TOKEN", "CI_JOB_JWT", "GITHUB_PAT",
		"OPENAI_API_KEY", "ANTHROPIC_API_KEY", "APIKEY", "API-KEY", "DB_PASSWORD", "DB_PASS", "MYSQL_ROOT_PASSWORD", "SSH_AUTH_SOCK", "TWILIO_AUTH_TOKEN",
		"GOOGLE_APPLICATION_CREDENTIALS", "AZURE_CLIENT_SECRET", "SECRET_KEY_BASE", "SSH_PRIVATE_KEY", "GPG_PASSPHRASE", "DATABASE_URL", "SENTRY_DSN",
		"STORAGE_CONNECTION_STRING", "NETRC", "KUBECONFIG", "PASSWORD", "TOKEN", "npm_config__auth", "db.password", "github_token", "Secret_Thing",
		"SESSION_COOKIE", "HTTP_BEARER", "LICENSE_KEY", "CODE_SIGNING_KEY", "REDISCLI_AUTH",
	}
	harmlessNames = []string{
		"PATH", "HOME", "PWD", "OLDPWD", "USER", "LANG", "LC_ALL", "TERM", "TMPDIR", "SHELL", "KEYBOARD", "MONKEY", "KEY", "KEYMAP", "HOTKEY", "AUTHOR",
		"GIT_AUTHOR_NAME", "TOKENIZERS_PARALLELISM", "PASSAGE", "COMPASS", "PATTERN", "SECRETARY", "XAUTHORITY", "API", "API_URL", "GOPATH",
		"PYTHONPATH", "EDITOR", "", "_",
	}
)

func TestStripSecretsGoesByTheWordsOfAName(t *testing.T) {
	for _, name := range secretNames {
		assert.False(t, jobs.StripSecrets(name), "%q passes", name)
	}
	for _, name := range harmlessNames {
		assert.True(t, jobs.StripSecrets(name), "%q does not pass", name)
	}
}

func TestAllowEnvPassesWhatIsNamedAndWhatEveryProgramNeeds(t *testing.T) {
	for _, tt := range []struct {
		allowed string
		pass    string
		stop    string
	}{
		{"", "PATH HOME USER LOGNAME SHELL LANG LC_ALL LC_CTYPE LC_ TZ TMPDIR TERM", "FOO PATHS HOMES MY_PATH TERMINFO LC LANGUAGE path home GITHUB_TOKEN"},
		{"FOO", "FOO PATH", "FOOD foo BAR"},
		{"GITHUB_TOKEN", "GITHUB_TOKEN", "NPM_TOKEN GITHUB_TOKENS github_token"},
		{"AWS_*", "AWS_REGION AWS_PROFILE AWS_", "AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN AWS aws_region"},
		{"AWS_* AWS_SECRET_ACCESS_KEY", "AWS_REGION AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"},
		{"*", strings.Join(harmlessNames, " "), strings.Join(secretNames, " ")},
		{"go*", "goflags go", "GOFLAGS"},
	} {
		filter := jobs.AllowEnv(strings.Fields(tt.allowed)...)
		for name := range strings.FieldsSeq(tt.pass) {
			assert.True(t, filter(name), "%q stops %q", tt.allowed, name)
		}
		for name := range strings.FieldsSeq(tt.stop) {
			assert.False(t, filter(name), "%q passes %q", tt.allowed, name)
		}
	}
}

func TestAllowEnvKeepsNoneOfItsArguments(t *testing.T) {
	names := []string{"FOO"}
	filter := jobs.AllowEnv(names...)
	names[0] = "BAR"
	require.True(t, filter("FOO"))
	require.False(t, filter("BAR"))
}

func TestModelEnvMakesASortedEnvironment(t *testing.T) {
	env, err := jobs.ModelEnv(map[string]string{"B": "2", "A": "", "DEBUG": "a=b c\n", "lower_1": "é", "LC_ALL": "C", "PATHS": "x", "PYTHONUNBUFFERED": "1", "CI": "true"})
	require.NoError(t, err)
	require.Equal(t, []string{"A=", "B=2", "CI=true", "DEBUG=a=b c\n", "LC_ALL=C", "PATHS=x", "PYTHONUNBUFFERED=1", "lower_1=é"}, env)
	env, err = jobs.ModelEnv(nil)
	require.NoError(t, err)
	require.Empty(t, env)
}

func TestModelEnvRefusesWhatChoosesTheCodeThatRuns(t *testing.T) {
	for name := range strings.FieldsSeq(`LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT ld_preload Ld_Preload DYLD_INSERT_LIBRARIES GLIBC_TUNABLES GCONV_PATH
		PATH Path IFS ENV BASH_ENV BASH_FUNC_ls%% BASH_FUNC_ls() SHELLOPTS BASHOPTS PS4 PROMPT_COMMAND ZDOTDIR SHELL HOME XDG_CONFIG_HOME
		PYTHONPATH PYTHONHOME PYTHONSTARTUP PYTHONBREAKPOINT PYTHONINSPECT pythonpath NODE_OPTIONS NODE_PATH npm_config_script_shell NPM_CONFIG_PREFIX
		PERL5LIB PERL5OPT PERL5DB RUBYOPT RUBYLIB GEM_PATH BUNDLE_GEMFILE LUA_INIT LUA_PATH JAVA_TOOL_OPTIONS _JAVA_OPTIONS JDK_JAVA_OPTIONS CLASSPATH
		GOFLAGS GOROOT CGO_CFLAGS CC CXX RUSTC_WRAPPER RUSTFLAGS CARGO_HOME MAKEFLAGS CMAKE_TOOLCHAIN_FILE DOTNET_STARTUP_HOOKS PHPRC
		GIT_SSH_COMMAND GIT_SSH GIT_EXEC_PATH GIT_CONFIG_COUNT GIT_EXTERNAL_DIFF SSH_ASKPASS SUDO_ASKPASS PAGER MANPAGER LESSOPEN EDITOR VISUAL BROWSER
		TERMINFO OPENSSL_CONF HOSTALIASES LLM_OUTPUT AGENT_JOB_ID llm_output`) {
		env, err := jobs.ModelEnv(map[string]string{"GOOD": "1", name: "s3cret-value"})
		assert.Nil(t, env, name)
		if assert.ErrorContains(t, err, name) {
			assert.NotContains(t, err.Error(), "s3cret")
		}
	}
}

func TestModelEnvRefusesEntriesThatAreNone(t *testing.T) {
	for name, value := range map[string]string{"": "s3cret", "=": "s3cret", "A=B": "s3cret", "A\x00": "s3cret", "NUL": "s3cret\x00", "\x00": "s3cret"} {
		env, err := jobs.ModelEnv(map[string]string{name: value})
		assert.Nil(t, env, "%q", name)
		if assert.Error(t, err, "%q", name) {
			assert.NotContains(t, err.Error(), "s3cret")
			assert.NotContains(t, err.Error(), "\x00")
		}
	}
}

func TestAnErrorOfModelEnvIsFitToBeShown(t *testing.T) {
	_, err := jobs.ModelEnv(map[string]string{"LD_" + strings.Repeat("X", 10_000) + "\x1b[31m": "s3cret"})
	require.Error(t, err)
	require.Less(t, len(err.Error()), 400)
	require.NotContains(t, err.Error(), "\x1b")
}
