package server

import (
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/apimachinery/pkg/types"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/filters"
	"portico.dev/internal/httpengine/engine"
	"portico.dev/internal/logging"
	"portico.dev/internal/metrics"
	"portico.dev/internal/request"
)

// accessLogFilter is the only place that measures requests. It counts each request and, if log is not nil, writes one
// line for it. Queries, headers and bodies are never logged: they may contain secrets.
func accessLogFilter(log *zap.Logger, m *metrics.Requests) func(http.Handler) http.Handler {
	batched := logging.Batched(log)
	filter := &accessLog{batched, logging.Limited(batched), m}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s, r := requestContextOf(r)
			s.access = access{filter, r, inFlight(m, r, s.Info, request.LongRunning(s.Info))}
			s.access.running.Inc()
			s.AtEnd((*accessStep)(s))
			next.ServeHTTP(w, r)
		})
	}
}

// accessLog holds the outputs of accessLogFilter.
type accessLog struct {
	log     *zap.Logger // nil if access logging is off
	limited *zap.Logger // log with a rate limit, for unauthenticated clients
	metrics *metrics.Requests
}

// access is the state of accessLogFilter for one request.
type access struct {
	filter  *accessLog
	request *http.Request
	running prometheus.Gauge
}

// accessStep is the filters.Step of accessLogFilter.
type accessStep requestContext

// End implements filters.Step.
func (s *accessStep) End(any) {
	a, rec := &s.access, &s.record
	a.running.Dec()
	took := rec.EndTime().Sub(rec.Started)
	count(a.filter.metrics, a.request, s.Info, rec, s.response.Code, rec.IsLongRunning || request.LongRunning(s.Info), took, (*requestContext)(s).waitTime())
	if a.filter.log != nil {
		line := filters.AccessLine{Request: a.request, Response: &s.response.Response, User: rec.User, Took: took}
		log := a.filter.log
		if filters.Unauthenticated(rec.User) {
			log = a.filter.limited
		}
		logAccess(log, &accessLine{line, rec})
	}
}

func responseOf(w http.ResponseWriter) *response {
	switch w := w.(type) {
	case *response:
		return w
	case hijackable:
		return w.response
	}
	below, _ := w.(engine.ResponseWriter)
	return &response{Response: filters.Response{ResponseWriter: w}, engine: below}
}

func inFlight(m *metrics.Requests, r *http.Request, info *apirequest.RequestInfo, long bool) prometheus.Gauge {
	if long {
		// The client chooses the name of an unknown resource, so the resource is not a label here.
		return m.LongRunning.WithLabelValues(reportedVerb(r, info), "", "", "", "", scopeOf(info), component)
	}
	if mutating(info) {
		return m.Mutating
	}
	return m.ReadOnly
}

// component is kube-apiserver's value of this label, which dashboards select by.
const component = "apiserver"

func count(m *metrics.Requests, r *http.Request, info *apirequest.RequestInfo, rec *filters.Record, code int, long bool, took, elsewhere time.Duration) {
	var group, version, resource, subresource string
	// A group, version or resource becomes a label only if it is served, so that a scanner cannot fill the registry.
	if info.IsResourceRequest && rec.ServedBy != "" {
		group, version = info.APIGroup, info.APIVersion
		if code != http.StatusNotFound {
			resource, subresource = info.Resource, info.Subresource
		}
	}
	if code == 0 {
		code = http.StatusOK
	}
	seconds := took.Seconds()
	if long {
		seconds = -1
	}
	m.Count(metrics.Served{
		Verb: reportedVerb(r, info), Group: group, Version: version, Resource: resource, Subresource: subresource,
		Scope: scopeOf(info), Component: component, Code: code,
	}, seconds, elsewhere.Seconds())
}

// waitTime returns the time that the request spent in webhooks and waiting for a seat.
func (c *requestContext) waitTime() time.Duration {
	waited := c.record.Waited
	if c.local == nil {
		return waited
	}
	t := &c.local.latencies.LatencyTrackers
	return waited + t.MutatingWebhookTracker.GetLatency() + t.ValidatingWebhookTracker.GetLatency()
}

// accessLine has the log fields of a request. One inline field costs less than a list of fields.
type accessLine struct {
	filters.AccessLine
	record *filters.Record
}

func logAccess(log *zap.Logger, l *accessLine) {
	if failure := l.record.Failure; failure != "" {
		log.Info("request", zap.Inline(l), zap.String("failure", failure))
		return
	}
	log.Info("request", zap.Inline(l))
}

// MarshalLogObject implements zapcore.ObjectMarshaler.
func (l *accessLine) MarshalLogObject(e zapcore.ObjectEncoder) error {
	if err := l.AccessLine.MarshalLogObject(e); err != nil {
		return err
	}
	rec := l.record
	if rec.Impersonated != nil {
		e.AddString("as", filters.Bounded(rec.Impersonated.GetName()))
	}
	if rec.Cluster != "" {
		e.AddString("cluster", rec.Cluster)
	}
	if rec.ServedBy != "" {
		e.AddString("served-by", filters.Bounded(rec.ServedBy))
	}
	if rec.Endpoint != "" {
		e.AddString("endpoint", filters.Bounded(rec.Endpoint))
		e.AddInt("attempts", rec.Attempts)
	}
	return nil
}

var verbLabels = labelsOf("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "proxy",
	"post", "put", "head", "options", "connect")

func labelsOf(verbs ...string) map[string]string {
	labels := make(map[string]string, len(verbs))
	for _, verb := range verbs {
		labels[verb] = strings.ToUpper(verb)
	}
	return labels
}

func verbLabel(info *apirequest.RequestInfo) string {
	if label, ok := verbLabels[info.Verb]; ok {
		return label
	}
	return "OTHER"
}

// reportedVerb returns the verb that kube-apiserver reports in its metrics. Dashboards and the tests of upstream's
// objectives select by it.
func reportedVerb(r *http.Request, info *apirequest.RequestInfo) string {
	if !info.IsResourceRequest {
		return verbLabel(info)
	}
	switch info.Subresource {
	case "attach", "exec", "log", "portforward", "proxy":
		return "CONNECT"
	}
	switch info.Verb {
	case "create":
		return http.MethodPost
	case "update":
		return http.MethodPut
	case "patch":
		if r.Header.Get("Content-Type") == string(types.ApplyPatchType) {
			return "APPLY"
		}
	}
	return verbLabel(info)
}

func scopeOf(info *apirequest.RequestInfo) string {
	switch {
	case !info.IsResourceRequest:
		return ""
	case info.Name != "" || info.Verb == "create":
		return "resource"
	case info.Namespace != "":
		return "namespace"
	}
	return "cluster"
}

func mutating(info *apirequest.RequestInfo) bool {
	switch info.Verb {
	case "get", "list", "watch", "head", "options":
		return false
	}
	return true
}
