package sharedreads

import (
	"net/http"
	"net/textproto"
	"strings"
	"time"
)

// recorder keeps a response until it is complete. A response that cannot be shared is streamed to the client.
type recorder struct {
	cache  *Cache
	to     http.ResponseWriter
	user   string // Request.User
	limit  int64
	vary   func(name string) bool // Request.Unkeyed
	settle func()                 // notifies the waiting requests of the result

	header  http.Header
	code    int // 0 before WriteHeader
	body    []byte
	charged int64 // bytes charged as being received
	passing bool  // writes go to the client
	shared  *kept
}

// Header implements http.ResponseWriter.
func (w *recorder) Header() http.Header {
	if w.passing {
		return w.to.Header()
	}
	if w.header == nil {
		w.header = http.Header{}
	}
	return w.header
}

// WriteHeader implements http.ResponseWriter.
func (w *recorder) WriteHeader(code int) {
	switch {
	case w.passing:
		w.to.WriteHeader(code)
	case w.code == 0:
		w.code = code
		if !w.mayShare() {
			w.passOn()
		}
	}
}

// mayShare reports whether the response may have to be recorded. Failures are recorded until they are complete, because an
// older response may be served instead.
func (w *recorder) mayShare() bool {
	if w.code != http.StatusOK {
		return w.failed()
	}
	return w.header["Set-Cookie"] == nil && w.header["Trailer"] == nil && !w.varies()
}

// varies reports whether the response may differ for requests with the same key (RFC 9111, section 4.1).
func (w *recorder) varies() bool {
	for _, value := range w.header["Vary"] {
		for name := range strings.SplitSeq(value, ",") {
			name = textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(name))
			if name == "*" || w.vary != nil && w.vary(name) {
				return true
			}
		}
	}
	return false
}

// failed reports whether the server did not answer.
func (w *recorder) failed() bool {
	switch w.code {
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// replaces reports whether the response invalidates earlier ones, even if it cannot be shared.
func (w *recorder) replaces() bool { return w.code != 0 && !w.failed() }

// Write implements http.ResponseWriter.
func (w *recorder) Write(p []byte) (int, error) {
	if w.code == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if !w.passing && !w.room(len(p)) {
		w.passOn()
	}
	if w.passing {
		return w.to.Write(p)
	}
	w.body = append(w.body, p...)
	return len(p), nil
}

func (w *recorder) room(n int) bool {
	if int64(len(w.body)+n) > w.limit || !w.cache.receive(w.user, int64(n)) {
		return false
	}
	w.charged += int64(n)
	return true
}

// passOn writes the recorded data to the client, and streams the rest. The response is not shared.
func (w *recorder) passOn() {
	w.settle()
	w.pass()
}

// pass writes the recorded data to the client.
func (w *recorder) pass() {
	if w.passing {
		return
	}
	w.passing = true
	copyHeader(w.to.Header(), w.header)
	if w.code != 0 {
		w.to.WriteHeader(w.code)
	}
	if len(w.body) > 0 {
		_, _ = w.to.Write(w.body) // ignore the error: the client has disconnected, and later writes fail too
	}
}

// Flush implements http.Flusher.
func (w *recorder) Flush() {
	if w.passing {
		_ = http.NewResponseController(w.to).Flush()
	}
}

// Unwrap is for http.ResponseController.
func (w *recorder) Unwrap() http.ResponseWriter { return w.to }

// response returns the response to share, or nil.
func (w *recorder) response(now time.Time, p Policy) *kept {
	if w.passing || w.code != http.StatusOK {
		return nil
	}
	return &kept{fields: fieldsOf(w.header), body: w.body[:len(w.body):len(w.body)], received: now, until: now.Add(p.MaxAge + p.StaleIfError)}
}

// free ends the recording.
func (w *recorder) free() {
	if w.charged > 0 {
		w.cache.received(w.user, w.charged)
		w.charged = 0
	}
}
