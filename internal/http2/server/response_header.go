package server

import (
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"portico.dev/internal/http2/frame"
	"portico.dev/internal/httpmsg"
)

// field is one of a response's header. once is whether its value will not come again.
type field struct {
	name, value string
	once        bool
}

// snapshot keeps the header as it is now, as it will be sent.
func (w *response) snapshot() {
	w.declared = -1
	for name, values := range w.header {
		switch name {
		case "Connection":
			w.closing = len(values) > 0 && values[0] == "close"
			continue
		case "Keep-Alive", "Proxy-Connection", "Upgrade": // they are no one's in HTTP/2
			continue
		case "Content-Length":
			w.unsized = len(values) == 0
			if !w.unsized {
				if n, err := strconv.ParseUint(values[0], 10, 63); err == nil {
					w.declared, w.length = int64(n), values[0]
				}
			}
			continue
		case "Date":
			w.dated = true
		case "Content-Type":
			w.typed = true
		case "Content-Encoding":
			w.typed = w.typed || len(values) > 0 && values[0] != ""
		case "Trailer":
			for _, v := range values {
				for name := range strings.SplitSeq(v, ",") {
					if name = textproto.TrimString(name); name != "" {
						w.declare(name)
					}
				}
			}
		}
		w.fields = appendFields(w.fields, name, values)
	}
}

func appendFields(fields []field, name string, values []string) []field {
	lower, ok := frame.Lower(name)
	if !ok {
		return fields
	}
	once := unique(lower)
	for _, v := range values {
		if httpguts.ValidHeaderFieldValue(v) && lower != "transfer-encoding" { // RFC 9113, 8.2.2
			fields = append(fields, field{lower, v, once})
		}
	}
	return fields
}

// unique reports whether the values of a field hardly ever come again.
func unique(name string) bool {
	switch name {
	case "audit-id", "date", "content-length", "etag", "last-modified", "traceparent", "set-cookie":
		return true
	}
	return false
}

// declare notes a trailer.
func (w *response) declare(name string) {
	name = http.CanonicalHeaderKey(name)
	if httpguts.ValidTrailerHeader(name) && !slices.Contains(w.trailers, name) {
		w.trailers = append(w.trailers, name)
	}
}

// complete adds to the header what the handler left to the server. p is how the body begins, and all of it when end is set.
func (w *response) complete(p []byte, end bool) {
	if !httpmsg.BodyAllowed(w.status) {
		return
	}
	if w.length == "" && !w.unsized && end && (len(p) > 0 || !w.head) {
		w.length = strconv.Itoa(len(p))
	}
	if !w.typed && len(p) > 0 {
		w.media = http.DetectContentType(p)
	}
}

// opening is a response's header.
type opening response

// WriteFields implements frame.Fields.
func (w *opening) WriteFields(e *frame.Encoder) {
	e.Field(":status", statusText(w.status))
	for i := range w.fields {
		if f := &w.fields[i]; f.once {
			e.Once(f.name, f.value)
		} else {
			e.Field(f.name, f.value)
		}
	}
	if w.media != "" {
		e.Field("content-type", w.media)
	}
	if w.length != "" && httpmsg.BodyAllowed(w.status) { // RFC 9110, 8.6
		e.Once("content-length", w.length)
	}
	if !w.dated {
		e.Once("date", w.st.conn.server.clock.Date())
	}
}

// closing is a response's trailers.
type closing response

// WriteFields implements frame.Fields.
func (w *closing) WriteFields(e *frame.Encoder) {
	slices.Sort(w.trailers)
	for _, name := range w.trailers {
		for _, f := range appendFields(nil, name, w.header[name]) {
			e.Field(f.name, f.value)
		}
	}
}

// interim is the header of a response before the real one.
type interim struct {
	code   int
	header http.Header
}

// WriteFields implements frame.Fields.
func (i *interim) WriteFields(e *frame.Encoder) {
	e.Field(":status", statusText(i.code))
	for name, values := range i.header {
		switch name {
		case "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "Proxy-Connection", "Upgrade", "Trailer":
			continue
		}
		for _, f := range appendFields(nil, name, values) {
			e.Field(f.name, f.value)
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
