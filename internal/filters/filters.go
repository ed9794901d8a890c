// Package filters contains the HTTP filters that the front door (server) and the extension server host (extension)
// share: panic recovery, audit ID, request info, authentication, deadline, and the response recorder and line of the
// access log. It does not link a generic API server.
//
// Each server creates the request's Context first, and wraps its handler in the filters in its own order.
package filters

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/logging"
	"portico.dev/internal/metrics"
	"portico.dev/internal/request"
	"portico.dev/internal/respond"
)

// Filter wraps a handler. Its name appears in documentation and in /debug output.
type Filter struct {
	Name string
	Wrap func(next http.Handler) http.Handler
}

// Chain wraps handler in filters, which are in the order in which a request passes them.
func Chain(handler http.Handler, filters []Filter) http.Handler {
	for _, f := range slices.Backward(filters) {
		handler = f.Wrap(handler)
	}
	return handler
}

// Recover turns a panic into a 500 Status, or into an aborted stream if the response has begun: a client must never
// mistake a partial response for a complete one. It also ends each request (AtEnd) when its handler, and the function
// passed to Continue, have returned.
func Recover(log *zap.Logger, m *metrics.Requests) func(http.Handler) http.Handler {
	s := &server{logging.Limited(log), m}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.serve(contextOf(r.Context()), w, r, func() { next.ServeHTTP(w, r) })
		})
	}
}

// panicked responds to a request after its handler has panicked with p.
func (s *server) panicked(w http.ResponseWriter, r *http.Request, p any) {
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(http.ErrAbortHandler) // an intentional abort: net/http closes the stream without logging
	}
	s.metrics.Panics.Inc()
	s.log.Error("panic while serving a request", append(logging.PanicFields(p), zap.String("method", r.Method),
		zap.String("path", Bounded(r.URL.Path)), zap.String("audit-id", request.AuditID(r.Context())))...)
	if ResponseOf(w).Started() {
		panic(http.ErrAbortHandler)
	}
	respond.Error(w, r, apierrors.NewInternalError(errors.New("this request met a fault in the server; its log holds the details")))
}

// AuditID sets the ID of a request, and the time at which it was received. accepted returns the part of the caller's
// Audit-ID to adopt, which relates the events of two servers. If that part is empty, the request gets a new ID.
func AuditID(accepted func(id string) string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			id := ""
			if values := r.Header["Audit-Id"]; len(values) > 0 {
				id = accepted(values[0])
			}
			if id == "" {
				id = newAuditID()
			}
			contextOf(r.Context()).Received = time.Now()
			SetAuditID(w, r, id)
			next.ServeHTTP(w, r)
		})
	}
}

// SetAuditID sets the ID of a request in its context and in the header of its response. The goroutine that serves the
// request must call it before the response begins.
func SetAuditID(w http.ResponseWriter, r *http.Request, id string) {
	c := contextOf(r.Context())
	c.AuditID = id
	c.auditIDHeader = [1]string{id}
	w.Header()["Audit-Id"] = c.auditIDHeader[:]
}

// maxAuditID is the number of bytes of a caller's ID that kube-apiserver logs. Longer IDs are truncated.
const maxAuditID = 64

// CallersAuditID returns the part of a caller's Audit-ID that becomes the ID of a request. It is empty for an ID that
// headers, JSON and log lines would not represent identically: one with control characters or invalid UTF-8. Every
// Portico server uses this function, so that a request has the same ID on all of them.
func CallersAuditID(id string) string {
	if !utf8.ValidString(id) || strings.ContainsFunc(id, unicode.IsControl) {
		return ""
	}
	if len(id) <= maxAuditID {
		return id
	}
	end := maxAuditID
	for !utf8.RuneStart(id[end]) {
		end--
	}
	return strings.TrimSpace(id[:end]) // a header would lose a trailing space
}

// RequestInfo determines the requested resource from the path and the method.
func RequestInfo(resolver *request.Resolver) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			info, err := resolver.Info(r)
			if err != nil {
				respond.Error(w, r, apierrors.NewBadRequest(err.Error()))
				return
			}
			contextOf(r.Context()).Info = info
			next.ServeHTTP(w, r)
		})
	}
}

// UndecidedError means that a client could not be authenticated, because the server that knows it did not respond.
type UndecidedError struct {
	Text string // for the client
	Err  error
}

// Error implements error.
func (e *UndecidedError) Error() string { return e.Text + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *UndecidedError) Unwrap() error { return e.Err }

// Authentication identifies the client. authenticate returns nil for an unknown client, with an error if there is a
// reason. The filter then calls refused and responds with a 401, or with a 503 for an UndecidedError; the request never
// becomes anonymous. The reason is only logged, and not sent to the client.
func Authentication(authenticate func(*http.Request) (user.Info, error), refused http.HandlerFunc, log *zap.Logger) func(http.Handler) http.Handler {
	log = logging.Limited(log)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			u, err := authenticate(r)
			if err != nil || u == nil {
				if err != nil {
					log.Info("authentication failed", zap.String("path", Bounded(r.URL.Path)), zap.String("client", r.RemoteAddr),
						zap.String("audit-id", request.AuditID(r.Context())), zap.Error(err))
				}
				refused(w, r)
				var undecided *UndecidedError
				if errors.As(err, &undecided) {
					respond.Error(w, r, apierrors.NewServiceUnavailable(undecided.Text))
					return
				}
				respond.Error(w, r, apierrors.NewUnauthorized("Unauthorized"))
				return
			}
			contextOf(r.Context()).User = u
			next.ServeHTTP(w, r)
		})
	}
}

// Unauthenticated reports whether the client has no identity. u is nil before authentication.
func Unauthenticated(u user.Info) bool { return u == nil || u.GetName() == user.Anonymous }

// Deadline ends requests that are not long-running. timeout returns how long a request may take after it was
// received. An error of timeout leads to a 400.
func Deadline(longRunning func(*http.Request) bool, timeout func(*http.Request) (time.Duration, error)) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if longRunning(r) {
				next.ServeHTTP(w, r)
				return
			}
			limit, err := timeout(r)
			if err != nil {
				respond.Error(w, r, apierrors.NewBadRequest(err.Error()))
				return
			}
			c := contextOf(r.Context())
			received := c.Received
			if received.IsZero() {
				received = time.Now()
			}
			c.SetDeadline(received.Add(limit))
			c.AtEnd(finish{c})
			next.ServeHTTP(w, r)
		})
	}
}

// finish is the Step of Deadline.
type finish struct{ *Context }

// End implements Step.
func (f finish) End(any) { f.Finish() }

// newAuditID returns a random UUID (RFC 9562, version 4). IDs must be unique, but need not be secret: a client that
// can read one of the logs can read all IDs. The system's cryptographic source is therefore not used for each
// request.
func newAuditID() string {
	var id [16]byte
	binary.LittleEndian.PutUint64(id[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(id[8:], rand.Uint64())
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	var text [36]byte
	hex.Encode(text[:8], id[:4])
	hex.Encode(text[9:13], id[4:6])
	hex.Encode(text[14:18], id[6:8])
	hex.Encode(text[19:23], id[8:10])
	hex.Encode(text[24:], id[10:])
	for _, dash := range [...]int{8, 13, 18, 23} {
		text[dash] = '-'
	}
	return string(text[:])
}
