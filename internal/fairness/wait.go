package fairness

import (
	"context"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// maxWait bounds how long any request waits for its turn, as upstream.
const maxWait = time.Minute

// queue waits for seats among the others of the flow.
func (t *Turn) queue(info *apirequest.RequestInfo, who user.Info) (refusal string) {
	arrived := time.Now()
	seats, initial := t.work.MaxSeats(), float64(t.work.InitialSeats)
	level := t.schema.level
	w := level.waiter()
	w.schema, w.seats, w.initial = t.Schema.Name, int64(seats), initial
	w.work = initial*guess + float64(t.work.FinalSeats)*t.work.AdditionalLatency.Seconds()
	length := level.line(w, t.schema.flow(distinguish(t.schema, info, who)))
	if length == 0 {
		level.dismiss(w)
		return queueFull
	}
	t.schema.seen.Queued(length, seats)
	t.sight.waiting.Add(1)
	t.sight.want(seats)
	t.sight.changed(arrived)
	in := w.wait(t.ctx, level, arrived)
	t.schema.seen.LeftQueue(seats)
	t.sight.waiting.Add(-1)
	waited := time.Since(arrived)
	apirequest.TrackAPFQueueWaitLatency(t.ctx, waited)
	if !in {
		t.sight.want(-seats)
		t.sight.changed(time.Now())
		level.dismiss(w)
		t.schema.seen.Waited(false, waited)
		return timeOut
	}
	t.from = w
	t.sit(waited)
	return seated
}

// timed is a context with a deadline that it has for others. To wait for one costs a timer, and who queues gives up long
// before the deadline by a timer of its own.
type timed interface {
	// Client ends when the client leaves.
	Client() context.Context
}

// wait reports whether w was seated.
func (w *waiter) wait(ctx context.Context, l *level, arrived time.Time) bool {
	select {
	case <-w.seated:
		return true
	default:
	}
	patience := time.Until(until(ctx, arrived))
	if w.patience == nil {
		w.patience = time.NewTimer(patience)
	} else {
		w.patience.Reset(patience)
	}
	defer w.patience.Stop()
	if t, ok := ctx.(timed); ok {
		ctx = t.Client()
	}
	select {
	case <-w.seated:
		return true
	case <-ctx.Done():
	case <-w.patience.C:
	}
	if l.abandon(w) {
		return false
	}
	<-w.seated
	return true
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
