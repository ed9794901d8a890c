package cluster

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// attemptsPerSecond and attemptsAtOnce are what one address may ask. Who waits for its turn asks once a second.
	attemptsPerSecond = 5
	attemptsAtOnce    = 20
	// limitedAddresses bounds the addresses that are remembered.
	limitedAddresses = 4096
	// answeredAtOnce bounds the requests in hand.
	answeredAtOnce = 16
)

// addressLimit limits requests by the address that they come from.
type addressLimit struct {
	mu       sync.Mutex // guards limiters
	limiters map[string]*rate.Limiter
}

func newAddressLimit() *addressLimit { return &addressLimit{limiters: map[string]*rate.Limiter{}} }

// allow reports whether an address may ask now.
func (l *addressLimit) allow(address string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	limiter := l.limiters[address]
	if limiter == nil {
		if len(l.limiters) >= limitedAddresses {
			l.forget(now)
		}
		if len(l.limiters) >= limitedAddresses {
			return false // so many addresses ask so much at the moment
		}
		limiter = rate.NewLimiter(attemptsPerSecond, attemptsAtOnce)
		l.limiters[address] = limiter
	}
	return limiter.AllowN(now, 1)
}

// forget forgets the addresses that may ask as much as new ones. It is called with mu held.
func (l *addressLimit) forget(now time.Time) {
	for address, limiter := range l.limiters {
		if limiter.TokensAt(now) >= attemptsAtOnce {
			delete(l.limiters, address)
		}
	}
}
