package oidc

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"portico.dev/internal/metrics"
)

const (
	// refreshEvery is the refresh interval, and so the time that a withdrawn key remains accepted.
	refreshEvery = 5 * time.Minute
	// refreshGap is the minimum interval between two fetches from an issuer, because clients can invent key ids. It
	// is also the time for which the first token with a new key may be refused.
	refreshGap = 5 * time.Second
	// retryAtMost is the maximum pause after a failed fetch, so that tokens are accepted soon after an issuer
	// recovers.
	retryAtMost = 5 * time.Second
	// waitAtMost is the maximum time that a request waits for a fetch.
	waitAtMost = 5 * time.Second
	// maxWaiting is the maximum number of requests that wait for an issuer. Further requests are refused immediately.
	maxWaiting = 64
)

var (
	errNoKeys     = errors.New("the keys of the issuer are not known yet")
	errUnknownKey = errors.New("no key of the issuer has its key id and algorithm")
)

// keys holds the signing keys of one issuer. run fetches them; other methods may be called from any goroutine.
type keys struct {
	fetch   func(context.Context) (keySet, error)
	issuer  string
	metrics *metrics.Auth
	log     *zap.Logger

	current atomic.Pointer[keySet]
	problem atomic.Pointer[error]
	wanted  chan struct{}
	waiting chan struct{}

	mu sync.Mutex // guards the fields below
	// underway reports whether a fetch is running; looked is the end of the last fetch.
	underway bool
	looked   time.Time
	// settled is closed when the running fetch, or the next one if none is running, ends.
	settled chan struct{}
}

func newKeys(f *fetcher, m *metrics.Auth, log *zap.Logger) *keys {
	return &keys{
		fetch: f.keys, issuer: f.issuer, metrics: m, log: log.With(zap.String("issuer", f.issuer)),
		wanted: make(chan struct{}, 1), waiting: make(chan struct{}, maxWaiting), settled: make(chan struct{}),
	}
}

// find returns the keys that may have signed a token. If none are known, it waits for a fetch.
func (k *keys) find(ctx context.Context, id, algorithm string) ([]crypto.PublicKey, error) {
	if found := k.cached(id, algorithm); len(found) > 0 {
		return found, nil
	}
	if err := k.fetchOnce(ctx); err != nil {
		return nil, err
	}
	if found := k.cached(id, algorithm); len(found) > 0 {
		return found, nil
	}
	if k.current.Load() == nil {
		return nil, k.lastError()
	}
	return nil, errUnknownKey
}

func (k *keys) cached(id, algorithm string) []crypto.PublicKey {
	if set := k.current.Load(); set != nil {
		return set.candidates(id, algorithm)
	}
	return nil
}

// lastError returns why no keys are available. It does not depend on the token.
func (k *keys) lastError() error {
	if p := k.problem.Load(); p != nil {
		return fmt.Errorf("%w: %w", errNoKeys, *p)
	}
	return errNoKeys
}

// fetchOnce waits for a fetch, unless the last one ended less than refreshGap ago.
func (k *keys) fetchOnce(ctx context.Context) error {
	k.mu.Lock()
	settled, underway, recent := k.settled, k.underway, k.recent()
	k.mu.Unlock()
	if !underway && recent {
		return nil
	}
	select {
	case k.waiting <- struct{}{}:
		defer func() { <-k.waiting }()
	default:
		return fmt.Errorf("%w: too many requests wait for them", errNoKeys)
	}
	if !underway {
		select {
		case k.wanted <- struct{}{}:
		default:
		}
	}
	ctx, cancel := context.WithTimeout(ctx, waitAtMost)
	defer cancel()
	select {
	case <-settled:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: it has not answered", errNoKeys)
	}
}

func (k *keys) recent() bool { return !k.looked.IsZero() && time.Since(k.looked) < refreshGap }

// run fetches the keys at the start, every few minutes, and on request, until ctx ends.
func (k *keys) run(ctx context.Context) {
	pause := time.Second
	for {
		next := refreshEvery
		if err := k.refresh(ctx); err != nil {
			next = pause - rand.N(pause/2) // jitter, so that replicas do not retry in step
			pause = min(2*pause, retryAtMost)
		} else {
			pause = time.Second
		}
		if !k.nextRefresh(ctx, next) {
			return
		}
	}
}

// nextRefresh waits until the next fetch is due. It returns false when ctx ends.
func (k *keys) nextRefresh(ctx context.Context, next time.Duration) bool {
	timer := time.NewTimer(next)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		case <-k.wanted:
		}
		k.mu.Lock()
		recent := k.recent()
		k.mu.Unlock()
		if !recent { // earlier requests were served by the recent fetch
			return true
		}
	}
}

func (k *keys) refresh(ctx context.Context) error {
	k.mu.Lock()
	k.underway = true
	k.mu.Unlock()
	set, err := k.fetch(ctx)
	k.note(ctx, set, err)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.underway, k.looked = false, time.Now()
	close(k.settled)
	k.settled = make(chan struct{})
	return err
}

func (k *keys) note(ctx context.Context, set keySet, err error) {
	if ctx.Err() != nil {
		return // shutting down, not a failure of the issuer
	}
	before := k.problem.Swap(nil)
	if err == nil {
		k.metrics.KeysFetched(k.issuer, true)
		if first := k.current.Swap(&set) == nil; first || before != nil {
			k.log.Info("fetched the keys of an issuer", zap.Int("keys", len(set)))
		}
		return
	}
	k.metrics.KeysFetched(k.issuer, false)
	k.problem.Store(&err)
	if before == nil || (*before).Error() != err.Error() {
		k.log.Warn("failed to fetch the keys of an issuer; the previous keys stay in use", zap.Bool("known", k.current.Load() != nil), zap.Error(err))
	}
}

const (
	minRSABits = 2048
	maxRSABits = 8192 // verification is cubic in the size, and the issuer selects it
	// maxKeys is the maximum number of keys kept per issuer.
	maxKeys = 64
	// maxTried is the maximum number of keys tried per token: several keys may share an id, and a token may have no
	// id (attack row B2).
	maxTried = 4
)

// jwks is a JSON Web Key Set.
type jwks struct {
	Keys []jwk `json:"keys"`
}

type jwk struct {
	Type      string `json:"kty"`
	Use       string `json:"use"`
	ID        string `json:"kid"`
	Algorithm string `json:"alg"`
	Curve     string `json:"crv"`
	N         string `json:"n"`
	E         string `json:"e"`
	X         string `json:"x"`
	Y         string `json:"y"`
}

// key verifies signatures with any of its algorithms. They are derived from its type, its curve and the issuer's
// document, never from a token (attack row B1).
type key struct {
	id         string
	algorithms []string
	public     crypto.PublicKey
}

type keySet []key

// set returns the usable keys. Other keys are skipped: issuers publish encryption keys in the same document.
func (d jwks) set() keySet {
	var set keySet
	for _, j := range d.Keys {
		if len(set) == maxKeys {
			break
		}
		if k, ok := j.key(); ok {
			set = append(set, k)
		}
	}
	return set
}

// candidates returns the keys that may have signed a token with this id and algorithm.
func (s keySet) candidates(id, algorithm string) []crypto.PublicKey {
	var found []crypto.PublicKey
	for _, k := range s {
		if (id == "" || k.id == id) && slices.Contains(k.algorithms, algorithm) && len(found) < maxTried {
			found = append(found, k.public)
		}
	}
	return found
}

func (j jwk) key() (key, bool) {
	k := key{id: j.ID}
	if j.Use != "" && j.Use != "sig" {
		return k, false
	}
	var ok bool
	switch j.Type {
	case "RSA":
		k.public, ok = j.rsa()
		k.algorithms = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}
	case "EC":
		var algorithm string
		k.public, algorithm, ok = j.ecdsa()
		k.algorithms = []string{algorithm}
	}
	if j.Algorithm != "" {
		k.algorithms = slices.DeleteFunc(k.algorithms, func(a string) bool { return a != j.Algorithm })
	}
	return k, ok && len(k.algorithms) > 0
}

func (j jwk) rsa() (*rsa.PublicKey, bool) {
	n, okN := number(j.N)
	e, okE := number(j.E)
	if !okN || !okE || n.BitLen() < minRSABits || n.BitLen() > maxRSABits || e.BitLen() > 31 || e.Cmp(big.NewInt(3)) < 0 || e.Bit(0) == 0 {
		return nil, false
	}
	return &rsa.PublicKey{N: n, E: int(e.Int64())}, true
}

func (j jwk) ecdsa() (*ecdsa.PublicKey, string, bool) {
	curves := map[string]struct {
		curve     elliptic.Curve
		algorithm string
	}{"P-256": {elliptic.P256(), "ES256"}, "P-384": {elliptic.P384(), "ES384"}, "P-521": {elliptic.P521(), "ES512"}}
	c, known := curves[j.Curve]
	if !known {
		return nil, "", false
	}
	size := (c.curve.Params().BitSize + 7) / 8
	x, okX := number(j.X)
	y, okY := number(j.Y)
	if !okX || !okY || x.BitLen() > 8*size || y.BitLen() > 8*size {
		return nil, "", false
	}
	point := make([]byte, 1+2*size) // SEC 1: 4, x, y
	point[0] = 4
	x.FillBytes(point[1 : 1+size])
	y.FillBytes(point[1+size:])
	public, err := ecdsa.ParseUncompressedPublicKey(c.curve, point) // returns an error for a point off the curve
	return public, c.algorithm, err == nil
}

func number(s string) (*big.Int, bool) {
	data, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(s, "="))
	if err != nil || len(data) == 0 || len(data) > maxRSABits/8+1 {
		return nil, false
	}
	return new(big.Int).SetBytes(data), true
}
