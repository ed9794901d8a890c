package client

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/net/http/httpguts"

	"portico.dev/internal/httpengine/engine"
	"portico.dev/internal/httpengine/httpmsg"
	"portico.dev/internal/httpengine/portico/http2/frame"
)

func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close() // the request's error is returned, not this one
	}
}

// isFramingHeader reports whether a field concerns framing or connections (RFC 9113, section 8.2.2).
func isFramingHeader(name string) bool {
	switch name {
	case "host", "content-length", "connection", "proxy-connection", "transfer-encoding", "upgrade", "keep-alive", "trailer":
		return true
	}
	return false
}

// prepare checks everything before anything is sent.
func (s *stream) prepare() error {
	r := s.request
	if err := httpmsg.CheckRequest(r); err != nil {
		return err
	}
	if s.authority = r.Host; s.authority == "" {
		s.authority = r.URL.Host
	}
	s.authority, _ = httpguts.PunycodeHostPort(s.authority) // CheckRequest has already checked it
	s.path = r.URL.RequestURI()
	if s.path[0] != '/' && s.path != "*" { // an opaque URL with its host
		if s.path = strings.TrimPrefix(s.path, r.URL.Scheme+"://"+s.authority); s.path == "" || s.path[0] != '/' {
			return errors.New("the URL is of another host than the request")
		}
	}
	for name, values := range r.Header {
		if err := checkConnectionHeader(name, values); err != nil {
			return err
		}
	}
	switch {
	case r.Body == nil || r.Body == http.NoBody:
		s.length = 0
	case r.ContentLength != 0:
		s.length = r.ContentLength
	default:
		s.length = -1
	}
	if w, ok := r.Body.(*engine.BytesBody); ok {
		s.length = int64(len(w.Bytes()))
	}
	return s.prepareTrailers()
}

func (s *stream) prepareTrailers() error {
	if len(s.request.Trailer) == 0 {
		return nil
	}
	names := make([]string, 0, len(s.request.Trailer))
	for name := range s.request.Trailer {
		name = http.CanonicalHeaderKey(name)
		names = append(names, name)
	}
	slices.Sort(names)
	s.trailers = strings.Join(names, ",")
	return nil
}

// checkConnectionHeader refuses fields that HTTP/2 does not allow (RFC 9113, section 8.2.2).
func checkConnectionHeader(name string, values []string) error {
	lower, ok := frame.LowerName(name)
	switch {
	case !ok:
		return fmt.Errorf("%q is no header name", name)
	case len(values) == 0 || values[0] == "":
		return nil
	case lower == "upgrade" && values[0] != "chunked":
		return errors.New("HTTP/2 has no upgrades")
	case lower == "transfer-encoding" && (len(values) > 1 || values[0] != "chunked"):
		return errors.New("HTTP/2 has no transfer encodings")
	case lower == "connection" && (len(values) > 1 || !strings.EqualFold(values[0], "close") && !strings.EqualFold(values[0], "keep-alive")):
		return errors.New("HTTP/2 has no options of connections")
	}
	return nil
}

func method(r *http.Request) string {
	return cmp.Or(r.Method, http.MethodGet)
}

// EncodeHeaders implements frame.HeaderBlock.
func (s *stream) EncodeHeaders(e *frame.Encoder) {
	r := s.request
	e.WriteField(":authority", s.authority)
	e.WriteField(":method", method(r))
	e.WriteNeverIndexed(":path", s.path) // most paths name an object, and would evict fields that occur again
	e.WriteField(":scheme", "https")
	if s.trailers != "" {
		e.WriteField("trailer", s.trailers)
	}
	agent := false
	for name, values := range r.Header {
		lower, _ := frame.LowerName(name)
		switch {
		case isFramingHeader(lower):
		case lower == "user-agent":
			if agent = true; len(values) > 0 && values[0] != "" {
				e.WriteField(lower, values[0])
			}
		case lower == "cookie":
			for _, v := range values {
				for crumb := range strings.SplitSeq(v, ";") {
					if crumb = strings.TrimLeft(crumb, " "); crumb != "" {
						e.WriteNeverIndexed(lower, crumb)
					}
				}
			}
		case neverIndexed(lower):
			for _, v := range values {
				e.WriteNeverIndexed(lower, v)
			}
		default:
			for _, v := range values {
				e.WriteField(lower, v)
			}
		}
	}
	if n := s.length; n > 0 || n == 0 && sendsZeroLength(r.Method) {
		e.WriteNeverIndexed("content-length", strconv.FormatInt(n, 10))
	}
	if !agent {
		e.WriteField("user-agent", "Go-http-client/2.0")
	}
}

// neverIndexed reports whether the values of a field do not occur again, or must not be indexed.
func neverIndexed(name string) bool {
	switch name {
	case "audit-id", "traceparent", "x-request-id", "authorization", "if-none-match":
		return true
	}
	return false
}

// sendsZeroLength reports whether requests of a method have a Content-Length of 0.
func sendsZeroLength(method string) bool {
	return method == http.MethodPost || method == http.MethodPut || method == http.MethodPatch
}

// trailerFields are the request's trailers.
type trailerFields http.Header

// EncodeHeaders implements frame.HeaderBlock.
func (t trailerFields) EncodeHeaders(e *frame.Encoder) {
	for name, values := range t {
		lower, ok := frame.LowerName(name)
		for _, v := range values {
			if ok && httpmsg.ValidFieldValue(v) {
				e.WriteField(lower, v)
			}
		}
	}
}

var uploadBuffers = sync.Pool{New: func() any { b := make([]byte, frame.MaxFrame); return &b }}

// upload sends a body while it is read.
func (s *stream) upload() {
	defer s.requestSent()
	r, out := s.request, s.conn.w
	defer closeBody(r)
	room := uploadBuffers.Get().(*[]byte)
	defer uploadBuffers.Put(room)
	rest := s.length
	for {
		n, err := r.Body.Read(*room)
		if rest >= 0 {
			n = int(min(int64(n), rest)) // more than the declared length would make the message malformed
			if rest -= int64(n); rest == 0 && err == nil && s.trailers == "" {
				err = io.EOF
			}
		}
		if err == io.EOF && rest > 0 {
			err = errBodyTooShort
		}
		if err != nil && err != io.EOF {
			s.fail(&engine.Error{Kind: engine.BodyError, Err: err}, frame.Cancel)
			return
		}
		end := err == io.EOF && s.trailers == ""
		if n > 0 || end {
			if out.WriteData(&s.send, (*room)[:n], end) != nil {
				return // the end of the stream has recorded the reason
			}
		}
		if err == nil {
			continue
		}
		if !end {
			_ = out.WriteHeaders(&s.send, trailerFields(r.Trailer), nil, true) // the end of the stream has recorded the reason
		}
		return
	}
}

func (s *stream) requestSent() {
	s.conn.mu.Lock()
	s.sent = true
	s.conn.mu.Unlock()
}
