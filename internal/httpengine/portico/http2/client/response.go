package client

import (
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"portico.dev/internal/httpengine/engine"
	"portico.dev/internal/httpengine/httpmsg"
	"portico.dev/internal/httpengine/portico/http2/frame"
)

// headerBlock is a decoded header block. It is reused for the next one.
type headerBlock struct {
	decoder   *frame.Decoder
	addField  func(name, value string) error
	status    string
	hasPseudo bool // there was a pseudo-header field
	fields    []headerField
}

type headerField struct{ name, value string }

func (h *headerBlock) init(l frame.BlockLimits) {
	h.decoder, h.addField = frame.NewDecoder(l), h.field
}

const keptFields = 64

func (h *headerBlock) decode(block []byte) error { return h.decoder.Decode(block, h.addField) }

// reset is called after a block was used, so that an idle connection does not retain it.
func (h *headerBlock) reset() {
	h.status, h.hasPseudo = "", false
	if cap(h.fields) > keptFields {
		h.fields = nil
	}
	clear(h.fields)
	h.fields = h.fields[:0]
}

func (h *headerBlock) field(name, value string) error {
	if name[0] != ':' {
		name = frame.CanonicalName(name)
		if httpmsg.IsConnectionHeader(name) {
			return nil // an HTTP/1.1 client of Portico would apply it to its connection (RFC 9113, section 8.2.2)
		}
		h.fields = append(h.fields, headerField{name, value})
		return nil
	}
	if name != ":status" || h.hasPseudo || len(h.fields) > 0 {
		return frame.StreamError{Code: frame.ProtocolError, Reason: "pseudo fields that no response has"}
	}
	h.hasPseudo, h.status = true, value
	return nil
}

// statusCode returns the status, or 0 if it is invalid.
func (h *headerBlock) statusCode() int {
	if len(h.status) != 3 {
		return 0
	}
	code := 0
	for _, c := range []byte(h.status) {
		if c < '0' || c > '9' {
			return 0
		}
		code = 10*code + int(c-'0')
	}
	if code < 100 {
		return 0
	}
	return code
}

// header returns an http.Header with the fields.
func (h *headerBlock) header() http.Header {
	made := make(http.Header, len(h.fields))
	values := make([]string, len(h.fields)) // one array for all: most names have one value
	for i := range h.fields {
		f := &h.fields[i]
		if have, ok := made[f.name]; ok {
			made[f.name] = append(have, f.value)
			continue
		}
		values[i] = f.value
		made[f.name] = values[i : i+1 : i+1]
	}
	return made
}

// fillResponse fills in the response of s. The error ends the stream.
func (h *headerBlock) fillResponse(s *stream, code int, end bool) *engine.Error {
	resp := &s.response
	resp.StatusCode, resp.Status = code, statusText(code, h.status)
	resp.Proto, resp.ProtoMajor = "HTTP/2.0", 2
	resp.Header, resp.Request, resp.TLS = h.header(), s.request, s.conn.tls
	length, err := contentLength(resp.Header)
	if err != nil {
		return err
	}
	if code == http.StatusNoContent && length > 0 {
		return violation(frame.ProtocolError, "a length of an answer that has no body")
	}
	s.remaining = length
	resp.ContentLength = length
	bodiless := s.request.Method == http.MethodHead || code == http.StatusNoContent || code == http.StatusNotModified
	switch {
	case bodiless:
		s.remaining = 0
	case end && length > 0:
		return violation(frame.ProtocolError, "a response that ends before its length")
	}
	if end && length < 0 && s.request.Method != http.MethodHead {
		resp.ContentLength = 0
	}
	if named, ok := resp.Header["Trailer"]; ok {
		delete(resp.Header, "Trailer")
		resp.Trailer = declaredTrailers(named)
	}
	if end || s.request.Method == http.MethodHead {
		resp.Body = http.NoBody
	} else {
		resp.Body = s
	}
	return nil
}

// declaredTrailers returns the names in a Trailer header.
func declaredTrailers(values []string) http.Header {
	made := make(http.Header)
	for _, v := range values {
		for name := range strings.SplitSeq(v, ",") {
			if name = http.CanonicalHeaderKey(strings.TrimSpace(name)); httpmsg.ValidTrailer(name) {
				made[name] = nil
			}
		}
	}
	return made
}

// contentLength returns the Content-Length, or -1.
func contentLength(h http.Header) (int64, *engine.Error) {
	n, ok := httpmsg.ParseContentLength(h["Content-Length"])
	if !ok {
		return 0, violation(frame.ProtocolError, "a length that is none, or two of them")
	}
	return n, nil
}

// statusTexts contains the status lines of all registered codes.
var statusTexts = func() (texts [512]string) {
	for code := range texts {
		if text := http.StatusText(code); text != "" {
			texts[code] = strconv.Itoa(code) + " " + text
		}
	}
	return texts
}()

func statusText(code int, status string) string {
	if code < len(statusTexts) && statusTexts[code] != "" {
		return statusTexts[code]
	}
	return status + " " + http.StatusText(code)
}

// Read implements io.Reader for the response's body. Trailers are set when it returns io.EOF.
func (s *stream) Read(p []byte) (int, error) {
	n, err := s.body.Read(p)
	if err == nil {
		return n, nil
	}
	s.unwatchContext()
	if err == io.EOF && s.trailer != nil {
		if s.response.Trailer == nil {
			s.response.Trailer = make(http.Header, len(s.trailer))
		}
		maps.Copy(s.response.Trailer, s.trailer)
	}
	return n, err
}

// Ready reports whether Read would return immediately.
func (s *stream) Ready() bool {
	n, ended := s.body.Buffered()
	return n > 0 || ended
}

// Close discards the unread data.
func (s *stream) Close() error {
	s.fail(closedBody, frame.Cancel)
	s.unwatchContext()
	return s.body.Close()
}
