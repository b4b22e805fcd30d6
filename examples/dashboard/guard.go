package dashboard

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// policy lets the page load what is embedded here, and nothing else; and no
// script make elements out of text.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// A guard says which requests reach the dashboard.
type guard struct {
	hosts []string
	token string
	csrf  string // what a page of ours knows and that of a stranger does not
	key   []byte // makes the cookie, so that the token is not in it
}

// wrap returns next behind the guard.
func (g *guard) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("X-Content-Type-Options", "nosniff")
		// Not "no-referrer", which makes browsers hide the origin of a form.
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")

		switch {
		case !g.knows(r.Host):
			http.Error(w, "this host name is not allowed; see Options.Hosts", http.StatusForbidden)
		case !ownSite(r):
			http.Error(w, "requests of other sites are refused", http.StatusForbidden)
		case g.token == "" && !local(r):
			http.Error(w, "only this machine is served; set Options.Token to open the dashboard to others", http.StatusForbidden)
		case g.token != "" && !g.bearer(r) && !g.cookie(r):
			g.stranger(w, r, next)
		case r.Method == http.MethodPost && !g.bearer(r) && !equal(r.Header.Get("X-CSRF-Token"), g.csrf):
			http.Error(w, "this page is out of date: load it again", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// knows reports whether a Host header names this dashboard.
func (g *guard) knows(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil { // no port
		host = strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
	}
	return slices.ContainsFunc(append([]string{"localhost", "127.0.0.1", "::1"}, g.hosts...), func(known string) bool {
		return strings.EqualFold(host, known)
	})
}

var sameOrigin = http.NewCrossOriginProtection()

// ownSite reports whether r may come from a page of ours. A link of another
// site may open the page; it cannot read it.
func ownSite(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
		return sameOrigin.Check(r) == nil
	}
	return r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate"
}

// local reports whether r comes from this machine and from no proxy on it,
// behind which there may be anybody.
func local(r *http.Request) bool {
	for _, proxied := range []string{"Forwarded", "X-Forwarded-For", "X-Real-Ip"} {
		if r.Header.Get(proxied) != "" {
			return false
		}
	}
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && from.Addr().Unmap().IsLoopback()
}

func (g *guard) bearer(r *http.Request) bool {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return ok && g.token != "" && equal(token, g.token)
}

func (g *guard) cookie(r *http.Request) bool {
	c, err := r.Cookie(cookieName(r))
	return err == nil && equal(c.Value, g.session())
}

// session is the value of the cookie. It ends with the handler.
func (g *guard) session() string {
	mac := hmac.New(sha256.New, g.key)
	mac.Write([]byte(g.token))
	return hex.EncodeToString(mac.Sum(nil))
}

// cookieName has the port in it, as browsers send a cookie to every port of a
// host.
func cookieName(r *http.Request) string {
	_, port, _ := net.SplitHostPort(r.Host)
	return "jobs_dashboard_" + port
}

// equal compares in a time that says nothing of where, or in what length, the
// two differ.
func equal(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// stranger answers a request without the token.
func (g *guard) stranger(w http.ResponseWriter, r *http.Request, next http.Handler) {
	switch r.Method + " " + r.URL.Path {
	case "GET /assets/style.css", "GET /assets/icon.svg": // of the login form
		next.ServeHTTP(w, r)
	case "GET /":
		render(w, http.StatusUnauthorized, "login.html", struct{ Wrong bool }{})
	case "POST /login":
		r.Body = http.MaxBytesReader(w, r.Body, 4<<10)
		if !equal(r.PostFormValue("token"), g.token) {
			render(w, http.StatusUnauthorized, "login.html", struct{ Wrong bool }{true})
			return
		}
		http.SetCookie(w, &http.Cookie{
			Name: cookieName(r), Value: g.session(), Path: "/",
			HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
		})
		w.Header().Set("Location", "./") // as the browser sees it, below any prefix
		w.WriteHeader(http.StatusSeeOther)
	default:
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "a token is needed", http.StatusUnauthorized)
	}
}
