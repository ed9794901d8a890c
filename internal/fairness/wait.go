package fairness

import (
	"context"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	fcmetrics "k8s.io/apiserver/pkg/util/flowcontrol/metrics"
)

// maxWait bounds how long any request waits for its turn, as upstream.
const maxWait = time.Minute

// queue waits for seats among the others of the flow.
func (t *Turn) queue(info *apirequest.RequestInfo, who user.Info) (refusal string) {
	arrived := time.Now()
	seats, initial := t.work.MaxSeats(), float64(t.work.InitialSeats)
	w := &waiter{
		schema: t.Schema.Name, seats: int64(seats), initial: initial, seated: make(chan struct{}),
		work: initial*guess + float64(t.work.FinalSeats)*t.work.AdditionalLatency.Seconds(),
	}
	level := t.schema.level
	length := level.line(w, flowOf(t.Schema.Name, distinguish(t.schema, info, who)))
	if length == 0 {
		return queueFull
	}
	fcmetrics.ObserveQueueLength(t.ctx, t.Level.Name, t.Schema.Name, length)
	t.inQueue(1)
	t.sight.demand.Add(float64(seats))
	in := w.wait(t.ctx, level, arrived)
	t.inQueue(-1)
	waited := time.Since(arrived)
	apirequest.TrackAPFQueueWaitLatency(t.ctx, waited)
	if !in {
		t.sight.demand.Add(-float64(seats))
		t.schema.seen.Waited(false, waited)
		return timeOut
	}
	t.from = w
	t.sit(waited)
	return seated
}

// inQueue counts the request among those that wait, or not any more.
func (t *Turn) inQueue(n int) {
	fcmetrics.AddRequestsInQueues(t.ctx, t.Level.Name, t.Schema.Name, n)
	fcmetrics.AddSeatsInQueues(t.ctx, t.Level.Name, t.Schema.Name, n*t.work.MaxSeats())
	t.sight.requests.RequestsWaiting.Add(float64(n))
}

// wait reports whether w was seated.
func (w *waiter) wait(ctx context.Context, l *level, arrived time.Time) bool {
	select {
	case <-w.seated:
		return true
	default:
	}
	patience := time.NewTimer(time.Until(until(ctx, arrived)))
	defer patience.Stop()
	select {
	case <-w.seated:
		return true
	case <-ctx.Done():
	case <-patience.C:
	}
	return !l.abandon(w)
}

// until is when a request that came then has waited long enough.
func until(ctx context.Context, came time.Time) time.Time {
	if received, ok := apirequest.ReceivedTimestampFrom(ctx); ok {
		came = received
	}
	limit := maxWait
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, deadline.Sub(came)/4)
	}
	return came.Add(limit)
}

// distinguish is which of its schema's flows a request belongs to.
func distinguish(s *schema, info *apirequest.RequestInfo, who user.Info) string {
	switch s.by {
	case flowcontrolv1.FlowDistinguisherMethodByUserType:
		return who.GetName()
	case flowcontrolv1.FlowDistinguisherMethodByNamespaceType:
		return info.Namespace
	default:
		return ""
	}
}
