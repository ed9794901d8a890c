package serviceaccount

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/metrics"
)

func spec(audiences ...string) authenticationv1.TokenRequestSpec {
	return authenticationv1.TokenRequestSpec{Audiences: audiences}
}

func boundTo(kind string) authenticationv1.TokenRequestSpec {
	if kind == "" {
		return spec()
	}
	return authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{
		APIVersion: "v1", Kind: kind, Name: strings.ToLower(kind),
	}}
}

func TestIssuedIdentity(t *testing.T) {
	tokens := newTokens(t)
	tests := []struct {
		bound string
		extra map[string][]string
	}{
		{"", nil},
		{"Pod", map[string][]string{
			"authentication.kubernetes.io/pod-name": {"pod"}, "authentication.kubernetes.io/pod-uid": {"pod-1"},
			"authentication.kubernetes.io/node-name": {"node"}, "authentication.kubernetes.io/node-uid": {"node-1"},
		}},
		{"Secret", nil},
		{"Node", map[string][]string{
			"authentication.kubernetes.io/node-name": {"node"}, "authentication.kubernetes.io/node-uid": {"node-1"},
		}},
	}
	for _, tt := range tests {
		t.Run("bound to "+tt.bound, func(t *testing.T) {
			issued, err := tokens.Issue(t.Context(), IssueRequest{Namespace: "ns", Name: "robot", Spec: boundTo(tt.bound)})
			if err != nil {
				t.Fatal(err)
			}
			if left := time.Until(issued.Expires); left < 59*time.Minute || left > time.Hour {
				t.Errorf("time until the token expires = %s, want an hour", left)
			}
			response, ok, err := tokens.AuthenticateToken(t.Context(), issued.Token)
			if err != nil || !ok {
				t.Fatalf("AuthenticateToken() = %t, %v, want true", ok, err)
			}
			u := response.User.(*user.DefaultInfo)
			id := u.Extra[user.CredentialIDKey]
			delete(u.Extra, user.CredentialIDKey)
			if len(id) != 1 || !strings.HasPrefix(id[0], "JTI=") {
				t.Errorf("credential ID = %q, want one that begins with JTI=", id)
			}
			if len(u.Extra) != len(tt.extra) || len(tt.extra) > 0 && !reflect.DeepEqual(u.Extra, tt.extra) {
				t.Errorf("extra of the user = %v, want %v", u.Extra, tt.extra)
			}
			if want := []string{"system:serviceaccounts", "system:serviceaccounts:ns"}; !reflect.DeepEqual(u.Groups, want) {
				t.Errorf("groups of the user = %v, want %v", u.Groups, want)
			}
			if u.Name != "system:serviceaccount:ns:robot" || u.UID != "sa-1" {
				t.Errorf("user = %q with the UID %q, want system:serviceaccount:ns:robot with sa-1", u.Name, u.UID)
			}
			if !reflect.DeepEqual([]string(response.Audiences), []string{"api"}) {
				t.Errorf("audiences of the response = %v, want [api]", response.Audiences)
			}
		})
	}
}

func TestInvalidTokenRequestsAreRejected(t *testing.T) {
	seconds := func(n int64) authenticationv1.TokenRequestSpec {
		return authenticationv1.TokenRequestSpec{ExpirationSeconds: &n}
	}
	bound := func(change func(*authenticationv1.BoundObjectReference)) authenticationv1.TokenRequestSpec {
		s := boundTo("Pod")
		change(s.BoundObjectRef)
		return s
	}
	tests := []struct {
		name string
		req  IssueRequest
		want func(error) bool
	}{
		{"an account that does not exist", IssueRequest{Name: "nobody"}, apierrors.IsNotFound},
		{"another account by that name", IssueRequest{UID: "sa-0"}, apierrors.IsConflict},
		{"less than ten minutes", IssueRequest{Spec: seconds(599)}, apierrors.IsInvalid},
		{"more than 2^32 seconds", IssueRequest{Spec: seconds(1<<32 + 1)}, apierrors.IsInvalid},
		{"negative", IssueRequest{Spec: seconds(-1)}, apierrors.IsInvalid},
		{"an empty audience", IssueRequest{Spec: spec("")}, apierrors.IsInvalid},
		{"bound to a kind that cannot be", IssueRequest{Spec: bound(func(r *authenticationv1.BoundObjectReference) { r.Kind = "ConfigMap" })}, apierrors.IsInvalid},
		{"bound to a version that is not", IssueRequest{Spec: bound(func(r *authenticationv1.BoundObjectReference) { r.APIVersion = "v2" })}, apierrors.IsInvalid},
		{"bound to nothing by name", IssueRequest{Spec: bound(func(r *authenticationv1.BoundObjectReference) { r.Name = "" })}, apierrors.IsInvalid},
		{"bound to what does not exist", IssueRequest{Spec: bound(func(r *authenticationv1.BoundObjectReference) { r.Name = "gone" })}, apierrors.IsNotFound},
		{"bound to another pod by that name", IssueRequest{Spec: bound(func(r *authenticationv1.BoundObjectReference) { r.UID = "pod-0" })}, apierrors.IsConflict},
		{"bound to the pod of another account", IssueRequest{Name: "other", Spec: boundTo("Pod")}, apierrors.IsInvalid},
	}
	tokens := newTokens(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.req.Namespace = "ns"
			if tt.req.Name == "" {
				tt.req.Name = "robot"
			}
			if issued, err := tokens.Issue(t.Context(), tt.req); err == nil || issued.Token != "" || !tt.want(err) {
				t.Fatalf("Issue() = %q with the error %v, want an error of another kind and no token", issued.Token, err)
			}
		})
	}
	t.Run("a server without a signing key", func(t *testing.T) {
		verifyOnly := newTokens(t, func(c *Config) { c.SigningKeyFile = "" })
		if _, err := verifyOnly.Issue(t.Context(), IssueRequest{Namespace: "ns", Name: "robot"}); !errors.Is(err, ErrCannotSign) {
			t.Fatalf("Issue without a signing key error = %v, want ErrCannotSign", err)
		}
	})
}

func TestKeyRotation(t *testing.T) {
	before := newTokens(t, func(c *Config) { c.SigningKeyFile, c.VerifyKeyFiles = privateFile(t, keys().rsa), nil })
	issued, err := before.Issue(t.Context(), IssueRequest{Namespace: "ns", Name: "robot"})
	if err != nil {
		t.Fatal(err)
	}
	rotated := newTokens(t, func(c *Config) {
		c.SigningKeyFile, c.VerifyKeyFiles = privateFile(t, keys().otherEC), []string{publicFile(t, keys().otherRSA, keys().rsa)}
	})
	if _, ok, err := rotated.AuthenticateToken(t.Context(), issued.Token); !ok {
		t.Errorf("AuthenticateToken with the old key still listed = %t, %v, want true", ok, err)
	}
	finished := newTokens(t, func(c *Config) { c.SigningKeyFile, c.VerifyKeyFiles = privateFile(t, keys().otherEC), nil })
	if _, ok, _ := finished.AuthenticateToken(t.Context(), issued.Token); ok {
		t.Error("AuthenticateToken of a token whose key was removed succeeded, want it rejected")
	}
}

func TestInvalidKeyConfigurationsAreRejected(t *testing.T) {
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	wide, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	readable := privateFile(t, keys().ec)
	if err := os.Chmod(readable, 0o644); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name    string
		change  func(*Config)
		wantErr string
	}{
		{"no issuer", func(c *Config) { c.Issuer = "" }, "--service-account-issuer"},
		{"no key at all", func(c *Config) { c.SigningKeyFile, c.VerifyKeyFiles = "", nil }, "--service-account-signing-key-file"},
		{"a file that is not there", func(c *Config) { c.SigningKeyFile = filepath.Join(t.TempDir(), "none") }, "no such file"},
		{"a private key that everybody can read", func(c *Config) { c.SigningKeyFile = readable }, "chmod 600"},
		{"an RSA key of 1024 bits", func(c *Config) { c.VerifyKeyFiles = []string{publicFile(t, small)} }, "2048"},
		{"a P-384 key", func(c *Config) { c.VerifyKeyFiles = []string{publicFile(t, wide)} }, "P-256"},
		{"an empty file", func(c *Config) { c.VerifyKeyFiles = []string{file(t, nil, 0o600)} }, "no PEM block"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := Config{Issuer: issuer, SigningKeyFile: privateFile(t, keys().ec), Lookup: cluster()}
			tt.change(&cfg)
			if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), tt.wantErr) {
				t.Fatalf("New() error = %v, want an error that contains %q", err, tt.wantErr)
			}
		})
	}
}

// A client can verify a token with only the documents.
func TestTokenIsVerifiableWithDiscoveryDocuments(t *testing.T) {
	tokens := newTokens(t)
	var config struct {
		Issuer  string   `json:"issuer"`
		JWKSURI string   `json:"jwks_uri"`
		Algs    []string `json:"id_token_signing_alg_values_supported"`
	}
	if err := json.Unmarshal(tokens.OpenIDConfiguration(issuer+"/openid/v1/jwks"), &config); err != nil {
		t.Fatal(err)
	}
	if config.Issuer != issuer || config.JWKSURI != issuer+"/openid/v1/jwks" || len(config.Algs) != 2 {
		t.Errorf("OpenID configuration = %+v, want the issuer, its jwks_uri and two algorithms", config)
	}
	var set struct {
		Keys []map[string]string `json:"keys"`
	}
	if err := json.Unmarshal(tokens.JWKS(), &set); err != nil {
		t.Fatal(err)
	}
	if len(set.Keys) != 2 {
		t.Fatalf("%d keys in the JWKS, want 2", len(set.Keys))
	}
	number := func(s string) *big.Int {
		data, err := base64.RawURLEncoding.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		return new(big.Int).SetBytes(data)
	}
	issued, err := tokens.Issue(t.Context(), IssueRequest{Namespace: "ns", Name: "robot"})
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range set.Keys {
		switch k["kty"] {
		case "EC":
			x, y := number(k["x"]), number(k["y"])
			point := append([]byte{4}, append(x.FillBytes(make([]byte, 32)), y.FillBytes(make([]byte, 32))...)...)
			public, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
			if err != nil {
				t.Fatal(err)
			}
			parsed, err := jwt.Parse(issued.Token, func(*jwt.Token) (any, error) { return public, nil }, jwt.WithValidMethods([]string{k["alg"]}))
			if err != nil || parsed.Header["kid"] != k["kid"] {
				t.Errorf("verifying the token with the published key error = %v, want none and the key ID %s", err, k["kid"])
			}
		case "RSA":
			if number(k["n"]).Cmp(keys().rsa.N) != 0 || number(k["e"]).Int64() != int64(keys().rsa.E) {
				t.Errorf("published RSA key = %s with the exponent %s, want the signing key", k["n"], k["e"])
			}
		}
	}
}

func TestKubeletPodTokensHaveExtendedLifetime(t *testing.T) {
	keys()
	pod := func(change ...func(*authenticationv1.TokenRequestSpec)) authenticationv1.TokenRequestSpec {
		s := boundTo("Pod")
		asked := int64(KubeletExpirationSeconds)
		s.ExpirationSeconds = &asked
		for _, c := range change {
			c(&s)
		}
		return s
	}
	const short, long = KubeletExpirationSeconds * time.Second, ExtendedSeconds * time.Second
	tests := []struct {
		name string
		off  bool
		spec authenticationv1.TokenRequestSpec
		want time.Duration
	}{
		{"a pod's", false, pod(), long},
		{"a pod's, for us by name", false, pod(func(s *authenticationv1.TokenRequestSpec) { s.Audiences = []string{"api"} }), long},
		{"a pod's, for somebody else", false, pod(func(s *authenticationv1.TokenRequestSpec) { s.Audiences = []string{"api", "ext"} }), short},
		{"nobody's pod", false, pod(func(s *authenticationv1.TokenRequestSpec) { s.BoundObjectRef = nil }), short},
		{"a lifetime of its own", false, pod(func(s *authenticationv1.TokenRequestSpec) { *s.ExpirationSeconds = 3600 }), time.Hour},
		{"--service-account-extend-token-expiration=false", true, pod(), short},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := metrics.NewServiceAccountTokens(prometheus.NewRegistry())
			tokens := newTokens(t, func(c *Config) { c.ExtendExpiration, c.Metrics = !tt.off, m })
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				issued, err := tokens.Issue(t.Context(), IssueRequest{Namespace: "ns", Name: "robot", Spec: tt.spec})
				if err != nil {
					t.Fatal(err)
				}
				said := ""
				good := func() bool {
					ctx := audit.WithAuditContext(t.Context())
					_, ok, _ := tokens.AuthenticateToken(authenticator.WithAudiences(ctx, authenticator.Audiences{"api"}), issued.Token)
					said = audit.AuditContextFrom(ctx).GetEventAnnotations()["authentication.k8s.io/stale-token"]
					return ok
				}
				if asked := time.Duration(*tt.spec.ExpirationSeconds) * time.Second; issued.Expires.Sub(began) > asked || issued.Expires.Sub(began) < asked-time.Second {
					t.Errorf("stated lifetime of the token = %s, want %s", issued.Expires.Sub(began), asked)
				}
				extended := 0.0
				if tt.want == long {
					extended = 1
				}
				if !good() || said != "" || testutil.ToFloat64(m.Valid) != extended || testutil.ToFloat64(m.Stale) != 0 {
					t.Errorf("use of a new token: annotation %q, %v in time and %v late uses, want none, %v and 0", said, testutil.ToFloat64(m.Valid), testutil.ToFloat64(m.Stale), extended)
				}
				time.Sleep(tt.want - time.Minute)
				if !good() {
					t.Error("token was rejected before its end, want it accepted")
				}
				want := ""
				if extended == 1 {
					want = fmt.Sprintf("subject: system:serviceaccount:ns:robot, seconds after warning threshold: %d", ExtendedSeconds-60-KubeletExpirationSeconds)
				}
				if said != want || testutil.ToFloat64(m.Stale) != extended {
					t.Errorf("use before the end: annotation %q and %v late uses, want %q and %v", said, testutil.ToFloat64(m.Stale), want, extended)
				}
				time.Sleep(2 * time.Minute)
				if good() {
					t.Error("token was accepted after its end, want it rejected")
				}
			})
		})
	}
}
