package transport

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// dialer makes verified connections to one endpoint.
type dialer struct {
	address   string
	guard     guard
	dial, tls time.Duration // timeouts
	config    *tls.Config   // HTTP/2 and HTTP/1.1 offered
	scans     bool          // responses over HTTP/1.1 are looked at (plain.go)
	notAfter  *atomic.Int64 // set to the expiry of the certificate last seen, in Unix seconds
}

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
	if d.scans {
		below = newIntake(raw)
	}
	conn := tls.Client(below, config)
	ctx, cancel := context.WithTimeout(ctx, d.tls)
	defer cancel()
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
