package http1

import (
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"portico.dev/internal/httpmsg"
)

// snapshot writes the head as the header is now, but for what depends on the body.
func (w *response) snapshot() {
	w.declared, w.names = -1, len(w.header)
	r := w.rooms()
	out := appendStatusLine(r.out, !w.old, w.status)
	for name, values := range w.header {
		switch name {
		case "Connection":
			w.options = values
			continue
		case "Transfer-Encoding":
			if len(values) > 0 {
				w.coding = values[0]
			}
			continue
		case "Content-Length":
			w.length(values)
			continue
		case "Date":
			w.dated = true
		case "Content-Type":
			if w.typed = true; w.status == http.StatusNotModified {
				continue
			}
		case "Content-Encoding":
			w.typed = w.typed || len(values) > 0 && values[0] != ""
		case "Trailer":
			w.declareAll(values)
		}
		if strings.HasPrefix(name, http.TrailerPrefix) {
			w.trailing = true
			continue
		}
		out = appendFields(out, name, values)
	}
	r.out = out
}

// length is the Content-Length that the handler gives, if it is one.
func (w *response) length(values []string) {
	if w.unsized = len(values) == 0; !w.unsized {
		if n, err := strconv.ParseUint(values[0], 10, 63); err == nil {
			w.declared = int64(n)
		}
	}
}

// declareAll notes trailers.
func (w *response) declareAll(values []string) {
	w.trailing = true
	for _, v := range values {
		for name := range strings.SplitSeq(v, ",") {
			if name = textproto.TrimString(name); name != "" {
				w.declare(name)
			}
		}
	}
}

func (w *response) declare(name string) {
	name = http.CanonicalHeaderKey(name)
	if httpguts.ValidTrailerHeader(name) && !slices.Contains(w.trailers, name) {
		w.trailers = append(w.trailers, name)
	}
}

// complete ends the head with what the handler left to the server. p is how the body begins, and all of it when end is set.
func (w *response) complete(out, p []byte, end bool) []byte {
	if end && len(w.header) != w.names && w.lateTrailers() {
		w.trailing = true
	}
	allowed := httpmsg.BodyAllowed(w.status)
	coded := w.coding != ""
	length := w.declared
	if coded && w.coding != "identity" {
		length = -1
	}
	if end && length < 0 && !w.unsized && !w.trailing && !coded && allowed && (len(p) > 0 || !w.head) {
		length = int64(len(p))
	}
	if allowed && !w.typed && !coded && len(p) > 0 {
		out = append(append(append(out, "Content-Type: "...), http.DetectContentType(p)...), "\r\n"...)
	}
	if length >= 0 && allowed {
		out = append(strconv.AppendInt(append(out, "Content-Length: "...), length, 10), "\r\n"...)
	}
	if !w.dated {
		out = append(append(append(out, "Date: "...), w.x.conn.server.clock.Date()...), "\r\n"...)
	}
	delimited := length >= 0 || w.head || !allowed
	if !delimited {
		out = w.delimit(out)
	}
	return append(w.connection(out, delimited), "\r\n"...)
}

// delimit chooses how the client learns where the body ends, which has no length.
func (w *response) delimit(out []byte) []byte {
	if w.old || w.coding == "identity" {
		w.closing = true
		return out
	}
	w.chunked = true
	if w.coding != "" && w.coding != "chunked" {
		out = appendFields(out, "Transfer-Encoding", []string{w.coding})
	}
	return append(out, "Transfer-Encoding: chunked\r\n"...)
}

// connection says what becomes of the connection. delimited is whether the client sees the end of the body.
func (w *response) connection(out []byte, delimited bool) []byte {
	x := w.x
	first := ""
	if len(w.options) > 0 {
		first = w.options[0]
	}
	w.closing = w.closing || first == "close" || x.body.expects.Load() || x.conn.server.leaving.Load() ||
		w.keep && !delimited
	switch {
	case w.status == http.StatusSwitchingProtocols && httpguts.HeaderValuesContainsToken(w.options, "upgrade"):
	case w.closing && !w.old && !httpguts.HeaderValuesContainsToken([]string{first}, "close"):
		return append(out, "Connection: close\r\n"...)
	case w.closing && w.old && first != "close":
		return out
	case w.keep && w.options == nil:
		return append(out, "Connection: keep-alive\r\n"...)
	}
	return appendFields(out, "Connection", w.options)
}

// lateTrailers notes the trailers that the handler put into the header with http.TrailerPrefix, and reports whether there
// are any.
func (w *response) lateTrailers() (any bool) {
	for name, values := range w.header {
		if late, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
			any = true
			w.declare(late)
			w.header[http.CanonicalHeaderKey(late)] = values
		}
	}
	return any
}

// appendTrailers is the end of a chunked body.
func (w *response) appendTrailers(b []byte) []byte {
	b = append(b, "0\r\n"...)
	if w.trailing || len(w.header) != w.names {
		w.lateTrailers()
		slices.Sort(w.trailers)
		for _, name := range w.trailers {
			b = appendFields(b, name, w.header[name])
		}
	}
	return append(b, "\r\n"...)
}

// appendFields leaves out names that are none, and line ends in values.
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
