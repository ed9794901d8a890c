package proxy

import (
	"maps"
	"net"
	"net/http"
	"strings"

	"portico.dev/internal/request"
)

// maxContextBytes bounds each header that carries a tracing context: backends parse them on every request.
const maxContextBytes = 8 << 10

// requestHeader is the header for the backend, without the identity, which is written last.
func (x *exchange) requestHeader() http.Header {
	out := x.ownHeader()
	nominated := out["Connection"]
	takesTrailers := lists(out["Te"], "trailers")
	for name := range out {
		if x.proxy.withheldFromBackend(name) || len(nominated) > 0 && lists(nominated, name) {
			delete(out, name)
		}
	}
	dropOversized(out, "Traceparent", "Tracestate")
	injectTrace(x.r.Context(), out)
	dropBearerProtocol(out)
	// One array for all values that are ours: a request has half a dozen, and each would be an allocation.
	ours := make([]string, 0, 6)
	set := func(name, value string) {
		ours = append(ours, value)
		out[name] = ours[len(ours)-1 : len(ours) : len(ours)]
	}
	if takesTrailers { // we pass them on, and gRPC's servers refuse whoever does not say so
		set("Te", "trailers")
	}
	if _, ok := out["User-Agent"]; !ok {
		set("User-Agent", "") // or the library would name itself
	}
	if host, _, err := net.SplitHostPort(x.r.RemoteAddr); err == nil {
		set("X-Forwarded-For", host)
	}
	set("X-Forwarded-Host", x.r.Host)
	set("X-Forwarded-Proto", scheme(x.r))
	out["Via"] = viaOf(out["Via"])
	if id := request.AuditID(x.r.Context()); id != "" {
		set("Audit-Id", id)
	}
	return out
}

// ownHeader is the header to be changed: the client's own, which nobody needs unchanged any more, unless what is converted
// here asks the backend for something else than the client asked for.
func (x *exchange) ownHeader() http.Header {
	if x.dest.ConvertTable || x.dest.ConvertMetadata {
		return maps.Clone(x.r.Header)
	}
	return x.r.Header
}

func scheme(r *http.Request) string {
	if r.TLS == nil {
		return "http"
	}
	return "https"
}

// lists reports whether the comma-separated lists name one header, in any case.
func lists(values []string, name string) bool {
	for _, value := range values {
		for token := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.TrimSpace(token), name) {
				return true
			}
		}
	}
	return false
}

func dropOversized(h http.Header, names ...string) {
	for _, name := range names {
		n := 0
		for _, v := range h[name] {
			n += len(v)
		}
		if n > maxContextBytes {
			delete(h, name)
		}
	}
}

// bearerProtocol is how a browser hands a bearer token to a websocket (kubernetes/kubernetes#47740). It is a credential.
const bearerProtocol = "base64url.bearer.authorization.k8s.io."

func dropBearerProtocol(h http.Header) {
	const name = "Sec-Websocket-Protocol"
	values, ok := h[name]
	if !ok {
		return
	}
	var kept []string
	for _, value := range values {
		for protocol := range strings.SplitSeq(value, ",") {
			protocol = strings.TrimSpace(protocol)
			if !strings.HasPrefix(strings.ToLower(protocol), bearerProtocol) {
				kept = append(kept, protocol)
			}
		}
	}
	delete(h, name)
	if len(kept) > 0 {
		h[name] = []string{strings.Join(kept, ", ")}
	}
}

// via names us in Via. It carries no version of ours and no host: those are nobody's business.
const (
	pseudonym = "portico"
	via       = "1.1 " + pseudonym
)

var viaAlone = []string{via}

// viaOf adds us to the hops that the client named.
func viaOf(hops []string) []string {
	if len(hops) == 0 {
		return viaAlone // shared, and never written to
	}
	return append(hops[:len(hops):len(hops)], via)
}

// looped reports whether a front door forwarded this request before. An APIService that leads back to us, directly or
// by way of another front door, would otherwise multiply one request without end (attack row A23).
func looped(h http.Header) bool {
	for _, value := range h["Via"] {
		for hop := range strings.SplitSeq(value, ",") {
			if fields := strings.Fields(hop); len(fields) >= 2 && fields[1] == pseudonym {
				return true
			}
		}
	}
	return false
}
