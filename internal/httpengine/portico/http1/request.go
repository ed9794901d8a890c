package http1

import (
	"context"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"portico.dev/internal/httpengine/httpmsg"
)

// requestHeaders contains the headers that the server itself processes.
type requestHeaders struct {
	hosts, lengths, codings             int
	host, length, coding                string
	connection, expect, trailer, pragma bool
}

// parse parses a header. ends contains the ends of its lines.
func (x *exchange) parse(head string, ends []int32) error {
	first := int(ends[0])
	if err := x.parseRequestLine(head[:first]); err != nil {
		return err
	}
	var s requestHeaders
	if err := x.parseHeader(head, ends, &s); err != nil {
		return err
	}
	if err := x.parseTarget(&s); err != nil {
		return err
	}
	if err := x.parseFraming(&s); err != nil {
		return err
	}
	if err := x.parseConnectionHeaders(&s); err != nil {
		return err
	}
	c, r := x.conn, &x.req
	r.RemoteAddr, r.TLS = c.remote, c.tls
	x.ctx.SetConn(&c.info)
	ctx := context.Context(&x.ctx)
	if derive := c.server.c.Context; derive != nil {
		ctx = derive(ctx, c.remote)
	}
	x.req = *r.WithContext(ctx)
	return nil
}

// parseRequestLine parses the request line.
func (x *exchange) parseRequestLine(parseRequestLine string) error {
	method, rest, ok := strings.Cut(parseRequestLine, " ")
	target, version, ok2 := strings.Cut(rest, " ")
	if !ok || !ok2 || target == "" {
		return malformed("the request line is not a method, a target and a version")
	}
	if err := httpmsg.CheckMethod(method); err != nil {
		return ruleRefusal(err)
	}
	r := &x.req
	switch {
	case version == "HTTP/1.1":
		r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.1", 1, 1
	case version == "HTTP/1.0":
		r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.0", 1, 0
	case len(version) == len("HTTP/x.y") && version[:5] == "HTTP/" && digit(version[5]) && version[6] == '.' && digit(version[7]):
		return &refusal{http.StatusHTTPVersionNotSupported, "the version of HTTP is not supported: " + version}
	default:
		return malformed("the request line is not a method, a target and a version")
	}
	r.Method, r.RequestURI = method, target
	x.res.head = method == http.MethodHead
	return nil
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

// maxHeaderHint limits the initial size of the header map. A proxy adds about ten names, and growing costs more; but a
// header may have thousands of lines with one name.
const maxHeaderHint = 128

// parseHeader parses the lines after the first one. All values share one slice.
func (x *exchange) parseHeader(head string, ends []int32, s *requestHeaders) error {
	_, extra := x.conn.large.Extra()
	if err := httpmsg.CheckCount(len(ends)-1, extra); err != nil {
		return ruleRefusal(err)
	}
	header := make(http.Header, min(len(ends)+9, maxHeaderHint))
	values := make([]string, len(ends)-1)
	from := int(ends[0]) + 2
	for i, end := range ends[1:] {
		line := head[from:end]
		from = int(end) + 2
		if line[0] == ' ' || line[0] == '\t' {
			return malformed("a header of the request is folded over two lines")
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok || !httpmsg.IsToken(name) {
			return malformed("a header of the request has no name, or one that is none")
		}
		value = httpmsg.TrimBlanks(value)
		if !httpmsg.ValidFieldValue(value) {
			return malformed("a header of the request has a value with control characters")
		}
		if err := httpmsg.CheckLengths(name, value); err != nil {
			return ruleRefusal(err)
		}
		name = textproto.CanonicalMIMEHeaderKey(name)
		if s.record(name, value) {
			continue
		}
		if others, ok := header[name]; ok {
			header[name] = append(others, value)
			continue
		}
		values[i] = value
		header[name] = values[i : i+1 : i+1]
	}
	x.req.Header = header
	return nil
}

// record records a field, and reports whether handlers do not receive it.
func (s *requestHeaders) record(name, value string) bool {
	switch name {
	case "Host":
		s.hosts++
		s.host = value
		return true
	case "Transfer-Encoding":
		s.codings++
		s.coding = value
		return true
	case "Content-Length":
		s.lengths++
		s.length = value
	case "Connection":
		s.connection = true
	case "Expect":
		s.expect = true
	case "Trailer":
		s.trailer = true
	case "Pragma":
		s.pragma = true
	}
	return false
}

// parseTarget parses the target and the host.
func (x *exchange) parseTarget(s *requestHeaders) error {
	r := &x.req
	switch {
	case s.hosts > 1:
		return malformed("the request has more than one Host")
	case s.hosts == 0 && r.ProtoMinor == 1:
		return malformed("the request has no Host")
	}
	if err := httpmsg.CheckAuthority(s.host); err != nil {
		return ruleRefusal(err)
	}
	r.URL = &x.url
	if err := httpmsg.ParseTarget(r.Method, r.RequestURI, &x.url); err != nil {
		return ruleRefusal(err)
	}
	if r.Host = x.url.Host; r.Host == "" {
		r.Host = s.host
	}
	return nil
}

// parseFraming determines the end of the body: CVE-2025-22871, attack row A19.
func (x *exchange) parseFraming(s *requestHeaders) error {
	r := &x.req
	r.Body = http.NoBody
	x.body.err = errNoBody
	switch {
	case s.codings > 0 && s.lengths > 0:
		return malformed("the request has both a Content-Length and a Transfer-Encoding")
	case s.codings > 0 && r.ProtoMinor == 0:
		return malformed("a request of HTTP/1.0 has a Transfer-Encoding")
	case s.codings > 1 || s.codings == 1 && !isChunked(s.coding):
		return &refusal{http.StatusNotImplemented, "the request has a Transfer-Encoding other than chunked"}
	case s.lengths > 1:
		return malformed("the request has more than one Content-Length")
	case s.codings == 1:
		r.TransferEncoding, r.ContentLength = []string{"chunked"}, -1
		x.body.chunks = &chunkedState{}
	case s.lengths == 1:
		n, ok := httpmsg.ParseContentLength([]string{s.length})
		if !ok {
			return malformed("the request has a Content-Length that is none")
		}
		if n == 0 {
			return nil
		}
		r.ContentLength, x.body.remaining = n, n
	default:
		return nil
	}
	x.body.x, x.body.err = x, nil
	r.Body = &x.body
	return nil
}

// isChunked compares ASCII only: Unicode folds the Kelvin sign to k.
func isChunked(coding string) bool {
	return len(coding) == len("chunked") && strings.EqualFold(coding, "chunked")
}

// parseConnectionHeaders parses the headers that concern the connection.
func (x *exchange) parseConnectionHeaders(s *requestHeaders) error {
	r := &x.req
	x.res.http10 = r.ProtoMinor == 0
	r.Close = x.res.http10
	if s.connection {
		tokens := r.Header["Connection"]
		x.res.keepAlive = x.res.http10 && httpguts.HeaderValuesContainsToken(tokens, "keep-alive")
		r.Close = x.res.http10 && !x.res.keepAlive || httpguts.HeaderValuesContainsToken(tokens, "close")
	}
	// Data after a CONNECT may be intended for a tunnel, so the client need not wait for the response that refuses it.
	x.res.closing = r.Close || r.Method == http.MethodConnect
	if s.expect {
		switch expect := r.Header["Expect"][0]; {
		case httpguts.HeaderValuesContainsToken([]string{expect}, "100-continue"):
			x.body.expects.Store(!x.res.http10 && x.body.err == nil)
		case expect != "":
			return &refusal{http.StatusExpectationFailed, "the request expects what this server does not do"}
		}
	}
	if s.pragma && r.Header["Pragma"][0] == "no-cache" && r.Header["Cache-Control"] == nil {
		r.Header["Cache-Control"] = []string{"no-cache"}
	}
	if s.trailer && x.body.chunks != nil {
		return x.declareTrailers()
	}
	return nil
}

// declareTrailers adds the trailers that the header declares to the request.
func (x *exchange) declareTrailers() error {
	r := &x.req
	for _, v := range r.Header["Trailer"] {
		for name := range strings.SplitSeq(v, ",") {
			name = textproto.CanonicalMIMEHeaderKey(textproto.TrimString(name))
			if name == "" {
				continue
			}
			if !httpmsg.ValidTrailer(name) {
				return malformed("the request announces a trailer that must not be one")
			}
			if r.Trailer == nil {
				r.Trailer = make(http.Header)
			}
			if r.Trailer[name] = nil; len(r.Trailer) > httpmsg.MaxTrailers { // CVE-2026-78659
				return malformed("the request announces more than " + strconv.Itoa(httpmsg.MaxTrailers) + " trailers")
			}
		}
	}
	delete(r.Header, "Trailer")
	return nil
}
