package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"portico.dev/internal/httpengine/httpmsg"
)

const (
	// maxUpgradeHeader limits the backend's response to an upgrade, headers only.
	maxUpgradeHeader = 256 << 10
	// maxRefusalBody and refusalTimeout limit the body that is relayed if a backend refuses an upgrade with an error.
	maxRefusalBody = 1 << 20
	refusalTimeout = 10 * time.Second
)

var errDraining = errors.New("the front door is shutting down")

// upgradeProtocol returns the protocol of the requested upgrade in canonical spelling: websocket or SPDY/3.1. It is empty
// for an ordinary request.
//
// All other protocols are refused. A proxy that copies bytes of an unknown protocol forwards arbitrary data: h2c, TLS/1.0
// or an invented token would let a client send HTTP requests to the backend that bypass the proxy
// (kubernetes/kubernetes#72112). Discovery and OpenAPI need no upgrade (#72113).
func (x *exchange) upgradeProtocol() (string, error) {
	h := x.r.Header
	if x.r.ProtoMajor != 1 || !lists(h["Connection"], "Upgrade") {
		return "", nil // Upgrade without Connection requests nothing, and is dropped as a hop-by-hop header
	}
	// Any failure from here on closes the client's connection. Its next bytes may belong to the protocol that was not
	// accepted, and must not be parsed as a request (CVE-2018-1002105, CVE-2020-8559).
	x.w.Header().Set("Connection", "close")
	wanted := h["Upgrade"]
	if len(wanted) != 1 {
		return "", &badRequestError{"a request for an upgrade names exactly one protocol in Upgrade: websocket or SPDY/3.1"}
	}
	protocol := ""
	switch {
	case strings.EqualFold(wanted[0], "websocket"):
		protocol = "websocket"
	case strings.EqualFold(wanted[0], "SPDY/3.1"):
		protocol = "SPDY/3.1"
	default:
		return "", &badRequestError{"only upgrades to websocket and SPDY/3.1 are forwarded"}
	}
	switch {
	case !x.info.IsResourceRequest:
		return "", &badRequestError{"this path cannot be upgraded: only requests for a resource can"}
	case x.r.ContentLength != 0:
		return "", &badRequestError{"a request for an upgrade has no body"}
	}
	return protocol, nil
}

// upgrade forwards a request that becomes a tunnel.
func (x *exchange) upgrade(header http.Header, protocol string) error {
	header["Connection"] = []string{"Upgrade"} // exactly this value: fields that the client nominated are removed
	header["Upgrade"] = []string{protocol}
	if x.proxy.tunnels.draining() {
		return errDraining
	}
	out, up := x.upstreamRequest(header, x.proxy.config.UpgradeTimeout), &x.upstream
	defer up.release()
	if err := httpmsg.CheckRequest(out); err != nil {
		return err
	}
	conn, err := x.server().DialUpgrade(up)
	if err != nil {
		return up.wrap(err)
	}
	defer func() { _ = conn.Close() }() // the tunnel may have closed it
	// Reads and writes of a net.Conn do not observe a context, so the end of the context closes the connection.
	unwatch := context.AfterFunc(up, func() { _ = conn.Close() })
	injectTrace(x.spanContext(), out.Header)
	backend, resp, err := sendUpgrade(conn, out)
	if err != nil {
		x.endSpan(0, err)
		return up.wrap(err)
	}
	x.endSpan(resp.StatusCode, nil)
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return x.relayRefusal(resp, conn, up)
	}
	if !strings.EqualFold(resp.Header.Get("Upgrade"), protocol) || !lists(resp.Header["Connection"], "Upgrade") {
		return &responseError{reason: "BackendProtocol", text: "switched to another protocol than was asked for", code: resp.StatusCode}
	}
	if !unwatch() {
		return up.wrap(errClientGone)
	}
	up.headersWritten(0)
	x.becomeLongRunning()
	return x.startTunnel(backend, resp.Header, protocol)
}

// sendUpgrade sends the request and reads the response's headers. Data that the backend sent after them stays in the
// reader.
func sendUpgrade(conn net.Conn, out *http.Request) (*bufferedConn, *http.Response, error) {
	if err := out.Write(conn); err != nil {
		return nil, nil, fmt.Errorf("send upgrade request: %w", err)
	}
	limited := &io.LimitedReader{R: conn, N: maxUpgradeHeader}
	reader := bufio.NewReader(limited)
	resp, err := http.ReadResponse(reader, out)
	for err == nil && resp.StatusCode >= 100 && resp.StatusCode < 200 && resp.StatusCode != http.StatusSwitchingProtocols {
		resp, err = http.ReadResponse(reader, out) // interim responses; the header limit applies to all of them together
	}
	if err != nil {
		return nil, nil, &responseError{reason: "BackendProtocol", text: "did not answer the upgrade with HTTP: " + err.Error()}
	}
	limited.N = 1<<63 - 1
	return &bufferedConn{Conn: conn, reader: reader}, resp, nil
}

// bufferedConn is a connection with data that was already read.
type bufferedConn struct {
	net.Conn
	reader *bufio.Reader
}

func (c *bufferedConn) Read(b []byte) (int, error) { return c.reader.Read(b) }

// relayRefusal relays an error response to an upgrade. It refuses any other response.
func (x *exchange) relayRefusal(resp *http.Response, conn net.Conn, up *upstreamContext) error {
	defer func() { _ = resp.Body.Close() }() // conn is closed next
	if resp.StatusCode < 400 {
		if resp.StatusCode >= 300 {
			return &responseError{reason: "BackendRedirect", text: "attempted to redirect the request, which is not permitted", code: resp.StatusCode}
		}
		return &responseError{reason: "BackendProtocol", text: "neither switched protocols nor refused to", code: resp.StatusCode}
	}
	if err := conn.SetReadDeadline(time.Now().Add(refusalTimeout)); err != nil {
		return fmt.Errorf("bound the refusal: %w", err)
	}
	x.copyHeader(resp.Header)
	x.w.WriteHeader(resp.StatusCode)
	up.headersWritten(0)
	body := io.LimitReader(resp.Body, maxRefusalBody+1)
	n, err := io.Copy(x.w, body)
	if err != nil || n > maxRefusalBody {
		panic(http.ErrAbortHandler) // longer or slower than any Status: abort visibly
	}
	return nil
}

// startTunnel hijacks the client's connection, writes the 101 response, and copies until either side ends.
func (x *exchange) startTunnel(backend *bufferedConn, header http.Header, protocol string) error {
	conn, buffered, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		return fmt.Errorf("take over the client's connection: %w", err)
	}
	client := conn
	if buffered != nil { // k8s.io/apiserver's writer that carries SPDY over a websocket has nothing buffered
		client = &bufferedConn{Conn: conn, reader: buffered.Reader}
	}
	t := &tunnel{client: client, backend: backend, idle: x.proxy.config.TunnelIdle}
	defer t.close()
	if !x.proxy.tunnels.add(t) {
		return nil // draining began meanwhile: the client's connection closes and it reconnects to another replica
	}
	defer x.proxy.tunnels.remove(t)
	x.server().Tunnels(1)
	defer x.server().Tunnels(-1)
	if err := x.writeSwitchingProtocols(conn, header, protocol); err != nil {
		return nil // the client has disconnected; no response can be written
	}
	t.run()
	return nil
}

// writeSwitchingProtocols writes the 101 response to the client: the backend's headers, with Connection and Upgrade
// rebuilt.
func (x *exchange) writeSwitchingProtocols(conn net.Conn, header http.Header, protocol string) error {
	h := x.w.Header().Clone()
	x.copyHeaderTo(h, header)
	for _, name := range []string{"Content-Length", "Content-Type", "Date", "Trailer"} {
		h.Del(name)
	}
	h["Connection"] = []string{"Upgrade"}
	h["Upgrade"] = []string{protocol}
	// Clear the deadlines that the server set while it read the request.
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	w := bufio.NewWriter(conn)
	_, _ = w.WriteString("HTTP/1.1 101 Switching Protocols\r\n") // Flush returns the error
	if err := h.Write(w); err != nil {
		return err
	}
	_, _ = w.WriteString("\r\n") // Flush returns the error
	return w.Flush()
}
