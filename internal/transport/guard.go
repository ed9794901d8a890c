package transport

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"
)

// guard decides which addresses may be dialled. It is asked after resolution, for each address about to be connected
// to, so that a name which resolves differently the second time gains nothing (attack row A22).
type guard struct {
	loopback bool
	allow    []netip.Prefix
	own      func() []string
	local    func() ([]net.Addr, error) // this machine's addresses
}

// Metadata services of clouds that live outside link-local space.
var metadata = []netip.Addr{
	netip.MustParseAddr("100.100.100.200"), // Alibaba Cloud
	netip.MustParseAddr("168.63.129.16"),   // Azure
	netip.MustParseAddr("192.0.0.192"),     // Oracle Cloud
	netip.MustParseAddr("fd00:ec2::254"),   // AWS
	netip.MustParseAddr("fd20:ce::254"),    // Google Cloud
}

// Prefixes whose addresses carry an IPv4 address that a translator will connect to.
var (
	nat64     = netip.MustParsePrefix("64:ff9b::/96")
	sixToFour = netip.MustParsePrefix("2002::/16")
	thisNet   = netip.MustParsePrefix("0.0.0.0/8")
	broadcast = netip.MustParseAddr("255.255.255.255")
)

// control is a net.Dialer.ControlContext: the last moment before connect(2).
func (g guard) control(_ context.Context, _, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("read dialled address: %w", err)
	}
	return g.check(at)
}

// CheckAddress reports, as a *ForbiddenAddressError, an address that is not dialled unless it is configured. Loopback
// passes: whether it may be dialled depends on the Service.
func CheckAddress(at netip.AddrPort) error {
	return guard{loopback: true, own: func() []string { return nil }}.check(at)
}

func (g guard) check(at netip.AddrPort) error {
	if g.isOwn(at) {
		return &ForbiddenAddressError{Address: at, Why: "it is a listener of this server"}
	}
	for _, addr := range withEmbeddedIPv4(at.Addr()) {
		if why := g.forbiddenReason(addr); why != "" {
			return &ForbiddenAddressError{Address: at, Why: why}
		}
	}
	return nil
}

// withEmbeddedIPv4 are an address and the IPv4 address embedded in it, if any.
func withEmbeddedIPv4(addr netip.Addr) []netip.Addr {
	addr = addr.Unmap().WithZone("")
	b := addr.As16()
	switch {
	case !addr.Is6():
		return []netip.Addr{addr}
	case nat64.Contains(addr):
		return []netip.Addr{addr, netip.AddrFrom4([4]byte(b[12:16]))}
	case sixToFour.Contains(addr):
		return []netip.Addr{addr, netip.AddrFrom4([4]byte(b[2:6]))}
	}
	return []netip.Addr{addr}
}

func (g guard) forbiddenReason(addr netip.Addr) string {
	for _, prefix := range g.allow {
		if prefix.Contains(addr) {
			return ""
		}
	}
	switch {
	case addr.IsLoopback():
		if g.loopback {
			return ""
		}
		return "it is a loopback address"
	case addr.IsUnspecified(), thisNet.Contains(addr):
		return "it is an unspecified address"
	case addr.IsLinkLocalUnicast():
		return "it is a link-local address"
	case addr.IsMulticast(), addr == broadcast:
		return "it is a multicast or broadcast address"
	}
	for _, m := range metadata {
		if addr == m {
			return "it is a cloud's metadata service"
		}
	}
	return ""
}

// isOwn reports whether connecting to at would reach this process.
func (g guard) isOwn(at netip.AddrPort) bool {
	addr := at.Addr().Unmap().WithZone("")
	for _, own := range g.own() {
		host, port, err := net.SplitHostPort(own)
		if err != nil || port != fmt.Sprint(at.Port()) {
			continue
		}
		listening, err := netip.ParseAddr(host)
		if err != nil || listening.IsUnspecified() {
			if g.isLocal(addr) {
				return true
			}
			continue
		}
		if listening.Unmap().WithZone("") == addr {
			return true
		}
	}
	return false
}

func (g guard) isLocal(addr netip.Addr) bool {
	if addr.IsLoopback() || addr.IsUnspecified() {
		return true
	}
	addrs, err := g.local()
	if err != nil {
		return true // unknown: the port is ours, so refuse
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok && ip.Unmap() == addr {
				return true
			}
		}
	}
	return false
}
