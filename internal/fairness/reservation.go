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

	ctx    context.Context
	schema *schema
	sight  *sight
	work   fcrequest.WorkEstimate
	watch  bool
	began  time.Time
	from   *waiter // nil: it never queued

	leaving sync.Mutex // held while the seat is given back, so that whoever leaves second returns after that
	left    bool
}

// Enter waits for a seat for r, for at most a quarter of the time that r has, as upstream, and never beyond its end.
// Whoever was admitted must Leave.
func (f *Fairness) Enter(r *http.Request, info *apirequest.RequestInfo, who user.Info) *Turn {
	e := f.engine.Load()
	if e == nil {
		return &Turn{RetryAfter: 1}
	}
	s := find(*e.ranks.snapshot.Load(), who, info)
	t := &Turn{
		Schema: s.object, Level: s.of, ctx: r.Context(), schema: s, sight: s.level.sight.Load(),
		work: e.estimate(r, s.object.Name, s.of.Name), watch: info.Verb == "watch",
	}
	s.seen.Estimated(t.work.MaxSeats())
	if refusal := t.enter(info, who); refusal != "" {
		fcmetrics.AddReject(t.ctx, t.Level.Name, t.Schema.Name, refusal)
		f.dropped.RecordDroppedRequest(t.Level.Name)
		t.RetryAfter = int(f.dropped.GetRetryAfter(t.Level.Name))
		return t
	}
	t.Admitted = true
	return t
}

// Why a request has no seat, as upstream counts it.
const (
	seated    = ""
	noSeat    = "concurrency-limit"
	queueFull = "queue-full"
	timeOut   = "time-out" // or its client has gone
)

func (t *Turn) enter(info *apirequest.RequestInfo, who user.Info) (refusal string) {
	seats, level := int64(t.work.MaxSeats()), t.schema.level
	if level.take(seats) {
		t.sight.want(int(seats))
		t.sit(0)
		return seated
	}
	if level.form.Load().queues > 0 {
		return t.queue(info, who)
	}
	if !level.seize(seats) {
		return noSeat
	}
	t.sight.want(int(seats))
	t.sit(0)
	return seated
}

// sit tells everybody that the seats are taken.
func (t *Turn) sit(waited time.Duration) {
	seats := t.work.MaxSeats()
	t.began = time.Now()
	t.schema.seen.Seated(seats)
	if t.schema.level.limit.Load() != exempt {
		t.schema.seen.Waited(true, waited)
	}
	t.sight.executing.Add(1)
	t.sight.seats.Add(int64(seats))
	t.sight.changed(t.began)
}

// Leave gives the seat back. Only the first call does anything, and every call returns after that.
func (t *Turn) Leave() {
	t.leaving.Lock()
	defer t.leaving.Unlock()
	if !t.Admitted || t.left {
		return
	}
	t.left = true
	now := time.Now()
	took := now.Sub(t.began)
	t.schema.seen.Left(t.watch, took)
	t.sight.executing.Add(-1)
	if t.from != nil {
		t.schema.level.served(t.from, took.Seconds())
		t.schema.level.dismiss(t.from)
		t.from = nil
	}
	if later := t.work.AdditionalLatency; later > 0 {
		time.AfterFunc(later, func() { t.stand(time.Now()) }) // what a write costs is not over when it is answered: watchers hear of it
		return
	}
	t.stand(now)
}

// stand tells everybody that the seats are free.
func (t *Turn) stand(now time.Time) {
	seats := t.work.MaxSeats()
	t.schema.seen.Stood(seats)
	t.sight.seats.Add(int64(-seats))
	t.sight.want(-seats)
	t.sight.changed(now)
	t.schema.level.giveBack(int64(seats))
}

// Says are the values of the headers by which a response says what the request was classified as, nil before Run. They
// must not be written to.
func (t *Turn) Says() (schemaUID, levelUID []string) {
	if t.schema == nil {
		return nil, nil
	}
	return t.schema.schemaUID, t.schema.levelUID
}

// Signal implements flowcontrol.InitializationSignal: the local groups call it when a watch has sent what it began with.
func (t *Turn) Signal() { t.Leave() }

// Wait implements flowcontrol.InitializationSignal. Nobody waits: Signal itself ends the turn.
func (t *Turn) Wait() {}
