package transport

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// Plain is a server reached over HTTP/1.1 without TLS: a port of a pod or node selected by a client. It has the
// methods of a Backend, but no slots, retries or health.
type Plain struct {
	set     *Plains
	address string
}

// Plains manages connections to Plain servers. The dialer applies the same guard as for backends.
type Plains struct {
	dialer func(address string) *dialer
	client *http.Transport
}

// NewPlains returns a Plains without connections. It uses the options for dialing, for idle connections and for their
// number.
func NewPlains(o Options) *Plains {
	o = o.withDefaults()
	s := &Plains{}
	s.dialer = func(address string) *dialer {
		return &dialer{address: address, tunnel: o.Tunnel, dial: o.DialTimeout, guard: guard{loopback: o.AllowLoopback, allow: o.Allow, own: o.OwnAddresses, local: net.InterfaceAddrs}}
	}
	s.client = &http.Transport{
		DialContext:            func(ctx context.Context, _, address string) (net.Conn, error) { return s.dial(ctx, address) },
		DisableCompression:     true, // forward bodies unchanged
		MaxConnsPerHost:        o.MaxConns,
		MaxIdleConns:           4 * o.MaxConns,
		MaxIdleConnsPerHost:    4,
		IdleConnTimeout:        o.IdleTimeout,
		ResponseHeaderTimeout:  o.HeaderTimeout,
		MaxResponseHeaderBytes: o.MaxHeaderBytes,
	}
	return s
}

// To returns the server at host:port.
func (s *Plains) To(address string) *Plain { return &Plain{s, address} }

// Close closes idle connections. Requests in flight continue until their contexts end.
func (s *Plains) Close() { s.client.CloseIdleConnections() }

func (s *Plains) dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := s.dialer(address).tcp(ctx)
	if err != nil {
		return nil, &connectError{op: OpDial, err: err}
	}
	return conn, nil
}

// Admit always succeeds: requests hold no slots.
func (p *Plain) Admit(*Slot, string) error { return nil }

// Tunnels does nothing.
func (p *Plain) Tunnels(int) {}

// Broken does nothing.
func (p *Plain) Broken() {}

// RoundTrip sends r to the server without retries. Errors are *Error.
func (p *Plain) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host = "http", p.address
	resp, err := p.set.client.RoundTrip(r)
	if err != nil {
		return nil, p.failed(r.Context(), err)
	}
	return resp, nil
}

// DialUpgrade opens a connection for one upgraded request.
func (p *Plain) DialUpgrade(ctx context.Context) (net.Conn, error) {
	conn, err := p.set.dial(ctx, p.address)
	if err == nil {
		if err = relaxUserTimeout(conn); err == nil {
			return conn, nil
		}
		_ = conn.Close() // the first error is more relevant
	}
	return nil, p.failed(ctx, err)
}

func (p *Plain) failed(ctx context.Context, err error) error {
	e := &Error{Op: OpRoundTrip, Endpoint: p.address, Attempts: 1, Sent: true, Err: err}
	var connect *connectError
	if errors.As(err, &connect) {
		e.Op, e.Sent = connect.op, false
	}
	if ctx.Err() != nil {
		e.Class, e.Err = ClassCanceled, context.Cause(ctx)
	}
	return e
}

// NoHeaderTimeout is an Options.HeaderTimeout for servers that may send response headers arbitrarily late: a kubelet
// sends the headers of a log with its first line. The wait ends when the client disconnects.
const NoHeaderTimeout = 10 * 365 * 24 * time.Hour
