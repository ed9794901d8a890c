package filters

import (
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// MayUpgrade reports whether a request may open a WebSocket, by its Origin. Browsers send no preflight request for a WebSocket to another
// origin, and send a client certificate along (cross-site WebSocket hijacking, attack row A30).
//
// One trusted Origin value is enough, because a page can send only its own Origin: a proxy has added the other values, or forwards the
// Origin of its own page. Trusted are an origin on a loopback host, one whose host and port are those of the request, and one that allowed
// accepts. A request without Origin does not come from a page. allowed may be nil.
func MayUpgrade(r *http.Request, allowed func(origin string) bool) bool {
	foreign := false
	for _, origin := range r.Header["Origin"] {
		switch {
		case origin == "":
		case isLoopbackOrigin(origin), isSameHost(origin, r.Host), allowed != nil && allowed(origin):
			return true
		default:
			foreign = true
		}
	}
	return !foreign
}

// isLoopbackOrigin reports whether origin is a scheme, a loopback host and perhaps a port (RFC 6454, 6.2). A name that a DNS server
// resolves to a loopback address is not a loopback host.
func isLoopbackOrigin(origin string) bool {
	u, err := url.Parse(origin)
	if err != nil || !slices.Contains(pageSchemes, u.Scheme) || !strings.EqualFold(u.Scheme+"://"+u.Host, origin) {
		return false
	}
	host := u.Hostname()
	if strings.EqualFold(host, "localhost") {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.Unmap().IsLoopback()
}

// pageSchemes are the schemes of pages, and those of WebSockets, which some clients send instead.
var pageSchemes = []string{"http", "https", "ws", "wss"}

// isSameHost reports whether a page of origin came from host. The scheme is not compared, because some clients send wss.
func isSameHost(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, host)
}
