package server

import (
	"net/http"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/util/flowcontrol"

	"portico.dev/internal/fairness"
	"portico.dev/internal/metrics"
	"portico.dev/internal/request"
	"portico.dev/internal/respond"
)

// backendKeepsSeat is how long a request keeps its seat once it was handed to a backend. Until then users of a backend
// that answers take turns as everywhere; afterwards only the places of the backend bound it, so that one that hangs
// gives every seat back within this time.
const backendKeepsSeat = 250 * time.Millisecond

// turnsFilter lets a request in when its turn has come by API Priority and Fairness, and says by the headers of KEP-1040
// what it was taken for: by UID, since the names are an administrator's. A watch has a seat until its initial events are
// out; other long-running requests have none, as upstream.
func turnsFilter(f *fairness.Fairness, m *metrics.Requests) func(http.Handler) http.Handler {
	keeper := &keeper{after: backendKeepsSeat}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx := r.Context()
			info, _ := infoOf(ctx)
			who, _ := userOf(ctx)
			watch := info.Verb == "watch"
			if request.LongRunning(info) && !watch {
				next.ServeHTTP(w, r)
				return
			}
			turn := f.Enter(r, info, who)
			tellTurn(w.Header(), turn)
			if !turn.Admitted {
				refuseTurn(w, r, turn.RetryAfter, m)
				return
			}
			defer turn.Leave()
			rec := recordFrom(ctx)
			rec.place, rec.keeper = turn, keeper
			if watch {
				defer f.Watching(r)()
				r = r.WithContext(flowcontrol.WithInitializationSignal(ctx, turn))
			}
			next.ServeHTTP(w, r)
		})
	}
}

// The headers as net/http spells them, so that setting them allocates no key.
var (
	schemaHeader = http.CanonicalHeaderKey(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID)
	levelHeader  = http.CanonicalHeaderKey(flowcontrolv1.ResponseHeaderMatchedPriorityLevelConfigurationUID)
)

func tellTurn(h http.Header, t *fairness.Turn) {
	if schema, level := t.Says(); schema != nil {
		h[schemaHeader], h[levelHeader] = schema, level
	}
}

func refuseTurn(w http.ResponseWriter, r *http.Request, retryAfter int, m *metrics.Requests) {
	m.Refused.WithLabelValues("too-many-requests").Inc()
	respond.Error(w, r, apierrors.NewTooManyRequests("too many requests, please try again later", retryAfter))
}
