package server

import (
	"errors"
	"maps"
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
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/request"
)

// Auditor says how much of a request is written down, and takes the events.
type Auditor interface {
	// Level is what the policy says of a request.
	Level(authorizer.Attributes) audit.RequestAuditConfig
	// ProcessEvents must not keep the events, which change with the next stage of their request.
	audit.Sink
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
			info, _ := apirequest.RequestInfoFrom(ctx)
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
}

// begin asks the policy. A nil trail means that nothing is to be written down.
func begin(a Auditor, w http.ResponseWriter, r *http.Request) (*trail, *http.Request) {
	ctx := r.Context()
	attributes, err := attributesOf(ctx)
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
	if s, ok := ctx.Value(sceneKey{}).(*scene); ok && err == nil {
		s.asked = attributes
	}
	t := &trail{auditor: a, request: r, record: recordFrom(ctx), response: responseOf(w), events: audit.AuditContextFrom(ctx), asked: attributes}
	audit.WithAuditID(ctx, types.UID(request.AuditID(ctx)))
	if err := t.events.Init(level, t); err != nil {
		return nil, r // a context can be initialized once, and this one is new
	}
	return t, r
}

// ProcessEvents completes an event with what the chain knows of its request, and passes it on.
func (t *trail) ProcessEvents(events ...*auditinternal.Event) bool {
	for _, e := range events {
		complete(e, t)
	}
	return t.auditor.ProcessEvents(events...)
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
	e.UserAgent = bounded(t.request.UserAgent())
	e.SourceIPs = t.sources()
	if who := t.asked.User; who != nil && e.User.Username == "" {
		e.User = userInfo(who)
	}
	if t.asked.ResourceRequest {
		refer(e, t.asked)
	}
	if e.ObjectRef != nil {
		e.ObjectRef.Name = bounded(e.ObjectRef.Name)
	}
	annotate(e, t)
}

func (t *trail) sources() []string { return []string{hostOf(t.request.RemoteAddr)} }

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
func refer(e *auditinternal.Event, a *authorizer.AttributesRecord) {
	if e.ObjectRef == nil {
		e.ObjectRef = &auditinternal.ObjectReference{}
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

func annotate(e *auditinternal.Event, t *trail) {
	rec := t.record
	annotations := make(map[string]string, len(e.Annotations)+7)
	maps.Copy(annotations, e.Annotations)
	for _, a := range [...]struct{ key, value string }{
		{"authorization.k8s.io/decision", rec.decision},
		{"authorization.k8s.io/reason", rec.reason},
		{"portico.dev/credential", rec.credential},
		{"portico.dev/served-by", rec.servedBy},
		{"portico.dev/endpoint", rec.endpoint},
		{"portico.dev/attempts", attemptsOf(rec)},
		{"portico.dev/upgraded", upgradedOf(t.response)}, // the verb alone says get
	} {
		if a.value != "" {
			annotations[a.key] = a.value
		}
	}
	e.Annotations = annotations
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
	case status == nil || status.Code == 0:
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
