package jobs_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/require"
)

// FuzzModelEnv asks for any variable, as a model might.
func FuzzModelEnv(f *testing.F) {
	for _, name := range []string{"", "A", "=", "A=B", "LD_PRELOAD", "ld_preload", "Ld_X", "PATH", "path", "_", "1A", "A B", "\xff", "A\x00", "\u0131FS", "LESS\u017f",
		"BASH_FUNC_x%%", "LLM_OUTPUT", "AGENT_JOB_ID", "GIT_SSH", "é", "[", "\\", "*", "A/B", strings.Repeat("X", 500), "A\x1b[2J"} {
		f.Add(name, "value")
		f.Add(name, "\x00")
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		env, err := jobs.ModelEnv(map[string]string{name: value, "ZZ_PLAIN": "1"})
		if err != nil {
			require.Nil(t, env)
			require.True(t, utf8.ValidString(err.Error()) && !strings.ContainsFunc(err.Error(), unicode.IsControl), "%q", err)
			require.LessOrEqual(t, len(err.Error()), 1000)
			return
		}
		require.Contains(t, env, name+"="+value)
		require.Contains(t, env, "ZZ_PLAIN=1")
		require.False(t, strings.ContainsFunc(name, func(r rune) bool { return r > unicode.MaxASCII || r == '=' || r <= ' ' }) || name == "", "%q", name)
		require.NotContains(t, value, "\x00")
		// What it lets through is what a job can be started with.
		upper := strings.ToUpper(name)
		for _, loads := range []string{"LD_", "DYLD_", "GIT_", "BASH_FUNC_", "MALLOC_"} {
			require.False(t, strings.HasPrefix(upper, loads), "%q", name)
		}
		require.NotContains(t, []string{"PATH", "IFS", "ENV", "BASH_ENV", "SHELL", "HOME", jobs.EnvResult, jobs.EnvJob}, upper)
	})
}

// FuzzEnvFilter asks the filters about any name.
func FuzzEnvFilter(f *testing.F) {
	for _, name := range []string{"", "PATH", "TOKEN", "API_KEY", "KEY", "KEYBOARD", "AWS_SECRET_ACCESS_KEY", "MONKEY", "my-password", "a.b.token", "_", "[", "\\", "a/b",
		"DATABASE_URL", "\xff", "*", "LC_ALL", "\u0131", "PASS", "COMPASS", "GITHUB_TOKEN_FILE", strings.Repeat("_", 300)} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if len(name) > 400 { // more only costs time
			return
		}
		passes := jobs.StripSecrets(name)
		for _, word := range []string{"TOKEN", "token", "SECRET", "Password", "CREDENTIALS", "KEY", "AUTH"} {
			for _, joint := range []string{"_", "-", "."} {
				if name != "" && strings.Trim(name, "_-.") != "" {
					require.False(t, jobs.StripSecrets(name+joint+word), "%q", name+joint+word)
					require.False(t, jobs.StripSecrets(word+joint+name), "%q", word+joint+name)
				}
			}
		}
		if strings.IndexFunc(name, func(r rune) bool { return r > unicode.MaxASCII }) < 0 {
			require.Equal(t, passes, jobs.StripSecrets(strings.ToLower(name)), "%q", name)
			require.Equal(t, passes, jobs.StripSecrets(strings.ToUpper(name)), "%q", name)
		}
		require.True(t, jobs.AllowEnv(name)(name), "named in full, %q", name)
		if !passes {
			require.False(t, jobs.AllowEnv()(name), "%q", name)
			require.False(t, jobs.AllowEnv("*")(name) && name != "*", "%q", name)
		}
	})
}
