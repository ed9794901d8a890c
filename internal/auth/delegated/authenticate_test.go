package delegated

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"reflect"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"

	"portico.dev/internal/auth/authtest"
	"portico.dev/internal/auth/tokenreview"
)

func TestAuthenticateRequest(t *testing.T) {
	ca := newAuthorities(t)
	f := openFrontDoor(t, ca.published("front-proxy-client"))
	f.tokens["good"] = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{
		Username: "tina", UID: "u-1", Groups: []string{"dev"}, Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}},
	}}
	f.tokens["expired"] = authenticationv1.TokenReviewStatus{Error: "token has expired"}
	strict, lenient := start(t, f), start(t, f, func(c *Config) { c.AnonymousAllowed = true })
	stated := http.Header{"X-Remote-User": {"alice"}, "X-Remote-Uid": {"u-7"}, "X-Remote-Group": {"dev"}, "X-Remote-Extra-%41b": {"1"}}
	bearer := func(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }
	with := func(a, b http.Header) http.Header {
		both := a.Clone()
		for k, v := range b {
			both[k] = v
		}
		return both
	}
	proxy := ca.proxies.Client(t, "front-proxy-client")
	tests := []struct {
		name    string
		cert    *tls.Certificate
		headers http.Header
		want    string // from both servers
		lenient string // from the server that allows anonymous requests, if different
	}{
		{name: "front proxy", cert: proxy, headers: stated, want: "alice: dev system:authenticated"},
		{name: "client certificate", cert: ca.clients.Client(t, "carol", authtest.Groups("ops")), want: "carol: ops system:authenticated"},
		{name: "token", headers: bearer("good"), want: "tina: dev system:authenticated"},
		{name: "token that the front door refuses", headers: bearer("expired"), want: "token has expired"},
		{name: "token that nobody knows", headers: bearer("unknown"), want: "invalid bearer token"},
		{name: "nothing", want: "no credential", lenient: "system:anonymous: system:unauthenticated"},

		{name: "A13 identity headers and no certificate", headers: stated, want: "without the certificate of a front proxy"},
		{name: "A13 identity headers and no certificate, with a token", headers: with(stated, bearer("good")), want: "tina: dev system:authenticated"},
		{name: "A13 identity headers and a client certificate", cert: ca.clients.Client(t, "carol"), headers: stated, want: "carol: system:authenticated"},
		{name: "A13 a certificate of another CA", cert: authtest.NewCA(t, "x").Client(t, "front-proxy-client"), headers: stated, want: "unknown authority"},
		{name: "A13 the right CA and another name", cert: ca.proxies.Client(t, "mallory"), headers: stated, want: "x509: subject with cn=mallory is not in the allowed list"},
		{name: "A13 expired", cert: ca.proxies.Client(t, "front-proxy-client", authtest.Expired), headers: stated, want: "expired"},
		{name: "A13 not valid yet", cert: ca.proxies.Client(t, "front-proxy-client", authtest.NotYetValid), headers: stated, want: "not yet valid"},
		{name: "A13 a server's certificate", cert: ca.proxies.Client(t, "front-proxy-client", authtest.ServerOnly), headers: stated, want: "incompatible key usage"},
		{name: "A31 a front proxy that states nobody", cert: proxy, want: "names nobody by itself"},
		{name: "B11 front proxy and a bad token", cert: proxy, headers: with(stated, bearer("unknown")), want: "invalid bearer token"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.lenient == "" {
				tt.lenient = tt.want
			}
			for server, want := range map[*running]string{strict: tt.want, lenient: tt.lenient} {
				got := server.knock(t, tt.cert, tt.headers)
				if !strings.Contains(got.who(), want) || strings.HasPrefix(got.who(), "error") != !strings.Contains(want, "system:") {
					t.Errorf("user, anonymous allowed %t = %s, want %s", server == lenient, got.who(), want)
				}
				if got.Error == "" && (len(got.Header["X-Remote-User"]) > 0 || len(got.Header["Authorization"]) > 0) {
					t.Errorf("header after authentication = %v, want no credential", got.Header)
				}
			}
		})
	}
	t.Run("A11 uid and extra arrive as they were", func(t *testing.T) {
		got := strict.knock(t, proxy, stated)
		if got.UID != "u-7" || !reflect.DeepEqual(got.Extra, map[string][]string{"Ab": {"1"}}) {
			t.Fatalf("user = %+v, want UID u-7 and extra Ab=[1]", got)
		}
	})
	t.Run("the question is the one that front doors know", func(t *testing.T) {
		f.mu.Lock()
		defer f.mu.Unlock()
		want := `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","metadata":{},"spec":{"token":"good"},"status":{"user":{}}}`
		for _, body := range f.bodies {
			if body == want {
				return
			}
		}
		t.Fatalf("token reviews = %q, want one of them %s", f.bodies, want)
	})
	t.Run("handshakes can name both authorities", func(t *testing.T) {
		both := x509.NewCertPool()
		both.AddCert(ca.clients.Cert)
		both.AddCert(ca.proxies.Cert)
		if !strict.d.ClientCAs().Equal(both) {
			t.Fatal("ClientCAs() differs from the pool of both authorities, want them equal")
		}
	})
}

// A server that does not authorize accepts only front proxies.
func TestG1IdentityHeadersRequireFrontProxyCertificate(t *testing.T) {
	ca, own := newAuthorities(t), authtest.NewCA(t, "our own")
	data := ca.published("front-proxy-client")
	data[proxyCAKey] += string(own.PEM())
	f := openFrontDoor(t, data)
	f.tokens["good"] = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "tina"}}
	r := start(t, f, func(c *Config) {
		c.FrontProxyOnly = true
		c.Distrust = func(cert *x509.Certificate) bool { return cert.Equal(own.Cert) }
	})
	stated := http.Header{"X-Remote-User": {"alice"}}
	for name, tt := range map[string]struct {
		cert    *tls.Certificate
		headers http.Header
		want    string
	}{
		"the front proxy":                       {ca.proxies.Client(t, "front-proxy-client"), stated, "alice"},
		"a certificate of our own authority":    {own.Client(t, "front-proxy-client"), stated, "unknown authority"},
		"a client certificate":                  {ca.clients.Client(t, "carol", authtest.Groups("system:masters")), http.Header{}, "unknown authority"},
		"a client certificate and headers":      {ca.clients.Client(t, "carol"), stated, "unknown authority"},
		"a token that the API server knows":     {nil, http.Header{"Authorization": {"Bearer good"}}, "invalid bearer token"},
		"the front proxy with a token":          {ca.proxies.Client(t, "front-proxy-client"), http.Header{"X-Remote-User": {"alice"}, "Authorization": {"Bearer good"}}, "invalid bearer token"},
		"headers alone":                         {nil, stated, "without the certificate of a front proxy"},
		"nothing":                               {nil, http.Header{}, "no credential"},
		"the front proxy's authority, not name": {ca.proxies.Client(t, "mallory"), stated, "not in the allowed list"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := r.knock(t, tt.cert, tt.headers); !strings.Contains(got.who(), tt.want) {
				t.Errorf("user = %s, want %s", got.who(), tt.want)
			}
		})
	}
	if n := f.count(tokenreview.Path); n != 0 {
		t.Errorf("%d token reviews, want 0", n)
	}
	if pool := x509.NewCertPool(); true {
		pool.AddCert(ca.proxies.Cert)
		if !r.d.ClientCAs().Equal(pool) {
			t.Error("ClientCAs() differs from the pool of the front-proxy CA, want them equal")
		}
	}
}

func TestTokenReviewIsCached(t *testing.T) {
	f := openFrontDoor(t, newAuthorities(t).published())
	f.tokens["good"] = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "tina"}}
	r := start(t, f)
	for range 3 {
		r.knock(t, nil, http.Header{"Authorization": {"Bearer good"}})
		r.knock(t, nil, http.Header{"Authorization": {"Bearer bad"}})
	}
	if n := f.count(tokenreview.Path); n != 2 {
		t.Fatalf("%d token reviews for two tokens, want 2", n)
	}
}

func TestTokenAudiences(t *testing.T) {
	f := openFrontDoor(t, newAuthorities(t).published())
	f.tokens["for-a"] = authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: []string{"a"}, User: authenticationv1.UserInfo{Username: "tina"}}
	f.tokens["unaware"] = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "tina"}}
	d := start(t, f).d
	for name, tt := range map[string]struct {
		token, audience string
		want            bool
	}{
		"the audience it is for":                         {"for-a", "a", true},
		"B3 another audience":                            {"for-a", "b", false},
		"B3 a front door that does not know of audience": {"unaware", "a", false},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := authenticator.WithAudiences(t.Context(), authenticator.Audiences{tt.audience})
			if _, ok, err := d.tokens.AuthenticateToken(ctx, tt.token); ok != tt.want {
				t.Fatalf("AuthenticateToken(%q) for the audience %s = %t, %v, want %t", tt.token, tt.audience, ok, err, tt.want)
			}
		})
	}
}

func TestFailedTokenReviewIsReported(t *testing.T) {
	f := openFrontDoor(t, newAuthorities(t).published())
	r := start(t, f, func(c *Config) { c.AnonymousAllowed = true })
	f.set(func() {
		f.refuse = func(r *http.Request) int {
			if r.URL.Path == tokenreview.Path {
				return http.StatusForbidden
			}
			return 0
		}
	})
	if got := r.knock(t, nil, http.Header{"Authorization": {"Bearer good"}}); !strings.Contains(got.Error, "the front door says 403") {
		t.Fatalf("user with a token that could not be reviewed = %s, want the error 403", got.who())
	}
}
