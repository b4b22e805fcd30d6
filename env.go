package jobs

import (
	"fmt"
	"maps"
	"path"
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
// SECRET, PASSWORD, CREDENTIALS, AUTH or KEY among others, and some that are
// known by name.
func StripSecrets(name string) bool {
	upper := strings.ToUpper(name)
	if matches(upper, secretEnv) {
		return false
	}
	words := strings.FieldsFunc(upper, func(r rune) bool { return r == '_' || r == '-' || r == '.' })
	return !slices.ContainsFunc(words, func(word string) bool {
		return slices.Contains(secretWords, word) || matches(word, secretEnds) || len(words) > 1 && slices.Contains(secretParts, word)
	})
}

var (
	secretEnv = []string{"AWS_SECRET*", "AWS_SESSION*", "SSH_AUTH_SOCK", "SSHPASS", "NETRC", "KUBECONFIG", "*_DSN", "*_CONNECTION_STRING",
		"*_WEBHOOK_URL", "DATABASE_UR*", "REDIS_UR*", "MONGO*_UR*", "AMQP_UR*", "RABBITMQ_UR*", "POSTGRES*_UR*"}
	secretWords = []string{"TOKENS", "SECRETS", "PASSPHRASE", "CREDENTIAL", "CREDENTIALS", "AUTH", "AUTHORIZATION", "BEARER", "COOKIE", "PAT", "PASS", "JWT"}
	secretEnds  = []string{"*PASSWORD", "*PASSWD", "*TOKEN", "*SECRET", "*APIKEY"}
	// secretParts mean something else where they stand alone.
	secretParts = []string{"KEY", "KEYS", "PWD"}
)

// matches reports whether one of the patterns, in which "*" stands for anything,
// matches the name.
func matches(name string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, _ := path.Match(p, strings.ReplaceAll(name, "/", "_"))
		return ok
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
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		value := vars[name]
		kv := name + "=" + value
		if checkEnvEntry(kv) != nil || !plainName(name) && !matches(strings.ToUpper(name), loaderEnv) {
			return nil, fmt.Errorf("the environment variable %q cannot be set: a name must be letters, digits and underscores, and a value must hold no NUL", readable(name, 64))
		}
		if upper := strings.ToUpper(name); matches(upper, loaderEnv) {
			return nil, fmt.Errorf("the environment variable %q cannot be set: it changes which code programs load or run; pass what you need as an argument", readable(name, 64))
		}
		env = append(env, kv)
	}
	return env, nil
}

// plainName reports whether a name is one that shells take.
func plainName(name string) bool {
	for i, r := range name {
		if r != '_' && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}

var loaderEnv = []string{
	EnvResult, EnvJob,
	"LD_*", "DYLD_*", "_RLD*", "LIBPATH", "SHLIB_PATH", "GLIBC_TUNABLES", "GCONV_PATH", "LOCPATH", "NLSPATH", "MALLOC_*", "HOSTALIASES", "OPENSSL_CONF", "OPENSSL_ENGINES", "OPENSSL_MODULES",
	"PATH", "IFS", "ENV", "BASH_ENV", "BASH_FUNC_*", "BASHOPTS", "SHELLOPTS", "PS4", "PROMPT_COMMAND", "ZDOTDIR", "FPATH", "SHELL", "HOME", "XDG_*",
	"PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONINSPECT", "PYTHONBREAKPOINT", "PYTHONWARNINGS", "PYTHONUSERBASE",
	"NODE_OPTIONS", "NODE_PATH", "NPM_CONFIG_*", "PERL5LIB", "PERL5OPT", "PERL5DB", "PERLLIB", "RUBYOPT", "RUBYLIB", "GEM_*", "BUNDLE_*", "LUA_*",
	"JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "CLASSPATH", "MAVEN_OPTS", "GRADLE_OPTS", "DOTNET_STARTUP_HOOKS", "CORECLR_*", "COR_*", "PHPRC", "PHP_INI_SCAN_DIR",
	"GOFLAGS", "GOENV", "GOROOT", "CGO_*", "CC", "CXX", "RUSTC*", "RUSTFLAGS", "CARGO_*", "MAKEFLAGS", "CMAKE_*",
	"MAKEFILES", "GNUMAKEFLAGS", "MAKE", "TAR_OPTIONS", "RSYNC_RSH", "SVN_SSH", "CVS_RSH", "*_PAGER", "*EDITOR", "FCEDIT", "LESS*",
	"PYTHONPYCACHEPREFIX", "PYTHONEXECUTABLE", "PYTHONPLATLIBDIR", "PIP_*", "UV_*", "GOTOOLCHAIN", "GOPATH", "GOBIN", "GOTOOLDIR", "GOPROXY", "RUSTUP_*", "JAVA_HOME", "GRADLE_*", "MAVEN_*",
	"LD", "AR", "AS", "CPP", "PKG_CONFIG*", "VIMINIT", "EXINIT", "EMACSLOADPATH", "R_*", "JULIA_*", "ERL_*", "BASH_LOADABLES_PATH",
	"WGETRC", "CURL_HOME", "KUBECONFIG", "AWS_CONFIG_FILE", "DOCKER_*", "QT_*", "GTK_*", "GIO_*", "GST_*", "DOTNET_*", "PHP_*",
	"GIT_*", "SSH_ASKPASS", "SUDO_ASKPASS", "PAGER", "MANPAGER", "LESSOPEN", "LESSCLOSE", "EDITOR", "VISUAL", "BROWSER", "TERMINFO*", "TERMCAP",
}
