package transport

import (
	"math/rand/v2"
	"slices"
	"time"
)

// pick selects the endpoint for a request: of the best non-empty class, the one of two random endpoints with fewer
// requests in flight. From best to worst:
//
//  1. healthy, not terminating, in the zone of this process
//  2. healthy, not terminating
//  3. healthy, not terminating, with a recent slow response
//  4. healthy, terminating: it still serves requests and announces its shutdown by GOAWAY
//  5. any endpoint: if all are ejected, trying one is better than failing
//
// tried contains the endpoints that failed this request. They are used again only if there are no others.
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
		// Recovery does not cost a client's request: a connection or a check comes first, followed by one trial
		// request.
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
