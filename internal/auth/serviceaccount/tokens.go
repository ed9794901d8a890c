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

// Config configures the issuer, its keys and its audiences.
type Config struct {
	// Issuer is the iss claim of all tokens. It is a URL if clients use it to discover the keys. Required.
	Issuer string
	// Audiences are the audiences of this server. A token for other audiences is refused. A token request without
	// audiences gets all of them. Default: the issuer.
	Audiences []string
	// SigningKeyFile is a PEM private key: RSA with at least 2048 bits, or ECDSA P-256. If empty, tokens are verified
	// but not issued.
	SigningKeyFile string
	// VerifyKeyFiles are PEM files with public keys (or certificates, or private keys) that verify tokens, such as
	// the keys before and after a rotation. The signing key is always included.
	VerifyKeyFiles []string
	// ExtendExpiration extends the lifetime of tokens requested by kubelets to a year; see ExtendedSeconds.
	ExtendExpiration bool
	// Lookup finds the live objects on which tokens depend. Required.
	Lookup Lookup
	// Now is the clock for issuing and expiry. Default time.Now. It may jump forward but not back.
	Now func() time.Time
	// Metrics counts uses. May be nil.
	Metrics *metrics.ServiceAccountTokens
	// Used is called synchronously for each use of the token of a Secret. May be nil.
	Used func(*corev1.Secret)
}

// Tokens issues and verifies service account tokens. It is safe for concurrent use.
type Tokens struct {
	issuer    string
	audiences []string
	signing   *signingKey // nil if tokens are only verified
	keys      keySet
	lookup    Lookup
	extend    bool
	now       func() time.Time
	metrics   *metrics.ServiceAccountTokens
	used      func(*corev1.Secret)
	validator *jwt.Validator // checks the time-dependent claims
	// seen caches signature results and refusals by the SHA-256 of the token.
	seen *ttlcache.Cache[[sha256.Size]byte, cachedSignature]
}

// KeyIDs returns the id of the signing key, empty if tokens are not issued, and the ids of all verification keys.
func (t *Tokens) KeyIDs() (signing string, verifying []string) {
	if t.signing != nil {
		signing = t.signing.id
	}
	return signing, slices.Sorted(maps.Keys(t.keys))
}

// rememberTokens is the size of the cache of verified tokens. An entry takes about a kilobyte.
const rememberTokens = 8192

// New reads the keys and returns a Tokens.
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
		jwt.WithIssuer(t.issuer), // checked again in the verified claims
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
