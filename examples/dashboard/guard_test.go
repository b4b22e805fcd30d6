package dashboard_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/agentjobs/jobs"
	"github.com/agentjobs/jobs/examples/dashboard"
	"github.com/stretchr/testify/require"
)

// ask sends a request as from this machine; edit may change that.
func ask(h http.Handler, method, path string, edit ...func(*http.Request)) *httptest.ResponseRecorder {
	ctx, cancel := context.WithTimeout(context.Background(), patience) // of a stream there should not be
	defer cancel()
	r := httptest.NewRequestWithContext(ctx, method, path, nil)
	r.Host = "localhost:8787"
	r.RemoteAddr = "127.0.0.1:5000"
	for _, e := range edit {
		e(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func from(addr string) func(*http.Request) { return func(r *http.Request) { r.RemoteAddr = addr } }
func host(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }

// csrfOf returns the token in the page.
func csrfOf(t *testing.T, page string) string {
	t.Helper()
	found := regexp.MustCompile(`name="csrf" content="([A-Z2-7]{20,})"`).FindStringSubmatch(page)
	require.NotNil(t, found, page)
	return found[1]
}

func TestOnlyThisMachineIsServedWithoutAToken(t *testing.T) {
	h := dashboard.New(newHost(t, jobs.Config{}), dashboard.Options{})
	for _, addr := range []string{"127.0.0.1:1", "127.8.9.10:1", "[::1]:1", "[::ffff:127.0.0.1]:1"} {
		require.Equal(t, http.StatusOK, ask(h, "GET", "/", from(addr)).Code, addr)
	}
	for _, addr := range []string{"192.0.2.1:1", "[2001:db8::1]:1", "10.0.0.1:1", "@", "", "127.0.0.1"} {
		w := ask(h, "GET", "/", from(addr))
		require.Equal(t, http.StatusForbidden, w.Code, addr)
		require.Contains(t, w.Body.String(), "Options.Token")
	}
	for _, name := range []string{"X-Forwarded-For", "Forwarded", "X-Real-IP"} {
		require.Equal(t, http.StatusForbidden, ask(h, "GET", "/", header(name, "192.0.2.1")).Code, "behind a proxy")
	}
}

func TestOtherHostNamesAreRefused(t *testing.T) {
	h := dashboard.New(newHost(t, jobs.Config{}), dashboard.Options{Hosts: []string{"box.example"}, Token: "secret"})
	bearer := header("Authorization", "Bearer secret")
	for _, name := range []string{"localhost", "LOCALHOST:1", "127.0.0.1:8787", "[::1]:8787", "[::1]", "box.example:443"} {
		require.Equal(t, http.StatusOK, ask(h, "GET", "/", bearer, host(name)).Code, name)
	}
	for _, name := range []string{"", "evil.example", "evil.example:8787", "127.0.0.1.evil.example", "localhost.", "0.0.0.0:8787", "box.example.evil"} {
		require.Equal(t, http.StatusForbidden, ask(h, "GET", "/", bearer, host(name)).Code, name)
	}
}

func TestATokenIsAskedOfEverybody(t *testing.T) {
	h := dashboard.New(newHost(t, jobs.Config{}), dashboard.Options{Token: "secret"})
	far := from("192.0.2.1:1")
	require.Equal(t, http.StatusUnauthorized, ask(h, "GET", "/events").Code, "this machine too")
	require.Equal(t, http.StatusUnauthorized, ask(h, "POST", "/jobs/x/cancel", far).Code)
	require.Equal(t, http.StatusUnauthorized, ask(h, "GET", "/assets/app.js", far).Code)
	require.Equal(t, http.StatusOK, ask(h, "GET", "/", far, header("Authorization", "Bearer secret")).Code)
	for _, wrong := range []string{"Bearer secre", "Bearer secrets", "Bearer ", "Bearer", "secret", "Basic secret"} {
		w := ask(h, "GET", "/", far, header("Authorization", wrong))
		require.Equal(t, http.StatusUnauthorized, w.Code, wrong)
		require.NotContains(t, w.Body.String(), "csrf")
	}
}

func TestAFormGivesTheTokenOnce(t *testing.T) {
	h := dashboard.New(newHost(t, jobs.Config{}), dashboard.Options{Token: "secret"})
	login := func(token string, more ...func(*http.Request)) *httptest.ResponseRecorder {
		form := url.Values{"token": {token}}.Encode()
		r := httptest.NewRequest("POST", "/login", strings.NewReader(form))
		r.Host = "localhost:8787"
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		for _, e := range more {
			e(r)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	require.Contains(t, ask(h, "GET", "/").Body.String(), `action="login"`)
	w := login("guess")
	require.Equal(t, http.StatusUnauthorized, w.Code)
	require.Empty(t, w.Result().Cookies())
	require.Equal(t, http.StatusForbidden, login("secret", header("Origin", "http://evil.example")).Code)

	w = login("secret", header("Origin", "http://localhost:8787"))
	require.Equal(t, http.StatusSeeOther, w.Code)
	c := w.Result().Cookies()[0]
	require.True(t, c.HttpOnly)
	require.Equal(t, http.SameSiteStrictMode, c.SameSite)
	require.NotContains(t, c.Value, "secret")
	require.Equal(t, http.StatusOK, ask(h, "GET", "/", func(r *http.Request) { r.AddCookie(c) }).Code)

	c.Value = strings.Repeat("0", len(c.Value))
	require.Equal(t, http.StatusUnauthorized, ask(h, "GET", "/", func(r *http.Request) { r.AddCookie(c) }).Code)
}

func TestNoOtherSiteCanCancel(t *testing.T) {
	s := newHost(t, jobs.Config{})
	p := newPuppet(t, s, "build")
	h := dashboard.New(s, dashboard.Options{})
	csrf := header("X-CSRF-Token", csrfOf(t, ask(h, "GET", "/").Body.String()))
	path := "/jobs/" + p.ID + "/cancel"

	refused := map[string][]func(*http.Request){
		"without the token of the page": nil,
		"with a guess":                  {header("X-CSRF-Token", "AAAAAAAAAAAAAAAAAAAAAAAAAA")},
		"with an empty bearer token":    {header("Authorization", "Bearer ")},
		"from another origin":           {csrf, header("Origin", "http://evil.example")},
		"from another port":             {csrf, header("Origin", "http://localhost:9999")},
		"from a page without origin":    {csrf, header("Origin", "null")},
		"from another site":             {csrf, header("Sec-Fetch-Site", "cross-site")},
		"from a neighbour":              {csrf, header("Sec-Fetch-Site", "same-site")},
	}
	for why, edits := range refused {
		require.Equal(t, http.StatusForbidden, ask(h, "POST", path, edits...).Code, why)
	}
	require.Equal(t, http.StatusMethodNotAllowed, ask(h, "GET", path, csrf).Code)
	snap, err := s.Check(p.ID)
	require.NoError(t, err)
	require.Equal(t, jobs.Running, snap.State)

	w := ask(h, "POST", path, csrf, header("Origin", "http://localhost:8787"), header("Sec-Fetch-Site", "same-origin"))
	require.Equal(t, http.StatusAccepted, w.Code)
	require.Equal(t, jobs.Cancelled, ended(t, s, p.ID).State)
	notices := s.Drain()
	require.Len(t, notices, 1, "its owner is told")
	require.Equal(t, jobs.EventCancelled, notices[0].Event)

	require.Equal(t, http.StatusConflict, ask(h, "POST", path, csrf).Code)
	require.Equal(t, http.StatusNotFound, ask(h, "POST", "/jobs/none/cancel", csrf).Code)
}

func TestAnotherSiteMayLinkHereAndNoMore(t *testing.T) {
	h := dashboard.New(newHost(t, jobs.Config{}), dashboard.Options{})
	cross := header("Sec-Fetch-Site", "cross-site")
	require.Equal(t, http.StatusOK, ask(h, "GET", "/", cross, header("Sec-Fetch-Mode", "navigate")).Code)
	require.Equal(t, http.StatusForbidden, ask(h, "GET", "/events", cross, header("Sec-Fetch-Mode", "cors")).Code)
	require.Equal(t, http.StatusForbidden, ask(h, "GET", "/events", header("Sec-Fetch-Site", "same-site"), header("Sec-Fetch-Mode", "cors")).Code)
}

func TestAScriptWithTheTokenNeedsNoPage(t *testing.T) {
	s := newHost(t, jobs.Config{})
	p := newPuppet(t, s, "build")
	h := dashboard.New(s, dashboard.Options{Token: "secret"})
	w := ask(h, "POST", "/jobs/"+p.ID+"/cancel", header("Authorization", "Bearer secret"))
	require.Equal(t, http.StatusAccepted, w.Code)
	require.Equal(t, jobs.Cancelled, ended(t, s, p.ID).State)
}

func TestThePageMayLoadNothingFromElsewhere(t *testing.T) {
	h := dashboard.New(newHost(t, jobs.Config{}), dashboard.Options{})
	for _, path := range []string{"/", "/assets/app.js", "/assets/timeline.js", "/assets/style.css", "/assets/icon.svg"} {
		w := ask(h, "GET", path)
		require.Equal(t, http.StatusOK, w.Code, path)
		csp := w.Header().Get("Content-Security-Policy")
		require.Contains(t, csp, "default-src 'none'")
		require.NotContains(t, csp, "unsafe")
		require.NotContains(t, csp, "http")
		require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
		body := strings.ReplaceAll(w.Body.String(), "http://www.w3.org/2000/svg", "") // a name, not an address
		require.NotRegexp(t, `https?:`, body, path)
	}
	for _, path := range []string{"/assets/", "/assets/index.html", "/assets/login.html", "/assets/../guard.go", "/other"} {
		require.NotEqual(t, http.StatusOK, ask(h, "GET", path).Code, path)
	}
}
