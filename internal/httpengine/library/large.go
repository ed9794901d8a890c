package library

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"

	"golang.org/x/net/http2"

	"portico.dev/internal/httpengine/httpmsg"
)

// versionServers contains a net/http server for each version of HTTP, with one limit for headers.
type versionServers struct{ http1, http2 *http.Server }

func (s *httpServer) newServers(maxHeaderBytes int) versionServers {
	l := versionServers{s.server(maxHeaderBytes), s.server(maxHeaderBytes)}
	l.http1.Protocols = new(http.Protocols)
	l.http1.Protocols.SetHTTP1(true)
	l.http1.ReadHeaderTimeout = s.c.HeaderTimeout
	l.http2.Protocols = new(http.Protocols)
	l.http2.Protocols.SetHTTP2(true)
	l.http2.HTTP2 = &http.HTTP2Config{
		MaxConcurrentStreams: s.c.MaxConcurrentStreams, MaxReadFrameSize: maxFrame,
		MaxReceiveBufferPerConnection: 1 << 20, MaxReceiveBufferPerStream: 1 << 20,
		SendPingTimeout: s.c.PingAfter, PingTimeout: s.c.PingTimeout, WriteByteTimeout: s.c.StallTimeout,
	}
	//lint:ignore SA1019 http.Server.Protocols chooses the copy within net/http
	if err := http2.ConfigureServer(l.http2, nil); err != nil {
		panic(err) // only TLS settings can fail, and none are set
	}
	return l
}

// serversFor returns the servers for a connection, and their limit for headers. net/http reads a header before memory can
// be granted for it, so only trusted clients have the larger limit.
func (s *httpServer) serversFor(state *tls.ConnectionState) (servers versionServers, maxHeaderBytes int) {
	if s.c.LargeHeaders != nil && s.c.LargeHeaders.Trusted(state) {
		return s.large, httpmsg.MaxLargeHeader
	}
	return s.small, s.c.MaxHeaderBytes
}

// grantFields returns the grant for the fields of a request beyond httpmsg.MaxFields, and the number of granted fields.
func (s *httpServer) grantFields(c *serverConn, r *http.Request) (grant *httpmsg.HeaderGrant, extra int) {
	fields := 1 // Host
	for _, values := range r.Header {
		fields += len(values)
	}
	if fields <= httpmsg.MaxFields {
		return nil, 0
	}
	h := httpmsg.NewConnHeaders(s.c.LargeHeaders, c.tls, c.net.RemoteAddr())
	for extra < fields-httpmsg.MaxFields && h.Grow() {
		_, extra = h.Extra()
	}
	return h.Detach(), extra
}

// LargeHeader returns the grant of the request's header, or nil, and the memory that the header uses.
func (w *responseWriter) LargeHeader() (*httpmsg.HeaderGrant, int64) { return w.grant, w.headerMemory }

// http1Conn is the HTTP/1.1 connection that net/http uses. It converts net/http's responses to unreadable requests to a
// Status.
type http1Conn struct {
	*tls.Conn
	hijacked atomic.Bool
}

// plainErrorHeader is the header of such a response after its status line. A handler's response has a Date.
var plainErrorHeader = []byte("\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n")

// Write implements net.Conn.
func (c *http1Conn) Write(p []byte) (int, error) {
	status, body, found := bytes.Cut(p, plainErrorHeader)
	if !found || c.hijacked.Load() || len(status) < len("HTTP/1.1 400") || bytes.Contains(status, []byte("\r\n")) {
		return c.Conn.Write(p)
	}
	code, err := strconv.Atoi(string(status[len("HTTP/1.1 "):len("HTTP/1.1 400")]))
	if err != nil || code < 400 {
		return c.Conn.Write(p)
	}
	text := httpmsg.AppendStatus(nil, code, string(body))
	answer := fmt.Appendf(nil, "%s\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", status, len(text), text)
	if _, err := c.Conn.Write(answer); err != nil {
		return 0, err
	}
	return len(p), nil
}
