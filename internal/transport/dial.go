package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// dialer opens connections to one endpoint and verifies the server.
type dialer struct {
	address     string
	guard       guard
	tunnel      *Tunnel       // nil for direct connections
	dial, tls   time.Duration // timeouts
	config      *tls.Config   // offers HTTP/2 and HTTP/1.1
	checksHTTP1 bool          // validate HTTP/1.1 responses (http1_conn.go)
	chunk       int           // see socketConn
	notAfter    *atomic.Int64 // expiry of the latest server certificate, Unix seconds
	// silent is called if the server has not completed the handshake within silentHandshake.
	silent func(since time.Time)
}

// silentHandshake is how long a TLS handshake may take before it counts as unanswered pings. It covers HTTP/1.1,
// which has no pings.
const silentHandshake = time.Second

// connect dials and completes the TLS handshake, including verification of the server. Errors are *connectError.
func (d *dialer) connect(ctx context.Context, http1Only bool) (*tls.Conn, net.Conn, error) {
	config := d.config
	if http1Only {
		config = clone(d.config, "http/1.1")
	}
	raw, err := d.tcp(ctx)
	if err != nil {
		return nil, nil, &connectError{op: OpDial, err: err}
	}
	below := raw
	if d.checksHTTP1 {
		socket := newSocketConn(raw)
		socket.chunk, below = d.chunk, socket
	}
	conn := tls.Client(below, config)
	ctx, cancel := context.WithTimeout(ctx, d.tls)
	defer cancel()
	began := time.Now()
	defer time.AfterFunc(silentHandshake, func() { d.silent(began) }).Stop()
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close() // the handshake's error is more relevant
		return nil, nil, &connectError{op: OpTLS, err: err}
	}
	if leaf := conn.ConnectionState().PeerCertificates; len(leaf) > 0 {
		d.notAfter.Store(leaf[0].NotAfter.Unix())
	}
	return conn, raw, nil
}

func (d *dialer) tcp(ctx context.Context) (net.Conn, error) {
	if d.tunnel != nil {
		return d.through(ctx)
	}
	nd := net.Dialer{
		Timeout: d.dial,
		// Keep-alives are for HTTP/1.1 and upgraded connections; HTTP/2 connections are pinged.
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3},
		ControlContext: func(ctx context.Context, network, address string, c syscall.RawConn) error {
			if err := d.guard.control(ctx, network, address, c); err != nil {
				return err
			}
			if err := setUserTimeout(c); err != nil {
				return fmt.Errorf("set TCP_USER_TIMEOUT: %w", err)
			}
			return nil
		},
	}
	return nd.DialContext(ctx, "tcp", d.address)
}

// DialUpgrade opens a connection for one upgraded request. It is a new connection, so that data from the backend
// cannot be a response to another request (CVE-2018-1002105), and HTTP/1.1, for which upgrades are defined. Endpoints
// that cannot be reached are skipped. Errors are *Error with Sent false.
//
// The connection counts as a request in flight until it is closed. The observer's Attempt is called for each attempt,
// and Outcome for failed ones. The caller must call Outcome for the returned connection.
func (b *Backend) DialUpgrade(ctx context.Context) (net.Conn, error) {
	var tried []*endpoint
	observer := observerOf(ctx)
	for {
		members := *b.candidates.Load()
		e := b.pick(members, tried)
		if e == nil {
			return nil, &Error{Op: OpPick, Err: ErrNoEndpoints, Attempts: len(tried)}
		}
		observer.Attempt(e.address, len(tried)+1, nil)
		_, conn, raw, err := e.requests.connect(ctx, true)
		if err == nil {
			err = relaxUserTimeout(raw)
		}
		if err == nil {
			e.health.answered(time.Now())
			b.metrics.Dialled(true)
			e.inFlight.Add(1)
			return &upgraded{Conn: conn, over: sync.OnceFunc(func() { e.inFlight.Add(-1) })}, nil
		}
		observer.Outcome(0, err)
		if ctx.Err() != nil {
			e.health.abandoned()
			return nil, &Error{Class: ClassCanceled, Op: OpDial, Endpoint: e.address, Attempts: len(tried) + 1, Err: context.Cause(ctx)}
		}
		if !errors.Is(err, ErrUnresponsive) {
			e.dialled(err)
		}
		tried = append(tried, e)
		if len(tried) >= len(members) {
			f := classify(ctx, err)
			return nil, &Error{Op: f.op, Endpoint: e.address, Attempts: len(tried), Err: err}
		}
	}
}

// upgraded is a connection that calls over once when it is closed.
type upgraded struct {
	net.Conn
	over func()
}

func (u *upgraded) Close() error {
	u.over()
	return u.Conn.Close()
}
