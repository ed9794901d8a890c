package oidc

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"

	"portico.dev/internal/auth/authn"
	"portico.dev/internal/auth/authtest"
)

// TestForgedTokensAreRejected tests the rows B1 to B7 with tokens that name an issuer.
func TestForgedTokensAreRejected(t *testing.T) {
	p := serve(t, alive)
	var elsewhere atomic.Int32
	attacker := authtest.Serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	s := start(t, Config{Flags: p.flags(t)})
	k := keysOfTests()
	es, rs := authtest.ES256(k.ec), authtest.RS256(k.rsa)
	goodES, goodRS := `{"alg":"ES256","kid":"ec-1"}`, `{"alg":"RS256","kid":"rsa-1","x5t":"thumbprint"}`
	body := func(replace ...string) string { return claimsOf(p.URL, replace...) }
	withHeader := func(extra string) string {
		return authtest.Token(`{"alg":"ES256","kid":"ec-1",`+extra+`}`, body(), authtest.ES256(k.newEC))
	}
	at := func(d time.Duration) string { return fmt.Sprint(time.Now().Add(d).Unix()) }
	der, err := x509.MarshalPKIXPublicKey(k.rsa.Public())
	if err != nil {
		t.Fatal(err)
	}
	asSecret := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	const foreign, refused = "foreign", "error: "
	good := p.URL + "#1234: dev ops"
	tests := []struct {
		name, token, want string
	}{
		{"a good ES256 token", authtest.Token(goodES, body(), es), good},
		{"a good RS256 token with a thumbprint", authtest.Token(goodRS, body(), rs), good},
		{"no key id and one key that fits", authtest.Token(`{"alg":"ES256"}`, body(), es), good},
		{"an opaque token", "0123456789abcdef", foreign},

		{"B1 alg none", authtest.Token(`{"alg":"none","kid":"ec-1"}`, body(), nil), refused},
		{"B1 alg None in another case", authtest.Token(`{"alg":"nOnE","kid":"ec-1"}`, body(), nil), refused},
		{"B1 no alg", authtest.Token(`{"kid":"ec-1"}`, body(), es), refused},
		{"B1 HS256 with the public key as the secret", authtest.Token(`{"alg":"HS256","kid":"rsa-1"}`, body(), authtest.HS256(asSecret)), refused},
		{"B1 PS256, which the operator did not list", authtest.Token(`{"alg":"PS256","kid":"rsa-1"}`, body(), authtest.PS256(k.rsa)), refused},
		{"B1 PS256 called RS256", authtest.Token(goodRS, body(), authtest.PS256(k.rsa)), refused},
		{"B1 the EC key with an RS256 header", authtest.Token(`{"alg":"RS256","kid":"ec-1"}`, body(), es), refused},
		{"B1 the RSA key with an ES256 header", authtest.Token(`{"alg":"ES256","kid":"rsa-1"}`, body(), rs), refused},
		{"B1 crit", authtest.Token(`{"alg":"ES256","kid":"ec-1","crit":["exp"]}`, body(), es), refused},
		{"B1 jku", withHeader(`"jku":"` + attacker.URL + `/keys"`), refused},
		{"B1 jwk", withHeader(`"jwk":{"kty":"EC"}`), refused},
		{"B1 x5u", withHeader(`"x5u":"` + attacker.URL + `/cert"`), refused},
		{"B1 groups by reference", authtest.Token(goodES, body(`"groups":["dev","ops"]`,
			`"_claim_names":{"groups":"a"},"_claim_sources":{"a":{"endpoint":"`+attacker.URL+`"}}`), es), "references in tokens are not followed"},
		{"B1 signed by somebody else", authtest.Token(goodES, body(), authtest.ES256(k.newEC)), refused},
		{"B1 signature cut off", authtest.Token(goodES, body(), nil), refused},

		{"B2 unknown kid", authtest.Token(`{"alg":"ES256","kid":"ec-2"}`, body(), es), refused},
		{"B2 kid is a path", authtest.Token(`{"alg":"ES256","kid":"../../dev/null"}`, body(), es), refused},
		{"B2 kid twice", authtest.Token(`{"alg":"ES256","kid":"x","kid":"ec-1"}`, body(), es), refused},

		{"B3 for another client", authtest.Token(goodES, body(`"client"`, `"other"`), es), refused},
		{"B3 for no audience", authtest.Token(goodES, body(`"aud":"client",`, ``), es), refused},
		{"B3 for several, one of them this", authtest.Token(goodES, body(`"client"`, `["other","client"]`), es), good},

		{"B4 expired", authtest.Token(goodES, body("EXP", at(-time.Second)), es), refused},
		{"B4 not yet valid", authtest.Token(goodES, body("NBF", at(time.Hour)), es), refused},
		{"B4 exp is missing", authtest.Token(goodES, body(`"exp":EXP,`, ``), es), refused},
		{"B4 exp is 2^63", authtest.Token(goodES, body("EXP", "9223372036854775808"), es), refused},
		{"B4 exp is a fraction", authtest.Token(goodES, body("EXP", at(time.Hour)+".5"), es), refused},
		{"B4 exp is negative", authtest.Token(goodES, body("EXP", "-1"), es), refused},
		{"B4 exp is NaN", authtest.Token(goodES, body("EXP", "NaN"), es), foreign}, // not JSON, so not a token
		{"B4 exp is a string", authtest.Token(goodES, body("EXP", `"9999999999"`), es), refused},

		{"B6 another issuer", authtest.Token(goodES, body(p.URL, "https://other.example"), es), foreign},
		{"B6 an issuer that begins like ours", authtest.Token(goodES, body(p.URL, p.URL+".attacker.example"), es), foreign},
		{"B6 an issuer with a slash more", authtest.Token(goodES, body(p.URL, p.URL+"/"), es), foreign},
		{"B6 iss twice", authtest.Token(goodES, body(`{"iss"`, `{"iss":"https://attacker.example","iss"`), es), refused},

		{"B7 five parts", "a.b.c.d.e", foreign},
		{"B7 a million dots", strings.Repeat(".", 1_000_000), foreign},
		{"B7 16 KiB of dots", strings.Repeat(".", authn.MaxTokenBytes), foreign},
		{"B7 nested a thousand deep", authtest.Token(goodES, body(`"1234"`, strings.Repeat("[", 1000)+strings.Repeat("]", 1000)), es), refused},
	}
	eventually(t, s, p.token(), good)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, again := range []string{"fresh", "remembered"} {
				if got := outcome(t.Context(), s, tt.token); !strings.Contains(got, tt.want) {
					t.Fatalf("outcome of a %s token = %s, want %s", again, got, tt.want)
				} else if strings.Contains(got, tt.token) {
					t.Fatalf("error for the token = %s, want no token in it", got)
				}
			}
		})
	}
	if n := elsewhere.Load(); n != 0 {
		t.Errorf("B1: %d requests to a URL in a token, want 0", n)
	}
}

func TestB4ExpiryAndNotBeforeAreExact(t *testing.T) {
	now := time.Unix(2_000_000_000, 0)
	for name, c := range map[string]struct {
		expires, notBefore time.Duration // from now
		err                string
	}{
		"valid":                         {time.Second, 0, ""},
		"it ends now":                   {0, 0, "expired"},
		"it begins within the leeway":   {time.Hour, authn.ClockSkew, ""},
		"it begins a second after that": {time.Hour, authn.ClockSkew + time.Second, "not valid yet"},
	} {
		text := strings.NewReplacer("EXP", fmt.Sprint(now.Add(c.expires).Unix()), "NBF", fmt.Sprint(now.Add(c.notBefore).Unix())).Replace(`{"exp":EXP,"nbf":NBF}`)
		expires, err := checkTimes(authtest.Token(`{"alg":"ES256"}`, text, nil), now)
		if c.err == "" && (err != nil || !expires.Equal(now.Add(c.expires))) || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: checkTimes() = %v, %v, want the expiry, or the error %q", name, expires, err, c.err)
		}
	}
}

func TestUnusableKeysAreIgnored(t *testing.T) {
	k := keysOfTests()
	short, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	other, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		key  jwk
		want []string // the usable algorithms
	}{
		{"EC P-256", published("a", k.ec.Public()), []string{"ES256"}},
		{"EC P-384", published("a", other.Public()), []string{"ES384"}},
		{"RSA that says its algorithm", published("a", k.rsa.Public(), func(j *jwk) { j.Algorithm = "RS512" }), []string{"RS512"}},
		{"B1 RSA that says HS256", published("a", k.rsa.Public(), func(j *jwk) { j.Algorithm = "HS256" }), nil},
		{"B1 EC that says RS256", published("a", k.ec.Public(), func(j *jwk) { j.Algorithm = "RS256" }), nil},
		{"B1 a symmetric key", jwk{Type: "oct", ID: "a"}, nil},
		{"for encryption", published("a", k.rsa.Public(), func(j *jwk) { j.Use = "enc" }), nil},
		{"RSA of 1024 bits", published("a", short.Public()), nil},
		{"RSA with an even exponent", published("a", k.rsa.Public(), func(j *jwk) { j.E = "BA" }), nil},
		{"RSA of a megabyte", published("a", k.rsa.Public(), func(j *jwk) { j.N = strings.Repeat("_", 1<<20) }), nil},
		{"a point off the curve", published("a", k.ec.Public(), func(j *jwk) { j.Y = j.X }), nil},
		{"a curve that nobody knows", published("a", k.ec.Public(), func(j *jwk) { j.Curve = "P-257" }), nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, key := range (jwks{Keys: []jwk{tt.key}}).set() {
				got = key.algorithms
			}
			if tt.want == nil && got != nil || tt.want != nil && !reflect.DeepEqual(got, tt.want) {
				t.Fatalf("algorithms of the key = %q, want %q", got, tt.want)
			}
		})
	}
	t.Run("B2 one id for a hundred keys", func(t *testing.T) {
		set := keySet(make([]key, 0, 100))
		for range 100 {
			set = append(set, key{id: "a", algorithms: []string{"ES256"}, public: k.ec.Public()})
		}
		if n := len(set.candidates("a", "ES256")); n != maxTried {
			t.Fatalf("%d candidates of a hundred keys, want %d", n, maxTried)
		}
	})
}

func TestB3TokenReviewAudiencesAreChecked(t *testing.T) {
	p := serve(t, alive)
	s := start(t, Config{Flags: p.flags(t)})
	eventually(t, s, p.token(), "1234")
	for name, tt := range map[string]struct {
		asked authenticator.Audiences
		want  authenticator.Audiences
	}{
		"ours":             {authenticator.Audiences{"api", "x"}, authenticator.Audiences{"api"}},
		"somebody else's":  {authenticator.Audiences{"ext-a"}, nil},
		"the issuer's own": {authenticator.Audiences{"client"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			response, ok, err := s.AuthenticateToken(authenticator.WithAudiences(t.Context(), tt.asked), p.token())
			if err != nil || ok != (tt.want != nil) {
				t.Fatalf("AuthenticateToken for the audiences %q = %t, %v, want %q", tt.asked, ok, err, tt.want)
			}
			if ok && !reflect.DeepEqual(response.Audiences, tt.want) {
				t.Fatalf("audiences of the response = %q, want %q", response.Audiences, tt.want)
			}
		})
	}
}
