package server

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/request"
)

// AuditSink takes events. Record must not block: a sink that cannot keep up drops and counts.
type AuditSink interface {
	Record(*auditv1.Event)
}

// auditFilter sends one event for each request when it is over, at level Metadata: who, what, from where, and what
// was decided; never a body, a header or a query.
func auditFilter(sink AuditSink) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		if sink == nil {
			return next
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer func() { sink.Record(auditEvent(r, responseOf(w))) }()
			next.ServeHTTP(w, r)
		})
	}
}

func auditEvent(r *http.Request, res *response) *auditv1.Event {
	ctx := r.Context()
	info, _ := apirequest.RequestInfoFrom(ctx)
	rec := recordFrom(ctx)
	event := &auditv1.Event{
		TypeMeta:                 metav1.TypeMeta{Kind: "Event", APIVersion: auditv1.SchemeGroupVersion.String()},
		Level:                    auditv1.LevelMetadata,
		AuditID:                  types.UID(request.AuditID(ctx)),
		Stage:                    auditv1.StageResponseComplete,
		RequestURI:               bounded(r.URL.EscapedPath()),
		Verb:                     info.Verb,
		SourceIPs:                []string{hostOf(r.RemoteAddr)},
		UserAgent:                bounded(r.UserAgent()),
		ResponseStatus:           outcomeOf(rec, res),
		RequestReceivedTimestamp: metav1.NewMicroTime(rec.started),
		StageTimestamp:           metav1.NewMicroTime(time.Now()),
		Annotations:              map[string]string{},
	}
	if rec.user != nil {
		event.User = userInfo(rec.user)
	}
	if rec.impersonated != nil {
		as := userInfo(rec.impersonated)
		event.ImpersonatedUser = &as
	}
	if info.IsResourceRequest {
		event.ObjectRef = &auditv1.ObjectReference{
			Resource: info.Resource, Subresource: info.Subresource, Namespace: info.Namespace, Name: info.Name,
			APIGroup: info.APIGroup, APIVersion: info.APIVersion,
		}
	}
	if res.hijacked {
		event.Annotations["portico.dev/upgraded"] = "true" // the verb alone says get
	}
	for key, value := range map[string]string{
		"authorization.k8s.io/decision": rec.decision,
		"authorization.k8s.io/reason":   rec.reason,
		"portico.dev/served-by":         rec.servedBy,
		"portico.dev/endpoint":          rec.endpoint,
		"portico.dev/attempts":          attemptsOf(rec),
	} {
		if value != "" {
			event.Annotations[key] = value
		}
	}
	return event
}

// outcomeOf is what was answered, in the words that the client was told when a backend failed it.
func outcomeOf(rec *record, res *response) *metav1.Status {
	s := &metav1.Status{Code: int32(res.code)}
	if rec.failure != "" {
		s.Status, s.Message = metav1.StatusFailure, bounded(rec.failure)
	}
	return s
}

func attemptsOf(rec *record) string {
	if rec.attempts == 0 {
		return ""
	}
	return strconv.Itoa(rec.attempts)
}

func userInfo(u user.Info) authnv1.UserInfo {
	info := authnv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups()}
	for key, values := range u.GetExtra() {
		if info.Extra == nil {
			info.Extra = map[string]authnv1.ExtraValue{}
		}
		info.Extra[key] = values
	}
	return info
}

// AuditWriter writes events as JSON lines.
type AuditWriter struct {
	mu      sync.Mutex // protects out and dropped
	out     io.Writer
	dropped int
}

// NewAuditWriter writes to out, which should be a local file: writing happens in the request.
func NewAuditWriter(out io.Writer) *AuditWriter { return &AuditWriter{out: out} }

// Record implements AuditSink. An event that cannot be written is counted, and the request goes on.
func (a *AuditWriter) Record(e *auditv1.Event) {
	line, err := json.Marshal(e)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
		_, err = a.out.Write(append(line, '\n'))
	}
	if err != nil {
		a.dropped++
	}
}

// Check reports events that were lost, for readyz.
func (a *AuditWriter) Check() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.dropped > 0 {
		return fmt.Errorf("%d audit events could not be written", a.dropped)
	}
	return nil
}
