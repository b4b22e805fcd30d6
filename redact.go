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
	size, last := 0, ""
	for _, arg := range argv {
		if size += len(arg); size > lookedAtBytes {
			break // what is cut is not looked at
		}
		value := len(arg) > 2 && !strings.HasPrefix(arg, "--") || !strings.HasPrefix(arg, "-")
		if value && takesSecret(last, arg) {
			arg, last = redacted, ""
		} else {
			arg, last = redactText(arg), arg
		}
		words = append(words, shellWord(arg))
	}
	text := strings.ToValidUTF8(strings.Join(words, " "), "\uFFFD")
	if len(words) < len(argv) || len(text) > redactedBytes {
		text = readable(text[:min(len(text), redactedBytes)], redactedBytes) + " …"
	}
	return text
}

// takesSecret reports whether an argument is an option whose value, the next
// argument, is a secret.
func takesSecret(option, value string) bool {
	if strings.HasPrefix(value, "pass:") { // of openssl
		return true
	}
	switch option {
	case "-pw":
		return true
	case "-u", "--user", "--proxy-user":
		// A name and a password, no numbers of a user and a group.
		return strings.Contains(value, ":") && strings.Trim(value, "0123456789:") != ""
	}
	name, ok := strings.CutPrefix(option, "--")
	return ok && isSecretName(name, value)
}

func isSecretName(name, _ string) bool { return !StripSecrets("x-" + strings.TrimLeft(name, "-")) }

// shellWord quotes an argument if a shell would not take it as one word.
func shellWord(arg string) string {
	plain := func(r rune) bool {
		return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune("-_./:=,@%+*", r)
	}
	if arg != "" && strings.TrimFunc(arg, plain) == "" {
		return arg
	}
	return quote(arg)
}

var (
	// secretForms are tokens that their makers gave a form of its own.
	secretForms = regexp.MustCompile(`\b(?:sk-[\w-]{16,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abeprs]-[\w-]{10,}|` +
		`(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[\w-]{30,}|hf_\w{20,}|npm_\w{20,}|pypi-[\w-]{20,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)`)
	privateKeys = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)`)
	// userinfo is what stands before the host in a URL.
	userinfo = regexp.MustCompile(`(\w://)[^\s/?#'"]+@`)
	// glued is an option with a name and a password in one word, as of curl.
	glued = regexp.MustCompile(`(^|\s)(-u[A-Za-z][\w.@-]*:)[^\s'"]+`)
	// members are those of JSON with a text as their value; of Python and its like
	// too.
	members = regexp.MustCompile(`("[^"\\]*"|'[^'\\]*')(\s*:\s*)(?:"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?)`)
	// headers are those that carry credentials, to the end of the line.
	headers = regexp.MustCompile(`(?i)\b((?:proxy-)?authorization|(?:set-)?cookie|[\w-]*(?:api[_-]?key|token|secret|auth|passw(?:or)?d)[\w-]*)(\s*:\s*)[^'"\n]+`)
	// options are those inside a text, such as one for a shell, with a value of
	// their own.
	options     = regexp.MustCompile(`(--?[A-Za-z][\w-]*)([ =]+)('[^']*'|"[^"]*"|[^\s'";|&]+)`)
	assignments = regexp.MustCompile(`([\w.-]+)(=)('[^']*'|"[^"]*"|[^\s'";|&]+)`)
)

// shortestSecret is less than the shortest of secretForms; all other patterns
// need one of a few characters.
const shortestSecret = 15

// redactText hides the secrets inside one argument.
func redactText(s string) string {
	if len(s) < shortestSecret && !strings.ContainsAny(s, "=:@-") {
		return s // as most arguments are; the patterns take longer than the record
	}
	s = privateKeys.ReplaceAllString(s, redacted)
	s = secretForms.ReplaceAllString(s, redacted)
	s = userinfo.ReplaceAllString(s, "${1}"+redacted+"@")
	s = glued.ReplaceAllString(s, "${1}${2}"+redacted)
	s = members.ReplaceAllStringFunc(s, func(member string) string {
		m := members.FindStringSubmatch(member)
		if !isSecretName(strings.Trim(m[1], `"'`), "") {
			return member
		}
		return m[1] + m[2] + m[1][:1] + redacted + m[1][:1]
	})
	s = headers.ReplaceAllString(s, "${1}${2}"+redacted)
	s = hideValues(s, options, takesSecret)
	return hideValues(s, assignments, isSecretName)
}

// hideValues hides the values of pairs that are secret.
func hideValues(s string, pairs *regexp.Regexp, secret func(name, value string) bool) string {
	return pairs.ReplaceAllStringFunc(s, func(pair string) string {
		m := pairs.FindStringSubmatch(pair)
		if !secret(m[1], m[3]) {
			return pair
		}
		return m[1] + m[2] + redacted
	})
}
