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

// Tunnel makes connections from within another network. A nil *Tunnel is none: connections are direct.
type Tunnel struct {
	// Network is what it leads to: cluster, controlplane or etcd.
	Network string
	// Dial connects to host:port. The name of a host is resolved at the other end. Errors are *TunnelError if the tunnel is to blame; others
	// are about the address. It must return soon after ctx has ended.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Received is when anything last came through it, from whomever.
	Received func() time.Time
}

// Dialer is t as gRPC wants it. Nil for nil.
func (t *Tunnel) Dialer() func(ctx context.Context, address string) (net.Conn, error) {
	if t == nil {
		return nil
	}
	return t.Dial
}

// NetDialer is t as net/http and client-go want it. Nil for nil.
func (t *Tunnel) NetDialer() func(ctx context.Context, network, address string) (net.Conn, error) {
	if t == nil {
		return nil
	}
	return func(ctx context.Context, _, address string) (net.Conn, error) { return t.Dial(ctx, address) }
}

// TunnelProblem is why a tunnel made no connection.
type TunnelProblem int

const (
	// TunnelUnreachable: there is no connection to the tunnel's server.
	TunnelUnreachable TunnelProblem = iota
	// TunnelRefused: its server refused to connect, and not because of the address.
	TunnelRefused
	// TunnelSilent: nothing came of the dial in time, nor of any other through the tunnel meanwhile. The server hangs, or its agents
	// do, or nothing answers at the address.
	TunnelSilent
	// TunnelBusy: too many dials through the tunnel were waiting.
	TunnelBusy
)

// TunnelError means that there is no connection because of the tunnel, and that nothing is known of the backend.
type TunnelError struct {
	// Network is what the tunnel leads to: cluster, controlplane or etcd.
	Network string
	Problem TunnelProblem
	// Err may name addresses and files, and is for logs.
	Err error
}

func (e *TunnelError) Error() string { return fmt.Sprintf("%s: %v", e.Text(), e.Err) }
func (e *TunnelError) Unwrap() error { return e.Err }

// Text says what happened, without addresses and files.
func (e *TunnelError) Text() string {
	_, text, _ := e.explain()
	return text
}

// IsTunnelError reports errors that say nothing of the backend.
func IsTunnelError(err error) bool {
	var tunnel *TunnelError
	return errors.As(err, &tunnel)
}

// ControlSocket is for the ControlContext of dialers of connections over which tunnels lead: written bytes that stay
// unacknowledged end the connection after seconds.
func ControlSocket(_ context.Context, network, _ string, c syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	if err := setUserTimeout(c); err != nil {
		return fmt.Errorf("set TCP_USER_TIMEOUT: %w", err)
	}
	return nil
}

// through dials through a tunnel. Addresses pass the guard; a name does too, as far as it can be judged before it is resolved.
func (d *dialer) through(ctx context.Context) (net.Conn, error) {
	if err := d.guard.checkUnresolved(d.address); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, d.dial)
	defer cancel()
	return d.tunnel.Dial(ctx, d.address)
}

// Guarded is t for addresses that others may choose: those of CheckAddress are refused. Nil for nil.
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

// checkUnresolved is check for an address whose host may be a name that others resolve. Names that resolvers read as addresses are
// refused, and those of loopback.
func (g guard) checkUnresolved(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("read dialled address: %w", err)
	}
	if at, err := netip.ParseAddrPort(net.JoinHostPort(host, port)); err == nil {
		return g.check(at)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil { // a client may have written it: nodes/NAME:PORT/proxy
		return &ForbiddenAddressError{Name: host, Why: "its port is no number"}
	}
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	last := name[strings.LastIndexByte(name, '.')+1:]
	switch {
	case !isHostName(name):
		return &ForbiddenAddressError{Name: host, Why: "it is neither an address nor a DNS name"}
	case isNumber(last):
		// getaddrinfo takes 127.1, 2130706433 and 127.0x1 for addresses. No name in DNS ends like that.
		return &ForbiddenAddressError{Name: host, Why: "it is a name that is read as an address"}
	case last == "localhost" && !g.loopback:
		return &ForbiddenAddressError{Name: host, Why: "it is a name of loopback"}
	}
	return nil
}

// isNumber reports what getaddrinfo reads as a number.
func isNumber(label string) bool {
	_, err := strconv.ParseUint(label, 0, 64)
	return err == nil || strings.Trim(label, "0123456789") == ""
}

// isHostName reports names of letters, digits, dots, hyphens and underscores: whatever else an object holds must not become part of a
// request to the tunnel's server.
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
