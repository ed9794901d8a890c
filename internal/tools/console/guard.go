package console

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"
)

// tokenLifetime bounds the validity of the token.
const tokenLifetime = 10 * time.Minute

// guard authenticates requests. It protects against other pages in the same browser, and against other programs and
// users of the machine:
//
//   - The Host must be ours. A foreign name that resolves to 127.0.0.1 (DNS rebinding) is refused.
//   - The token is printed on the terminal and placed in the fragment of the URL, which browsers do not send. The page
//     posts it once, receives a cookie, and removes the token from the URL.
//   - Cookies are not isolated by port: a browser sends them to every server on 127.0.0.1. The path of the session
//     contains a random part, so that a server of another user on another port does not receive the cookie.
//   - A request with side effects must be a POST with our Origin.
type guard struct {
	host  string
	hosts []string
	now   func() time.Time

	token  string
	until  time.Time
	prefix string // path of the session, begins and ends with a slash
	cookie string

	mu   sync.Mutex // guards used
	used bool
}

const cookieName = "portico-console"

func newGuard(address string, now func() time.Time) (*guard, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("address of the page: %w", err)
	}
	g := &guard{host: address, hosts: []string{address, "localhost:" + port}, now: now, until: now().Add(tokenLifetime)}
	g.token, g.cookie, g.prefix = secret(), secret(), "/s/"+secret()[:16]+"/"
	return g, nil
}

func secret() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never returns an error
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// refuses returns a status code and a reason if the request must be refused, and otherwise 0.
func (g *guard) refuses(r *http.Request) (code int, why string) {
	if !slices.Contains(g.hosts, r.Host) {
		return http.StatusMisdirectedRequest, "this console is not at the host " + quoted(r.Host)
	}
	// A client without this header is not a browser, or an old one. The other checks protect against it.
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" && r.Header.Get("Sec-Fetch-Mode") != "navigate" {
		return http.StatusForbidden, "requests of other pages are refused"
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
	case http.MethodPost:
		origin, err := url.Parse(r.Header.Get("Origin"))
		if err != nil || origin.Scheme != "http" || origin.Host != r.Host {
			return http.StatusForbidden, "a POST must come from the page itself (Origin)"
		}
	default:
		return http.StatusMethodNotAllowed, "GET and POST are served"
	}
	return 0, ""
}

// exchange returns the cookie for the token, once.
func (g *guard) exchange(token string) (*http.Cookie, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.used:
		return nil, fmt.Errorf("the link has been used already, and works once: start the console again for a new one")
	case g.now().After(g.until):
		return nil, fmt.Errorf("the link is older than %s: start the console again for a new one", tokenLifetime)
	case subtle.ConstantTimeCompare([]byte(token), []byte(g.token)) != 1:
		return nil, fmt.Errorf("the link is not the one that the console printed")
	}
	g.used = true
	return &http.Cookie{Name: cookieName, Value: g.cookie, Path: g.prefix, HttpOnly: true, SameSite: http.SameSiteStrictMode}, nil
}

// hasSession reports whether a request belongs to the session.
func (g *guard) hasSession(r *http.Request) bool {
	return slices.ContainsFunc(r.CookiesNamed(cookieName), func(c *http.Cookie) bool {
		return subtle.ConstantTimeCompare([]byte(c.Value), []byte(g.cookie)) == 1
	})
}

func quoted(s string) string { return fmt.Sprintf("%.100q", s) }
