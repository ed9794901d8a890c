package server

import (
	"net/http"
	"slices"

	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/metrics"
	"portico.dev/internal/request"
)

// flowControlFilter is fairness, or, without it, a bound on the requests that are served at once.
func flowControlFilter(c *ChainConfig) func(http.Handler) http.Handler {
	if c.Fairness != nil {
		return turnsFilter(c.Fairness, c.Metrics)
	}
	return inFlightFilter(c.MaxInFlight, c.MaxMutatingInFlight, c.Metrics)
}

// inFlightFilter bounds the requests that are served at once, reads and writes apart, so that many readers cannot
// keep a writer out. Long-running requests are not counted, those for a backend until it is known that they are (the
// places of that backend bound them), and administrators are let in so that they can mend things.
func inFlightFilter(readers, writers int, m *metrics.Requests) func(http.Handler) http.Handler {
	if readers == 0 {
		readers = 400
	}
	if writers == 0 {
		writers = 200
	}
	return func(next http.Handler) http.Handler {
		reading, writing := seats(readers), seats(writers)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			info, _ := infoOf(r.Context())
			room := reading
			if mutating(info) {
				room = writing
			}
			if room == nil || request.LongRunning(info) || exempt(r) {
				next.ServeHTTP(w, r)
				return
			}
			select {
			case room <- struct{}{}:
				rec := recordFrom(r.Context())
				rec.place = room
				defer rec.giveUpSeat()
				next.ServeHTTP(w, r)
			default:
				refuseTurn(w, r, 1, m)
			}
		})
	}
}

// places has as many places as it has room for; nil has no bound.
type places chan struct{}

// Leave implements place.
func (c places) Leave() { <-c }

func seats(n int) places {
	if n < 0 {
		return nil
	}
	return make(places, n)
}

func exempt(r *http.Request) bool {
	u, ok := userOf(r.Context())
	return ok && slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup)
}
