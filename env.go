package jobs

import (
	"fmt"
	"slices"
	"strings"
)

// AllowEnv returns a [Config.EnvFilter] that passes the named variables and
// those that nearly every program needs: PATH, HOME, USER, LOGNAME, SHELL,
// LANG, LC_*, TZ, TMPDIR and TERM. A name that ends with "*" stands for all
// that begin with what is before it. A name that looks like that of a secret,
// see [StripSecrets], passes only if it is given in full.
func AllowEnv(names ...string) func(name string) bool {
	names = slices.Clone(names)
	return func(name string) bool {
		return slices.Contains(names, name) || StripSecrets(name) && (matches(name, names) || matches(name, basicEnv))
	}
}

var basicEnv = []string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_*", "TZ", "TMPDIR", "TERM"}

// StripSecrets is a [Config.EnvFilter] that passes all variables but those
// whose names look like that of a secret: those with a word such as TOKEN,
// SECRET, PASSWORD, CREDENTIALS or AUTH in them, with two in a row such as
// API_KEY or PRIVATE_KEY, and some that are known by name.
func StripSecrets(name string) bool {
	upper := strings.ToUpper(name)
	if matches(upper, secretEnv) {
		return false
	}
	words := strings.FieldsFunc(upper, func(r rune) bool { return r == '_' || r == '-' || r == '.' })
	for i, word := range words {
		if slices.Contains(secretWords, word) || word == "KEY" && i > 0 && slices.Contains(keyWords, words[i-1]) {
			return false
		}
	}
	return true
}

var (
	secretEnv   = []string{"AWS_SECRET*", "AWS_SESSION*", "SSH_AUTH_SOCK", "NETRC", "DATABASE_URL", "KUBECONFIG", "*_DSN", "*_CONNECTION_STRING"}
	secretWords = []string{"TOKEN", "TOKENS", "SECRET", "SECRETS", "PASSWORD", "PASSWD", "PASSPHRASE", "PWD_HASH", "CREDENTIAL", "CREDENTIALS",
		"AUTH", "AUTHORIZATION", "BEARER", "COOKIE", "APIKEY", "PAT", "PASS", "JWT"}
	keyWords = []string{"API", "ACCESS", "PRIVATE", "SECRET", "SIGNING", "ENCRYPTION", "DEPLOY", "SERVICE", "ACCOUNT", "MASTER", "LICENSE"}
)

// matches reports whether one of the patterns, which may begin or end with "*",
// matches the name.
func matches(name string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if rest, ok := strings.CutPrefix(p, "*"); ok {
			return strings.HasSuffix(name, rest)
		}
		if rest, ok := strings.CutSuffix(p, "*"); ok {
			return strings.HasPrefix(name, rest)
		}
		return name == p
	})
}

// ModelEnv turns variables that a model has asked for into a [Spec.Env]. It
// refuses malformed names, and those that would make a program load or run what
// the model chooses: of the dynamic loader (LD_*, DYLD_*), of shells and
// interpreters (BASH_ENV, PYTHONPATH, NODE_OPTIONS…), of programs that run
// others (PATH, GIT_SSH_COMMAND, PAGER, EDITOR…). The error names the variable
// and is fit to be shown to the model.
func ModelEnv(vars map[string]string) ([]string, error) {
	env := make([]string, 0, len(vars))
	for name, value := range vars {
		kv := name + "=" + value
		if err := checkEnvEntry(kv); err != nil || strings.Contains(name, "=") {
			return nil, fmt.Errorf("the environment variable %q cannot be set: a name must be letters, digits and underscores, and a value must hold no NUL", readable(name, 64))
		}
		if upper := strings.ToUpper(name); matches(upper, loaderEnv) {
			return nil, fmt.Errorf("the environment variable %s cannot be set: it changes which code programs load or run; pass what you need as an argument", readable(name, 64))
		}
		env = append(env, kv)
	}
	slices.Sort(env)
	return env, nil
}

var loaderEnv = []string{
	EnvResult, EnvJob,
	"LD_*", "DYLD_*", "_RLD*", "LIBPATH", "SHLIB_PATH", "GLIBC_TUNABLES", "GCONV_PATH", "LOCPATH", "NLSPATH", "MALLOC_*", "HOSTALIASES", "OPENSSL_CONF", "OPENSSL_ENGINES", "OPENSSL_MODULES",
	"PATH", "IFS", "ENV", "BASH_ENV", "BASH_FUNC_*", "BASHOPTS", "SHELLOPTS", "PS4", "PROMPT_COMMAND", "ZDOTDIR", "FPATH", "SHELL", "HOME", "XDG_*",
	"PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONINSPECT", "PYTHONBREAKPOINT", "PYTHONWARNINGS", "PYTHONUSERBASE",
	"NODE_OPTIONS", "NODE_PATH", "NPM_CONFIG_*", "PERL5LIB", "PERL5OPT", "PERL5DB", "PERLLIB", "RUBYOPT", "RUBYLIB", "GEM_*", "BUNDLE_*", "LUA_*",
	"JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "CLASSPATH", "MAVEN_OPTS", "GRADLE_OPTS", "DOTNET_STARTUP_HOOKS", "CORECLR_*", "COR_*", "PHPRC", "PHP_INI_SCAN_DIR",
	"GOFLAGS", "GOENV", "GOROOT", "CGO_*", "CC", "CXX", "RUSTC*", "RUSTFLAGS", "CARGO_*", "MAKEFLAGS", "CMAKE_*",
	"GIT_*", "SSH_ASKPASS", "SUDO_ASKPASS", "PAGER", "MANPAGER", "LESSOPEN", "LESSCLOSE", "EDITOR", "VISUAL", "BROWSER", "TERMINFO*", "TERMCAP",
}
