package oidc

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"portico.dev/internal/metrics"
)

const (
	// refreshEvery is how long a key that its issuer has withdrawn still works.
	refreshEvery = 5 * time.Minute
	// refreshGap is the least time between two looks at an issuer, whatever tokens ask for: key ids cost nothing to make
	// up. It is also how long the first token of a new key may be refused.
	refreshGap = 5 * time.Second
	// retryAtMost bounds the pause after an issuer that failed.
	retryAtMost = time.Minute
	// waitAtMost bounds how long a request waits for an issuer that is being asked.
	waitAtMost = 5 * time.Second
	// maxWaiting bounds how many requests wait for one issuer; more are refused at once.
	maxWaiting = 64
)

var (
	errNoKeys     = errors.New("the keys of the issuer are not known yet")
	errUnknownKey = errors.New("no key of the issuer has its key id and algorithm")
)

// keys are what one issuer signs with, fetched by Run and asked for by anybody.
type keys struct {
	fetch   func(context.Context) (keySet, error)
	issuer  string
	metrics *metrics.Auth
	log     *zap.Logger

	current atomic.Pointer[keySet]
	problem atomic.Pointer[error]
	wanted  chan struct{}
	waiting chan struct{}

	mu sync.Mutex // guards what follows
	// underway is whether the issuer is being asked now, and looked when it last was.
	underway bool
	looked   time.Time
	// settled is closed when the look that is under way, or else the next one, has ended.
	settled chan struct{}
}

func newKeys(f *fetcher, m *metrics.Auth, log *zap.Logger) *keys {
	return &keys{
		fetch: f.keys, issuer: f.issuer, metrics: m, log: log.With(zap.String("issuer", f.issuer)),
		wanted: make(chan struct{}, 1), waiting: make(chan struct{}, maxWaiting), settled: make(chan struct{}),
	}
}

// find returns the keys that may have signed a token, looking at the issuer again when none is known.
func (k *keys) find(ctx context.Context, id, algorithm string) ([]crypto.PublicKey, error) {
	if found := k.known(id, algorithm); len(found) > 0 {
		return found, nil
	}
	if err := k.look(ctx); err != nil {
		return nil, err
	}
	if found := k.known(id, algorithm); len(found) > 0 {
		return found, nil
	}
	if k.current.Load() == nil {
		return nil, k.trouble()
	}
	return nil, errUnknownKey
}

func (k *keys) known(id, algorithm string) []crypto.PublicKey {
	if set := k.current.Load(); set != nil {
		return set.candidates(id, algorithm)
	}
	return nil
}

// trouble is why there are no keys at all; it is not an opinion about any token.
func (k *keys) trouble() error {
	if p := k.problem.Load(); p != nil {
		return fmt.Errorf("%w: %w", errNoKeys, *p)
	}
	return errNoKeys
}

// look waits for one look at the issuer, unless there has been one a moment ago.
func (k *keys) look(ctx context.Context) error {
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

// run looks at the issuer now, every few minutes, and when a token needs it, until ctx ends.
func (k *keys) run(ctx context.Context) {
	pause := time.Second
	for {
		next := refreshEvery
		if err := k.refresh(ctx); err != nil {
			next = pause/2 + rand.N(pause) // replicas that lost an issuer together do not come back together
			pause = min(2*pause, retryAtMost)
		} else {
			pause = time.Second
		}
		if !k.rest(ctx, next) {
			return
		}
	}
}

// rest waits for the next look, and reports whether there is to be one.
func (k *keys) rest(ctx context.Context, next time.Duration) bool {
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
		if !recent { // whoever asked before a recent look has been told of it
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
		return // we are going, and the issuer is not to blame
	}
	before := k.problem.Swap(nil)
	if err == nil {
		k.metrics.KeysFetched(k.issuer, true)
		if first := k.current.Swap(&set) == nil; first || before != nil {
			k.log.Info("know the keys of an issuer", zap.Int("keys", len(set)))
		}
		return
	}
	k.metrics.KeysFetched(k.issuer, false)
	k.problem.Store(&err)
	if before == nil || (*before).Error() != err.Error() {
		k.log.Warn("cannot get the keys of an issuer; the ones known before stay in use", zap.Bool("known", k.current.Load() != nil), zap.Error(err))
	}
}
