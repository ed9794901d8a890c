package transport

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// Plain is a server that is reached over HTTP/1.1 without TLS: a port of a pod or of a node that a client names. It is used where a
// Backend is otherwise. It has no slots, no retries and no health.
type Plain struct {
	set     *Plains
	address string
}

// Plains keeps the connections of Plain servers. What is dialled passes the same guard as for backends.
type Plains struct {
	dialer func(address string) *dialer
	client *http.Transport
}

// NewPlains returns Plains without connections. Of the options, those about dialling, idle connections and their number count.
func NewPlains(o Options) *Plains {
	o = o.withDefaults()
	s := &Plains{}
	s.dialer = func(address string) *dialer {
		return &dialer{address: address, tunnel: o.Tunnel, dial: o.DialTimeout, guard: guard{loopback: o.AllowLoopback, allow: o.Allow, own: o.OwnAddresses, local: net.InterfaceAddrs}}
	}
	s.client = &http.Transport{
		DialContext:            func(ctx context.Context, _, address string) (net.Conn, error) { return s.dial(ctx, address) },
		DisableCompression:     true, // bodies pass as they are
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

// Close ends idle connections. Requests in flight end with their contexts.
func (s *Plains) Close() { s.client.CloseIdleConnections() }

func (s *Plains) dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := s.dialer(address).tcp(ctx)
	if err != nil {
		return nil, &connectError{op: OpDial, err: err}
	}
	return conn, nil
}

// Admit implements what a Backend has. Its requests hold no slots.
func (p *Plain) Admit(*Slot, string) error { return nil }

// Tunnels counts nothing.
func (p *Plain) Tunnels(int) {}

// Broken counts nothing.
func (p *Plain) Broken() {}

// RoundTrip sends r to the server, once. Errors are *Error.
func (p *Plain) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host = "http", p.address
	resp, err := p.set.client.RoundTrip(r)
	if err != nil {
		return nil, p.failed(r.Context(), err)
	}
	return resp, nil
}

// DialUpgrade makes a connection for one upgraded request.
func (p *Plain) DialUpgrade(ctx context.Context) (net.Conn, error) {
	conn, err := p.set.dial(ctx, p.address)
	if err == nil {
		if err = relaxUserTimeout(conn); err == nil {
			return conn, nil
		}
		_ = conn.Close() // the error is the one to tell
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

// NoHeaderTimeout is for Options.HeaderTimeout where responses may be silent for as long as they like: a kubelet sends the headers
// of a log with its first line. The end of the client ends the wait.
const NoHeaderTimeout = 10 * 365 * 24 * time.Hour
