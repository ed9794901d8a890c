package http1

import (
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"portico.dev/internal/httpengine/httpmsg"
)

// snapshot writes the current header, except fields that depend on the body.
func (w *response) snapshot() {
	w.declared, w.headerNames = -1, len(w.header)
	r := w.getBuffers()
	out := appendStatusLine(r.out, !w.http10, w.status)
	for name, values := range w.header {
		switch name {
		case "Connection":
			w.connectionHeader = values
			continue
		case "Transfer-Encoding":
			if len(values) > 0 {
				w.coding = values[0]
			}
			continue
		case "Content-Length":
			w.parseLength(values)
			continue
		case "Date":
			w.hasDate = true
		case "Content-Type":
			if w.hasType = true; w.status == http.StatusNotModified {
				continue
			}
		case "Content-Encoding":
			w.hasType = w.hasType || len(values) > 0 && values[0] != ""
		case "Trailer":
			w.declareTrailers(values)
		}
		if strings.HasPrefix(name, http.TrailerPrefix) {
			w.hasTrailers = true
			continue
		}
		out = appendFields(out, name, values)
	}
	r.out = out
}

// parseLength parses the handler's Content-Length, if it is valid.
func (w *response) parseLength(values []string) {
	if w.noLength = len(values) == 0; !w.noLength {
		if n, err := strconv.ParseUint(values[0], 10, 63); err == nil {
			w.declared = int64(n)
		}
	}
}

// declareTrailers declares trailers.
func (w *response) declareTrailers(values []string) {
	w.hasTrailers = true
	for _, v := range values {
		for name := range strings.SplitSeq(v, ",") {
			if name = textproto.TrimString(name); name != "" {
				w.declareTrailer(name)
			}
		}
	}
}

func (w *response) declareTrailer(name string) {
	name = http.CanonicalHeaderKey(name)
	if httpguts.ValidTrailerHeader(name) && !slices.Contains(w.trailers, name) {
		w.trailers = append(w.trailers, name)
	}
}

// finishHeader adds the fields that the handler left to the server. p is the beginning of the body, or the whole body if
// end is set.
func (w *response) finishHeader(out, p []byte, end bool) []byte {
	if end && len(w.header) != w.headerNames && w.collectPrefixedTrailers() {
		w.hasTrailers = true
	}
	allowed := httpmsg.BodyAllowed(w.status)
	coded := w.coding != ""
	length := w.declared
	if coded && w.coding != "identity" {
		length = -1
	}
	if end && length < 0 && !w.noLength && !w.hasTrailers && !coded && allowed && (len(p) > 0 || !w.head) {
		length = int64(len(p))
	}
	if allowed && !w.hasType && !coded && len(p) > 0 {
		out = append(append(append(out, "Content-Type: "...), http.DetectContentType(p)...), "\r\n"...)
	}
	if length >= 0 && allowed {
		out = append(strconv.AppendInt(append(out, "Content-Length: "...), length, 10), "\r\n"...)
	}
	if !w.hasDate {
		out = append(append(append(out, "Date: "...), w.x.conn.server.clock.Date()...), "\r\n"...)
	}
	delimited := length >= 0 || w.head || !allowed
	if !delimited {
		out = w.appendTransferEncoding(out)
	}
	return append(w.appendConnection(out, delimited), "\r\n"...)
}

// appendTransferEncoding selects how the end of a body without a length is marked.
func (w *response) appendTransferEncoding(out []byte) []byte {
	if w.http10 || w.coding == "identity" {
		w.closing = true
		return out
	}
	w.chunked = true
	if w.coding != "" && w.coding != "chunked" {
		out = appendFields(out, "Transfer-Encoding", []string{w.coding})
	}
	return append(out, "Transfer-Encoding: chunked\r\n"...)
}

// appendConnection writes the Connection header. delimited is set if the client can find the end of the body without the
// end of the connection.
func (w *response) appendConnection(out []byte, delimited bool) []byte {
	x := w.x
	first := ""
	if len(w.connectionHeader) > 0 {
		first = w.connectionHeader[0]
	}
	w.closing = w.closing || first == "close" || x.body.expects.Load() || x.conn.server.shuttingDown.Load() ||
		w.keepAlive && !delimited
	switch {
	case w.status == http.StatusSwitchingProtocols && httpguts.HeaderValuesContainsToken(w.connectionHeader, "upgrade"):
	case w.closing && !w.http10 && !httpguts.HeaderValuesContainsToken([]string{first}, "close"):
		return append(out, "Connection: close\r\n"...)
	case w.closing && w.http10 && first != "close":
		return out
	case w.keepAlive && w.connectionHeader == nil:
		return append(out, "Connection: keep-alive\r\n"...)
	}
	return appendFields(out, "Connection", w.connectionHeader)
}

// collectPrefixedTrailers declares the trailers that the handler set with http.TrailerPrefix, and reports whether there are
// any.
func (w *response) collectPrefixedTrailers() (any bool) {
	for name, values := range w.header {
		if late, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
			any = true
			w.declareTrailer(late)
			w.header[http.CanonicalHeaderKey(late)] = values
		}
	}
	return any
}

// appendTrailers appends the end of a chunked body.
func (w *response) appendTrailers(b []byte) []byte {
	b = append(b, "0\r\n"...)
	if w.hasTrailers || len(w.header) != w.headerNames {
		w.collectPrefixedTrailers()
		slices.Sort(w.trailers)
		for _, name := range w.trailers {
			b = appendFields(b, name, w.header[name])
		}
	}
	return append(b, "\r\n"...)
}

// appendFields appends a field. It omits invalid names, and replaces line ends in values.
func appendFields(b []byte, name string, values []string) []byte {
	if !httpmsg.IsToken(name) {
		return b
	}
	for _, v := range values {
		b = append(append(b, name...), ": "...)
		from := len(b)
		b = append(b, textproto.TrimString(v)...)
		for i, c := range b[from:] {
			if c == '\r' || c == '\n' {
				b[from+i] = ' '
			}
		}
		b = append(b, "\r\n"...)
	}
	return b
}

func appendStatusLine(b []byte, is11 bool, code int) []byte {
	if is11 {
		b = append(b, "HTTP/1.1 "...)
	} else {
		b = append(b, "HTTP/1.0 "...)
	}
	b = append(strconv.AppendInt(b, int64(code), 10), ' ')
	if text := http.StatusText(code); text != "" {
		b = append(b, text...)
	} else {
		b = strconv.AppendInt(append(b, "status code "...), int64(code), 10)
	}
	return append(b, "\r\n"...)
}
