package gateway

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"k8s.io/client-go/rest"

	"portico.dev/internal/run"
)

const (
	// An informer's request that does not reach the API server is repeated after firstReconnect. The pause doubles
	// each time up to maxReconnect, less a jitter.
	firstReconnect = 250 * time.Millisecond
	maxReconnect   = 2 * time.Second
	// reconnectLogInterval is the minimum time between two log lines about an unreachable API server.
	reconnectLogInterval = time.Minute
)

// withReconnects returns a copy of config with which lists and watches wait for an unreachable API server.
// client-go's reflectors double the pause after each error up to a minute, so that after an outage the routing table
// would be outdated for that long.
func withReconnects(config *rest.Config, log *zap.Logger) *rest.Config {
	c := rest.CopyConfig(config)
	c.Wrap(func(next http.RoundTripper) http.RoundTripper { return &reconnecting{next: next, log: log} })
	return c
}

// reconnecting repeats lists and watches that do not reach the API server, until their context ends.
type reconnecting struct {
	next   http.RoundTripper
	log    *zap.Logger
	logged atomic.Int64 // Unix time in nanoseconds of the last log line
}

// RoundTrip implements http.RoundTripper.
func (c *reconnecting) RoundTrip(r *http.Request) (*http.Response, error) {
	pause := firstReconnect
	for {
		response, err := c.next.RoundTrip(r)
		if err == nil || !isInformerRequest(r) || r.Context().Err() != nil {
			return response, err
		}
		c.report(err)
		if !run.Pause(r.Context(), pause-rand.N(pause/2)) {
			return nil, context.Cause(r.Context())
		}
		pause = min(2*pause, maxReconnect)
	}
}

// WrappedRoundTripper lets client-go close idle connections and cancel requests.
func (c *reconnecting) WrappedRoundTripper() http.RoundTripper { return c.next }

// isInformerRequest reports whether r is a list or a watch as reflectors send them. Such a request does not have a
// body, so it can be repeated.
func isInformerRequest(r *http.Request) bool {
	query := r.URL.Query()
	return r.Method == http.MethodGet && (query.Has("watch") || query.Has("resourceVersion") || query.Has("limit"))
}

func (c *reconnecting) report(err error) {
	now, last := time.Now().UnixNano(), c.logged.Load()
	if now-last >= int64(reconnectLogInterval) && c.logged.CompareAndSwap(last, now) {
		c.log.Warn("API server unreachable; cached objects may be stale", zap.Error(err))
	}
}
