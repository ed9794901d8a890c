package authn

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/auth/authtest"
	"portico.dev/internal/metrics"
)

// testServer is a TLS server that returns the authenticated user and the remaining request.
type testServer struct {
	*authtest.Server
	clients, proxies *authtest.CA
	auth             *Authenticator
}

type answer struct {
	Error  string
	Name   string
	UID    string
	Groups []string
	Extra  map[string][]string
	Header http.Header
}

const tokens = `good-token,tina,u-1,"dev,ops"
other-token,omar,u-2
`

func open(t *testing.T, change ...func(*Config, *testServer)) *testServer {
	t.Helper()
	d := &testServer{clients: authtest.NewCA(t, "client CA"), proxies: authtest.NewCA(t, "front-proxy CA")}
	cfg := Config{
		ClientCA:  authtest.Bundle(t, d.clients.Cert),
		TokenFile: tokenFileWith(t, tokens),
		RequestHeader: &RequestHeaderConfig{
			ClientCA:            authtest.Bundle(t, d.proxies.Cert),
			AllowedNames:        []string{"front-proxy"},
			UsernameHeaders:     []string{"X-Remote-User"},
			UIDHeaders:          []string{"X-Remote-Uid"},
			GroupHeaders:        []string{"X-Remote-Group"},
			ExtraHeaderPrefixes: []string{"X-Remote-Extra-"},
		},
		Anonymous: true,
		Metrics:   metrics.NewAuth(prometheus.NewRegistry()),
		Logger:    zap.NewNop(),
	}
	for _, c := range change {
		c(&cfg, d)
	}
	auth, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	d.auth = auth
	d.Server = authtest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		response, ok, err := auth.AuthenticateRequest(r)
		a := answer{Header: r.Header}
		switch {
		case err != nil:
			a.Error = err.Error()
			w.WriteHeader(http.StatusUnauthorized)
		case !ok:
			a.Error = "nobody"
			w.WriteHeader(http.StatusUnauthorized)
		default:
			a.Name, a.UID = response.User.GetName(), response.User.GetUID()
			a.Groups, a.Extra = response.User.GetGroups(), response.User.GetExtra()
		}
		_ = json.NewEncoder(w).Encode(a)
	}))
	return d
}

func tokenFileWith(t testing.TB, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func (d *testServer) get(t *testing.T, cert *tls.Certificate, headers http.Header) answer {
	t.Helper()
	return get(t, d.Client(t, cert), d.URL, headers)
}

func get(t *testing.T, client *http.Client, url string, headers http.Header) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/api", nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range headers {
		r.Header[name] = values
	}
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	var a answer
	if err := json.Unmarshal(body, &a); err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAuthenticateRequest(t *testing.T) {
	d := open(t)
	others := authtest.NewCA(t, "somebody else's CA")
	bearer := func(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }
	stated := http.Header{"X-Remote-User": {"alice"}, "X-Remote-Group": {"dev", "ops"}, "X-Remote-Extra-Scope": {"a"}}
	forged := http.Header{"X-Remote-User": {"root"}, "X-Remote-Group": {"system:masters"}}
	with := func(a, b http.Header) http.Header {
		both := a.Clone()
		for k, v := range b {
			both[k] = v
		}
		return both
	}
	proxy := d.proxies.Client(t, "front-proxy")
	carol := d.clients.Client(t, "carol", authtest.Groups("blue", "green"))
	tests := []struct {
		name    string
		cert    *tls.Certificate
		headers http.Header
		want    string // user: its groups
		wantErr string
	}{
		{name: "nothing is anonymous", want: "system:anonymous: system:unauthenticated"},
		{name: "client certificate", cert: carol, want: "carol: blue green system:authenticated"},
		{name: "static token", headers: bearer("good-token"), want: "tina: dev ops system:authenticated"},
		{name: "B9 a bad token is never anonymous", headers: bearer("bad-token"), wantErr: "invalid bearer token"},
		{name: "B9 basic credentials are never anonymous", headers: http.Header{"Authorization": {"Basic YTpi"}}, wantErr: "Bearer scheme"},
		{name: "front proxy", cert: proxy, headers: stated, want: "alice: dev ops system:authenticated"},
		{name: "front proxy states that the client is anonymous", cert: proxy,
			headers: http.Header{"X-Remote-User": {"system:anonymous"}, "X-Remote-Group": {"system:unauthenticated"}},
			want:    "system:anonymous: system:unauthenticated"},

		{name: "A7 identity headers without a certificate", headers: forged, want: "system:anonymous: system:unauthenticated"},
		{name: "A7 identity headers with a client's certificate", cert: carol, headers: forged, want: "carol: blue green system:authenticated"},
		{name: "A7 identity headers with a token", headers: with(forged, bearer("good-token")), want: "tina: dev ops system:authenticated"},
		{name: "A7 two user names from the front proxy", cert: proxy, headers: http.Header{"X-Remote-User": {"alice", "root"}}, wantErr: "more than once"},
		{name: "A31 front proxy without a stated user", cert: proxy, wantErr: "names nobody by itself"},
		{name: "A31 front proxy with groups and no user", cert: proxy, headers: http.Header{"X-Remote-Group": {"system:masters"}}, wantErr: "names nobody by itself"},
		{name: "A13 certificate of the front-proxy CA with another name", cert: d.proxies.Client(t, "mallory"), headers: forged, wantErr: "not in the allowed list"},
		{name: "A13 expired front proxy", cert: d.proxies.Client(t, "front-proxy", authtest.Expired), headers: forged, wantErr: "expired"},
		{name: "A13 front proxy that is not valid yet", cert: d.proxies.Client(t, "front-proxy", authtest.NotYetValid), headers: forged, wantErr: "not yet valid"},
		{name: "A13 front proxy with a server's certificate", cert: d.proxies.Client(t, "front-proxy", authtest.ServerOnly), headers: forged, wantErr: "incompatible key usage"},
		{name: "A13 the front proxy's name from the client CA", cert: d.clients.Client(t, "front-proxy"), headers: forged, want: "front-proxy: system:authenticated"},

		{name: "B10 expired client certificate", cert: d.clients.Client(t, "carol", authtest.Expired), wantErr: "expired"},
		{name: "B10 client certificate that is not valid yet", cert: d.clients.Client(t, "carol", authtest.NotYetValid), wantErr: "not yet valid"},
		{name: "B10 a server's certificate", cert: d.clients.Client(t, "carol", authtest.ServerOnly), wantErr: "incompatible key usage"},
		{name: "B10 certificate of a stranger", cert: others.Client(t, "carol"), wantErr: "unknown authority"},
		{name: "B10 no common name", cert: d.clients.Client(t, "", authtest.Groups("system:masters")), wantErr: "no common name"},
		{name: "B10 system:masters as a name is no group", cert: d.clients.Client(t, "system:masters"), want: "system:masters: system:authenticated"},
		{name: "B10 a star is a name like any other", cert: d.clients.Client(t, "*"), want: "*: system:authenticated"},
		{name: "B10 ten thousand organizations", cert: d.clients.Client(t, "carol", authtest.Groups(numbered(10_000)...)), wantErr: "bytes"},

		{name: "B11 certificate and token: the certificate, and only it", cert: carol, headers: bearer("good-token"), want: "carol: blue green system:authenticated"},
		{name: "B11 certificate and a bad token", cert: carol, headers: bearer("bad-token"), wantErr: "invalid bearer token"},
		{name: "B11 a stranger's certificate and a good token", cert: others.Client(t, "x"), headers: bearer("good-token"), wantErr: "unknown authority"},
		{name: "B11 front proxy and token: what the front proxy states", cert: proxy, headers: with(stated, bearer("good-token")), want: "alice: dev ops system:authenticated"},
		{name: "B11 front proxy and a bad token", cert: proxy, headers: with(stated, bearer("bad-token")), wantErr: "invalid bearer token"},
		{name: "B11 a front proxy that states nobody may have a token of its own", cert: proxy, headers: bearer("good-token"), want: "tina: dev ops system:authenticated"},
		{name: "B11 two Authorization headers", headers: http.Header{"Authorization": {"Bearer good-token", "Bearer other-token"}}, wantErr: "more than one"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := d.get(t, tt.cert, tt.headers)
			if tt.wantErr != "" {
				if !strings.Contains(got.Error, tt.wantErr) {
					t.Fatalf("authentication error = %q, want an error that contains %q", got.Error, tt.wantErr)
				}
				if strings.Contains(got.Error, "bad-token") {
					t.Fatalf("authentication error = %s, want no token in it", got.Error)
				}
				return
			}
			if who := got.Name + ": " + strings.Join(got.Groups, " "); who != tt.want {
				t.Fatalf("user and groups = %s (error %q), want %s", who, got.Error, tt.want)
			}
			for name := range got.Header {
				if name == "Authorization" || strings.HasPrefix(name, "X-Remote-") {
					t.Errorf("header after authentication contains %s, want no credential", name)
				}
			}
		})
	}
}

func numbered(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = "group"
	}
	return out
}

func TestCredentialID(t *testing.T) {
	d := open(t)
	got := d.get(t, d.clients.Client(t, "carol"), nil).Extra[user.CredentialIDKey]
	if len(got) != 1 || len(got[0]) != len("X509SHA256=")+64 || !strings.HasPrefix(got[0], "X509SHA256=") {
		t.Fatalf("credential ID = %q, want X509SHA256= with 64 digits", got)
	}
}

// A UID distinguishes a user from an earlier user of the same name. An ambiguous UID is rejected.
func TestB10AmbiguousCertificateUIDIsRejected(t *testing.T) {
	d := open(t)
	for _, c := range []struct {
		name    string
		uids    []string
		want    string
		wantErr string
	}{
		{name: "none"},
		{name: "one", uids: []string{"3f4e-1"}, want: "3f4e-1"},
		{name: "two", uids: []string{"1", "2"}, wantErr: "expected 1 UID, but found multiple: [1 2]"},
		{name: "the same twice", uids: []string{"1", "1"}, wantErr: "expected 1 UID, but found multiple: [1 1]"},
		{name: "empty", uids: []string{""}, wantErr: "UID cannot be an empty string"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := d.get(t, d.clients.Client(t, "carol", authtest.UIDs(c.uids...)), nil)
			if c.wantErr != "" {
				if !strings.Contains(got.Error, c.wantErr) {
					t.Errorf("authentication with the UIDs %q = %+v, want an error that contains %q", c.uids, got, c.wantErr)
				}
				return
			}
			if got.Error != "" || got.Name != "carol" || got.UID != c.want {
				t.Errorf("authentication with the UIDs %q = %+v, want carol with the UID %q", c.uids, got, c.want)
			}
		})
	}
}

func TestWebsocketToken(t *testing.T) {
	d := open(t)
	encoded := "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte("good-token"))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://front-door/api", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Protocol": {"v4.channel.k8s.io, " + encoded}}
	response, ok, err := d.auth.AuthenticateRequest(r)
	if err != nil || !ok || response.User.GetName() != "tina" {
		t.Fatalf("AuthenticateRequest with a token subprotocol = %+v, %t, %v, want tina", response, ok, err)
	}
	if got := r.Header.Get("Sec-Websocket-Protocol"); got != "v4.channel.k8s.io" {
		t.Fatalf("A30: subprotocols after authentication = %q, want v4.channel.k8s.io", got)
	}
}

func TestAnonymousPaths(t *testing.T) {
	d := open(t, func(c *Config, _ *testServer) { c.AnonymousPaths = []string{"/livez", "/version"} })
	for path, want := range map[string]bool{"/livez": true, "/version": true, "/livez/etcd": false, "/api": false, "/versions": false} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://front-door"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok, err := d.auth.AuthenticateRequest(r); ok != want || err != nil {
			t.Errorf("anonymous request for %s = %t with the error %v, want %t", path, ok, err, want)
		}
	}
}

// A connection may outlive the validity of its certificate. The certificate and the authority are checked for every request.
func TestCertificateTrustIsCheckedPerRequest(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Run("A15 the client CA is replaced while a connection is open", func(t *testing.T) {
		d := open(t)
		client := d.Client(t, d.clients.Client(t, "carol"))
		if got := get(t, client, d.URL, nil); got.Name != "carol" {
			t.Fatalf("answer before the CA changed = %+v, want carol", got)
		}
		if err := d.auth.trust.Clients.Set(authtest.NewCA(t, "new").PEM()); err != nil {
			t.Fatal(err)
		}
		if got := get(t, client, d.URL, nil); !strings.Contains(got.Error, "unknown authority") {
			t.Fatalf("answer after the CA changed = %+v, want the error unknown authority", got)
		}
	})
	t.Run("B10 the certificate expires while a connection is open", func(t *testing.T) {
		d := open(t)
		var client *http.Client
		for life := 1500 * time.Millisecond; ; life *= 3 { // on a busy machine a short-lived certificate may expire before its first use
			end := time.Now().Add(life)
			client = d.Client(t, d.clients.Client(t, "carol", func(c *x509.Certificate) { c.NotAfter = end }))
			got := get(t, client, d.URL, nil)
			if got.Name == "carol" {
				break
			}
			if time.Now().Before(end.Truncate(time.Second)) || life > 30*time.Second { // certificates have whole seconds
				t.Fatalf("answer before the certificate expired = %+v, want carol", got)
			}
		}
		deadline := time.After(2 * time.Minute)
		for {
			if got := get(t, client, d.URL, nil); strings.Contains(got.Error, "expired") {
				return
			}
			select {
			case <-deadline:
				t.Fatal("expired certificate is still accepted after two minutes, want the error expired")
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
}

func TestUnsafeTrustConfigurationsAreRejected(t *testing.T) {
	shared := func(names ...string) func(*Config, *testServer) {
		return func(c *Config, d *testServer) {
			c.RequestHeader.ClientCA = authtest.Bundle(t, d.clients.Cert)
			c.RequestHeader.AllowedNames = names
		}
	}
	cfg := func(change func(*Config, *testServer)) Config {
		var out Config
		open(t, func(c *Config, d *testServer) {
			out = *c
			h := *c.RequestHeader
			out.RequestHeader = &h
			change(&out, d)
		})
		return out
	}
	refused := map[string]func(*Config, *testServer){
		"A12 one CA for clients and front proxies, any name": shared(),
		"request headers without a CA":                       func(c *Config, _ *testServer) { c.RequestHeader.ClientCA = nil },
		"request headers without a user header":              func(c *Config, _ *testServer) { c.RequestHeader.UsernameHeaders = nil },
		"an empty extra prefix":                              func(c *Config, _ *testServer) { c.RequestHeader.ExtraHeaderPrefixes = []string{""} },
		"a token file that is not there":                     func(c *Config, _ *testServer) { c.TokenFile = "/nowhere/tokens.csv" },
	}
	for name, change := range refused {
		t.Run(name, func(t *testing.T) {
			if _, err := New(cfg(change)); err == nil {
				t.Fatal("New with a dangerous configuration succeeded, want an error")
			}
		})
	}
	t.Run("A12 one CA, front proxies listed by name", func(t *testing.T) {
		d := open(t, shared("front-proxy"))
		forged := http.Header{"X-Remote-User": {"root"}}
		if got := d.get(t, d.clients.Client(t, "carol"), forged); got.Name != "carol" {
			t.Errorf("answer to a client certificate = %+v, want carol", got)
		}
		if got := d.get(t, d.clients.Client(t, "front-proxy"), forged); got.Name != "root" {
			t.Errorf("answer to the front proxy = %+v, want root", got)
		}
		if got := d.get(t, d.clients.Client(t, "front-proxy"), nil); !strings.Contains(got.Error, "names nobody") {
			t.Errorf("A31: answer to the front proxy without a stated user = %+v, want the error names nobody", got)
		}
	})
	t.Run("A12 a reload brings them together", func(t *testing.T) {
		d := open(t, func(c *Config, _ *testServer) { c.RequestHeader.AllowedNames = nil })
		stated := http.Header{"X-Remote-User": {"alice"}}
		if got := d.get(t, d.proxies.Client(t, "any"), stated); got.Name != "alice" {
			t.Fatalf("answer before the CAs overlap = %+v, want alice", got)
		}
		if err := d.auth.trust.FrontProxy.Bundle.Set(append(d.proxies.PEM(), d.clients.PEM()...)); err != nil {
			t.Fatal(err)
		}
		for name, ca := range map[string]*authtest.CA{"front proxy": d.proxies, "client": d.clients} {
			if got := d.get(t, ca.Client(t, "any"), stated); !strings.Contains(got.Error, "overlap") {
				t.Errorf("answer to the %s after the CAs overlap = %+v, want the error overlap", name, got)
			}
		}
		if d.auth.Stale() == nil {
			t.Error("Stale() while the CAs overlap = nil, want an error for readyz")
		}
	})
}

// TestB9AnonymousRequestsAreLimitedToListedPaths checks that anonymous requests are allowed only on listed paths, by flag or by a rule that may change, and never
// in place of a bad credential.
func TestB9AnonymousRequestsAreLimitedToListedPaths(t *testing.T) {
	rule := func(said, enabled bool, paths ...string) func(*Config, *testServer) {
		return func(c *Config, _ *testServer) {
			c.AnonymousRule = func() (bool, bool, []string) { return said, enabled, paths }
		}
	}
	tests := []struct {
		name   string
		change func(*Config, *testServer)
		path   string
		token  string
		want   string
	}{
		{"everywhere", func(*Config, *testServer) {}, "/api", "", "system:anonymous"},
		{"nowhere", func(c *Config, _ *testServer) { c.Anonymous = false }, "/livez", "", ""},
		{"a listed path", func(c *Config, _ *testServer) { c.AnonymousPaths = []string{"/livez"} }, "/livez", "", "system:anonymous"},
		{"below a listed path", func(c *Config, _ *testServer) { c.AnonymousPaths = []string{"/livez"} }, "/livez/etcd", "", ""},
		{"another path", func(c *Config, _ *testServer) { c.AnonymousPaths = []string{"/livez"} }, "/api", "", ""},
		{"a bad token on a listed path", func(c *Config, _ *testServer) { c.AnonymousPaths = []string{"/livez"} }, "/livez", "bad", ""},
		{"the rule lists the path", rule(true, true, "/readyz"), "/readyz", "", "system:anonymous"},
		{"the rule lists another", rule(true, true, "/readyz"), "/livez", "", ""},
		{"the rule lets nobody in", rule(true, false), "/livez", "", ""},
		{"the rule says nothing", rule(false, false), "/api", "", "system:anonymous"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := open(t, tt.change)
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://front.example"+tt.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if tt.token != "" {
				r.Header.Set("Authorization", "Bearer "+tt.token)
			}
			response, ok, err := d.auth.AuthenticateRequest(r)
			switch {
			case ok != (tt.want != ""), tt.token == "" && err != nil:
				t.Fatalf("AuthenticateRequest for %s = %+v, %t, %v, want %q", tt.path, response, ok, err, tt.want)
			case ok && response.User.GetName() != tt.want:
				t.Fatalf("user of the request for %s = %q, want %q", tt.path, response.User.GetName(), tt.want)
			}
		})
	}
}

// TestB8TokensAreStoredAsHashes checks that tokens are looked up by their SHA-256. The time of a look-up does not depend on how much of a
// token was guessed, and the memory contains no usable token.
func TestB8TokensAreStoredAsHashes(t *testing.T) {
	static, err := LoadTokenFile(tokenFileWith(t, tokens))
	if err != nil {
		t.Fatal(err)
	}
	if u, ok := static[sha256.Sum256([]byte("good-token"))]; !ok || u.GetName() != "tina" {
		t.Fatal("look-up of good-token by its hash found no user, want tina")
	}
	for key := range static {
		if strings.Contains(string(key[:]), "good") || strings.Contains(string(key[:]), "other") {
			t.Fatal("a key of the token table contains a token, want only hashes")
		}
	}
}

// TestTokenAuthenticatorsAreTriedInOrder checks that a token that one authenticator accepts or rejects is not passed to the next.
func TestTokenAuthenticatorsAreTriedInOrder(t *testing.T) {
	var last atomic.Int32
	issuer := authenticator.TokenFunc(func(_ context.Context, token string) (*authenticator.Response, bool, error) {
		if token == "of a dead issuer" {
			return nil, false, errors.New("it does not answer")
		}
		return nil, false, nil
	})
	webhook := authenticator.TokenFunc(func(_ context.Context, token string) (*authenticator.Response, bool, error) {
		last.Add(1)
		return &authenticator.Response{User: &user.DefaultInfo{Name: "w"}}, token == "of the webhook", nil
	})
	d := open(t, func(c *Config, _ *testServer) { c.Tokens = []authenticator.Token{issuer, webhook} })
	for _, tt := range []struct {
		token string
		ok    bool
		asked int32
	}{{"good-token", true, 0}, {"of a dead issuer", false, 0}, {"of the webhook", true, 1}, {"nobody's", false, 2}} {
		if _, ok, _ := d.auth.AuthenticateToken(t.Context(), tt.token); ok != tt.ok || last.Load() != tt.asked {
			t.Errorf("AuthenticateToken(%q) = %t with %d calls of the last authenticator, want %t and %d", tt.token, ok, last.Load(), tt.ok, tt.asked)
		}
	}
}

func TestAuthenticateToken(t *testing.T) {
	var asked atomic.Int32
	accounts := authenticator.TokenFunc(func(_ context.Context, token string) (*authenticator.Response, bool, error) {
		asked.Add(1)
		switch token {
		case "account":
			return &authenticator.Response{User: &user.DefaultInfo{Name: "system:serviceaccount:a:b"}}, true, nil
		case "forged":
			return nil, false, errors.New("forged")
		}
		return nil, false, nil
	})
	d := open(t, func(c *Config, _ *testServer) { c.ServiceAccounts = accounts })
	t.Run("a static token", func(t *testing.T) {
		ctx := authenticator.WithAudiences(t.Context(), authenticator.Audiences{"x"})
		response, ok, err := d.auth.AuthenticateToken(ctx, "good-token")
		if err != nil || !ok || !slices.Contains(response.User.GetGroups(), user.AllAuthenticated) ||
			!reflect.DeepEqual(response.Audiences, authenticator.Audiences{"x"}) {
			t.Fatalf("AuthenticateToken of a static token = %+v, %t, %v, want an authenticated user with the audience x", response, ok, err)
		}
	})
	t.Run("a service account's", func(t *testing.T) {
		response, ok, err := d.auth.AuthenticateToken(t.Context(), "account")
		if err != nil || !ok || response.User.GetName() != "system:serviceaccount:a:b" {
			t.Fatalf("AuthenticateToken of a service account's token = %+v, %t, %v, want system:serviceaccount:a:b", response, ok, err)
		}
	})
	t.Run("a forged one is an error", func(t *testing.T) {
		if _, ok, err := d.auth.AuthenticateToken(t.Context(), "forged"); ok || err == nil {
			t.Fatalf("AuthenticateToken of a forged token = %t, %v, want false and an error", ok, err)
		}
	})
	t.Run("nobody's", func(t *testing.T) {
		if _, ok, err := d.auth.AuthenticateToken(t.Context(), "x"); ok || err != nil {
			t.Fatalf("AuthenticateToken of an unknown token = %t, %v, want false and no error", ok, err)
		}
	})
	t.Run("B7 one that is too long is shown to nobody", func(t *testing.T) {
		before := asked.Load()
		_, ok, err := d.auth.AuthenticateToken(t.Context(), strings.Repeat("x", MaxTokenBytes+1))
		if ok || err == nil || asked.Load() != before {
			t.Fatalf("AuthenticateToken of a token that is too long = %t, %v with %d calls, want false, an error and %d", ok, err, asked.Load(), before)
		}
	})
}
