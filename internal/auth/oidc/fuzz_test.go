package oidc

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"portico.dev/internal/auth/authtest"
	"portico.dev/internal/metrics"
)

// FuzzToken checks that only a token that was signed with a published key is accepted, and that no input makes the parsers panic. Portico's
// strict parser and the lenient parser of the JWT library must agree on the user.
func FuzzToken(f *testing.F) {
	s, err := New(Config{
		Flags:   Flags{IssuerURL: somewhere, ClientID: "client", SigningAlgs: []string{"RS256", "ES256"}},
		Metrics: metrics.NewAuth(prometheus.NewRegistry()), Logger: zap.NewNop(),
	})
	if err != nil {
		f.Fatal(err)
	}
	k := keysOfTests()
	i := s.follow.Current().issuers[somewhere]
	set := jwks{Keys: []jwk{published("ec-1", k.ec.Public()), published("rsa-1", k.rsa.Public())}}.set()
	i.keys.current.Store(&set)
	i.keys.looked = time.Now().AddDate(1, 0, 0) // prevents a read of the issuer
	signature := authtest.ES256(k.newEC)        // valid, with a key that is not published
	f.Add(`{"alg":"ES256","kid":"ec-1"}`, claimsOf(somewhere))
	f.Add(`{"alg":"none","kid":"ec-1"}`, claimsOf(somewhere))
	f.Add(`{"alg":"HS256","kid":"rsa-1"}`, claimsOf(somewhere))
	f.Add(`{"alg":"ES256","kid":"ec-1"}`, `{"iss":"x","iss":"`+somewhere+`"}`)
	f.Add(`{"alg":"ES256","kid":"ec-1","crit":[]}`, claimsOf(somewhere))
	f.Fuzz(func(t *testing.T, header, body string) {
		for _, sign := range []func(string) []byte{nil, signature} {
			if response, ok, _ := s.AuthenticateToken(t.Context(), authtest.Token(header, body, sign)); ok {
				t.Fatalf("AuthenticateToken with the header %s and the claims %s = %+v, want it rejected", header, body, response.User)
			}
		}
		if _, ok, _ := s.AuthenticateToken(t.Context(), header+"."+body); ok {
			t.Fatalf("AuthenticateToken(%q) succeeded, want it rejected", header+"."+body)
		}
	})
}

// FuzzKeys checks that a published key verifies only algorithms of its type, and never an
// algorithm with a shared secret.
func FuzzKeys(f *testing.F) {
	k := keysOfTests()
	for _, j := range []jwk{published("a", k.ec.Public()), published("b", k.rsa.Public()), {Type: "oct", ID: "c", Algorithm: "HS256"}} {
		data, err := json.Marshal(jwks{Keys: []jwk{j}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var document jwks
		if json.Unmarshal(data, &document) != nil {
			return
		}
		set := document.set()
		for _, algorithm := range []string{"none", "HS256", ""} {
			if len(set.candidates("", algorithm)) > 0 {
				t.Fatalf("keys for the algorithm %q = %d, want 0", algorithm, len(set.candidates("", algorithm)))
			}
		}
		if len(set) > maxKeys || len(set.candidates("", "ES256")) > maxTried {
			t.Fatalf("%d keys with %d candidates, want at most %d and %d", len(set), len(set.candidates("", "ES256")), maxKeys, maxTried)
		}
	})
}
