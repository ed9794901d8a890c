package filters

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"time"

	"go.uber.org/zap/zapcore"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/request"
)

// Context is the context of a request in a chain. A server that needs more state per request embeds it.
type Context struct {
	request.Context
	auditIDHeader [1]string // the value of the Audit-Id header

	steps       []Step  // called at the end, in reverse order
	stepsBuffer [5]Step // buffer for steps: most requests have no more
	rest        func()  // set by Continue
	continues   bool    // the handler has returned, and the request is not over
}

type contextKey struct{}

func (c *Context) filtersContext() *Context { return c }

// Value implements context.Context.
func (c *Context) Value(key any) any {
	if key == (contextKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// contextOf returns the Context of the request. It panics without one, because a chain begins by creating it.
func contextOf(ctx context.Context) *Context {
	if c, ok := ctx.(interface{ filtersContext() *Context }); ok { // the common case
		return c.filtersContext()
	}
	return ctx.Value(contextKey{}).(*Context)
}

// Response records the response to a request.
type Response struct {
	http.ResponseWriter
	Code     int   // 0 before the response
	Bytes    int64 // of the body
	Hijacked bool
	OnCode   func() // called once, when the code is known; may be nil
}

func (w *Response) response() *Response { return w }

// ResponseOf returns the Response that w is or embeds, or an empty one for any other writer.
func ResponseOf(w http.ResponseWriter) *Response {
	if w, ok := w.(interface{ response() *Response }); ok {
		return w.response()
	}
	return &Response{ResponseWriter: w}
}

// Started reports whether any part of the response was sent.
func (w *Response) Started() bool { return w.Code != 0 || w.Hijacked }

// SetCode records the status code when the response begins.
func (w *Response) SetCode(code int) {
	if w.Code != 0 {
		return
	}
	w.Code = code
	if w.OnCode != nil {
		w.OnCode()
	}
}

// Unwrap lets http.ResponseController reach the connection, to flush and to set deadlines.
func (w *Response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *Response) WriteHeader(code int) {
	if code >= http.StatusOK {
		w.SetCode(code)
	}
	w.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (w *Response) Write(p []byte) (int, error) {
	w.SetCode(http.StatusOK)
	n, err := w.ResponseWriter.Write(p)
	w.Bytes += int64(n)
	return n, err
}

// Flush implements http.Flusher.
func (w *Response) Flush() {
	w.SetCode(http.StatusOK)
	_ = http.NewResponseController(w.ResponseWriter).Flush() // every writer of net/http can flush
}

// TakeConnection hijacks the connection for a writer that implements http.Hijacker. Response does not implement it,
// because writers of HTTP/2 must not.
func (w *Response) TakeConnection() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.Hijacked = true
		w.SetCode(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}

// AccessLine contains the log fields of a request. Queries, headers and bodies are never logged: they may contain
// secrets.
type AccessLine struct {
	Request  *http.Request
	Response *Response
	User     user.Info // nil before authentication
	Took     time.Duration
}

// MarshalLogObject implements zapcore.ObjectMarshaler.
func (l *AccessLine) MarshalLogObject(e zapcore.ObjectEncoder) error {
	r := l.Request
	e.AddString("method", Bounded(r.Method))
	e.AddString("path", Bounded(r.URL.Path))
	e.AddInt("code", l.Response.Code)
	e.AddInt64("bytes", l.Response.Bytes)
	e.AddDuration("took", l.Took)
	e.AddString("client", r.RemoteAddr)
	e.AddString("proto", r.Proto)
	e.AddString("audit-id", request.AuditID(r.Context()))
	agent := ""
	if values := r.Header["User-Agent"]; len(values) > 0 {
		agent = values[0]
	}
	e.AddString("agent", Bounded(agent))
	if l.User != nil {
		e.AddString("user", Bounded(l.User.GetName()))
	}
	return nil
}

// Bounded truncates text that a client chose, so that it does not fill the log. The encoders escape the result
// (attack row E3).
func Bounded(s string) string {
	const limit = 512
	if len(s) > limit {
		return s[:limit] + "..."
	}
	return s
}
