package serviceaccount

import (
	"crypto/sha256"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"portico.dev/internal/auth/authn"
	"portico.dev/internal/auth/ttlcache"
	"portico.dev/internal/metrics"
)

// Config is the issuer, its keys and its audiences.
type Config struct {
	// Issuer is the iss of every token, a URL for clients that discover the keys by it. Required.
	Issuer string
	// Audiences are those of this server. A token for none of them is refused; a token that asks for none gets
	// all of them. Default: the issuer.
	Audiences []string
	// SigningKeyFile is a PEM private key, RSA of 2048 bits or more, or ECDSA P-256. Empty: tokens are verified, not
	// issued.
	SigningKeyFile string
	// VerifyKeyFiles are PEM files of public keys (or certificates, or private keys) whose tokens are still valid: the
	// key before a rotation, and the one after it. The signing key is always among them.
	VerifyKeyFiles []string
	// ExtendExpiration makes tokens that a kubelet asks for in its own words good for a year; see ExtendedSeconds.
	ExtendExpiration bool
	// Lookup finds the live objects that tokens depend on. Required.
	Lookup Lookup
	// Now is the clock by which tokens are issued and expire. Default time.Now. It may jump forward, never back.
	Now func() time.Time
	// Metrics count uses. May be nil.
	Metrics *metrics.ServiceAccountTokens
	// Used is called for each use of the token of a Secret, while the request waits. May be nil.
	Used func(*corev1.Secret)
}

// Tokens issues and verifies service account tokens. It is safe for concurrent use.
type Tokens struct {
	issuer    string
	audiences []string
	signing   *signingKey // nil: verify only
	keys      keySet
	lookup    Lookup
	extend    bool
	now       func() time.Time
	metrics   *metrics.ServiceAccountTokens
	used      func(*corev1.Secret)
	validator *jwt.Validator // of what changes with the clock
	// seen caches verified signatures, and refusals, by the SHA-256 of the token.
	seen *ttlcache.Cache[[sha256.Size]byte, cachedSignature]
}

// KeyIDs are the ids of the key that tokens are signed with, empty if none are issued, and of all keys by which they are verified.
func (t *Tokens) KeyIDs() (signing string, verifying []string) {
	if t.signing != nil {
		signing = t.signing.id
	}
	return signing, slices.Sorted(maps.Keys(t.keys))
}

// rememberTokens bounds the cache of verified tokens; each takes about a kilobyte.
const rememberTokens = 8192

// New reads the keys.
func New(cfg Config) (*Tokens, error) {
	switch {
	case cfg.Issuer == "":
		return nil, errors.New("service account tokens need an issuer; set --service-account-issuer")
	case cfg.Lookup == nil:
		return nil, errors.New("service account tokens need a look-up of live objects")
	}
	t := &Tokens{
		issuer:    cfg.Issuer,
		audiences: slices.Clone(cfg.Audiences),
		keys:      keySet{},
		lookup:    cfg.Lookup,
		extend:    cfg.ExtendExpiration,
		metrics:   cfg.Metrics,
		used:      cfg.Used,
		now:       cfg.Now,
	}
	if t.now == nil {
		t.now = time.Now
	}
	t.seen = ttlcache.NewWithClock[[sha256.Size]byte, cachedSignature](rememberTokens, t.now)
	t.validator = jwt.NewValidator(
		jwt.WithLeeway(authn.ClockSkew),
		jwt.WithTimeFunc(t.now),
		jwt.WithExpirationRequired(),
		jwt.WithIssuedAt(),
		jwt.WithIssuer(t.issuer), // again, on what was verified
	)
	if t.metrics == nil {
		t.metrics = metrics.NewServiceAccountTokens(prometheus.NewRegistry())
	}
	if t.used == nil {
		t.used = func(*corev1.Secret) {}
	}
	if len(t.audiences) == 0 {
		t.audiences = []string{cfg.Issuer}
	}
	if cfg.SigningKeyFile != "" {
		signing, err := loadSigningKey(cfg.SigningKeyFile)
		if err != nil {
			return nil, err
		}
		t.signing = signing
		t.keys.add(signing.verifyKey)
	}
	for _, file := range cfg.VerifyKeyFiles {
		if err := t.keys.load(file); err != nil {
			return nil, err
		}
	}
	if len(t.keys) == 0 {
		return nil, errors.New("service account tokens need a key; set --service-account-signing-key-file or --service-account-key-file")
	}
	return t, nil
}
