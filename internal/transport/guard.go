package transport

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
)

// guard decides which addresses may be dialed. It runs after resolution, for each address before connecting, so that
// a name that resolves differently on a second lookup cannot bypass it (attack row A22).
type guard struct {
	loopback bool
	allow    []netip.Prefix
	own      func() []string
	local    func() ([]net.Addr, error) // returns the machine's addresses
}

// metadata lists cloud services for machines outside the link-local range: metadata, credentials, resolvers.
var metadata = []netip.Prefix{
	netip.MustParsePrefix("100.100.100.200/32"),     // Alibaba Cloud
	netip.MustParsePrefix("fd00:100::100:200/128"),  // Alibaba Cloud
	netip.MustParsePrefix("168.63.129.16/32"),       // Azure
	netip.MustParsePrefix("192.0.0.192/32"),         // Oracle Cloud
	netip.MustParsePrefix("fd00:c1::a9fe:a9fe/128"), // Oracle Cloud
	netip.MustParsePrefix("fd00:ec2::/32"),          // AWS: ::254 is metadata, ::23 has the credentials of EKS Pod Identity
	netip.MustParsePrefix("fd20:ce::254/128"),       // Google Cloud
	netip.MustParsePrefix("fd00:a9fe:a9fe::1/128"),  // Linode
	netip.MustParsePrefix("fd00:42::42/128"),        // Scaleway
}

// Prefixes of addresses with an embedded IPv4 address to which a translator or tunnel connects.
var (
	nat64      = netip.MustParsePrefix("64:ff9b::/96")    // RFC 6052
	localNAT64 = netip.MustParsePrefix("64:ff9b:1::/48")  // RFC 8215
	sixToFour  = netip.MustParsePrefix("2002::/16")       // RFC 3056
	teredo     = netip.MustParsePrefix("2001::/32")       // RFC 4380
	translated = netip.MustParsePrefix("::ffff:0:0:0/96") // RFC 2765
	compatible = netip.MustParsePrefix("::/96")           // RFC 4291, 2.5.5.1
	thisNet    = netip.MustParsePrefix("0.0.0.0/8")
	broadcast  = netip.MustParseAddr("255.255.255.255")
)

// control is a net.Dialer.ControlContext. It runs immediately before connect(2).
func (g guard) control(_ context.Context, _, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("read dialled address: %w", err)
	}
	return g.check(at)
}

// CheckAddress returns a *ForbiddenAddressError for an address that requires configuration to be dialed. Loopback
// addresses are accepted, because they are allowed for some Services.
func CheckAddress(at netip.AddrPort) error {
	return guard{loopback: true, own: func() []string { return nil }}.check(at)
}

func (g guard) check(at netip.AddrPort) error {
	for _, addr := range withEmbeddedIPv4(at.Addr()) {
		if g.isOwn(netip.AddrPortFrom(addr, at.Port())) {
			return &ForbiddenAddressError{Address: at, Why: "it is a listener of this server"}
		}
		if why := g.forbiddenReason(addr); why != "" {
			return &ForbiddenAddressError{Address: at, Why: why}
		}
	}
	return nil
}

// withEmbeddedIPv4 returns an address and the IPv4 addresses embedded in it, if any.
func withEmbeddedIPv4(addr netip.Addr) []netip.Addr {
	addr = addr.Unmap().WithZone("")
	all := []netip.Addr{addr}
	if !addr.Is6() {
		return all
	}
	b := addr.As16()
	embedded := func(at int) netip.Addr { return netip.AddrFrom4([4]byte(b[at : at+4])) }
	switch {
	case addr.IsLoopback(), addr.IsUnspecified():
		return all
	case nat64.Contains(addr), translated.Contains(addr), compatible.Contains(addr):
		return append(all, embedded(12))
	case localNAT64.Contains(addr):
		return append(all, localNAT64Targets(b)...)
	case sixToFour.Contains(addr):
		return append(all, embedded(2))
	case teredo.Contains(addr):
		for i := 12; i < 16; i++ {
			b[i] ^= 0xff // the client's address is inverted
		}
		return append(all, embedded(4), embedded(12))
	case b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe: // RFC 5214, in any prefix
		return append(all, embedded(12))
	}
	return all
}

// localNAT64Targets returns the IPv4 addresses to which a translator may connect for an address in localNAT64. Their
// position depends on the length of the translator's prefix: 48, 56, 64 or 96 bits (RFC 6052, 2.2). Candidates that
// begin or end with a zero octet are omitted, because they result from the wrong prefix length.
func localNAT64Targets(b [16]byte) []netip.Addr {
	var targets []netip.Addr
	for _, v4 := range [][4]byte{{b[6], b[7], b[9], b[10]}, {b[7], b[9], b[10], b[11]}, {b[9], b[10], b[11], b[12]}, {b[12], b[13], b[14], b[15]}} {
		if v4[0] != 0 && v4[3] != 0 {
			targets = append(targets, netip.AddrFrom4(v4))
		}
	}
	return targets
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
	case slices.ContainsFunc(metadata, func(p netip.Prefix) bool { return p.Contains(addr) }):
		return "it is a cloud's metadata service"
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
		return true // unknown; the port matches, so refuse
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
