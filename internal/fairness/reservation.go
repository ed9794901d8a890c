package fairness

import (
	"context"
	"net/http"
	"sync"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	fcmetrics "k8s.io/apiserver/pkg/util/flowcontrol/metrics"
	fcrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"

	"portico.dev/internal/request"
)

// Reservation contains the seats of one request, or their refusal. Its methods are safe for concurrent use.
type Reservation struct {
	// Schema and Level are the classification of the request. They are nil only before Run.
	Schema *flowcontrolv1.FlowSchema
	Level  *flowcontrolv1.PriorityLevelConfiguration
	// Admitted reports whether the request may be served. If not, it has no seats to release.
	Admitted bool
	// RetryAfter is the number of seconds after which a refused request may be retried.
	RetryAfter int
	// Waited is how long an admitted request was queued.
	Waited time.Duration

	ctx     context.Context
	schema  *schema
	gauges  *gaugeUpdater
	work    fcrequest.WorkEstimate
	watch   bool
	started time.Time
	waiter  *waiter // nil if it was not queued

	releasing sync.Mutex // held while the seats are released, so that a second call returns after that
	released  bool
}

// Reserve waits for seats for r. As in k8s.io/apiserver, it waits for at most a quarter of r's time limit, and never beyond the
// end of r. An admitted request must be released.
func (f *Fairness) Reserve(r *http.Request, info *apirequest.RequestInfo, who user.Info) *Reservation {
	d := f.dispatcher.Load()
	if d == nil {
		return &Reservation{RetryAfter: 1}
	}
	s := classify(*d.classifier.snapshot.Load(), who, info)
	res := &Reservation{
		Schema: s.object, Level: s.levelObject, ctx: r.Context(), schema: s, gauges: s.level.gauges.Load(),
		work: d.estimate(r, s.object.Name, s.levelObject.Name), watch: info.Verb == "watch",
	}
	s.metrics.Estimated(res.work.MaxSeats())
	if refusal := res.reserve(info, who); refusal != "" {
		fcmetrics.AddReject(res.ctx, res.Level.Name, res.Schema.Name, refusal)
		f.dropped.RecordDroppedRequest(res.Level.Name)
		res.RetryAfter = int(f.dropped.GetRetryAfter(res.Level.Name))
		return res
	}
	res.Admitted = true
	return res
}

// Reasons for a refusal, as in upstream's metrics.
const (
	notRefused         = ""
	refusedConcurrency = "concurrency-limit"
	refusedQueueFull   = "queue-full"
	refusedTimeout     = "time-out" // or its client has disconnected
)

func (r *Reservation) reserve(info *apirequest.RequestInfo, who user.Info) (refusal string) {
	seats, level := int64(r.work.MaxSeats()), r.schema.level
	if level.tryTake(seats) {
		r.gauges.addDemand(int(seats))
		r.occupy(0)
		return notRefused
	}
	if level.config.Load().queues > 0 {
		return r.waitInQueue(info, who)
	}
	if !level.takeAhead(seats) {
		return refusedConcurrency
	}
	r.gauges.addDemand(int(seats))
	r.occupy(0)
	return notRefused
}

// occupy updates metrics and gauges when the seats are taken.
func (r *Reservation) occupy(waited time.Duration) {
	seats := r.work.MaxSeats()
	r.started, r.Waited = time.Now(), waited
	r.schema.metrics.Dispatched(seats)
	if r.schema.level.limit.Load() != exempt {
		r.schema.metrics.Waited(true, waited)
	}
	r.gauges.executing.Add(1)
	r.gauges.seats.Add(int64(seats))
	r.gauges.schedule(r.started)
}

// Release releases the seats. Further calls do nothing. Every call returns after the release.
func (r *Reservation) Release() {
	r.releasing.Lock()
	defer r.releasing.Unlock()
	if !r.Admitted || r.released {
		return
	}
	r.released = true
	now := time.Now()
	took := now.Sub(r.started)
	r.schema.metrics.Finished(r.watch, took)
	r.gauges.executing.Add(-1)
	level, w := r.schema.level, r.waiter
	r.waiter = nil
	if later := r.work.AdditionalLatency; later > 0 {
		if w != nil {
			level.adjustService(w, took.Seconds())
			level.putWaiter(w)
		}
		time.AfterFunc(later, func() { // the cost of a write continues after its response, while it is sent to watchers
			r.vacate(time.Now())
			level.release(int64(r.work.MaxSeats()))
		})
		return
	}
	r.vacate(now)
	if w == nil {
		level.release(int64(r.work.MaxSeats()))
		return
	}
	level.finish(w, took.Seconds(), int64(r.work.MaxSeats()))
	level.putWaiter(w)
}

// vacate updates metrics and gauges before the seats are released.
func (r *Reservation) vacate(now time.Time) {
	seats := r.work.MaxSeats()
	r.schema.metrics.SeatsReleased(seats)
	r.gauges.seats.Add(int64(-seats))
	r.gauges.addDemand(-seats)
	r.gauges.schedule(now)
}

// HeaderValues returns the values of the response headers with the classification, or nil before Run. Callers must not modify
// them.
func (r *Reservation) HeaderValues() (schemaUID, levelUID []string) {
	if r.schema == nil {
		return nil, nil
	}
	return r.schema.schemaUID, r.schema.levelUID
}

// Signal implements flowcontrol.InitializationSignal. The local groups call it after a watch has sent its initial events.
func (r *Reservation) Signal() { r.Release() }

// Wait implements flowcontrol.InitializationSignal. It does nothing, because Signal releases the seats.
func (r *Reservation) Wait() {}

// maxWait bounds how long any request waits for a seat, as in k8s.io/apiserver.
const maxWait = time.Minute

// waitInQueue waits for seats among the other requests of the flow.
func (r *Reservation) waitInQueue(info *apirequest.RequestInfo, who user.Info) (refusal string) {
	arrived := time.Now()
	seats, initial := r.work.MaxSeats(), float64(r.work.InitialSeats)
	level := r.schema.level
	w := level.getWaiter()
	w.schema, w.seats, w.initial = r.Schema.Name, int64(seats), initial
	w.work = initial*estimatedService + float64(r.work.FinalSeats)*r.work.AdditionalLatency.Seconds()
	length := level.enqueue(w, r.schema.flow(distinguish(r.schema, info, who)))
	if length == 0 {
		level.putWaiter(w)
		return refusedQueueFull
	}
	r.schema.metrics.Queued(length, seats)
	r.gauges.waiting.Add(1)
	r.gauges.addDemand(seats)
	r.gauges.schedule(arrived)
	in := w.wait(r.ctx, level, arrived)
	r.schema.metrics.LeftQueue(seats)
	r.gauges.waiting.Add(-1)
	waited := time.Since(arrived)
	apirequest.TrackAPFQueueWaitLatency(r.ctx, waited)
	if !in {
		r.gauges.addDemand(-seats)
		r.gauges.schedule(time.Now())
		level.putWaiter(w)
		r.schema.metrics.Waited(false, waited)
		return refusedTimeout
	}
	r.waiter = w
	r.occupy(waited)
	return notRefused
}

// wait reports whether w was seated.
func (w *waiter) wait(ctx context.Context, l *level, arrived time.Time) bool {
	select {
	case <-w.dispatched:
		return true
	default:
	}
	timeout := time.Until(waitDeadline(ctx, arrived))
	if w.timer == nil {
		w.timer = time.NewTimer(timeout)
	} else {
		w.timer.Reset(timeout)
	}
	defer w.timer.Stop()
	// Waiting for the deadline of ctx would cost another timer, and the request times out long before it.
	ctx = request.ClientContext(ctx)
	select {
	case <-w.dispatched:
		return true
	case <-ctx.Done():
	case <-w.timer.C:
	}
	if l.cancel(w) {
		return false
	}
	<-w.dispatched
	return true
}

// waitDeadline returns the end of the wait for a request that arrived at a time.
func waitDeadline(ctx context.Context, came time.Time) time.Time {
	if received, ok := apirequest.ReceivedTimestampFrom(ctx); ok {
		came = received
	}
	limit := maxWait
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, deadline.Sub(came)/4)
	}
	return came.Add(limit)
}

// distinguish returns the flow distinguisher of a request.
func distinguish(s *schema, info *apirequest.RequestInfo, who user.Info) string {
	switch s.distinguisherMethod {
	case flowcontrolv1.FlowDistinguisherMethodByUserType:
		return who.GetName()
	case flowcontrolv1.FlowDistinguisherMethodByNamespaceType:
		return info.Namespace
	default:
		return ""
	}
}
