package server

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	auditlog "portico.dev/internal/audit"
	"portico.dev/internal/filters"
	"portico.dev/internal/request"
)

// Auditor decides how much of a request is audited, and takes the events.
type Auditor interface {
	// Level is the policy's level for a request.
	Level(authorizer.Attributes) audit.RequestAuditConfig
	// Process must not keep the event, which changes with the next stage of its request. more are annotations that are
	// not in it, in the order of their keys; an empty value is none.
	Process(e *auditinternal.Event, more []auditlog.Annotation)
}

// auditFilter audits what the policy asks for. The library's audit context goes with the request for those who look for
// it, so that the local groups add bodies and what admission has to say; bodies of proxied requests stay with the
// backend, whose own audit log has them under the same Audit-ID.
func auditFilter(a Auditor) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		if a == nil {
			return next
		}
		pages := &sync.Pool{}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			t, r := beginAudit(a, pages, w, r)
			if t == nil {
				next.ServeHTTP(w, r)
				return
			}
			t.process(auditinternal.StageRequestReceived, outcome{})
			if info, _ := requestInfo(r.Context()); request.LongRunning(info) {
				t.response.OnCode = func() { t.processStage(auditinternal.StageResponseStarted, outcome{}) }
			}
			t.ctx.AtEnd(t)
			next.ServeHTTP(w, r)
		})
	}
}

// requestAudit is the audit of one request.
type requestAudit struct {
	auditor  Auditor // nil: it is not audited
	config   audit.RequestAuditConfig
	buffers  *sync.Pool // of *page
	ctx      *requestContext
	request  *http.Request
	response *response
	library  atomic.Pointer[libraryAudit] // nil: nobody asked for it, so that it is empty
}

// eventBuffer is an event that goes to the auditor and comes back to be used again. Unlike what is in a request's
// context, it is not kept by anybody.
type eventBuffer struct {
	event auditinternal.Event
	room  eventParts
}

// eventParts has room for what an event refers to.
type eventParts struct {
	status      metav1.Status
	object      auditinternal.ObjectReference
	source      [1]string
	annotations [annotationCount]auditlog.Annotation
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

// beginAudit asks the policy. Nil means that the request is not audited.
func beginAudit(a Auditor, pages *sync.Pool, w http.ResponseWriter, r *http.Request) (*requestAudit, *http.Request) {
	s, r := requestContextOf(r)
	ctx := r.Context()
	switch err := fillAttributes(ctx, &s.attributesBuffer); {
	case err == nil:
		s.attributes = &s.attributesBuffer
	case !errors.Is(err, errNoUser):
		return nil, r
	}
	level := a.Level(&s.attributesBuffer)
	audit.ObservePolicyLevel(spanContext(ctx), level.Level)
	if level.Level == auditinternal.LevelNone {
		return nil, r
	}
	t := &s.audit
	t.config, t.buffers, t.ctx, t.request, t.response = level, pages, s, r, responseOf(w)
	t.auditor = a
	if e := t.library.Load(); e != nil { // authentication has said something
		if err := e.Init(t.config, t); err != nil {
			return nil, r // it is initialized here or in events, and events has had no auditor
		}
	}
	return t, r
}

// process completes an event of a stage and sends it.
func (t *requestAudit) process(stage auditinternal.Stage, o outcome) {
	if slices.Contains(t.config.OmitStages, stage) {
		return
	}
	ctx := spanContext(t.request.Context())
	if e := t.library.Load(); e != nil {
		if o.known {
			e.room.status = o.status()
			e.SetEventResponseStatus(&e.room.status)
		}
		e.ProcessEventStage(ctx, stage)
		return
	}
	p, ok := t.buffers.Get().(*eventBuffer)
	if !ok {
		p = &eventBuffer{}
	}
	p.event = auditinternal.Event{Level: t.config.Level, AuditID: types.UID(t.ctx.AuditID), Stage: stage}
	if o.known {
		p.room.status = o.status()
		p.event.ResponseStatus = &p.room.status
	}
	t.setTimestamp(&p.event)
	audit.ObserveEvent(ctx)
	t.send(&p.event, &p.room)
	t.buffers.Put(p)
}

// setTimestamp is for all stages but RequestReceived, whose time is known.
func (t *requestAudit) setTimestamp(e *auditinternal.Event) {
	if e.Stage == auditinternal.StageRequestReceived {
		return
	}
	now := time.Now()
	e.StageTimestamp = metav1.NewMicroTime(now)
	if e.Stage != auditinternal.StageResponseStarted {
		t.ctx.record.Ended = now
	}
}

// spanContext is a context in which the library looks for a span, as an exemplar beside what it counts. A
// requestContext by itself has none: the tracing filter would have put one around it.
func spanContext(ctx context.Context) context.Context {
	if _, bare := ctx.(*requestContext); bare {
		return context.Background()
	}
	return ctx
}

// ProcessEvents is how the library sends its event.
func (t *requestAudit) ProcessEvents(list ...*auditinternal.Event) bool {
	own := t.library.Load()
	for _, e := range list {
		t.send(e, &own.room)
	}
	return true
}

// send completes an event with what the chain knows of its request, and sends it to the auditor.
func (t *requestAudit) send(e *auditinternal.Event, into *eventParts) {
	t.complete(e, into)
	t.annotate(into)
	t.auditor.Process(e, into.annotations[:])
}

// processStage sends an event for a stage of a response that has begun. Without an outcome it is that of the response.
func (t *requestAudit) processStage(s auditinternal.Stage, o outcome) {
	rec := &t.ctx.record
	if rec.Impersonated != nil {
		t.ctx.auditContext().LogImpersonatedUser(rec.Impersonated, rec.Constraint)
	}
	switch {
	case rec.Failure != "":
		o = outcome{known: true, code: t.response.Code, text: filters.Bounded(rec.Failure)}
	case o.known:
	default:
		o = t.responseOutcome()
	}
	t.process(s, o)
}

// responseOutcome is the outcome of the response, none when somebody who served the request has told the library of
// one.
func (t *requestAudit) responseOutcome() outcome {
	if e := t.library.Load(); e != nil {
		if said := e.GetEventResponseStatus(); said != nil {
			if said.Code == 0 {
				e.SetEventResponseStatusCode(int32(t.response.Code))
			}
			return outcome{}
		}
	}
	return outcome{known: true, code: t.response.Code}
}

// End implements filters.Step: it sends the last event of a request, however it ended.
func (t *requestAudit) End(panicked any) {
	t.response.OnCode = nil
	if err, ok := panicked.(error); panicked == nil || ok && errors.Is(err, http.ErrAbortHandler) {
		t.processStage(auditinternal.StageResponseComplete, outcome{})
		return
	}
	t.processStage(auditinternal.StagePanic, outcome{
		known: true, code: http.StatusInternalServerError, reason: metav1.StatusReasonInternalError,
		text: "the handler met a fault; the log holds the details",
	})
}

// auditRefusal audits a request whose credential failed. There is no user to name, and the log has the reason.
func auditRefusal(a Auditor, w http.ResponseWriter, r *http.Request) {
	if a == nil {
		return
	}
	if t, _ := beginAudit(a, &sync.Pool{}, w, r); t != nil {
		t.processStage(auditinternal.StageResponseStarted, outcome{
			known: true, code: http.StatusUnauthorized, reason: metav1.StatusReasonUnauthorized, text: "Authentication failed",
		})
	}
}

// complete stands in for the library's LogRequestMetadata, which trusts X-Forwarded-For, as anybody can send it, and
// copies what this event alone has.
func (t *requestAudit) complete(e *auditinternal.Event, into *eventParts) {
	e.RequestReceivedTimestamp = metav1.NewMicroTime(t.ctx.record.Started)
	if e.Stage == auditinternal.StageRequestReceived {
		e.StageTimestamp = e.RequestReceivedTimestamp
	}
	asked := &t.ctx.attributesBuffer
	e.Verb = asked.Verb
	e.RequestURI = filters.Bounded(filters.AuditedURI(t.request.URL))
	if agent := t.request.Header["User-Agent"]; len(agent) > 0 {
		e.UserAgent = filters.Bounded(agent[0])
	}
	into.source[0] = hostOf(t.request.RemoteAddr)
	e.SourceIPs = into.source[:]
	if who := asked.User; who != nil && e.User.Username == "" {
		e.User = userInfo(who)
	}
	if asked.ResourceRequest {
		setObjectRef(e, asked, &into.object)
	}
	if e.ObjectRef != nil {
		e.ObjectRef.Name = filters.Bounded(e.ObjectRef.Name)
	}
}

func userInfo(who user.Info) authnv1.UserInfo {
	info := authnv1.UserInfo{Username: who.GetName(), UID: who.GetUID(), Groups: who.GetGroups()}
	if extra := who.GetExtra(); len(extra) > 0 {
		info.Extra = make(map[string]authnv1.ExtraValue, len(extra))
		for key, values := range extra {
			info.Extra[key] = values
		}
	}
	return info
}

// setObjectRef names what the request is for. What a local handler found out about the object is kept.
func setObjectRef(e *auditinternal.Event, a *authorizer.AttributesRecord, object *auditinternal.ObjectReference) {
	if e.ObjectRef == nil {
		*object = auditinternal.ObjectReference{}
		e.ObjectRef = object
	}
	for _, part := range [...]struct {
		to *string
		is string
	}{
		{&e.ObjectRef.Namespace, a.Namespace}, {&e.ObjectRef.Name, a.Name},
		{&e.ObjectRef.Resource, a.Resource}, {&e.ObjectRef.Subresource, a.Subresource},
	} {
		if part.is != "" {
			*part.to = part.is
		}
	}
	if a.APIVersion != "" {
		e.ObjectRef.APIGroup, e.ObjectRef.APIVersion = a.APIGroup, a.APIVersion
	}
}

// Audit events of proxied requests have these annotations; portico.dev/credential is on every event.
//
//reference:annotations Annotations of audit events
const (
	// auditAttempts is how many endpoints of an extension server were tried.
	auditAttempts = "portico.dev/attempts"
	// auditCredential is the kind of credential that identified the caller.
	auditCredential = "portico.dev/credential"
	// auditEndpoint is the address of the endpoint that answered.
	auditEndpoint = "portico.dev/endpoint"
	// auditServedBy is the APIService whose extension server was asked.
	auditServedBy = "portico.dev/served-by"
	// auditUpgraded is set to "true" for a connection that was upgraded; the verb alone says get.
	auditUpgraded = "portico.dev/upgraded"
)

// annotationCount is how many annotations are ours.
const annotationCount = 7

// annotate writes them in the order of the keys.
func (t *requestAudit) annotate(into *eventParts) {
	rec := &t.ctx.record
	into.annotations = [annotationCount]auditlog.Annotation{
		{Key: "authorization.k8s.io/decision", Value: rec.Decision},
		{Key: "authorization.k8s.io/reason", Value: rec.Reason},
		{Key: auditAttempts, Value: attemptsOf(rec)},
		{Key: auditCredential, Value: rec.Credential},
		{Key: auditEndpoint, Value: rec.Endpoint},
		{Key: auditServedBy, Value: rec.ServedBy},
		{Key: auditUpgraded, Value: upgradedOf(t.response)},
	}
}

func attemptsOf(rec *filters.Record) string {
	if rec.Attempts == 0 {
		return ""
	}
	return strconv.Itoa(rec.Attempts)
}

func upgradedOf(res *response) string {
	if res.Hijacked {
		return "true"
	}
	return ""
}
