package serviceaccount

import (
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"sync/atomic"
	"testing"

	"go.uber.org/zap"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/auth/authn"
	"portico.dev/internal/auth/authtest"
)

// All clusters use the same issuer for tokens of Secrets, so only a server with the key may reject such a token: a token with another key is
// passed to the next authenticators.
func TestSecretTokenOfOtherClusterIsLeftToNextAuthenticator(t *testing.T) {
	ours, theirs := keys().ec, keys().otherEC
	accounts, err := New(Config{
		Issuer: "https://front.example", VerifyKeyFiles: []string{publicFile(t, ours)}, Lookup: LiveLookup{},
	})
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int32
	webhook := authenticator.TokenFunc(func(context.Context, string) (*authenticator.Response, bool, error) {
		asked.Add(1)
		return &authenticator.Response{User: &user.DefaultInfo{Name: "system:serviceaccount:ns:robot"}}, true, nil
	})
	auth, err := authn.New(authn.Config{ServiceAccounts: accounts, Tokens: []authenticator.Token{webhook}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	// The key ID has the form that kube-controller-manager uses.
	signed := func(named, key *ecdsa.PrivateKey) string {
		der, err := x509.MarshalPKIXPublicKey(named.Public())
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(der)
		kid := base64.RawURLEncoding.EncodeToString(sum[:])
		return authtest.Token(`{"alg":"ES256","kid":"`+kid+`"}`, `{"iss":"kubernetes/serviceaccount","sub":"system:serviceaccount:ns:robot"}`,
			authtest.ES256(key))
	}
	t.Run("is shown to the webhook", func(t *testing.T) {
		response, ok, err := auth.AuthenticateToken(t.Context(), signed(theirs, theirs))
		if err != nil || !ok || response.User.GetName() != "system:serviceaccount:ns:robot" || asked.Load() != 1 {
			t.Fatalf("AuthenticateToken of another cluster's token = %+v, %t, %v with %d webhook calls, want the webhook's user and 1", response, ok, err, asked.Load())
		}
	})
	t.Run("that claims to be of this one is not", func(t *testing.T) {
		_, ok, err := auth.AuthenticateToken(t.Context(), signed(ours, theirs))
		if ok || err == nil || asked.Load() != 1 {
			t.Fatalf("AuthenticateToken of a forged token = %t, %v with %d webhook calls, want an error and no further call", ok, err, asked.Load())
		}
	})
}
