package oidc

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"go.uber.org/zap"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	oidclib "k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"

	"portico.dev/internal/auth/authn"
	"portico.dev/internal/auth/ttlcache"
	"portico.dev/internal/metrics"
	"portico.dev/internal/request"
)

const (
	// rememberGood is how long a successful result is cached, as upstream, and never beyond the token's expiry.
	rememberGood = 10 * time.Second
	rememberBad  = 2 * time.Second
	// rememberTokens is the size of an issuer's token cache. An entry takes about a kilobyte.
	rememberTokens = 4096
)

// issuer verifies the tokens of one issuer.
type issuer struct {
	config     apiserver.JWTAuthenticator
	algorithms []string
	keys       *keys
	claims     authenticator.Token // k8s.io/apiserver's authenticator, which evaluates the claims
	seen       *ttlcache.Cache[[sha256.Size]byte, cachedResult]
}

// cachedResult is the cached result of verifying a token.
type cachedResult struct {
	user    user.Info
	expires time.Time
	err     error
}

func newIssuer(config apiserver.JWTAuthenticator, algorithms []string, compiler authenticationcel.Compiler, m *metrics.Auth, log *zap.Logger) (*issuer, error) {
	f, err := newFetcher(config.Issuer)
	if err != nil {
		return nil, err
	}
	i := &issuer{
		config: config, algorithms: algorithms, keys: newKeys(f, m, log),
		seen: ttlcache.New[[sha256.Size]byte, cachedResult](rememberTokens),
	}
	known := config
	known.Issuer.DiscoveryURL = "" // upstream's authenticator does not fetch keys
	// The context is only used for fetches, which are disabled.
	i.claims, err = oidclib.New(context.Background(), oidclib.Options{
		JWTAuthenticator: known, KeySet: i, Client: &http.Client{Transport: refusingTransport{}, CheckRedirect: refuseRedirect},
		Compiler: compiler, SupportedSigningAlgs: algorithms,
	})
	return i, err
}

// authenticate returns the user of a token. It is called only for tokens with the iss of this issuer.
func (i *issuer) authenticate(ctx context.Context, token string) (user.Info, error) {
	sum := sha256.Sum256([]byte(token))
	if v, ok := i.seen.Get(sum); ok {
		if v.err == nil {
			request.NoteExpiry(ctx, v.expires)
		}
		return v.user, v.err
	}
	u, expires, err := i.verify(ctx, token)
	now := time.Now()
	switch {
	case err == nil:
		until := now.Add(rememberGood)
		if expires.Before(until) {
			until = expires
		}
		i.seen.Add(sum, cachedResult{user: u, expires: expires}, until)
		request.NoteExpiry(ctx, expires)
	case ctx.Err() == nil && !errors.Is(err, errNoKeys) && !errors.Is(err, errUnknownKey):
		// A failure to reach the issuer is not cached, because it does not depend on the token.
		i.seen.Add(sum, cachedResult{err: err}, now.Add(rememberBad))
	}
	return u, err
}

func (i *issuer) verify(ctx context.Context, token string) (user.Info, time.Time, error) {
	expires, err := checkTimes(token, time.Now())
	if err != nil {
		return nil, time.Time{}, err
	}
	signed, err := i.signed(ctx, token)
	if err != nil {
		return nil, time.Time{}, err
	}
	response, ok, err := i.claims.AuthenticateToken(context.WithValue(ctx, signedKey{}, signed), token)
	switch {
	case err != nil:
		return nil, time.Time{}, err
	case !ok:
		return nil, time.Time{}, errors.New("not a token of this issuer")
	case response.User.GetName() == "":
		return nil, time.Time{}, errors.New("the claims make an empty user name")
	}
	return response.User, expires, nil
}

// signedKey is the context key of the verified claims, which upstream's authenticator passes to VerifySignature.
type signedKey struct{}

// VerifySignature implements the key set of upstream's authenticator. It returns the result of signed, which runs
// earlier because its errors would not survive the call through upstream's code.
func (i *issuer) VerifySignature(ctx context.Context, _ string) ([]byte, error) {
	claims, ok := ctx.Value(signedKey{}).([]byte)
	if !ok {
		return nil, errors.New("no signature was verified")
	}
	return claims, nil
}

// checkTimes checks exp and nbf like upstream's authenticator, but accepts only whole seconds. It runs before the
// signature is verified, over the same bytes.
func checkTimes(token string, now time.Time) (time.Time, error) {
	_, body, err := authn.SplitToken(token)
	if err != nil {
		return time.Time{}, err
	}
	var c struct {
		Expires   authn.Seconds `json:"exp"`
		NotBefore authn.Seconds `json:"nbf"`
	}
	if err := authn.DecodeTokenPart(body, &c, false); err != nil {
		return time.Time{}, err
	}
	switch {
	case c.Expires == 0:
		return time.Time{}, errors.New("it has no exp")
	case !now.Before(c.Expires.Time()):
		return time.Time{}, errors.New("it has expired")
	case now.Add(authn.ClockSkew).Before(c.NotBefore.Time()):
		return time.Time{}, errors.New("it is not valid yet")
	}
	return c.Expires.Time(), nil
}

// signed verifies the signature of a token and returns its claims.
func (i *issuer) signed(ctx context.Context, token string) ([]byte, error) {
	head, body, err := authn.SplitToken(token)
	if err != nil {
		return nil, err
	}
	var h struct {
		Algorithm string          `json:"alg"`
		ID        string          `json:"kid"`
		Critical  json.RawMessage `json:"crit"`
	}
	if err := authn.DecodeTokenPart(head, &h, false); err != nil {
		return nil, err
	}
	switch {
	case h.Critical != nil:
		// crit lists extensions that a verifier must understand, and none are supported.
		return nil, errors.New("its header has crit")
	case !slices.Contains(i.algorithms, h.Algorithm):
		return nil, fmt.Errorf("its algorithm %q is not one of %q", h.Algorithm, i.algorithms)
	}
	candidates, err := i.keys.find(ctx, h.ID, h.Algorithm)
	if err != nil {
		return nil, err
	}
	method := jwt.GetSigningMethod(h.Algorithm)
	if method == nil {
		return nil, errors.New("its algorithm is not known")
	}
	end := strings.LastIndexByte(token, '.')
	signature, err := base64.RawURLEncoding.Strict().DecodeString(token[end+1:])
	if err != nil {
		return nil, errors.New("its signature is not base64url")
	}
	for _, public := range candidates {
		if method.Verify(token[:end], signature, public) == nil {
			return base64.RawURLEncoding.Strict().DecodeString(body)
		}
	}
	return nil, errors.New("its signature is not valid")
}

// refuseRedirect refuses redirects. It is a second safeguard next to refusingTransport.
func refuseRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
