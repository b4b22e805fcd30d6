package jobs

import (
	"regexp"
	"strings"
)

const (
	// redactedBytes bounds a command line in a record. What is looked at for
	// secrets is longer, so that none is cut in two and missed.
	redactedBytes = 1000
	lookedAtBytes = 8 * redactedBytes

	redacted = "***"
)

// redact returns a command line for people, without the secrets in it that can
// be told by their looks: values of arguments and variables with the name of a
// secret, credentials in headers and URLs, and tokens of well-known forms. What
// looks like nothing in particular stays.
func redact(argv []string) string {
	words := make([]string, 0, len(argv))
	size, hide := 0, false
	for _, arg := range argv {
		if size += len(arg); size > lookedAtBytes {
			break // what is cut is not looked at
		}
		switch {
		case hide && !strings.HasPrefix(arg, "-"):
			arg, hide = redacted, false
		default:
			hide = takesSecret(arg)
			arg = redactText(arg)
		}
		words = append(words, shellWord(arg))
	}
	text := strings.Join(words, " ")
	if len(words) < len(argv) || len(text) > redactedBytes {
		text = readable(text[:min(len(text), redactedBytes)], redactedBytes) + " …"
	}
	return text
}

// takesSecret reports whether an argument is an option whose value, the next
// argument, is a secret.
func takesSecret(arg string) bool {
	if name, ok := strings.CutPrefix(arg, "--"); ok {
		return isSecretName(name)
	}
	return arg == "-u" || arg == "-pw"
}

func isSecretName(name string) bool {
	return !StripSecrets("x-"+name) || strings.EqualFold(name, "user")
}

// shellWord quotes an argument if a shell would not take it as one word.
func shellWord(arg string) string {
	plain := func(r rune) bool {
		return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune("-_./:=,@%+*", r)
	}
	if arg != "" && strings.TrimFunc(arg, plain) == "" {
		return arg
	}
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}

var (
	// secretForms are tokens that their makers gave a form of its own.
	secretForms = regexp.MustCompile(`\b(?:sk-[\w-]{16,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abeprs]-[\w-]{10,}|` +
		`(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[\w-]{30,}|hf_\w{20,}|npm_\w{20,}|pypi-[\w-]{20,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)`)
	privateKeys = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)`)
	// userinfo is what stands before the host in a URL.
	userinfo = regexp.MustCompile(`(\w://)[^\s/@'"]+@`)
	// headers are those that carry credentials, to the end of the line.
	headers = regexp.MustCompile(`(?i)\b((?:proxy-)?authorization|(?:set-)?cookie|[\w-]*(?:api[_-]?key|token|secret|auth)[\w-]*)(\s*:\s*)[^'"\n]+`)
	// options are those inside a text, such as one for a shell, with a value of
	// their own.
	options     = regexp.MustCompile(`(--?[A-Za-z][\w-]*)([ =]+)('[^']*'|"[^"]*"|[^\s'";|&]+)`)
	assignments = regexp.MustCompile(`([\w.-]+)(=)('[^']*'|"[^"]*"|[^\s'";|&]+)`)
)

// redactText hides the secrets inside one argument.
func redactText(s string) string {
	s = privateKeys.ReplaceAllString(s, redacted)
	s = secretForms.ReplaceAllString(s, redacted)
	s = userinfo.ReplaceAllString(s, "${1}"+redacted+"@")
	s = headers.ReplaceAllString(s, "${1}${2}"+redacted)
	s = hideValues(s, options, func(name string) bool { return takesSecret(name) })
	return hideValues(s, assignments, func(name string) bool { return !StripSecrets("x-" + strings.TrimLeft(name, "-")) })
}

// hideValues hides the values of the names that are those of secrets.
func hideValues(s string, pairs *regexp.Regexp, secret func(name string) bool) string {
	return pairs.ReplaceAllStringFunc(s, func(pair string) string {
		m := pairs.FindStringSubmatch(pair)
		if !secret(m[1]) {
			return pair
		}
		return m[1] + m[2] + redacted
	})
}
