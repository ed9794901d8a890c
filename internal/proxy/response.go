package proxy

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"portico.dev/internal/filters"
	"portico.dev/internal/transport"
)

// mergedHeaders are the headers for which Portico's and the backend's values are both sent. Portico decides which origins
// may read the headers that these expose.
var mergedHeaders = map[string]bool{"Vary": true, "Warning": true, "Access-Control-Expose-Headers": true}

// checkStatus refuses responses that must not reach a client.
func (x *exchange) checkStatus(resp *http.Response) error {
	code := resp.StatusCode
	switch {
	case x.target != nil && (x.target.Prefix != "" || x.target.Redirects) && code >= 300 && code < 400: // accept has checked it
		return nil
	case code < 200 || code > 599:
		return &responseError{reason: "BackendProtocol", text: "answered with a status that a request cannot have", code: code}
	case code < 300 || code > 399:
		return nil
	case code == http.StatusNotModified && conditional(x.r.Header) &&
		resp.Header.Get("Location") == "" && resp.Header.Get("Refresh") == "":
		return nil
	}
	// CVE-2022-3172: a client that follows the redirect would send its credentials there.
	return &responseError{reason: "BackendRedirect", text: "attempted to redirect the request, which is not permitted", code: code}
}

func conditional(h http.Header) bool {
	return h["If-None-Match"] != nil || h["If-Modified-Since"] != nil
}

// copyHeader copies the response's headers to the client. The backend's value wins if both set a header (caching, ETag).
// Portico keeps its audit ID and the flow control headers.
func (x *exchange) copyHeader(resp http.Header) { x.copyHeaderTo(x.w.Header(), resp) }

func (x *exchange) copyHeaderTo(w, resp http.Header) {
	nominated := resp["Connection"]
	for name, values := range resp {
		switch {
		case x.proxy.withheldFromClient(name), len(nominated) > 0 && lists(nominated, name):
		case name == "Location" && !sameOrigin(values):
		case name == "Audit-Id", strings.HasPrefix(name, "X-Kubernetes-Pf-"):
			if w[name] == nil {
				w[name] = values
			}
		case mergedHeaders[name]:
			w[name] = append(w[name], values...)
		default:
			w[name] = values
		}
	}
}

// sameOrigin reports whether a Location stays on Portico's origin. In a 201 it may name the created object.
func sameOrigin(values []string) bool {
	for _, v := range values {
		if !strings.HasPrefix(v, "/") || strings.HasPrefix(v, "//") || strings.HasPrefix(v, `/\`) {
			return false
		}
	}
	return true
}

// relay writes the response. A failure from here on aborts the response.
func (x *exchange) relay(resp *http.Response, up *upstreamContext) {
	x.relayBody(resp, up, x.relayHeader(resp, up))
}

// relayLater writes the header, and relays the body after the handler has returned.
func (x *exchange) relayLater(resp *http.Response, up *upstreamContext) {
	x.request.AtEnd(filters.StepFunc(func(any) { x.end() }))
	announced := x.relayHeader(resp, up)
	flusher(x.w)()
	x.request.Continue(func() { x.relayBody(resp, up, announced) })
}

// streams reports whether each part of a response must be sent at once.
func (x *exchange) streams(resp *http.Response) bool { return resp.ContentLength < 0 || x.longRunning }

// idle returns the time limit for each part of the body, or 0 for no limit.
func (x *exchange) idle(resp *http.Response) time.Duration {
	if x.streams(resp) {
		return 0
	}
	return x.proxy.config.BodyIdle
}

// relayHeader writes the header and returns the number of trailers it announces.
func (x *exchange) relayHeader(resp *http.Response, up *upstreamContext) (announced int) {
	x.copyHeader(resp.Header)
	announced = x.announceTrailers(resp.Trailer)
	up.headersWritten(x.idle(resp))
	x.w.WriteHeader(resp.StatusCode)
	return announced
}

func (x *exchange) relayBody(resp *http.Response, up *upstreamContext, announced int) {
	var flush func()
	if x.streams(resp) {
		flush = flusher(x.w)
	}
	idle := x.idle(resp)
	if err := x.copyBody(resp.Body, resp.ContentLength, flush, up, idle); err != nil {
		x.abort(err, up)
		return
	}
	x.writeTrailers(resp.Trailer, announced)
}

// Sizes of the copy buffers. Most bodies are small and of known length: they use a small buffer.
const (
	bufferSize      = 64 << 10
	smallBufferSize = 4 << 10
	// watchBufferSize is for long-running responses, which hold a buffer while they wait. It is the maximum size of a frame
	// or of a TLS record.
	watchBufferSize = 16 << 10
)

var buffers, smallBuffers, watchBuffers = poolOf(bufferSize), poolOf(smallBufferSize), poolOf(watchBufferSize)

func poolOf(size int) *sync.Pool {
	return &sync.Pool{New: func() any {
		b := make([]byte, size)
		return &b
	}}
}

// bufferPool returns the pool of buffers for a body of the given length. A negative length is unknown.
func bufferPool(length int64, longRunning bool) *sync.Pool {
	switch {
	case longRunning:
		return watchBuffers
	case length >= 0 && length <= smallBufferSize:
		return smallBuffers
	}
	return buffers
}

// errWrite is the error for a client that no longer reads the response.
var errWrite = errors.New("write to the client")

// readinessReporter is a body that reports whether a Read would block.
type readinessReporter interface{ Ready() bool }

// source is a body that is read as far as possible without blocking. Writing every TLS record as it arrives would wake the
// client's connection for each one.
type source struct {
	io.Reader
	ready readinessReporter // nil if unknown, or if each part must be forwarded at once
}

func (x *exchange) sourceOf(body io.Reader) source {
	s := source{Reader: body}
	if !x.longRunning {
		s.ready, _ = body.(readinessReporter)
	}
	return s
}

// waits reports whether the next Read may block.
func (s *source) waits() bool { return s.ready == nil || !s.ready.Ready() }

// fill reads at least once, and then until b is full or a Read would block. The result waits refers to the Read after
// these.
func (s *source) fill(b []byte) (n int, waits bool, err error) {
	n, err = s.Read(b)
	for err == nil {
		if waits = s.waits(); waits || n == len(b) {
			break
		}
		var more int
		more, err = s.Read(b[n:])
		n += more
	}
	return n, waits, err
}

// copyBody copies the body. flush, unless nil, sends the data that the server has buffered, whenever no more data is
// available. If flush is nil, copyBody flushes once if the client would wait for the rest of the length: a client that is a
// proxy must receive the response header before it times out.
func (x *exchange) copyBody(body io.Reader, length int64, flush func(), up *upstreamContext, idle time.Duration) error {
	from, room, begun := x.sourceOf(body), bufferPool(length, x.longRunning), false
	if flush != nil && from.waits() {
		flush()
	}
	b := room.Get().(*[]byte)
	defer room.Put(b)
	limit := x.proxy.config.BodyIdle
	if x.longRunning || idle > 0 { // pausing a log in a pager is not an attack; a positive idle limits writes too
		limit = 0
	}
	for {
		n, waits, err := from.fill(*b)
		if n > 0 {
			up.writing(limit)
			_, err := x.w.Write((*b)[:n])
			length -= int64(n)
			switch {
			case !waits:
			case flush != nil:
				flush()
			case !begun && length > 0:
				begun = true
				flusher(x.w)()
			}
			up.wrote(limit)
			if err != nil {
				return errors.Join(errWrite, err)
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case idle > 0:
			up.progressed(idle)
		}
	}
}

// abort ends a response that cannot be completed. The client must see that it is broken: net/http resets the stream or
// closes the connection. The exception is a watch that the server ends, because an end is part of its protocol.
func (x *exchange) abort(err error, up *upstreamContext) {
	if up.clientLeft() || errors.Is(err, errWrite) {
		if x.longRunning {
			return
		}
		panic(http.ErrAbortHandler)
	}
	var failed *transport.Error
	if errors.As(err, &failed) && failed.Class == transport.ClassRequest {
		x.request.Record.Failed("the body of the request broke off, or is not one; the response broke off with it")
		x.proxy.log.Debug("response aborted after the request body failed", append(x.fields(), zap.Error(err))...)
		panic(http.ErrAbortHandler)
	}
	x.server().Broken()
	x.request.Record.Failed("the response of " + x.subject() + " broke off before it was complete")
	level := zap.WarnLevel
	if x.dest.Quiet {
		level = zap.DebugLevel
	}
	x.proxy.log.Log(level, "backend response ended prematurely", append(x.fields(), zap.Error(up.wrap(err)))...)
	panic(http.ErrAbortHandler)
}

func flusher(w http.ResponseWriter) func() {
	for {
		switch t := w.(type) {
		case http.Flusher:
			return t.Flush
		case interface{ Unwrap() http.ResponseWriter }:
			w = t.Unwrap()
		default:
			return func() {}
		}
	}
}

// announceTrailers announces the trailers that the backend promised, and returns their number.
func (x *exchange) announceTrailers(promised http.Header) int {
	n := 0
	for name := range promised {
		if x.proxy.passesAsTrailer(name) {
			x.w.Header().Add("Trailer", name)
			n++
		}
	}
	return n
}

// writeTrailers writes the trailers after the body. Trailers that were not announced need net/http's prefix.
func (x *exchange) writeTrailers(got http.Header, announced int) {
	if len(got) == 0 {
		return
	}
	prefix := ""
	if len(got) != announced {
		prefix = http.TrailerPrefix
		flusher(x.w)() // forces chunked encoding, which trailers require
	}
	for name, values := range got {
		if x.proxy.passesAsTrailer(name) {
			x.w.Header()[prefix+name] = values
		}
	}
}
