package extension

import (
	"bufio"
	"net"
	"net/http"
	"strconv"
	"time"

	"go.uber.org/zap"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// recorder notes what became of a request, for the log and the metrics.
type recorder struct {
	http.ResponseWriter
	code  int
	bytes int64
	info  *apirequest.RequestInfo
	user  user.Info

	warnings *warnings
	hijacked *connections
}

func (rec *recorder) WriteHeader(code int) {
	if rec.code == 0 && code >= http.StatusOK {
		rec.code = code
		rec.warnings.writeTo(rec.Header())
	}
	rec.ResponseWriter.WriteHeader(code)
}

func (rec *recorder) Write(p []byte) (int, error) {
	if rec.code == 0 {
		rec.WriteHeader(http.StatusOK)
	}
	n, err := rec.ResponseWriter.Write(p)
	rec.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach the connection, to flush and to set deadlines.
func (rec *recorder) Unwrap() http.ResponseWriter { return rec.ResponseWriter }

// Flush is for handlers that ask for a http.Flusher.
func (rec *recorder) Flush() { _ = http.NewResponseController(rec.ResponseWriter).Flush() }

// Hijack takes over the connection. The host tracks it for shutdown, because net/http does not.
func (rec *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(rec.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	if rec.code == 0 {
		rec.code = http.StatusSwitchingProtocols
	}
	return rec.hijacked.track(conn), buffered, nil
}

func setInfo(w http.ResponseWriter, info *apirequest.RequestInfo) {
	if rec, ok := w.(*recorder); ok {
		rec.info = info
	}
}

func setUser(w http.ResponseWriter, u user.Info) {
	if rec, ok := w.(*recorder); ok {
		rec.user = u
	}
}

// record counts, times and logs each request.
func (h *Host) record(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		ctx, ws := withWarnings(r.Context())
		rec := &recorder{ResponseWriter: w, warnings: ws, hijacked: &h.hijacked}
		defer func() {
			if rec.code == 0 {
				rec.code = http.StatusOK
			}
			h.count(rec, time.Since(began))
			if h.config.AccessLog {
				h.logAccess(r, rec, time.Since(began))
			}
		}()
		next.ServeHTTP(rec, r.WithContext(ctx))
	})
}

// component is the label that distinguishes these metrics from a front door's.
const component = "extension-server"

func (h *Host) count(rec *recorder, took time.Duration) {
	labels := h.labels(rec.info)
	h.metrics.Total.WithLabelValues(append(labels, strconv.Itoa(rec.code))...).Inc()
	if rec.info == nil || !h.longRunning(rec.info) {
		h.metrics.Duration.WithLabelValues(labels...).Observe(took.Seconds())
	}
}

// labels are verb, group, version, resource, subresource, scope and component. Only what is hosted becomes a label:
// clients choose the names in a path, and label values must be bounded.
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

func (h *Host) logAccess(r *http.Request, rec *recorder, took time.Duration) {
	name := ""
	if rec.user != nil {
		name = rec.user.GetName()
	}
	h.log.Info("request", zap.String("method", r.Method), zap.String("path", truncated(r.URL.Path)), zap.Int("code", rec.code),
		zap.Int64("bytes", rec.bytes), zap.Duration("took", took), zap.String("user", truncated(name)),
		zap.String("client", r.RemoteAddr), zap.String("audit-id", rec.Header().Get("Audit-Id")))
}

// truncated keeps what a client chose from filling the log.
func truncated(s string) string {
	if len(s) > 512 {
		return s[:512]
	}
	return s
}
