package fairness

import (
	"context"
	"iter"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/util/flowcontrol"
	fcmetrics "k8s.io/apiserver/pkg/util/flowcontrol/metrics"
	fcrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
)

// Turn is one request's seat, or the refusal of one. Its methods may be called from any goroutine.
type Turn struct {
	// Schema and Level are what the request was classified as. They are nil only before Run.
	Schema *flowcontrolv1.FlowSchema
	Level  *flowcontrolv1.PriorityLevelConfiguration
	// Admitted reports whether the request may be served. If not, it has no seat to leave.
	Admitted bool
	// RetryAfter is in how many seconds a request that was refused may come back.
	RetryAfter int

	leaving sync.Once
	end     func()
}

// Enter waits for a seat for r, for at most a quarter of the time that r has, as upstream, and never beyond its end.
// Whoever was admitted must Leave.
func (f *Fairness) Enter(r *http.Request, info *apirequest.RequestInfo, who user.Info) *Turn {
	e := f.engine.Load()
	if e == nil {
		return &Turn{RetryAfter: 1}
	}
	a := &arrival{engine: e, request: r}
	a.waits.Context = r.Context()
	defer a.waits.cancel()
	digest := flowcontrol.RequestDigest{RequestInfo: info, User: who}
	seated, end := iter.Pull(func(sit func(struct{}) bool) {
		e.control.Handle(&a.waits, digest, a.note, a.width, a.waits.note, func() { sit(struct{}{}) })
	})
	_, a.turn.Admitted = seated()
	a.turn.end = end
	if !a.turn.Admitted {
		end()
		f.dropped.RecordDroppedRequest(a.turn.Level.Name)
		a.turn.RetryAfter = int(f.dropped.GetRetryAfter(a.turn.Level.Name))
	}
	return &a.turn
}

// Leave gives the seat back. Only the first call does anything, and every call returns after that.
func (t *Turn) Leave() { t.leaving.Do(t.end) }

// Signal implements flowcontrol.InitializationSignal: the local groups call it when a watch has sent what it began with.
func (t *Turn) Signal() { t.Leave() }

// Wait implements flowcontrol.InitializationSignal. Nobody waits: Signal itself ends the turn.
func (t *Turn) Wait() {}

// arrival is a request on its way to its turn.
type arrival struct {
	turn    Turn
	engine  *engine
	request *http.Request
	waits   waits
}

func (a *arrival) note(schema *flowcontrolv1.FlowSchema, level *flowcontrolv1.PriorityLevelConfiguration, _ string) {
	a.turn.Schema, a.turn.Level = schema, level
}

func (a *arrival) width() fcrequest.WorkEstimate {
	w := a.engine.estimate(a.request, a.turn.Schema.Name, a.turn.Level.Name)
	fcmetrics.ObserveWorkEstimatedSeats(a.turn.Level.Name, a.turn.Schema.Name, w.MaxSeats())
	return w
}

// maxWait bounds how long any request waits for its turn, as upstream.
const maxWait = time.Minute

// waits is the context in which a request waits. Its deadline costs nothing unless the request does wait: the library
// asks for Done after it has said whether it does.
type waits struct {
	context.Context
	queued  atomic.Bool
	limited context.Context // nil until Done is asked for in the queue
	stop    context.CancelFunc
}

func (w *waits) note(queued bool) { w.queued.Store(queued) }

// Done implements context.Context. The library asks once, on the goroutine of the request.
func (w *waits) Done() <-chan struct{} {
	if w.limited == nil && w.queued.Load() {
		w.limited, w.stop = context.WithDeadline(w.Context, w.until())
	}
	if w.limited != nil {
		return w.limited.Done()
	}
	return w.Context.Done()
}

func (w *waits) until() time.Time {
	arrived, ok := apirequest.ReceivedTimestampFrom(w.Context)
	if !ok {
		arrived = time.Now()
	}
	limit := maxWait
	if deadline, ok := w.Deadline(); ok {
		limit = min(limit, deadline.Sub(arrived)/4)
	}
	return arrived.Add(limit)
}

func (w *waits) cancel() {
	if w.stop != nil {
		w.stop()
	}
}
