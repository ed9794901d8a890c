package oidc

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/auth/authtest"
	"portico.dev/internal/metrics"
)

// The keys of the tests are shared, because RSA keys are slow to generate.
var keysOfTests = sync.OnceValue(func() (k struct {
	rsa       *rsa.PrivateKey
	ec, newEC *ecdsa.PrivateKey
}) {
	k.rsa, _ = rsa.GenerateKey(rand.Reader, 2048)
	k.ec, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	k.newEC, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	return k
})

// published converts a public key to the form that an issuer publishes.
func published(id string, public crypto.PublicKey, change ...func(*jwk)) jwk {
	encode := base64.RawURLEncoding.EncodeToString
	j := jwk{ID: id, Use: "sig"}
	switch p := public.(type) {
	case *rsa.PublicKey:
		j.Type, j.N, j.E = "RSA", encode(p.N.Bytes()), encode(big.NewInt(int64(p.E)).Bytes())
	case *ecdsa.PublicKey:
		point, err := p.Bytes()
		if err != nil {
			panic(err)
		}
		half := (len(point) - 1) / 2
		j.Type, j.Curve, j.X, j.Y = "EC", p.Params().Name, encode(point[1:1+half]), encode(point[1+half:])
	}
	for _, c := range change {
		c(&j)
	}
	return j
}

const (
	alive = iota
	hung
	dead
)

// provider is an OpenID Connect issuer with real TLS, real documents and optional faults.
type provider struct {
	*authtest.Server
	state atomic.Int32
	keys  atomic.Pointer[[]jwk]
	looks atomic.Int32
	// elsewhere, if set, is the jwks_uri in its discovery document.
	elsewhere string
}

func serve(t *testing.T, state int32) *provider {
	t.Helper()
	p := &provider{}
	p.state.Store(state)
	k := keysOfTests()
	p.publish(published("ec-1", k.ec.Public()), published("rsa-1", k.rsa.Public()))
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		p.looks.Add(1)
		at := p.URL + "/keys"
		if p.elsewhere != "" {
			at = p.elsewhere
		}
		fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q}`, p.URL, at)
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(jwks{Keys: *p.keys.Load()})
	})
	p.Server = authtest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch p.state.Load() {
		case hung:
			<-r.Context().Done()
			panic(http.ErrAbortHandler) // an empty response could still arrive
		case dead:
			panic(http.ErrAbortHandler)
		default:
			mux.ServeHTTP(w, r)
		}
	}))
	return p
}

func (p *provider) publish(keys ...jwk) { p.keys.Store(&keys) }

// token returns a valid token of p. Each pair replaces one text of its claims by another.
func (p *provider) token(replace ...string) string {
	return authtest.Token(`{"alg":"ES256","kid":"ec-1"}`, claimsOf(p.URL, replace...), authtest.ES256(keysOfTests().ec))
}

func claimsOf(issuer string, replace ...string) string {
	text := `{"iss":"` + issuer + `","aud":"client","sub":"1234","email":"ann@example.com","login":"ann@example.com","groups":["dev","ops"],"exp":EXP,"nbf":NBF}`
	return strings.NewReplacer(append(replace,
		"EXP", fmt.Sprint(time.Now().Add(time.Hour).Unix()),
		"NBF", fmt.Sprint(time.Now().Unix()))...).Replace(text)
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (p *provider) caFile(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "ca.crt")
	write(t, name, string(p.RootPEM))
	return name
}

func (p *provider) flags(t *testing.T) Flags {
	return Flags{IssuerURL: p.URL, ClientID: "client", CAFile: p.caFile(t), GroupsClaim: "groups", SigningAlgs: []string{"RS256", "ES256"}}
}

// start runs issuers until the test ends.
func start(t *testing.T, cfg Config) *Issuers {
	t.Helper()
	cfg.Metrics, cfg.Logger = metrics.NewAuth(prometheus.NewRegistry()), zap.NewNop()
	cfg.Audiences = []string{"api"}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s
}

func who(u user.Info) string { return u.GetName() + ": " + strings.Join(u.GetGroups(), " ") }

// outcome returns the user of the token, "foreign", or the error.
func outcome(ctx context.Context, s *Issuers, token string) string {
	response, ok, err := s.AuthenticateToken(ctx, token)
	switch {
	case err != nil:
		return "error: " + err.Error()
	case !ok:
		return "foreign"
	}
	return who(response.User)
}

// eventually waits until a token's outcome is one of want.
func eventually(t *testing.T, s *Issuers, token string, want ...string) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		got := outcome(t.Context(), s, token)
		if slices.ContainsFunc(want, func(w string) bool { return strings.Contains(got, w) }) {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("outcome of the token after 30 seconds = %s, want one of %q", got, want)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
