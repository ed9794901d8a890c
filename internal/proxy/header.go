package proxy

import (
	"net"
	"net/http"
	"slices"
	"strings"
)

// maxContextBytes limits each tracing header, because backends parse these headers on every request.
const maxContextBytes = 8 << 10

// headerValues stores the values of the headers that the proxy sets. A request has about a dozen, and each would otherwise
// be a separate allocation.
type headerValues struct {
	room [9]string
	n    int
}

// one returns a slice that contains only value.
func (h *headerValues) one(value string) []string {
	if h.n == len(h.room) {
		return []string{value}
	}
	h.room[h.n] = value
	h.n++
	return h.room[h.n-1 : h.n : h.n]
}

// requestHeader returns the header for the backend, without the identity, which is written last. It does not modify the
// client's header.
func (x *exchange) requestHeader() http.Header {
	client := x.r.Header
	out := make(http.Header, len(client)+len(x.values.room))
	nominated := client["Connection"]
	for name, values := range client {
		if !x.proxy.withheldFromBackend(name) && (len(nominated) == 0 || !lists(nominated, name)) {
			out[name] = values
		}
	}
	dropOversized(out, "Traceparent", "Tracestate")
	injectTrace(x.r.Context(), out)
	dropBearerProtocol(out)
	set := func(name, value string) { out[name] = x.values.one(value) }
	if AcceptsTrailers(client) { // the proxy forwards trailers, and gRPC servers refuse requests without this header
		set("Te", "trailers")
	}
	if _, ok := out["User-Agent"]; !ok {
		set("User-Agent", "") // prevents net/http from setting its own
	}
	if x.dest.Statement.Header == "" { // another replica takes these values from its statement
		if host, _, err := net.SplitHostPort(x.r.RemoteAddr); err == nil {
			set("X-Forwarded-For", host)
		}
		set("X-Forwarded-Host", x.r.Host)
		set("X-Forwarded-Proto", scheme(x.r))
		if t := x.target; t == nil {
			out["Via"] = x.proxy.viaOf(out["Via"])
		} else if t.Pseudonym != "" {
			out["Via"] = slices.Concat(out["Via"], []string{"1.1 " + t.Pseudonym})
		} else if t.Prefix != "" {
			set("X-Forwarded-Uri", t.Prefix+t.Path)
		}
	}
	if id := x.request.AuditID; id != "" {
		set("Audit-Id", id)
	}
	return out
}

func scheme(r *http.Request) string {
	if r.TLS == nil {
		return "http"
	}
	return "https"
}

// lists reports whether the comma-separated lists contain the header name, in any case.
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

// bearerProtocol is the subprotocol prefix with which a browser sends a bearer token on a websocket
// (kubernetes/kubernetes#47740). It is a credential.
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

// Pseudonym is the default of Config.Pseudonym.
const Pseudonym = "portico"

// viaOf appends this server to the hops in the client's Via header. The value contains neither version nor host.
func (p *Proxy) viaOf(hops []string) []string {
	if len(hops) == 0 {
		return p.via // shared, must not be modified
	}
	return append(hops[:len(hops):len(hops)], p.via...)
}

// looped reports whether a Portico server already forwarded this request. An APIService that leads back to Portico,
// directly or through another front door, would otherwise multiply one request without end (attack row A23).
func (x *exchange) looped() bool {
	if t := x.target; t != nil && t.Pseudonym != "" {
		return Passed(x.r.Header, t.Pseudonym)
	}
	return Passed(x.r.Header, x.proxy.config.Pseudonym)
}

// Passed reports whether a request with a header was forwarded by a server with a pseudonym.
func Passed(h http.Header, pseudonym string) bool {
	for _, value := range h["Via"] {
		for hop := range strings.SplitSeq(value, ",") {
			if fields := strings.Fields(hop); len(fields) >= 2 && fields[1] == pseudonym {
				return true
			}
		}
	}
	return false
}
