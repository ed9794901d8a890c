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

// dialer makes verified connections to one endpoint.
type dialer struct {
	address     string
	guard       guard
	tunnel      *Tunnel       // nil: connections are direct
	dial, tls   time.Duration // timeouts
	config      *tls.Config   // HTTP/2 and HTTP/1.1 offered
	checksHTTP1 bool          // responses over HTTP/1.1 are validated (http1_conn.go)
	chunk       int           // as in socketConn
	notAfter    *atomic.Int64 // set to the expiry of the certificate last seen, in Unix seconds
	// silent is called when the server has sent nothing, or not enough, for silentHandshake.
	silent func(since time.Time)
}

// silentHandshake is after how long a TLS handshake counts as a connection on which pings are not answered: HTTP/1.1 has no
// pings.
const silentHandshake = time.Second

// connect dials, and returns only after the other side proved who it is. Errors are *connectError.
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
		_ = raw.Close() // the handshake's error is the one to tell
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
		// Keep-alives are for HTTP/1.1 and upgrades; HTTP/2 connections are pinged.
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

// DialUpgrade makes a connection for one upgraded request: fresh, so that whatever the backend says on it can be read
// as an answer to nobody else (CVE-2018-1002105), and HTTP/1.1, which is what upgrades are defined for. Endpoints that
// cannot be connected to are passed over. Errors are *Error with Sent false.
//
// The connection counts as a request in flight until it is closed. An observer is told of each attempt, and of the outcome
// of those that failed; what came of the one that is returned is its caller's to say.
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

// upgraded is a connection that tells once when it is closed.
type upgraded struct {
	net.Conn
	over func()
}

func (u *upgraded) Close() error {
	u.over()
	return u.Conn.Close()
}
