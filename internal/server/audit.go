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

// Auditor selects the audit level of a request and receives its events.
type Auditor interface {
	// Level returns the policy's level for a request.
	Level(authorizer.Attributes) audit.RequestAuditConfig
	// Process must not keep the event: the next stage of the request changes it. more contains annotations that are
	// not in the event, sorted by key. An annotation with an empty value is absent.
	Process(e *auditinternal.Event, more []auditlog.Annotation)
}

// auditFilter audits requests as the policy requires. The request's context provides k8s.io/apiserver's audit context
// on demand, so that the local groups can add bodies and the annotations of admission. Bodies of proxied requests are
// left to the backend, which records them in its own audit log under the same Audit-ID.
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

// requestAudit is the audit state of one request.
type requestAudit struct {
	auditor  Auditor // nil if the request is not audited
	config   audit.RequestAuditConfig
	buffers  *sync.Pool // of *page
	ctx      *requestContext
	request  *http.Request
	response *response
	library  atomic.Pointer[libraryAudit] // nil until a caller requests it; then no event data exists
}

// eventBuffer is an event that is reused after the auditor has processed it. Unlike the values in a request's
// context, it is not kept by any caller.
type eventBuffer struct {
	event auditinternal.Event
	room  eventParts
}

// eventParts has room for the objects that an event refers to.
type eventParts struct {
	status      metav1.Status
	object      auditinternal.ObjectReference
	source      [1]string
	annotations [annotationCount]auditlog.Annotation
}

// outcome is the status of an event. The zero value leaves the event's status unchanged.
type outcome struct {
	known  bool
	code   int
	reason metav1.StatusReason
	text   string // empty on success
}

func (o outcome) status() metav1.Status {
	s := metav1.Status{Code: int32(o.code), Reason: o.reason, Message: o.text}
	if o.text != "" {
		s.Status = metav1.StatusFailure
	}
	return s
}

// beginAudit looks up the policy's level for a request. It returns a nil requestAudit if the request is not audited.
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
	if e := t.library.Load(); e != nil { // authentication has used the audit context
		if err := e.Init(t.config, t); err != nil {
			return nil, r // unreachable: auditContext does not initialize it without an auditor
		}
	}
	return t, r
}

// process completes and sends the event of a stage.
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

// setTimestamp sets the time of every stage but RequestReceived, which already has its time.
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

// spanContext returns a context in which k8s.io/apiserver looks for a span, to add an exemplar to its metrics. A bare
// requestContext has no span: the tracing filter would have wrapped it.
func spanContext(ctx context.Context) context.Context {
	if _, bare := ctx.(*requestContext); bare {
		return context.Background()
	}
	return ctx
}

// ProcessEvents sends the events that k8s.io/apiserver produces.
func (t *requestAudit) ProcessEvents(list ...*auditinternal.Event) bool {
	own := t.library.Load()
	for _, e := range list {
		t.send(e, &own.room)
	}
	return true
}

// send adds the chain's facts about the request to an event, and sends it to the auditor.
func (t *requestAudit) send(e *auditinternal.Event, into *eventParts) {
	t.complete(e, into)
	t.annotate(into)
	t.auditor.Process(e, into.annotations[:])
}

// processStage sends the event of a stage after the response has begun. The zero outcome stands for the response's
// outcome.
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

// responseOutcome returns the outcome of the response, or the zero outcome if a handler has already set the status of
// k8s.io/apiserver's event.
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

// End implements filters.Step. It sends the last event of a request, also after a panic.
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

// auditRefusal audits a request with an invalid credential. The event has no user, and the log contains the reason.
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

// complete replaces k8s.io/apiserver's LogRequestMetadata, which trusts the X-Forwarded-For header of any client and
// makes copies that this event does not need.
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

// setObjectRef names the requested object. It keeps the fields that a local handler has set and the request does not
// name.
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

// Audit events of proxied requests have these annotations; every event has portico.dev/credential.
//
//reference:annotations Annotations of audit events
const (
	// auditAttempts is the number of endpoints of an extension server that were tried.
	auditAttempts = "portico.dev/attempts"
	// auditCluster is the name of the Cluster to which the request was sent, which its URI does not show.
	auditCluster = "portico.dev/cluster"
	// auditClusterUser is the name of the user in that cluster.
	auditClusterUser = "portico.dev/cluster-user"
	// auditCredential is the kind of credential that identified the caller.
	auditCredential = "portico.dev/credential"
	// auditEndpoint is the address of the endpoint that responded.
	auditEndpoint = "portico.dev/endpoint"
	// auditServedBy is the APIService of the extension server that received the request.
	auditServedBy = "portico.dev/served-by"
	// auditUpgraded is "true" for an upgraded connection, which the verb get does not show.
	auditUpgraded = "portico.dev/upgraded"
)

// annotationCount is the number of annotations that the chain adds.
const annotationCount = 9

// annotate writes the annotations sorted by key.
func (t *requestAudit) annotate(into *eventParts) {
	rec := &t.ctx.record
	into.annotations = [annotationCount]auditlog.Annotation{
		{Key: "authorization.k8s.io/decision", Value: rec.Decision},
		{Key: "authorization.k8s.io/reason", Value: rec.Reason},
		{Key: auditAttempts, Value: attemptsOf(rec)},
		{Key: auditCluster, Value: rec.Cluster},
		{Key: auditClusterUser, Value: rec.ClusterUser},
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
