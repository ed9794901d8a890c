package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"portico.dev/internal/metrics"
	"portico.dev/internal/pki"
	"portico.dev/internal/transport"
)

const (
	// maxDial bounds a dial for a caller with no deadline or a later one. It equals the default timeout of webhooks
	// in kube-apiserver.
	maxDial = 10 * time.Second
	// maxPending bounds the dials of one tunnel that are in progress.
	maxPending = 256
	// maxErrorText bounds the text of an error that is read.
	maxErrorText = 512
)

// Values of metric labels, as in kube-apiserver.
const (
	protocolHTTPConnect = "http_connect"
	protocolGRPC        = "grpc"
	carrierTCP          = "tcp"
	carrierUDS          = "uds"
	stageConnect        = "connect"
	stageProxy          = "proxy"
)

// tunnel is the tunnel into one network.
type tunnel struct {
	network           string
	protocol, carrier string     // metric labels
	server            string     // host:port, or the path of a socket
	tls               *serverTLS // nil without TLS
	// open requests a connection to address, over a new connection to the server. It closes that connection if it
	// fails.
	open     func(ctx context.Context, server net.Conn, address string) (net.Conn, error)
	selector *Selector
	slots    chan struct{}
	metrics  *metrics.Egress
	// answered is the time of the latest data from the far end of the tunnel, in Unix nanoseconds.
	answered atomic.Int64
}

// serverTLS is the TLS configuration for a tunnel's server.
type serverTLS struct {
	name        string
	certificate *pki.KeyPair
	roots       *pki.Bundle // nil for the system roots
}

var errBusy = fmt.Errorf("%d are waiting already", maxPending)

// dial implements transport.Tunnel.
func (t *tunnel) dial(ctx context.Context, address string) (_ net.Conn, err error) {
	ctx, cancel := context.WithTimeout(ctx, maxDial)
	defer cancel()
	failed := stageConnect
	over := t.metrics.DialStarted(t.network, t.protocol, t.carrier)
	defer func() { over(failed) }()
	select {
	case t.slots <- struct{}{}:
		defer func() { <-t.slots }()
	default:
		return nil, t.failure(transport.TunnelBusy, errBusy)
	}
	began := time.Now()
	server, err := t.connect(ctx)
	if err != nil {
		return nil, t.failure(transport.TunnelUnreachable, reason(ctx, err))
	}
	failed = stageProxy
	opened, err := t.open(ctx, server, address)
	if err != nil {
		return nil, t.blame(ctx, began, err)
	}
	failed = ""
	t.received()
	t.metrics.Connections(t.network, 1)
	return &conn{Conn: opened, tunnel: t, to: remote(address)}, nil
}

// connect connects to the tunnel's server.
func (t *tunnel) connect(ctx context.Context) (net.Conn, error) {
	dialer := net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3},
		ControlContext:  transport.ControlSocket,
	}
	network := "tcp"
	if t.carrier == carrierUDS {
		network = "unix"
	}
	raw, err := dialer.DialContext(ctx, network, t.server)
	if err != nil || t.tls == nil {
		return raw, err
	}
	options := pki.ClientOptions{ServerName: t.tls.name, Certificate: t.tls.certificate, HTTP1Only: true}
	if t.tls.roots != nil {
		options.Pool = t.tls.roots.Pool()
	}
	config, err := pki.ClientConfig(options)
	if err != nil {
		_ = raw.Close() // unused so far
		return nil, err
	}
	secure := tls.Client(raw, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = raw.Close() // the error of the handshake is the one to report
		return nil, err
	}
	return secure, nil
}

// blame attributes a failure to the address or the tunnel, after the tunnel's server was reached.
func (t *tunnel) blame(ctx context.Context, began time.Time, err error) error {
	var about *addressError
	var refused *refusedError
	switch {
	case errors.As(err, &about):
		t.received() // the response came from the far end
		return about.asDialError()
	case errors.As(err, &refused):
		return t.failure(transport.TunnelRefused, err)
	case errors.Is(ctx.Err(), context.Canceled):
		return context.Cause(ctx)
	case ctx.Err() == nil:
		return t.failure(transport.TunnelUnreachable, err)
	case t.answered.Load() >= began.UnixNano():
		return &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}
	}
	return t.failure(transport.TunnelSilent, reason(ctx, err))
}

// reason returns err, or the cause of the end of ctx. If ctx has ended, err is only a consequence of closing the
// connection.
func reason(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func (t *tunnel) failure(problem transport.TunnelProblem, err error) error {
	return &transport.TunnelError{Network: t.network, Problem: problem, Err: err}
}

// received records that data came from the far end.
func (t *tunnel) received() { t.answered.Store(time.Now().UnixNano()) }

// refusedError is the error of a server that refused the request without dialing the address.
type refusedError struct{ text string }

func (e *refusedError) Error() string { return e.text }

// addressError is an error about the address, reported by the far end.
type addressError struct{ text string }

func (e *addressError) Error() string { return e.text }

// asDialError returns the equivalent error of a direct dial, as far as the text identifies it. Agents are Go
// programs.
func (e *addressError) asDialError() error {
	inner := error(e)
	for _, known := range []struct {
		text string
		err  error
	}{
		{"connection refused", os.NewSyscallError("connect", syscall.ECONNREFUSED)},
		{"no route to host", os.NewSyscallError("connect", syscall.EHOSTUNREACH)},
		{"network is unreachable", os.NewSyscallError("connect", syscall.ENETUNREACH)},
		{"i/o timeout", os.ErrDeadlineExceeded},
	} {
		if strings.HasSuffix(e.text, known.text) {
			inner = known.err
		}
	}
	if rest, found := strings.CutSuffix(e.text, ": no such host"); found {
		name := rest[strings.LastIndexByte(rest, ' ')+1:]
		inner = &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	}
	return &net.OpError{Op: "dial", Net: "tcp", Err: inner}
}

// conn is a connection through a tunnel.
type conn struct {
	net.Conn
	tunnel *tunnel
	to     remote
	closed sync.Once
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.tunnel.received()
	}
	return n, err
}

// Received records received data for callers that read from the socket directly.
func (c *conn) Received() { c.tunnel.received() }

// Close implements net.Conn.
func (c *conn) Close() error {
	c.closed.Do(func() { c.tunnel.metrics.Connections(c.tunnel.network, -1) })
	return c.Conn.Close()
}

// RemoteAddr implements net.Conn. It returns the requested address.
func (c *conn) RemoteAddr() net.Addr { return c.to }

// NetConn returns the underlying connection, for socket options.
func (c *conn) NetConn() net.Conn { return c.Conn }

// SyscallConn implements syscall.Conn if a socket carries exactly the bytes of this connection.
func (c *conn) SyscallConn() (syscall.RawConn, error) {
	if socket, ok := c.Conn.(syscall.Conn); ok {
		return socket.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// remote is host:port at the far end of a tunnel.
type remote string

// Network implements net.Addr.
func (remote) Network() string { return "tcp" }

// String implements net.Addr.
func (r remote) String() string { return string(r) }
