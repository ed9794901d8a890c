package library

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"portico.dev/internal/httpengine/httpmsg"
)

// This file refuses requests that net/http accepts and Portico's servers refuse. Requests are checked when net/http passes
// them to a handler, so only violations that are visible there are refused. internal/httpengine/README.md lists the others.

// refusal is the response to a request that does not reach the handler.
type refusal struct {
	code   int
	reason string
}

// answer sends the response. If end is set, the connection ends with it.
func (f *refusal) answer(w http.ResponseWriter, end bool) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	if end {
		h.Set("Connection", "close")
	}
	w.WriteHeader(f.code)
	_, _ = w.Write(httpmsg.AppendStatus(nil, f.code, f.reason)) // the client may be gone
}

// errLowMemory is the response to a request that is refused before any work is done for it.
var errLowMemory = &refusal{http.StatusServiceUnavailable, "the server is short of memory; please try again later"}

func malformed(why string) *refusal { return &refusal{http.StatusBadRequest, why} }

// ruleRefusal returns the response to a violation of the rules of httpmsg.
func ruleRefusal(err error) *refusal {
	var wrong *httpmsg.RequestError
	if errors.As(err, &wrong) {
		return &refusal{wrong.Status(), wrong.Reason}
	}
	return malformed(err.Error())
}

// checkRequest applies the rules of httpmsg, and normalizes a request to the form of Portico's servers: the meaning of a
// request must not depend on a flag. came is net/http's request, and r a copy of it. extra is the number of fields granted
// beyond httpmsg.MaxFields.
func (s *httpServer) checkRequest(c *serverConn, r, came *http.Request, extra int) *refusal {
	if !c.h2 {
		if r.Proto != "HTTP/1.1" && r.Proto != "HTTP/1.0" {
			return &refusal{http.StatusHTTPVersionNotSupported, "the version of HTTP is not supported: " + r.Proto}
		}
		if headerBytes(r) > c.maxHeaderBytes {
			return &refusal{http.StatusRequestHeaderFieldsTooLarge, "the head of the request is too large"}
		}
	}
	if err := httpmsg.CheckMethod(r.Method); err != nil {
		return ruleRefusal(err)
	}
	if err := httpmsg.CheckAuthority(r.Host); err != nil {
		return ruleRefusal(err)
	}
	u := new(url.URL)
	if err := httpmsg.ParseTarget(r.Method, r.RequestURI, u); err != nil {
		return ruleRefusal(err)
	}
	r.URL = u
	host := 0 // net/http removes the field over HTTP/1.1
	if !c.h2 && r.Host != "" {
		host = 1
	}
	if err := checkFields(r.Header, host, extra); err != nil {
		return ruleRefusal(err)
	}
	for name := range r.Trailer { // as declared
		if !httpmsg.ValidTrailer(name) {
			return malformed("the request announces a trailer that must not be one")
		}
	}
	if len(r.Trailer) > httpmsg.MaxTrailers {
		return malformed("the request announces more than " + strconv.Itoa(httpmsg.MaxTrailers) + " trailers")
	}
	if c.h2 {
		if refused := checkLength(r); refused != nil {
			return refused
		}
	}
	switch {
	case r.ContentLength == 0:
		r.Body = http.NoBody // as over HTTP/1.1; net/http's HTTP/2 has an empty body
	case r.Body != nil && r.Body != http.NoBody:
		r.Body = &incomingBody{ReadCloser: r.Body, r: r, came: came}
	}
	return nil
}

// headerBytes returns the length of the header without blanks: net/http accepts 4 KiB more than its limit.
func headerBytes(r *http.Request) int {
	n := len(r.Method) + len(r.RequestURI) + len(r.Proto) + len("  \r\n\r\n")
	if r.Host != "" {
		n += len("Host: \r\n") + len(r.Host)
	}
	for name, values := range r.Header {
		for _, v := range values {
			n += len(name) + len(": \r\n") + len(v)
		}
	}
	return n
}

// checkFields removes blanks at the ends of values, which net/http keeps over HTTP/2. besides is the number of fields that
// were removed before, and extra the number granted beyond httpmsg.MaxFields.
func checkFields(fields http.Header, besides, extra int) error {
	count := besides
	for name, values := range fields {
		count += len(values)
		for i, value := range values {
			values[i] = httpmsg.TrimBlanks(value)
			if err := httpmsg.CheckField(name, values[i]); err != nil {
				return err
			}
			if err := httpmsg.CheckLengths(name, values[i]); err != nil {
				return err
			}
		}
	}
	return httpmsg.CheckCount(count, extra)
}

// checkLength is for HTTP/2. A backend could interpret invalid and repeated values differently.
func checkLength(r *http.Request) *refusal {
	lengths := r.Header["Content-Length"]
	if len(lengths) == 0 {
		return nil
	}
	n, err := strconv.ParseUint(lengths[0], 10, 63)
	if err != nil {
		return malformed("the request has a Content-Length that is none")
	}
	for _, other := range lengths[1:] {
		if other != lengths[0] {
			return malformed("the request has more than one Content-Length")
		}
	}
	if n != 0 && r.ContentLength == 0 {
		return malformed("the request has a Content-Length and no body")
	}
	return nil
}

// incomingBody is the body of a request. It fails at its end if its trailers are invalid.
type incomingBody struct {
	io.ReadCloser
	r, came *http.Request
}

// Buffered implements engine.RequestBody.
func (b *incomingBody) Buffered() (n int, ended bool) { return 0, false }

// Read implements io.Reader.
func (b *incomingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.r.Trailer = b.came.Trailer
		if wrong := checkFields(b.r.Trailer, 0, 0); wrong != nil {
			return n, wrong
		}
	}
	return n, err
}
