package dispatch

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"portico.dev/internal/filters"
	"portico.dev/internal/request"
	"portico.dev/internal/routes/mirror"
	"portico.dev/internal/routes/routing"
	"portico.dev/internal/routetable"
)

// mirrored sends copies of reads to a second backend, which are compared with the responses that clients receive.
type mirrored struct {
	next   Handler
	mirror *mirror.Mirror
	route  *routetable.Route
	choice *routing.Choice
	latest func() (*compiled, bool) // the handlers in the current table
}

// Serve implements Handler.
func (h *mirrored) Serve(w http.ResponseWriter, r *filters.Request) {
	if !h.shouldMirror(r) {
		h.next.Serve(w, r)
		return
	}
	read := h.mirror.Begin(h.route.Name, h.route.Routing.Backends[h.choice.Mirror.Backend].Name, r.URL.Path)
	if read == nil {
		h.next.Serve(w, r)
		return
	}
	response := &recordedResponse{Response: filters.Response{ResponseWriter: w}, read: read}
	complete := false
	defer func() { h.end(r, response, complete) }()
	h.next.Serve(response, r)
	complete = true
}

// shouldMirror reports whether r is mirrored. It selects reads without side effects, except continued lists: their
// tokens belong to one backend.
func (h *mirrored) shouldMirror(r *filters.Request) bool {
	q := routing.NewRequest(r.Info, "", nil)
	if percent := h.choice.Mirror.Percent; !q.MayMirror() || percent < 100 && rand.IntN(100) >= percent {
		return false
	}
	query, plain := plainRead(r, h.route.Options.LongRunningSubresources)
	return plain && query.Get("continue") == ""
}

// recordedResponse passes a response to the client and to the comparison.
type recordedResponse struct {
	filters.Response
	read   *mirror.Read
	unread bool // a write to the client failed
}

// WriteHeader implements http.ResponseWriter.
func (w *recordedResponse) WriteHeader(code int) {
	if code >= http.StatusOK {
		w.read.Response.WriteHeader(code, w.Header())
	}
	w.Response.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (w *recordedResponse) Write(p []byte) (int, error) {
	n, err := w.Response.Write(p)
	w.unread = w.unread || err != nil
	w.read.Response.WriteHeader(http.StatusOK, w.Header())
	w.read.Response.Write(p)
	return n, err
}

// end queues the copy if the backend of the choice sent a complete response.
func (h *mirrored) end(r *filters.Request, response *recordedResponse, complete bool) {
	read := response.read
	if !complete || response.Code == 0 || response.unread || r.Record.Elsewhere || r.Record.Failure != "" {
		h.mirror.Cancel(read)
		return
	}
	read.Rules = mirror.Rules{Group: h.route.GroupVersion.Group, Ignore: h.choice.Mirror.Ignore}
	read.Send = h.newCopy(r)
	h.mirror.End(read)
}

// newCopy returns a function that sends a copy of r, usually after r has been served: a GET of the same user without
// a body. The copy takes a concurrency slot of its backend, but no seat, and is not audited.
func (h *mirrored) newCopy(r *filters.Request) func(context.Context, http.ResponseWriter) error {
	url, header := *r.URL, r.Header.Clone()
	header.Del("Accept-Encoding") // the comparison reads the body
	sent := http.Request{Method: http.MethodGet, URL: &url, Host: r.Host, Header: header, RemoteAddr: r.RemoteAddr, TLS: r.TLS, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
	info, who, auditID := r.Info, r.User, r.AuditID
	return func(ctx context.Context, w http.ResponseWriter) error {
		now, ok := h.latest()
		if !ok || !sameRouting(now.route, h.route) {
			return mirror.ErrObsolete
		}
		part := now.route.Parts[h.choice.Mirror.Backend]
		if !isReached(part) {
			return errors.New("the backend is not available: " + part.Condition.Reason)
		}
		made := &request.Context{Context: ctx, Info: info, User: who, AuditID: auditID, RemoteAddr: sent.RemoteAddr, Received: time.Now()}
		copied := filters.RequestOf(sent.WithContext(made))
		now.copies[h.choice.Mirror.Backend].Serve(w, copied)
		if copied.Record.Failure != "" {
			return errors.New(copied.Record.Failure)
		}
		return nil
	}
}
