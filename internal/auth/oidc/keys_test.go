package oidc

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/apiserver/pkg/apis/apiserver"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"

	"portico.dev/internal/auth/authtest"
	"portico.dev/internal/metrics"
)

// looker is an issuer without a network, for tests of timing.
type looker struct {
	*issuer
	mu    sync.Mutex // guards the fields below
	looks int
	keys  []jwk
	err   error
	hang  bool
}

// change changes the state of the issuer.
func (l *looker) change(to func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	to()
}

const somewhere = "https://issuer.example"

func newLooker(t *testing.T) *looker {
	t.Helper()
	prefix := ""
	i, err := newIssuer(apiserver.JWTAuthenticator{
		Issuer:        apiserver.Issuer{URL: somewhere, Audiences: []string{"client"}},
		ClaimMappings: apiserver.ClaimMappings{Username: apiserver.PrefixedClaimOrExpression{Claim: "sub", Prefix: &prefix}},
	}, []string{"ES256"}, authenticationcel.NewDefaultCompiler(), metrics.NewAuth(prometheus.NewRegistry()), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	l := &looker{issuer: i, keys: []jwk{published("ec-1", keysOfTests().ec.Public())}}
	i.keys.fetch = func(ctx context.Context) (keySet, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.looks++
		if l.hang {
			select {
			case <-ctx.Done():
			case <-time.After(fetchTimeout):
			}
			return nil, errors.New("hung")
		}
		return jwks{Keys: l.keys}.set(), l.err
	}
	return l
}

// inTime runs f in a synctest bubble, with the issuer's keys being refreshed.
func inTime(t *testing.T, change func(*looker), f func(t *testing.T, l *looker)) {
	t.Helper()
	l := newLooker(t)
	change(l)
	synctest.Test(t, func(t *testing.T) {
		// Channels of a bubble must be created in it.
		fetch := l.issuer.keys.fetch
		l.issuer.keys = newKeys(&fetcher{issuer: somewhere}, metrics.NewAuth(prometheus.NewRegistry()), zap.NewNop())
		l.issuer.keys.fetch = fetch
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); l.issuer.keys.run(ctx) }()
		synctest.Wait()
		f(t, l)
		cancel()
		<-done
	})
}

func signed(kid string, replace ...string) string {
	k := keysOfTests()
	key := k.ec
	if kid == "ec-2" {
		key = k.newEC
	}
	return authtest.Token(`{"alg":"ES256","kid":"`+kid+`"}`, claimsOf(somewhere, replace...), authtest.ES256(key))
}

func (l *looker) good(t *testing.T, token string) bool {
	t.Helper()
	_, err := l.authenticate(t.Context(), token)
	return err == nil
}

func TestIssuerKeysAreRefreshed(t *testing.T) {
	nothing := func(*looker) {}
	t.Run("a key that is new is looked for", func(t *testing.T) {
		inTime(t, nothing, func(t *testing.T, l *looker) {
			time.Sleep(refreshGap)
			l.change(func() { l.keys = append(l.keys, published("ec-2", keysOfTests().newEC.Public())) })
			if !l.good(t, signed("ec-2")) || l.looks != 2 {
				t.Fatalf("token of a new key was rejected after %d reads of the keys, want it accepted after 2", l.looks)
			}
		})
	})
	t.Run("a key that is withdrawn stops working at the next refresh", func(t *testing.T) {
		inTime(t, nothing, func(t *testing.T, l *looker) {
			if !l.good(t, signed("ec-1")) {
				t.Fatal("token of a published key was rejected, want it accepted")
			}
			l.change(func() { l.keys = []jwk{published("ec-2", keysOfTests().newEC.Public())} })
			time.Sleep(refreshEvery + time.Second)
			synctest.Wait()
			if l.good(t, signed("ec-1")) {
				t.Fatal("token of a withdrawn key was accepted after the refresh, want it rejected")
			}
		})
	})
	t.Run("B2 key ids that are made up cost one look every few seconds", func(t *testing.T) {
		inTime(t, nothing, func(t *testing.T, l *looker) {
			end := time.Now().Add(time.Minute)
			for i := 0; time.Now().Before(end); i++ {
				if l.good(t, signed("made-up-"+strings.Repeat("x", i))) {
					t.Fatal("token with an unknown key ID was accepted, want it rejected")
				}
				time.Sleep(100 * time.Millisecond)
			}
			if most := int(time.Minute/refreshGap) + 2; l.looks > most {
				t.Fatalf("%d reads of the keys in a minute, want at most %d", l.looks, most)
			}
		})
	})
	t.Run("an issuer that is down at first and then there", func(t *testing.T) {
		inTime(t, func(l *looker) { l.err = errors.New("down") }, func(t *testing.T, l *looker) {
			_, err := l.authenticate(t.Context(), signed("ec-1"))
			if !errors.Is(err, errNoKeys) || !strings.Contains(err.Error(), "down") {
				t.Fatalf("authenticate while the issuer is down error = %v, want errNoKeys that contains down", err)
			}
			l.change(func() { l.err = nil })
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if !l.good(t, signed("ec-1")) {
				t.Fatal("token was rejected after the issuer returned, want it accepted")
			}
		})
	})
	t.Run("an issuer that goes down leaves the keys that are known", func(t *testing.T) {
		inTime(t, nothing, func(t *testing.T, l *looker) {
			l.change(func() { l.err = errors.New("down") })
			time.Sleep(24 * time.Hour)
			if !l.good(t, signed("ec-1")) {
				t.Fatal("token of a known key was rejected while the issuer is down, want it accepted")
			}
		})
	})
	t.Run("an issuer that hangs costs its tokens a few seconds and no more", func(t *testing.T) {
		inTime(t, func(l *looker) { l.hang = true }, func(t *testing.T, l *looker) {
			began := time.Now()
			if l.good(t, signed("ec-1")) || time.Since(began) > waitAtMost {
				t.Fatalf("time until the result with a hanging issuer = %s, want at most %s and a rejection", time.Since(began), waitAtMost)
			}
		})
	})
	t.Run("so many wait for an issuer that hangs and no more", func(t *testing.T) {
		inTime(t, func(l *looker) { l.hang = true }, func(t *testing.T, l *looker) {
			answers := make(chan error, 2*maxWaiting)
			for range 2 * maxWaiting {
				go func() {
					_, err := l.issuer.keys.find(t.Context(), "ec-1", "ES256")
					answers <- err
				}()
			}
			synctest.Wait()
			if len(answers) != maxWaiting {
				t.Fatalf("%d of %d requests ended at once, want %d", len(answers), 2*maxWaiting, maxWaiting)
			}
			for range 2 * maxWaiting {
				if err := <-answers; !errors.Is(err, errNoKeys) {
					t.Fatalf("find with a hanging issuer error = %v, want errNoKeys", err)
				}
			}
		})
	})
}

func TestRecoveredIssuerIsReadSoon(t *testing.T) {
	inTime(t, func(l *looker) { l.err = errors.New("down") }, func(t *testing.T, l *looker) {
		time.Sleep(time.Hour)
		l.change(func() { l.err = nil })
		began := time.Now()
		for l.issuer.keys.current.Load() == nil && time.Since(began) < time.Minute {
			time.Sleep(10 * time.Millisecond)
		}
		if got := time.Since(began); got > retryAtMost {
			t.Errorf("time until the keys were read after the return of the issuer = %s, want at most %s", got, retryAtMost)
		}
	})
}

func TestVerifiedTokensAreCachedUntilExpiry(t *testing.T) {
	t.Run("B12 a token is not remembered beyond its end", func(t *testing.T) {
		inTime(t, func(*looker) {}, func(t *testing.T, l *looker) {
			token := signed("ec-1")
			time.Sleep(time.Hour - 2*time.Second)
			if !l.good(t, token) {
				t.Fatal("token was rejected before its expiry, want it accepted")
			}
			time.Sleep(3 * time.Second)
			if l.good(t, token) {
				t.Fatal("token was accepted after its expiry, want it rejected")
			}
		})
	})
	t.Run("B12 a key that was withdrawn does not live on in memory", func(t *testing.T) {
		inTime(t, func(*looker) {}, func(t *testing.T, l *looker) {
			token := signed("ec-1")
			if !l.good(t, token) {
				t.Fatal("token of a published key was rejected, want it accepted")
			}
			l.change(func() { l.keys = []jwk{published("ec-2", keysOfTests().newEC.Public())} })
			l.issuer.keys.current.Store(&keySet{})
			if !l.good(t, token) {
				t.Fatal("token was not cached after its key was withdrawn, want it accepted")
			}
			time.Sleep(rememberGood)
			if l.good(t, token) {
				t.Fatal("token of a withdrawn key was accepted beyond the cache time, want it rejected")
			}
		})
	})
}
