package request

import (
	"context"
	"net/netip"
)

type remoteAddrKey struct{}

// ClientNetwork returns the network within which the client of ctx's request can choose addresses: an IPv4 address or
// an IPv6 /64. It returns "" outside a request.
func ClientNetwork(ctx context.Context) string {
	remote, ok := ctx.Value(remoteAddrKey{}).(*string)
	if !ok {
		return ""
	}
	at, err := netip.ParseAddrPort(*remote)
	if err != nil {
		return *remote
	}
	address := at.Addr().Unmap().WithZone("")
	if prefix, err := address.Prefix(64); err == nil && address.Is6() {
		return prefix.String()
	}
	return address.String()
}
