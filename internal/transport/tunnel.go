package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Tunnel opens connections from within another network. A nil *Tunnel means direct connections.
type Tunnel struct {
	// Network is the tunnel's network: cluster, controlplane or etcd.
	Network string
	// Dial connects to host:port. Host names are resolved at the other end. An error is a *TunnelError if the tunnel
	// is the cause; other errors concern the address. Dial must return soon after ctx ends.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Received returns when data was last received through the tunnel, from any peer.
	Received func() time.Time
}

// Dialer returns a dial function in gRPC's form, or nil if t is nil.
func (t *Tunnel) Dialer() func(ctx context.Context, address string) (net.Conn, error) {
	if t == nil {
		return nil
	}
	return t.Dial
}

// NetDialer returns a dial function in the form of net/http and client-go, or nil if t is nil.
func (t *Tunnel) NetDialer() func(ctx context.Context, network, address string) (net.Conn, error) {
	if t == nil {
		return nil
	}
	return func(ctx context.Context, _, address string) (net.Conn, error) { return t.Dial(ctx, address) }
}

// TunnelProblem is the reason for a failed connection through a tunnel.
type TunnelProblem int

const (
	// TunnelUnreachable means that there is no connection to the tunnel's server.
	TunnelUnreachable TunnelProblem = iota
	// TunnelRefused means that the server refused to connect for a reason other than the address.
	TunnelRefused
	// TunnelSilent means that neither this dial nor any other through the tunnel completed in time. The server or its
	// agents hang, or nothing answers at the address.
	TunnelSilent
	// TunnelBusy means that too many dials through the tunnel were pending.
	TunnelBusy
)

// TunnelError means that a connection failed because of the tunnel, so that the state of the backend is unknown.
type TunnelError struct {
	// Network is the tunnel's network: cluster, controlplane or etcd.
	Network string
	Problem TunnelProblem
	// Err may contain addresses and file names. It is for logs only.
	Err error
}

func (e *TunnelError) Error() string { return fmt.Sprintf("%s: %v", e.Text(), e.Err) }
func (e *TunnelError) Unwrap() error { return e.Err }

// Text describes the error without addresses and file names.
func (e *TunnelError) Text() string {
	_, text, _ := e.explain()
	return text
}

// IsTunnelError reports whether err contains a TunnelError, which does not reflect the state of the backend.
func IsTunnelError(err error) bool {
	var tunnel *TunnelError
	return errors.As(err, &tunnel)
}

// ControlSocket is a ControlContext for dialers of connections that carry tunnels. It closes the connection if
// written data stays unacknowledged for a few seconds.
func ControlSocket(_ context.Context, network, _ string, c syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	if err := setUserTimeout(c); err != nil {
		return fmt.Errorf("set TCP_USER_TIMEOUT: %w", err)
	}
	return nil
}

// through dials through the tunnel. The guard checks addresses, and names as far as possible without resolving them.
func (d *dialer) through(ctx context.Context) (net.Conn, error) {
	if err := d.guard.checkUnresolved(d.address); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, d.dial)
	defer cancel()
	return d.tunnel.Dial(ctx, d.address)
}

// Guarded returns t restricted to addresses accepted by CheckAddress, for addresses that clients may select. It
// returns nil if t is nil.
func Guarded(t *Tunnel) *Tunnel {
	if t == nil {
		return nil
	}
	return &Tunnel{Network: t.Network, Received: t.Received, Dial: func(ctx context.Context, address string) (net.Conn, error) {
		if err := (guard{loopback: true, own: func() []string { return nil }}).checkUnresolved(address); err != nil {
			return nil, err
		}
		return t.Dial(ctx, address)
	}}
}

// checkUnresolved checks an address like check. The host may be a name that is resolved at the other end of a tunnel.
// It refuses names that resolvers parse as addresses, and names of loopback.
func (g guard) checkUnresolved(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("read dialled address: %w", err)
	}
	if at, err := netip.ParseAddrPort(net.JoinHostPort(host, port)); err == nil {
		return g.check(at)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil { // may be written by a client: nodes/NAME:PORT/proxy
		return &ForbiddenAddressError{Name: host, Why: "its port is no number"}
	}
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	last := name[strings.LastIndexByte(name, '.')+1:]
	switch {
	case !isHostName(name):
		return &ForbiddenAddressError{Name: host, Why: "it is neither an address nor a DNS name"}
	case isNumber(last):
		// getaddrinfo parses 127.1, 2130706433 and 127.0x1 as addresses. DNS names do not end like that.
		return &ForbiddenAddressError{Name: host, Why: "it is a name that is read as an address"}
	case last == "localhost" && !g.loopback:
		return &ForbiddenAddressError{Name: host, Why: "it is a name of loopback"}
	}
	return nil
}

// isNumber reports whether getaddrinfo parses label as a number.
func isNumber(label string) bool {
	_, err := strconv.ParseUint(label, 0, 64)
	return err == nil || strings.Trim(label, "0123456789") == ""
}

// isHostName reports whether name consists of letters, digits, dots, hyphens and underscores. Other characters must
// not become part of a request to the tunnel's server.
func isHostName(name string) bool {
	for _, c := range []byte(name) {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '.', c == '-', c == '_':
		default:
			return false
		}
	}
	return name != "" && len(name) <= 253
}
