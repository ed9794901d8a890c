package server

import (
	"context"
	"net/http"
	"slices"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/util/flowcontrol"

	"portico.dev/internal/fairness"
	"portico.dev/internal/filters"
	"portico.dev/internal/metrics"
	"portico.dev/internal/request"
	"portico.dev/internal/respond"
	"portico.dev/internal/run"
)

// flowControlFilter applies API Priority and Fairness or, without it, limits the number of concurrent requests.
func flowControlFilter(c *ChainConfig) func(http.Handler) http.Handler {
	if c.Fairness != nil {
		return fairnessFilter(c.Fairness, c.flowUser, c.Metrics)
	}
	return inFlightFilter(c.MaxInFlight, c.MaxMutatingInFlight, c.flowUser, c.Metrics)
}

// flowUser returns the user as which a request is classified, or nil.
func (c *ChainConfig) flowUser(ctx context.Context) user.Info {
	u, ok := requestUser(ctx)
	if ok && c.FlowUser != nil {
		return c.FlowUser(ctx, u)
	}
	return u
}

// inFlightFilter limits concurrent requests, separately for reads and writes, so that many readers cannot block a
// writer. Long-running requests are not counted. A request for a backend is counted until it is forwarded (from then
// on, the backend's own slots limit it). Administrators are exempt, so that they can repair the cluster.
func inFlightFilter(readers, writers int, userOf func(context.Context) user.Info, m *metrics.Requests) func(http.Handler) http.Handler {
	if readers == 0 {
		readers = 400
	}
	if writers == 0 {
		writers = 200
	}
	return func(next http.Handler) http.Handler {
		reading, writing := newSeatLimit(readers), newSeatLimit(writers)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			info, _ := requestInfo(r.Context())
			room := reading
			if mutating(info) {
				room = writing
			}
			if room == nil || request.LongRunning(info) || exempt(userOf(r.Context())) {
				next.ServeHTTP(w, r)
				return
			}
			select {
			case room <- struct{}{}:
				rec := recordFrom(r.Context())
				rec.Seat = room
				filters.AtEnd(r.Context(), seatStep{rec})
				next.ServeHTTP(w, r)
			default:
				tooManyRequests(w, r, 1, m)
			}
		})
	}
}

// seatStep and reservationStep are the filters.Steps that release a seat.
type (
	seatStep        struct{ *filters.Record }
	reservationStep struct{ *fairness.Reservation }
)

// End implements filters.Step.
func (s seatStep) End(any) { s.ReleaseSeat() }

// End implements filters.Step.
func (s reservationStep) End(any) { s.Release() }

// seatLimit has as many seats as its capacity. A nil seatLimit is unlimited.
type seatLimit chan struct{}

// Release implements filters.Seat.
func (c seatLimit) Release() { <-c }

func newSeatLimit(n int) seatLimit {
	if n < 0 {
		return nil
	}
	return make(seatLimit, n)
}

func exempt(u user.Info) bool {
	return u != nil && slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup)
}

// backendSeatHold is how long a request keeps its seat after it is forwarded to a backend. During this time, requests
// for a responsive backend share seats with all other requests. Afterwards only the backend's own slots limit them,
// so that a backend that hangs returns every seat within this time.
const backendSeatHold = 250 * time.Millisecond

// fairnessFilter admits a request when API Priority and Fairness has a seat for it. The headers of KEP-1040 report
// the classification by UID, because administrators choose the names. A watch holds a seat until its initial events
// are sent; other long-running requests do not need one, as with upstream.
func fairnessFilter(f *fairness.Fairness, userOf func(context.Context) user.Info, m *metrics.Requests) func(http.Handler) http.Handler {
	releases := &run.DelayQueue[filters.Seat]{Delay: backendSeatHold, Expire: filters.Seat.Release}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx := r.Context()
			info, _ := requestInfo(ctx)
			who := userOf(ctx)
			watch := info.Verb == "watch"
			if request.LongRunning(info) && !watch {
				next.ServeHTTP(w, r)
				return
			}
			reserved := f.Reserve(r, info, who)
			setFlowHeaders(w.Header(), reserved)
			if !reserved.Admitted {
				tooManyRequests(w, r, reserved.RetryAfter, m)
				return
			}
			filters.AtEnd(ctx, reservationStep{reserved})
			rec := recordFrom(ctx)
			rec.Seat, rec.Releases, rec.Waited = reserved, releases, reserved.Waited
			if watch {
				forget := f.RegisterWatch(r)
				filters.AtEnd(ctx, filters.StepFunc(func(any) { forget() }))
				r = r.WithContext(flowcontrol.WithInitializationSignal(ctx, reserved))
			}
			next.ServeHTTP(w, r)
		})
	}
}

// Header names in canonical form, so that setting them does not allocate a key.
var (
	schemaHeader = http.CanonicalHeaderKey(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID)
	levelHeader  = http.CanonicalHeaderKey(flowcontrolv1.ResponseHeaderMatchedPriorityLevelConfigurationUID)
)

func setFlowHeaders(h http.Header, t *fairness.Reservation) {
	if schema, level := t.HeaderValues(); schema != nil {
		h[schemaHeader], h[levelHeader] = schema, level
	}
}

func tooManyRequests(w http.ResponseWriter, r *http.Request, retryAfter int, m *metrics.Requests) {
	m.Refused.WithLabelValues("too-many-requests").Inc()
	respond.Error(w, r, apierrors.NewTooManyRequests("too many requests, please try again later", retryAfter))
}
