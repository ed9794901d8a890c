package mirror

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strings"
)

// Response is a recorded response for comparison. WriteHeader and Write must be called from one goroutine.
type Response struct {
	code     int // 0 before WriteHeader
	kind     string
	encoding string
	body     []byte
	tooLarge bool
	mirror   *Mirror
	charged  int64 // bytes charged against Config.MaxBytes
}

// WriteHeader records the code and the headers that are necessary to decode the body.
func (r *Response) WriteHeader(code int, header http.Header) {
	if r.code == 0 {
		r.code, r.kind, r.encoding = code, header.Get("Content-Type"), header.Get("Content-Encoding")
	}
}

// Write records a part of the body. A body that is too large is not compared.
func (r *Response) Write(p []byte) {
	switch {
	case r.tooLarge:
	case int64(len(r.body)+len(p)) > r.mirror.config.MaxBody, !r.mirror.charge(int64(len(p))):
		r.tooLarge, r.body = true, nil
		r.free()
	default:
		r.charged += int64(len(p))
		r.body = append(r.body, p...)
	}
}

// free releases the charged bytes.
func (r *Response) free() {
	r.mirror.discharge(r.charged)
	r.charged = 0
}

var errTooLarge = errors.New("a body is too large to be compared")

// plain returns the decompressed body.
func (r *Response) plain() ([]byte, error) {
	switch {
	case r.tooLarge:
		return nil, errTooLarge
	case r.encoding == "" || strings.EqualFold(r.encoding, "identity") || len(r.body) == 0:
		return r.body, nil
	case !strings.EqualFold(r.encoding, "gzip"):
		return nil, errors.New("a body has an encoding that is not known")
	}
	z, err := gzip.NewReader(bytes.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	plain, err := io.ReadAll(io.LimitReader(z, r.mirror.config.MaxBody+1))
	if err == nil && int64(len(plain)) > r.mirror.config.MaxBody {
		err = errTooLarge
	}
	return plain, err
}

// isJSON reports whether the content type is JSON.
func (r *Response) isJSON() bool {
	kind, _, _ := strings.Cut(r.kind, ";")
	return strings.EqualFold(strings.TrimSpace(kind), "application/json")
}

// writer records a response that is not sent to a client.
type writer struct {
	header http.Header
	to     *Response
}

// Header implements http.ResponseWriter.
func (w *writer) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *writer) WriteHeader(code int) {
	if code >= 200 {
		w.to.WriteHeader(code, w.header)
	}
}

// Write implements http.ResponseWriter. It returns an error for a body that is not compared, so that the rest is not read.
func (w *writer) Write(p []byte) (int, error) {
	w.to.WriteHeader(http.StatusOK, w.header)
	if w.to.Write(p); w.to.tooLarge {
		return 0, errTooLarge
	}
	return len(p), nil
}
