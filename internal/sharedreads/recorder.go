package sharedreads

import (
	"net/http"
	"net/textproto"
	"strings"
	"time"
)

// recorder keeps a response until it is complete. One that cannot be shared goes to the client as it comes.
type recorder struct {
	cache  *Cache
	to     http.ResponseWriter
	user   string // Request.User
	limit  int64
	vary   func(name string) bool // Request.Unkeyed
	settle func()                 // tells those who wait what becomes of it

	header  http.Header
	code    int // 0: not yet
	body    []byte
	charged int64 // bytes that count as being received
	passing bool  // what is written goes to the client
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

// mayShare reports whether the response may be one that others get. Failures are kept too until they are complete, because something older
// may be the better answer.
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

// replaces reports whether the response is one that makes earlier ones untrue, whether it can be shared or not.
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

// passOn gives the client what there is, and what follows. Nobody else gets it.
func (w *recorder) passOn() {
	w.settle()
	w.pass()
}

// pass gives the client what there is.
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
		_, _ = w.to.Write(w.body) // an error is a client that left, which later writes find too
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

// response is what others may get. Nil: nothing.
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
