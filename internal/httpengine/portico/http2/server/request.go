package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"portico.dev/internal/httpengine/httpmsg"
	"portico.dev/internal/httpengine/portico/http2/frame"
)

type headerField struct{ name, value string }

// Pseudo-header fields, as bits.
const (
	hasMethod = 1 << iota
	hasScheme
	hasAuthority
	hasPath
)

// headerBlock is the current header block. It is used by the goroutine that reads.
type headerBlock struct {
	pseudo                          int
	method, scheme, authority, path string
	fields                          []headerField
	hasSpecial                      bool // isSpecial of any field
}

const keptFields = 64

func (h *headerBlock) reset() {
	clear(h.fields)
	kept := h.fields[:0]
	if cap(kept) > keptFields {
		kept = nil
	}
	*h = headerBlock{fields: kept}
}

func malformed(why string) error { return frame.StreamError{Code: frame.ProtocolError, Reason: why} }

// add is called for each field of a block.
func (h *headerBlock) add(name, value string) error {
	if name[0] != ':' {
		h.hasSpecial = h.hasSpecial || isSpecial(name)
		h.fields = append(h.fields, headerField{name, httpmsg.TrimBlanks(value)})
		return nil
	}
	if len(h.fields) > 0 {
		return malformed("a pseudo field after others")
	}
	var bit int
	var to *string
	switch name {
	case ":method":
		bit, to = hasMethod, &h.method
	case ":scheme":
		bit, to = hasScheme, &h.scheme
	case ":authority":
		bit, to = hasAuthority, &h.authority
	case ":path":
		bit, to = hasPath, &h.path
	default:
		return malformed("an unknown pseudo field")
	}
	if h.pseudo&bit != 0 {
		return malformed("a pseudo field twice")
	}
	h.pseudo |= bit
	*to = value
	return nil
}

// isSpecial reports whether the server itself processes a field.
func isSpecial(name string) bool {
	switch name {
	case "connection", "content-length", "cookie", "expect", "keep-alive", "proxy-connection", "te", "trailer",
		"transfer-encoding", "upgrade":
		return true
	}
	return false
}

// validate checks RFC 9113, section 8.3.1, like net/http.
func (h *headerBlock) validate() error {
	switch {
	case h.method == "CONNECT":
		if h.path != "" || h.scheme != "" || h.authority == "" {
			return malformed("a CONNECT with more, or less, than an authority")
		}
	case h.method == "" || h.path == "" || h.scheme != "https" && h.scheme != "http":
		return malformed("a request without its method, scheme or path")
	}
	return nil
}

// checkLengths returns nil if no field is too long.
func (h *headerBlock) checkLengths() error {
	for i := range h.fields {
		if err := httpmsg.CheckLengths(h.fields[i].name, h.fields[i].value); err != nil {
			return err
		}
	}
	return nil
}

// header returns an http.Header. All values share one slice.
func (h *headerBlock) header() http.Header {
	header := make(http.Header, len(h.fields)) // a map for up to eight fields is small
	values := make([]string, len(h.fields))
	for i, f := range h.fields {
		name := frame.CanonicalName(f.name)
		if others := header[name]; others != nil {
			header[name] = append(others, f.value)
			continue
		}
		values[i] = f.value
		header[name] = values[i : i+1 : i+1]
	}
	return header
}

// newRequest makes the stream of the current header block. large is set if a part of it exceeded the limits.
func (c *conn) newRequest(id uint32, end, large bool) (*stream, error) {
	h := &c.head
	if large {
		return c.newOversizedRequest(id, end), nil
	}
	if err := h.validate(); err != nil {
		return nil, err
	}
	header := h.header()
	if h.authority == "" {
		h.authority = header.Get("Host")
	}
	if strings.IndexByte(h.authority, '@') >= 0 {
		return nil, malformed("an authority with a user")
	}
	st := &stream{conn: c, recvWindow: frame.NewRecvWindow(int64(c.server.c.StreamWindow)), contentLength: -1, received: end, counted: true}
	st.send.ID = id
	st.memory.header = h.size()
	grown := c.large.Large()
	if grown {
		st.memory.header = int(httpmsg.HeaderMemory(st.memory.header, len(h.fields)))
	}
	st.ctx.SetConn(&c.info)
	st.res.st = st
	st.req.Method, st.req.Proto, st.req.ProtoMajor = h.method, "HTTP/2.0", 2
	st.req.Header, st.req.Host, st.req.RemoteAddr = header, h.authority, c.remote
	err := st.setTarget(h)
	if err == nil {
		err = h.checkLengths()
	}
	if err != nil {
		var wrong *httpmsg.RequestError
		if !errors.As(err, &wrong) {
			return nil, err
		}
		st.handler = badRequest(wrong) // RFC 9113, section 8.2.1 prefers a response to a reset
	}
	st.req.TLS = c.tls // regardless of the client's :scheme
	st.req.Body = http.NoBody
	if !end {
		st.body.st, st.body.Consumer = st, st
		st.req.Body, st.req.ContentLength = &st.body, -1
	}
	st.res.head = h.method == http.MethodHead
	if h.hasSpecial {
		if err := st.applyHeaders(end); err != nil {
			return nil, err
		}
	}
	ctx := context.Context(&st.ctx)
	if derive := c.server.c.Context; derive != nil {
		ctx = derive(ctx, c.remote)
	}
	st.req = *st.req.WithContext(ctx)
	if grown {
		st.memory.grant = c.detachGrant()
	}
	return st, nil
}

// newOversizedRequest makes the stream of an oversized header block. Its fields are ignored and it is answered 431.
func (c *conn) newOversizedRequest(id uint32, end bool) *stream {
	st := &stream{conn: c, recvWindow: frame.NewRecvWindow(int64(c.server.c.StreamWindow)), contentLength: -1, received: end, counted: true}
	st.send.ID = id
	st.ctx.SetConn(&c.info)
	st.res.st, st.res.head = st, c.head.method == http.MethodHead
	st.req.Body = http.NoBody
	st.body.st, st.body.Consumer = st, st
	st.handler = http.HandlerFunc(tooLarge)
	return st
}

// applyHeaders applies the headers that concern the server, and removes the ones that handlers must not receive.
func (st *stream) applyHeaders(end bool) error {
	header := st.req.Header
	for name := range header {
		if httpmsg.IsConnectionHeader(name) {
			st.handler = refuse("request header " + strconv.Quote(name) + " is not valid in HTTP/2")
		}
	}
	if te := header["Te"]; len(te) > 1 || len(te) == 1 && te[0] != "trailers" && te[0] != "" {
		st.handler = refuse(`request header "TE" may only be "trailers" in HTTP/2`)
	}
	if expect, ok := header["Expect"]; ok && httpguts.HeaderValuesContainsToken(expect, "100-continue") {
		delete(header, "Expect")
		st.body.expects = !end
	}
	if cookies := header["Cookie"]; len(cookies) > 1 {
		header["Cookie"] = []string{strings.Join(cookies, "; ")}
	}
	if announced, ok := header["Trailer"]; ok {
		if wrong := st.declareTrailers(announced); wrong != nil {
			st.handler = badRequest(wrong)
		}
		st.body.declared = st.req.Trailer
		delete(header, "Trailer")
	}
	return st.setContentLength(header["Content-Length"], end)
}

// declareTrailers adds the declared trailers to the request, or returns an error: each takes far more memory than the
// length of its name (CVE-2026-78659), and some are forbidden.
func (st *stream) declareTrailers(values []string) *httpmsg.RequestError {
	for _, v := range values {
		for name := range strings.SplitSeq(v, ",") {
			if name = textproto.TrimString(name); name == "" {
				continue
			}
			if name = textproto.CanonicalMIMEHeaderKey(name); !httpguts.ValidHeaderFieldName(name) || !httpmsg.ValidTrailer(name) {
				return &httpmsg.RequestError{Element: "trailers", Reason: "the request announces a trailer that must not be one"}
			}
			if st.req.Trailer == nil {
				st.req.Trailer = make(http.Header)
			}
			if st.req.Trailer[name] = nil; len(st.req.Trailer) > httpmsg.MaxTrailers {
				return &httpmsg.RequestError{
					Element: "trailers", Reason: "the request announces more than " + strconv.Itoa(httpmsg.MaxTrailers) + " trailers",
				}
			}
		}
	}
	return nil
}

// setContentLength parses Content-Length. A backend could interpret invalid and repeated values differently.
func (st *stream) setContentLength(values []string, end bool) error {
	n, ok := httpmsg.ParseContentLength(values)
	switch {
	case !ok:
		return malformed("a Content-Length that is none, or two of them")
	case n < 0:
		return nil
	case end && n != 0:
		return malformed("a Content-Length without a body")
	}
	st.contentLength = n
	if !end {
		st.req.ContentLength = n
	}
	return nil
}

func refuse(why string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusBadRequest, why)
	})
}

// badRequest answers with a Status that describes the error.
func badRequest(why *httpmsg.RequestError) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answer(w, why.Status(), why.Reason)
	})
}

func tooLarge(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusRequestHeaderFieldsTooLarge, "the header of the request is too large, or has too many fields")
}

// answer answers requests that do not reach a handler with a Status.
func answer(w http.ResponseWriter, code int, why string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write(httpmsg.AppendStatus(nil, code, why)) // the client may be gone
}

// setTarget parses the target. A *httpmsg.RequestError is answered.
func (st *stream) setTarget(h *headerBlock) error {
	st.req.URL, st.req.RequestURI = &st.url, h.path
	target := h.path
	switch {
	case h.method == http.MethodConnect:
		target, st.req.RequestURI = h.authority, h.authority
	case target[0] != '/' && target != "*":
		return malformed("a path that is none")
	}
	if err := httpmsg.CheckMethod(h.method); err != nil {
		return err
	}
	if err := httpmsg.CheckAuthority(h.authority); err != nil {
		return err
	}
	for _, host := range st.req.Header["Host"] {
		if err := httpmsg.CheckAuthority(host); err != nil {
			return err
		}
		if !httpmsg.SameAuthority(host, h.authority) { // RFC 9113, section 8.3.1
			return &httpmsg.RequestError{Element: "authority", Reason: "the request has a Host that is another one than its authority"}
		}
	}
	return httpmsg.ParseTarget(h.method, target, &st.url)
}

// body is the body of a request.
type body struct {
	frame.Body
	st *stream
	// expects is set while the client waits for 100 (Continue).
	expects bool
	// declared contains the request's trailers, which are set when the body was read to its end, and received the received
	// ones.
	declared, received http.Header
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.expects {
		b.expects = false
		b.st.res.sendContinue()
	}
	n, err := b.Body.Read(p)
	if err == io.EOF && b.received != nil {
		for name, values := range b.received {
			if _, ok := b.declared[name]; ok {
				b.declared[name] = values
			}
		}
		b.received = nil
	}
	return n, err
}

// setTrailers stores the received trailers. Undeclared trailers are dropped.
func (b *body) setTrailers(fields []headerField) error {
	if len(fields) > httpmsg.MaxTrailers {
		return frame.StreamError{Code: frame.ProtocolError, Reason: "too many trailers"}
	}
	if b.declared == nil {
		return nil
	}
	came := make(http.Header, len(fields))
	for _, f := range fields {
		name := frame.CanonicalName(f.name)
		if !httpmsg.ValidTrailer(name) {
			continue
		}
		came[name] = append(came[name], f.value)
	}
	b.received = came
	return nil
}
