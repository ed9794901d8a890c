package server

import (
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"portico.dev/internal/httpengine/httpmsg"
	"portico.dev/internal/httpengine/portico/http2/frame"
)

// responseField is a header field of a response.
type responseField struct {
	name, value string
	neverIndex  bool
}

// snapshot records the current header, in the form in which it is sent.
func (w *response) snapshot() {
	w.declared = -1
	for name, values := range w.header {
		switch name {
		case "Connection":
			w.closeConn = len(values) > 0 && values[0] == "close"
			continue
		case "Keep-Alive", "Proxy-Connection", "Upgrade": // HTTP/2 does not allow these
			continue
		case "Content-Length":
			w.noLength = len(values) == 0
			if !w.noLength {
				if n, err := strconv.ParseUint(values[0], 10, 63); err == nil {
					w.declared, w.length = int64(n), values[0]
				}
			}
			continue
		case "Date":
			w.hasDate = true
		case "Content-Type":
			w.hasType = true
		case "Content-Encoding":
			w.hasType = w.hasType || len(values) > 0 && values[0] != ""
		case "Trailer":
			for _, v := range values {
				for name := range strings.SplitSeq(v, ",") {
					if name = textproto.TrimString(name); name != "" {
						w.declareTrailer(name)
					}
				}
			}
		}
		w.fields = appendFields(w.fields, name, values)
	}
}

func appendFields(fields []responseField, name string, values []string) []responseField {
	lower, ok := frame.LowerName(name)
	if !ok {
		return fields
	}
	once := neverIndexed(lower)
	for _, v := range values {
		if httpmsg.ValidFieldValue(v) && lower != "transfer-encoding" { // RFC 9113, section 8.2.2
			fields = append(fields, responseField{lower, v, once})
		}
	}
	return fields
}

// neverIndexed reports whether the values of a field rarely occur again.
func neverIndexed(name string) bool {
	switch name {
	case "audit-id", "date", "content-length", "etag", "last-modified", "traceparent", "set-cookie":
		return true
	}
	return false
}

// declareTrailer declares a trailer.
func (w *response) declareTrailer(name string) {
	name = http.CanonicalHeaderKey(name)
	if httpguts.ValidTrailerHeader(name) && !slices.Contains(w.trailers, name) {
		w.trailers = append(w.trailers, name)
	}
}

// finishHeader adds the fields that the handler left to the server. p is the beginning of the body, or the whole body if
// end is set.
func (w *response) finishHeader(p []byte, end bool) {
	if !httpmsg.BodyAllowed(w.status) {
		return
	}
	if w.length == "" && !w.noLength && end && (len(p) > 0 || !w.head) {
		w.length = strconv.Itoa(len(p))
	}
	if !w.hasType && len(p) > 0 {
		w.detectedType = http.DetectContentType(p)
	}
}

// responseHeader is the header of a response.
type responseHeader response

// EncodeHeaders implements frame.HeaderBlock.
func (w *responseHeader) EncodeHeaders(e *frame.Encoder) {
	e.WriteField(":status", statusText(w.status))
	for i := range w.fields {
		if f := &w.fields[i]; f.neverIndex {
			e.WriteNeverIndexed(f.name, f.value)
		} else {
			e.WriteField(f.name, f.value)
		}
	}
	if w.detectedType != "" {
		e.WriteField("content-type", w.detectedType)
	}
	if w.length != "" && httpmsg.BodyAllowed(w.status) { // RFC 9110, section 8.6
		e.WriteNeverIndexed("content-length", w.length)
	}
	if !w.hasDate {
		e.WriteNeverIndexed("date", w.st.conn.server.clock.Date())
	}
}

// responseTrailers are the trailers of a response.
type responseTrailers response

// EncodeHeaders implements frame.HeaderBlock.
func (w *responseTrailers) EncodeHeaders(e *frame.Encoder) {
	slices.Sort(w.trailers)
	for _, name := range w.trailers {
		for _, f := range appendFields(nil, name, w.header[name]) {
			e.WriteField(f.name, f.value)
		}
	}
}

// informational is the header of a 1xx response.
type informational struct {
	code   int
	header http.Header
}

// EncodeHeaders implements frame.HeaderBlock.
func (i *informational) EncodeHeaders(e *frame.Encoder) {
	e.WriteField(":status", statusText(i.code))
	for name, values := range i.header {
		switch name {
		case "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "Proxy-Connection", "Upgrade", "Trailer":
			continue
		}
		for _, f := range appendFields(nil, name, values) {
			e.WriteField(f.name, f.value)
		}
	}
}

func statusText(code int) string {
	switch code {
	case 200:
		return "200"
	case 201:
		return "201"
	case 304:
		return "304"
	case 401:
		return "401"
	case 403:
		return "403"
	case 404:
		return "404"
	case 409:
		return "409"
	}
	return strconv.Itoa(code)
}
