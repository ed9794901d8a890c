package server

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	authnv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
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

// auditFilter writes down what the policy asks for. The library's context goes with the request, so that the local groups
// add bodies and what admission has to say; bodies of proxied requests stay with the backend, whose own audit log has
// them under the same Audit-ID.
func auditFilter(a Auditor) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		if a == nil {
			return next
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			t, r := begin(a, w, r)
			if t == nil {
				next.ServeHTTP(w, r)
				return
			}
			ctx := r.Context()
			t.events.ProcessEventStage(ctx, auditinternal.StageRequestReceived)
			info, _ := infoOf(ctx)
			if request.LongRunning(info) {
				t.response.begun = func() { t.stage(auditinternal.StageResponseStarted) }
			}
			defer t.end()
			next.ServeHTTP(w, r)
		})
	}
}

// trail is the audit of one request.
type trail struct {
	auditor  Auditor
	request  *http.Request
	record   *record
	response *response
	events   *audit.AuditContext
	asked    *authorizer.AttributesRecord // who asked for what

	// Room for what the event refers to: it is the same for every stage, and made once with the rest.
	status      metav1.Status
	object      auditinternal.ObjectReference
	source      [1]string
	annotations [annotated]auditlog.Annotation
}

// begin asks the policy. A nil trail means that nothing is to be written down.
func begin(a Auditor, w http.ResponseWriter, r *http.Request) (*trail, *http.Request) {
	ctx := r.Context()
	s, _ := ctx.Value(sceneKey{}).(*scene)
	attributes, err := s.ask(ctx)
	if err != nil && !errors.Is(err, errNoUser) {
		return nil, r
	}
	level := a.Level(attributes)
	audit.ObservePolicyLevel(ctx, level.Level)
	if level.Level == auditinternal.LevelNone {
		return nil, r
	}
	if with := withEvents(ctx); with != ctx {
		ctx, r = with, r.WithContext(with)
	}
	t := &trail{}
	if s != nil {
		t = &s.trail
		if err == nil {
			s.asked = attributes
		}
	}
	t.auditor, t.request, t.record, t.response = a, r, recordFrom(ctx), responseOf(w)
	t.events, t.asked = audit.AuditContextFrom(ctx), attributes
	audit.WithAuditID(ctx, types.UID(request.AuditID(ctx)))
	if err := t.events.Init(level, t); err != nil {
		return nil, r // a context can be initialized once, and this one is new
	}
	return t, r
}

// ProcessEvents completes an event with what the chain knows of its request, and passes it on.
func (t *trail) ProcessEvents(list ...*auditinternal.Event) bool {
	for _, e := range list {
		complete(e, t)
		t.annotate()
		t.auditor.Process(e, t.annotations[:])
	}
	return true
}

// complete stands in for the library's LogRequestMetadata, which believes X-Forwarded-For, as anybody can send it, and
// copies what this event alone has.
func complete(e *auditinternal.Event, t *trail) {
	e.RequestReceivedTimestamp = metav1.NewMicroTime(t.record.started)
	if e.Stage == auditinternal.StageRequestReceived {
		e.StageTimestamp = e.RequestReceivedTimestamp
	}
	e.Verb = t.asked.Verb
	e.RequestURI = bounded(auditedURI(t.request.URL))
	if agent := t.request.Header["User-Agent"]; len(agent) > 0 {
		e.UserAgent = bounded(agent[0])
	}
	e.SourceIPs = t.sources()
	if who := t.asked.User; who != nil && e.User.Username == "" {
		e.User = userInfo(who)
	}
	if t.asked.ResourceRequest {
		t.refer(e)
	}
	if e.ObjectRef != nil {
		e.ObjectRef.Name = bounded(e.ObjectRef.Name)
	}
}

func (t *trail) sources() []string {
	t.source[0] = hostOf(t.request.RemoteAddr)
	return t.source[:]
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

// refer names what the request is for. What a local handler found out about the object is kept.
func (t *trail) refer(e *auditinternal.Event) {
	a := t.asked
	if e.ObjectRef == nil {
		e.ObjectRef = &t.object
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

// annotated is how many annotations are ours.
const annotated = 7

// annotate is in the order of the keys.
func (t *trail) annotate() {
	rec := t.record
	t.annotations = [annotated]auditlog.Annotation{
		{Key: "authorization.k8s.io/decision", Value: rec.decision},
		{Key: "authorization.k8s.io/reason", Value: rec.reason},
		{Key: "portico.dev/attempts", Value: attemptsOf(rec)},
		{Key: "portico.dev/credential", Value: rec.credential},
		{Key: "portico.dev/endpoint", Value: rec.endpoint},
		{Key: "portico.dev/served-by", Value: rec.servedBy},
		{Key: "portico.dev/upgraded", Value: upgradedOf(t.response)}, // the verb alone says get
	}
}

// stage sends an event for a stage of an answer that has begun.
func (t *trail) stage(s auditinternal.Stage) {
	if t.record.impersonated != nil {
		t.events.LogImpersonatedUser(t.record.impersonated, t.record.constraint)
	}
	switch status := t.events.GetEventResponseStatus(); {
	case t.record.failure != "":
		t.events.SetEventResponseStatus(&metav1.Status{
			Status: metav1.StatusFailure, Code: int32(t.response.code), Message: bounded(t.record.failure),
		})
	case status == nil:
		t.status.Code = int32(t.response.code)
		t.events.SetEventResponseStatus(&t.status)
	case status.Code == 0:
		t.events.SetEventResponseStatusCode(int32(t.response.code))
	}
	t.events.ProcessEventStage(t.request.Context(), s)
}

// end sends the last event of a request, however it ended.
func (t *trail) end() {
	t.response.begun = nil
	p := recover()
	if err, ok := p.(error); p == nil || ok && errors.Is(err, http.ErrAbortHandler) {
		t.stage(auditinternal.StageResponseComplete)
	} else {
		t.events.SetEventResponseStatus(&metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError,
			Message: "the handler met a fault; the log holds the details",
		})
		t.stage(auditinternal.StagePanic)
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
	t, _ := begin(a, w, r)
	if t == nil {
		return
	}
	t.events.SetEventResponseStatus(&metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnauthorized, Reason: metav1.StatusReasonUnauthorized,
		Message: "Authentication failed",
	})
	t.stage(auditinternal.StageResponseStarted)
}

func attemptsOf(rec *record) string {
	if rec.attempts == 0 {
		return ""
	}
	return strconv.Itoa(rec.attempts)
}

func upgradedOf(res *response) string {
	if res.hijacked {
		return "true"
	}
	return ""
}

// auditedParameters are the query parameters whose values say what was asked for. The values of others, such as the
// commands of an exec or a token that a client puts where it does not belong, are left out.
var auditedParameters = sets.New("labelSelector", "fieldSelector", "limit", "continue", "watch", "resourceVersion",
	"resourceVersionMatch", "timeoutSeconds", "timeout", "allowWatchBookmarks", "sendInitialEvents", "pretty", "dryRun",
	"fieldManager", "fieldValidation", "force", "propagationPolicy", "gracePeriodSeconds", "orphanDependents",
	"includeObject", "container", "follow", "previous", "sinceSeconds", "tailLines", "stdin", "stdout", "stderr", "tty")

func auditedURI(u *url.URL) string {
	if u.RawQuery == "" {
		return u.EscapedPath()
	}
	pairs := strings.Split(u.RawQuery, "&")
	for i, pair := range pairs {
		switch name, _, ok := strings.Cut(pair, "="); {
		case auditedParameters.Has(name):
		case ok:
			pairs[i] = name + "=..."
		default:
			pairs[i] = "..." // a value without a name, perhaps
		}
	}
	return u.EscapedPath() + "?" + strings.Join(pairs, "&")
}
