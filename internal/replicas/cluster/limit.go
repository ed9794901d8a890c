package cluster

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// attemptsPerSecond and attemptsAtOnce limit the requests of one address. A waiting front door sends one request
	// a second.
	attemptsPerSecond = 5
	attemptsAtOnce    = 20
	// limitedAddresses limits the addresses that are remembered.
	limitedAddresses = 4096
	// answeredAtOnce limits the concurrent requests.
	answeredAtOnce = 16
)

// addressLimit limits requests by client address.
type addressLimit struct {
	mu       sync.Mutex // guards limiters
	limiters map[string]*rate.Limiter
}

func newAddressLimit() *addressLimit { return &addressLimit{limiters: map[string]*rate.Limiter{}} }

// allow reports whether an address may send a request now.
func (l *addressLimit) allow(address string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	limiter := l.limiters[address]
	if limiter == nil {
		if len(l.limiters) >= limitedAddresses {
			l.forget(now)
		}
		if len(l.limiters) >= limitedAddresses {
			return false // too many addresses send too many requests at the moment
		}
		limiter = rate.NewLimiter(attemptsPerSecond, attemptsAtOnce)
		l.limiters[address] = limiter
	}
	return limiter.AllowN(now, 1)
}

// forget removes the addresses that have the full allowance again. It must be called with mu held.
func (l *addressLimit) forget(now time.Time) {
	for address, limiter := range l.limiters {
		if limiter.TokensAt(now) >= attemptsAtOnce {
			delete(l.limiters, address)
		}
	}
}
