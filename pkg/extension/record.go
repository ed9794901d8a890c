package extension

import (
	"bufio"
	"cmp"
	"net"
	"net/http"
	"strconv"
	"time"

	"go.uber.org/zap"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/filters"
	"portico.dev/internal/request"
)

// recorder records the response, and tracks its connection for shutdown when it is hijacked, because net/http does not.
type recorder struct {
	filters.Response
	hijacked *connections
}

// Hijack implements http.Hijacker.
func (rec *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := rec.TakeConnection()
	if err != nil {
		return nil, nil, err
	}
	return rec.hijacked.track(conn), buffered, nil
}

// record creates the context of a request and records its response. It updates the metrics and writes the access log and the
// audit event.
func (h *Host) record(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		ctx, ws := withWarnings(r.Context())
		c := &filters.Context{Context: request.Context{Context: ctx, RemoteAddr: r.RemoteAddr}}
		r = r.WithContext(c)
		rec := &recorder{hijacked: &h.hijacked}
		rec.ResponseWriter, rec.OnCode = w, func() { ws.writeTo(rec.Header()) }
		defer func() {
			rec.Code = cmp.Or(rec.Code, http.StatusOK)
			took := time.Since(began)
			h.count(c.Info, rec.Code, took)
			if h.config.AccessLog {
				log := h.config.AccessLogger
				if filters.Unauthenticated(c.User) {
					log = h.limitedAccess
				}
				log.Info("request", zap.Inline(&filters.AccessLine{Request: r, Response: &rec.Response, User: c.User, Took: took}))
			}
			if h.config.AuditLog != nil && !h.checks.owns(r.URL.Path) {
				h.audit(c, r, rec.Code)
			}
		}()
		next.ServeHTTP(rec, r)
	})
}

// component is the label value that distinguishes these metrics from a front door's.
const component = "extension-server"

func (h *Host) count(info *apirequest.RequestInfo, code int, took time.Duration) {
	labels := h.labels(info)
	h.metrics.Total.WithLabelValues(append(labels, strconv.Itoa(code))...).Inc()
	if info == nil || !h.longRunning(info) {
		h.metrics.Duration.WithLabelValues(labels...).Observe(took.Seconds())
	}
}

// labels returns verb, group, version, resource, subresource, scope and component. Only the names of hosted resources become
// label values: clients choose the names in a path, and the number of label values must be bounded.
func (h *Host) labels(info *apirequest.RequestInfo) []string {
	labels := []string{"other", "", "", "", "", "", component}
	if info == nil {
		return labels
	}
	if !info.IsResourceRequest {
		labels[0] = verbLabel(info.Verb)
		return labels
	}
	c := h.catalog.Load()
	if _, ok := c.findCustom(info); ok {
		return []string{verbLabel(info.Verb), info.APIGroup, info.APIVersion, "", "", "", component}
	}
	s, ok := c.find(info)
	if !ok {
		return labels
	}
	scope := "cluster"
	switch {
	case info.Name != "":
		scope = "resource"
	case info.Namespace != "":
		scope = "namespace"
	}
	sub := ""
	if s.connects(info) {
		sub = info.Subresource
	}
	return []string{verbLabel(info.Verb), info.APIGroup, info.APIVersion, info.Resource, sub, scope, component}
}

func verbLabel(verb string) string {
	switch verb {
	case "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection":
		return verb
	}
	return "other"
}
