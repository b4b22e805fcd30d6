package jobs_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/agentjobs/jobs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// planted stands for a secret that looks like nothing in particular.
const planted = "hunter2Tr0ub4dor"

func TestSecretsInCommandLinesAreHidden(t *testing.T) {
	for name, tt := range map[string]struct {
		argv []string
		keep []string // what must be seen still
		hide []string // besides the planted secret
	}{
		"header":                       {argv: []string{"curl", "-H", "Authorization: Bearer " + planted, "https://x.org/y"}, keep: []string{"curl", "Authorization", "https://x.org/y"}},
		"header with a key":            {argv: []string{"curl", "-H", "X-Api-Key: " + planted}, keep: []string{"X-Api-Key"}},
		"glued header":                 {argv: []string{"curl", "-HPrivate-Token: " + planted}},
		"header option":                {argv: []string{"curl", "--header=Authorization: Basic " + planted}},
		"cookie":                       {argv: []string{"curl", "-H", "Cookie: sid=" + planted + "; a=b"}},
		"header in a script":           {argv: []string{"bash", "-c", `curl -H "authorization: token ` + planted + `" https://x.org | jq .`}, keep: []string{"jq ."}},
		"userinfo":                     {argv: []string{"git", "clone", "https://me:" + planted + "@x.org/r.git"}, keep: []string{"x.org/r.git"}},
		"token as user":                {argv: []string{"git", "clone", "https://" + planted + "@x.org/r.git"}, keep: []string{"x.org/r.git"}},
		"userinfo of a database":       {argv: []string{"psql", "postgres://me:" + planted + "@db:5432/x"}, keep: []string{"db:5432/x"}},
		"userinfo with an at sign":     {argv: []string{"psql", "postgres://me:p@" + planted + "@db/x"}, keep: []string{"@db/x"}},
		"userinfo in a script":         {argv: []string{"bash", "-c", "git clone https://me:" + planted + "@x.org/r && cd r"}, keep: []string{"cd r"}},
		"password":                     {argv: []string{"tool", "--password", planted, "next"}, keep: []string{"next"}},
		"password with =":              {argv: []string{"tool", "--password=" + planted, "next"}, keep: []string{"next"}},
		"password with a dash":         {argv: []string{"tool", "--password", "-" + planted, "next"}, keep: []string{"next"}},
		"token":                        {argv: []string{"tool", "--token=" + planted}},
		"token in a long name":         {argv: []string{"tool", "--github-access-token", planted}},
		"api key":                      {argv: []string{"tool", "--api-key", planted}},
		"client secret":                {argv: []string{"az", "--client-secret=" + planted}},
		"password in a script":         {argv: []string{"sh", "-c", "tool --password " + planted + " --level 3"}, keep: []string{"--level 3"}},
		"quoted password in a script":  {argv: []string{"sh", "-c", "tool --password 'a " + planted + "' --level 3"}, keep: []string{"--level 3"}},
		"variable":                     {argv: []string{"env", "FOO_TOKEN=" + planted, "cmd"}, keep: []string{"FOO_TOKEN", "cmd"}},
		"variable in a script":         {argv: []string{"bash", "-c", "FOO_TOKEN=" + planted + " cmd --flag"}, keep: []string{"cmd --flag"}},
		"exported variable":            {argv: []string{"bash", "-c", `export DB_PASSWORD="` + planted + ` x"; run`}, keep: []string{"run"}},
		"variable with its own name":   {argv: []string{"bash", "-c", "PGPASSWORD=" + planted + " psql -h db"}, keep: []string{"psql -h db"}},
		"user":                         {argv: []string{"curl", "-u", "me:" + planted, "https://x.org"}, keep: []string{"https://x.org"}},
		"glued user":                   {argv: []string{"curl", "-ume:" + planted, "https://x.org"}, keep: []string{"https://x.org"}},
		"long user":                    {argv: []string{"curl", "--user", "me:" + planted}},
		"user in a script":             {argv: []string{"sh", "-c", "curl -u me:" + planted + " https://x.org"}, keep: []string{"https://x.org"}},
		"build argument":               {argv: []string{"docker", "build", "--build-arg", "NPM_TOKEN=" + planted, "."}, keep: []string{"build"}},
		"arguments as JSON":            {argv: []string{"tool", `{"path":"/x","password":"` + planted + `","n":3}`}, keep: []string{`"path":"/x"`, `"n":3`}},
		"JSON with spaces":             {argv: []string{"curl", "-d", `{"api_key" : "` + planted + `"}`}},
		"JSON with quotes":             {argv: []string{"curl", "-d", `{"token":"a\"` + planted + `","b":1}`}, keep: []string{`"b":1`}},
		"password as a header":         {argv: []string{"sh", "-c", "printf 'PASSWORD: " + planted + "' | login"}, keep: []string{"| login"}},
		"JSON of Python":               {argv: []string{"python3", "-c", "f({'a': 'b', 'password': '" + planted + "'})"}, keep: []string{"'a'"}},
		"openssl":                      {argv: []string{"openssl", "rsa", "-passin", "pass:" + planted, "-in", "k"}, keep: []string{"-in k"}},
		"openssl in a script":          {argv: []string{"sh", "-c", "openssl rsa -passin pass:" + planted + " -in k"}, keep: []string{"-in k"}},
		"query":                        {argv: []string{"curl", "https://x.org/?a=1&access_token=" + planted + "&b=2"}, keep: []string{"a=1", "b=2"}},
		"JWT":                          {argv: []string{"x", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl"}, hide: []string{"eyJzdWIi", "c2lnbmF0dXJl"}},
		"AWS key":                      {argv: []string{"x", "AKIAIOSFODNN7EXAMPLE"}, hide: []string{"IOSFODNN7"}},
		"OpenAI key":                   {argv: []string{"x", "sk-proj-abcdefghijklmnop1234"}, hide: []string{"abcdefghijklmnop"}},
		"GitHub token":                 {argv: []string{"x", "ghp_abcdefghijklmnopqrstuvwxyz0123456789"}, hide: []string{"abcdefghijklmnop"}},
		"GitHub token inside":          {argv: []string{"sh", "-c", "echo ghp_abcdefghijklmnopqrstuvwxyz0123456789|x"}, hide: []string{"abcdefghijklmnop"}, keep: []string{"|x"}},
		"fine-grained token":           {argv: []string{"x", "github_pat_11ABCDEFG0abcdefghijklmnop"}, hide: []string{"abcdefghijklmnop"}},
		"Slack token":                  {argv: []string{"x", "xoxb-1234567890-abcdefghijkl"}, hide: []string{"abcdefghijkl"}},
		"private key":                  {argv: []string{"x", "-----BEGIN RSA PRIVATE KEY-----\n" + planted + "\n-----END RSA PRIVATE KEY-----\nafter"}, keep: []string{"after"}},
		"private key cut short":        {argv: []string{"x", "-----BEGIN OPENSSH PRIVATE KEY-----\n" + planted}},
		"several lines":                {argv: []string{"bash", "-c", "set -e\ncurl -H 'Authorization: Bearer " + planted + "'\nmake all"}, keep: []string{"make all"}},
		"beyond what is shown":         {argv: []string{"x", strings.Repeat("y ", 400), "--password", planted}},
		"a secret at the edge":         {argv: []string{"x", strings.Repeat("y", 985), "--token=" + planted}},
		"a secret at the farther edge": {argv: []string{"x", strings.Repeat("y", 7985), "--token=" + planted}},
		"a megabyte":                   {argv: []string{"x", strings.Repeat("--token="+planted+" ", 40_000)}},
		"invalid UTF-8":                {argv: []string{"\xff\xfe", "--password=\xff" + planted, "\xc3"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := jobs.Redact(tt.argv)
			for _, secret := range append(tt.hide, planted) {
				assert.NotContains(t, got, secret)
			}
			for _, part := range tt.keep {
				assert.Contains(t, got, part)
			}
			requireSober(t, got)
		})
	}
}

// requireSober fails for a text that does not fit into a record.
func requireSober(t testing.TB, text string) {
	t.Helper()
	require.LessOrEqual(t, len(text), 1100)
	require.True(t, utf8.ValidString(text), "%q", text)
}

func TestHarmlessCommandLinesStayWhole(t *testing.T) {
	for _, argv := range [][]string{
		{"ls", "-la", "/tmp"},
		{"sort", "-u", "names.txt"},
		{"python3", "-u", "train.py", "--epochs", "3"},
		{"git", "push", "-u", "origin", "main"},
		{"date", "-u", "+%F"},
		{"docker", "run", "-u", "1000:1000", "alpine", "true"},
		{"pip", "install", "--user", "requests"},
		{"systemctl", "--user", "restart", "thing"},
		{"go", "test", "-run", "TestToken", "./..."},
		{"grep", "-r", "password", "src"},
		{"curl", "https://x.org/a", "-H", "Accept:application/json"},
		{"git", "commit", "--author=me", "-m", "sk-ip", "--no-edit"},
		{"npm", "run", "build:prod"},
		{"scp", "me@host:/tmp/x", "."},
		{"make", "CFLAGS=-O2", "-j4"},
		{"task-runner", "risk-assessment-of-the-project-2024"},
	} {
		t.Run(argv[0]+" "+argv[1], func(t *testing.T) {
			assert.Equal(t, strings.Join(argv, " "), jobs.Redact(argv))
		})
	}
	assert.Equal(t, `bash -c 'cd src && make 2>&1 | tail -n 20'`, jobs.Redact([]string{"bash", "-c", "cd src && make 2>&1 | tail -n 20"}))
	assert.Equal(t, `echo '' 'it'\''s'`, jobs.Redact([]string{"echo", "", "it's"}))
	assert.Empty(t, jobs.Redact(nil))
}

// What is planted behind the name of a secret, in every form that is known, must
// not be seen whatever stands around it.
func FuzzRedact(f *testing.F) {
	f.Add("curl", "https://x.org", uint8(0))
	f.Add("a\nb", "'\"", uint8(3))
	f.Add("--", "\xff", uint8(5))
	f.Add("--password", "eyJ.", uint8(1))
	f.Add("-----BEGIN PRIVATE KEY-----", "x=", uint8(4))
	f.Fuzz(func(t *testing.T, before, after string, form uint8) {
		forms := [][]string{
			{"--password", planted},
			{"--api-token=" + planted},
			{"A_SECRET=" + planted},
			{"Authorization: Bearer " + planted},
			{"https://me:" + planted + "@x.org/"},
			{"-u", "me:" + planted},
			{"ghp_" + planted + planted},
			{`{"password":"` + planted + `"}`},
		}
		secret := forms[int(form)%len(forms)]
		argv := append([]string{"tool", before}, append(secret, after)...)
		got := jobs.Redact(argv)
		require.NotContains(t, got, planted, "%q", argv)
		requireSober(t, got)
		requireSober(t, jobs.Redact([]string{before, before + secret[0] + after, after}))
	})
}
