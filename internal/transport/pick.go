package transport

import (
	"math/rand/v2"
	"slices"
	"time"
)

// pick chooses where to send a request: of the best class of endpoints that is not empty, the one of two taken at
// random that has fewer requests in flight. Best to worst:
//
//  1. well, not terminating, in our zone
//  2. well, not terminating
//  3. well, not terminating, with a response that was slow a moment ago
//  4. well, terminating: it still serves, and its going away is announced by GOAWAY
//  5. any at all: when every endpoint is ejected, guessing beats refusing
//
// tried are endpoints that failed this request; they are taken again only when nothing else is left.
func (b *Backend) pick(members []candidate, tried []*endpoint) *endpoint {
	if len(members) == 0 {
		return nil
	}
	now := time.Now()
	var buffer [16]*endpoint
	best, class := buffer[:0], rankWorst
	for _, m := range members {
		c := b.rank(m, now)
		if slices.Contains(tried, m.endpoint) {
			c += rankWorst + 1
		}
		if c < class {
			best, class = best[:0], c
		}
		if c == class {
			best = append(best, m.endpoint)
		}
	}
	if len(best) == 0 { // all were tried
		for _, m := range members {
			best = append(best, m.endpoint)
		}
	}
	e := twoChoices(best)
	e.health.chosen()
	return e
}

const (
	rankZone = iota
	rankHealthy
	rankDoubted
	rankTerminating
	rankWorst
)

func (b *Backend) rank(m candidate, now time.Time) int {
	ok, due := m.health.usable(now)
	if due {
		// A way back costs no client anything: a connection or a check comes first, and one request then tries it.
		if m.health.suspended() {
			m.recheck()
		} else if m.requests.warm() {
			m.health.connected()
			ok, _ = m.health.usable(now)
		}
	}
	switch zone := b.set.options.Zone; {
	case !ok:
		return rankWorst
	case m.terminating:
		return rankTerminating
	case m.outlier.doubtedTill.Load() > now.UnixNano():
		return rankDoubted
	case zone != "" && m.zone == zone:
		return rankZone
	}
	return rankHealthy
}

func twoChoices(from []*endpoint) *endpoint {
	if len(from) == 1 {
		return from[0]
	}
	i := rand.IntN(len(from))
	j := rand.IntN(len(from) - 1)
	if j >= i {
		j++
	}
	if from[j].inFlight.Load() < from[i].inFlight.Load() {
		return from[j]
	}
	return from[i]
}
