package filters

import (
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// MayUpgrade reports whether a request may open a WebSocket, based on its Origin. Browsers do not send a preflight
// request for a WebSocket to another origin, and they send a client certificate (cross-site WebSocket hijacking,
// attack row A30).
//
// One trusted Origin value is enough, because a page can send only its own Origin: a proxy has added the other
// values, or forwards the Origin of its own page. An origin is trusted if it is on a loopback host, if its host and
// port are equal to the request's, or if allowed accepts it. A request without Origin does not come from a page.
// allowed may be nil.
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

// isLoopbackOrigin reports whether origin is a scheme, a loopback host and an optional port (RFC 6454, 6.2). A name
// that a DNS server resolves to a loopback address is not a loopback host.
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

// pageSchemes are the schemes of pages, and of WebSockets, which some clients send instead.
var pageSchemes = []string{"http", "https", "ws", "wss"}

// isSameHost reports whether a page of origin came from host. The scheme is not compared, because some clients send wss.
func isSameHost(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, host)
}
