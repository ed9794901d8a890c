package server

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	auditlog "portico.dev/internal/audit"
	"portico.dev/internal/request"
)

// Auditor says how much of a request is written down, and takes the events.
type Auditor interface {
	// Level is what the policy says of a request.
	Level(authorizer.Attributes) audit.RequestAuditConfig
	// Process must not keep the event, which changes with the next stage of its request. more are annotations that are
	// not in it, in the order of their keys; an empty value is none.
	Process(e *auditinternal.Event, more []auditlog.Annotation)
}

// auditFilter writes down what the policy asks for. The library's context goes with the request for those who look for
// it, so that the local groups add bodies and what admission has to say; bodies of proxied requests stay with the backend,
// whose own audit log has them under the same Audit-ID.
func auditFilter(a Auditor) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		if a == nil {
			return next
		}
		pages := &sync.Pool{}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			t, r := begin(a, pages, w, r)
			if t == nil {
				next.ServeHTTP(w, r)
				return
			}
			t.process(auditinternal.StageRequestReceived, outcome{})
			if info, _ := infoOf(r.Context()); request.LongRunning(info) {
				t.response.begun = func() { t.stage(auditinternal.StageResponseStarted, outcome{}) }
			}
			defer t.end()
			next.ServeHTTP(w, r)
		})
	}
}

// trail is the audit of one request.
type trail struct {
	auditor  Auditor // nil: nothing is written down
	config   audit.RequestAuditConfig
	pages    *sync.Pool // of *page
	scene    *scene
	request  *http.Request
	response *response
	library  atomic.Pointer[libraryEvents] // nil: nobody asked for it, so that nothing is in it
}

// page is an event of ours, which goes to the auditor and comes back. Unlike what is in a request's context, nobody
// keeps it.
type page struct {
	event auditinternal.Event
	room  room
}

// room is for what an event refers to.
type room struct {
	status      metav1.Status
	object      auditinternal.ObjectReference
	source      [1]string
	annotations [annotated]auditlog.Annotation
}

// outcome is the status of an event. The zero value is none, or the one that the event has.
type outcome struct {
	known  bool
	code   int
	reason metav1.StatusReason
	text   string // empty: it is no failure
}

func (o outcome) status() metav1.Status {
	s := metav1.Status{Code: int32(o.code), Reason: o.reason, Message: o.text}
	if o.text != "" {
		s.Status = metav1.StatusFailure
	}
	return s
}

// begin asks the policy. A nil trail means that nothing is to be written down.
func begin(a Auditor, pages *sync.Pool, w http.ResponseWriter, r *http.Request) (*trail, *http.Request) {
	s, r := sceneOf(r)
	ctx := r.Context()
	switch err := fillAttributes(ctx, &s.asking); {
	case err == nil:
		s.asked = &s.asking
	case !errors.Is(err, errNoUser):
		return nil, r
	}
	level := a.Level(&s.asking)
	audit.ObservePolicyLevel(spans(ctx), level.Level)
	if level.Level == auditinternal.LevelNone {
		return nil, r
	}
	t := &s.trail
	t.config, t.pages, t.scene, t.request, t.response = level, pages, s, r, responseOf(w)
	t.auditor = a
	if e := t.library.Load(); e != nil { // authentication has said something
		if err := e.Init(t.config, t); err != nil {
			return nil, r // it is initialized here or in events, and events has had no auditor
		}
	}
	return t, r
}

// process completes an event of a stage and passes it on.
func (t *trail) process(stage auditinternal.Stage, o outcome) {
	if slices.Contains(t.config.OmitStages, stage) {
		return
	}
	ctx := spans(t.request.Context())
	if e := t.library.Load(); e != nil {
		if o.known {
			e.room.status = o.status()
			e.SetEventResponseStatus(&e.room.status)
		}
		e.ProcessEventStage(ctx, stage)
		return
	}
	p, ok := t.pages.Get().(*page)
	if !ok {
		p = &page{}
	}
	p.event = auditinternal.Event{Level: t.config.Level, AuditID: types.UID(t.scene.AuditID), Stage: stage}
	if o.known {
		p.room.status = o.status()
		p.event.ResponseStatus = &p.room.status
	}
	t.date(&p.event)
	audit.ObserveEvent(ctx)
	t.pass(&p.event, &p.room)
	t.pages.Put(p)
}

// date is for all stages but that of an arrival, whose time is known.
func (t *trail) date(e *auditinternal.Event) {
	if e.Stage == auditinternal.StageRequestReceived {
		return
	}
	now := time.Now()
	e.StageTimestamp = metav1.NewMicroTime(now)
	if e.Stage != auditinternal.StageResponseStarted {
		t.scene.record.ended = now
	}
}

// spans is a context in which the library looks for a span, as an exemplar beside what it counts. That of a scene by
// itself has none: the tracing filter would have put one around it.
func spans(ctx context.Context) context.Context {
	if _, bare := ctx.(*scene); bare {
		return context.Background()
	}
	return ctx
}

// ProcessEvents is how the library passes on its event.
func (t *trail) ProcessEvents(list ...*auditinternal.Event) bool {
	own := t.library.Load()
	for _, e := range list {
		t.pass(e, &own.room)
	}
	return true
}

// pass completes an event with what the chain knows of its request, and passes it on.
func (t *trail) pass(e *auditinternal.Event, into *room) {
	t.complete(e, into)
	t.annotate(into)
	t.auditor.Process(e, into.annotations[:])
}

// stage sends an event for a stage of an answer that has begun. Without an outcome it is that of the answer.
func (t *trail) stage(s auditinternal.Stage, o outcome) {
	rec := &t.scene.record
	if rec.impersonated != nil {
		t.scene.events().LogImpersonatedUser(rec.impersonated, rec.constraint)
	}
	switch {
	case rec.failure != "":
		o = outcome{known: true, code: t.response.code, text: bounded(rec.failure)}
	case o.known:
	default:
		o = t.answered()
	}
	t.process(s, o)
}

// answered is the outcome of the answer, none when somebody who served the request has told the library of one.
func (t *trail) answered() outcome {
	if e := t.library.Load(); e != nil {
		if said := e.GetEventResponseStatus(); said != nil {
			if said.Code == 0 {
				e.SetEventResponseStatusCode(int32(t.response.code))
			}
			return outcome{}
		}
	}
	return outcome{known: true, code: t.response.code}
}

// end sends the last event of a request, however it ended.
func (t *trail) end() {
	t.response.begun = nil
	p := recover()
	if err, ok := p.(error); p == nil || ok && errors.Is(err, http.ErrAbortHandler) {
		t.stage(auditinternal.StageResponseComplete, outcome{})
	} else {
		t.stage(auditinternal.StagePanic, outcome{
			known: true, code: http.StatusInternalServerError, reason: metav1.StatusReasonInternalError,
			text: "the handler met a fault; the log holds the details",
		})
	}
	if p != nil {
		panic(p)
	}
}

// auditRefusal writes down a request whose credential failed. There is no user to name, and the log has the reason.
func auditRefusal(a Auditor, w http.ResponseWriter, r *http.Request) {
	if a == nil {
		return
	}
	if t, _ := begin(a, &sync.Pool{}, w, r); t != nil {
		t.stage(auditinternal.StageResponseStarted, outcome{
			known: true, code: http.StatusUnauthorized, reason: metav1.StatusReasonUnauthorized, text: "Authentication failed",
		})
	}
}
