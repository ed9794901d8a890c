package server

import (
	"net/url"
	"strconv"
	"strings"

	authnv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	auditlog "portico.dev/internal/audit"

	"portico.dev/internal/filters"
)

// complete stands in for the library's LogRequestMetadata, which trusts X-Forwarded-For, as anybody can send it, and
// copies what this event alone has.
func (t *requestAudit) complete(e *auditinternal.Event, into *eventParts) {
	e.RequestReceivedTimestamp = metav1.NewMicroTime(t.ctx.record.started)
	if e.Stage == auditinternal.StageRequestReceived {
		e.StageTimestamp = e.RequestReceivedTimestamp
	}
	asked := &t.ctx.attributesBuffer
	e.Verb = asked.Verb
	e.RequestURI = filters.Bounded(auditedURI(t.request.URL))
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
		{Key: "authorization.k8s.io/decision", Value: rec.decision},
		{Key: "authorization.k8s.io/reason", Value: rec.reason},
		{Key: auditAttempts, Value: attemptsOf(rec)},
		{Key: auditCredential, Value: rec.credential},
		{Key: auditEndpoint, Value: rec.endpoint},
		{Key: auditServedBy, Value: rec.servedBy},
		{Key: auditUpgraded, Value: upgradedOf(t.response)},
	}
}

func attemptsOf(rec *record) string {
	if rec.attempts == 0 {
		return ""
	}
	return strconv.Itoa(rec.attempts)
}

func upgradedOf(res *response) string {
	if res.Hijacked {
		return "true"
	}
	return ""
}

// auditedParameters are the query parameters whose values are audited. The values of others, such as the commands of an
// exec or a token that a client puts where it does not belong, are left out.
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
