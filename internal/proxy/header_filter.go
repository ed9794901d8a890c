package proxy

import (
	"bytes"
	"strings"

	"portico.dev/internal/httpmsg"
)

// What is compared here is folded first (httpmsg.FoldName): X.Remote_User is X-Remote-User to some servers. A name that is no
// token is never valid, and passes in neither direction.

// longestFolded is how much of a name is looked at: more than any name or prefix below has.
const longestFolded = 48

// fold appends the beginning of a name, folded, to b.
func fold(b []byte, name string) []byte {
	for i := range min(len(name), longestFolded) {
		b = append(b, httpmsg.FoldByte(name[i]))
	}
	return b
}

// Headers that belong to one connection (RFC 9110, 7.6.1), in either direction.
var hopByHop = map[string]bool{
	"connection": true, "keep-alive": true, "te": true, "trailer": true, "transfer-encoding": true, "upgrade": true,
	"http2-settings": true,
}

// Headers of the client that the proxy sets itself, or that only the front door may see.
var privateHeaders = map[string]bool{
	"authorization": true, "cookie": true, "forwarded": true, "x-real-ip": true, "x-original-url": true,
	"x-rewrite-url": true, "audit-id": true, "baggage": true, "host": true, "content-length": true,
	"x-portico-peer": true, // by which replicas prove to each other whose request it is
	// The front door itself answers 100 Continue when the body is read. To a backend it would be a promise to read an
	// interim response (CVE-2024-24791).
	"expect": true,
}

// identityPrefixes begin the headers that say who a request is from.
var identityPrefixes = []string{"x-remote-", "impersonate-"}

// privatePrefixes are withheld from backends beside them.
var privatePrefixes = []string{"x-forwarded-", "proxy-"}

// commonHeaders are headers that nearly every client sends and that may pass: they need no closer look.
var commonHeaders = map[string]bool{
	"Accept": true, "Accept-Encoding": true, "Content-Type": true, "User-Agent": true, "Kubectl-Command": true, "Kubectl-Session": true,
}

// withheldFromBackend reports whether a client's header must not reach a backend.
func (p *Proxy) withheldFromBackend(name string) bool {
	if commonHeaders[name] {
		return false
	}
	if !httpmsg.IsToken(name) {
		return true
	}
	var room [longestFolded]byte
	folded := fold(room[:0], name)
	return privateHeaders[string(folded)] || hopByHop[string(folded)] || begins(folded, privatePrefixes) || p.identifies(name, folded)
}

// Headers of a response that are not the backend's to set for our origin. CORS is decided by the front door alone, as
// upstream; cookies are never forwarded, so one that a backend sets could only be for other purposes. The others hold for the
// whole origin, and for long: where it is to be found, by which key and certificate, what a browser is to forget of it, and
// whom it tells of failures.
var withheldResponse = map[string]bool{
	"access-control-allow-credentials": true, "access-control-allow-headers": true, "access-control-allow-methods": true,
	"access-control-allow-origin": true, "access-control-allow-private-network": true, "set-cookie": true, "set-cookie2": true, "refresh": true,
	"alt-svc": true, "strict-transport-security": true, "clear-site-data": true, "public-key-pins": true, "public-key-pins-report-only": true,
	"expect-ct": true, "nel": true, "report-to": true, "reporting-endpoints": true, "service-worker-allowed": true,
}

// commonResponseHeaders are headers that nearly every response has and that may pass.
var commonResponseHeaders = map[string]bool{
	"Content-Type": true, "Content-Length": true, "Content-Encoding": true, "Date": true, "Cache-Control": true, "Vary": true, "Etag": true,
	"Audit-Id": true, "Location": true, "Warning": true, "Last-Modified": true, "X-Kubernetes-Pf-Flowschema-Uid": true,
	"X-Kubernetes-Pf-Prioritylevel-Uid": true,
}

// withheldFromClient reports whether a backend's header, or trailer, must not reach a client. One that is named like an identity would be
// believed by whoever stands before us and merges trailers into headers, or takes what comes back for what was sent.
func (p *Proxy) withheldFromClient(name string) bool {
	if commonResponseHeaders[name] {
		return false
	}
	if !httpmsg.IsToken(name) {
		return true
	}
	var room [longestFolded]byte
	folded := fold(room[:0], name)
	return withheldResponse[string(folded)] || hopByHop[string(folded)] || bytes.HasPrefix(folded, []byte("proxy-")) || p.identifies(name, folded)
}

// identifies reports whether a header would say who a request is from, to a backend or to us.
func (p *Proxy) identifies(name string, folded []byte) bool {
	if begins(folded, identityPrefixes) {
		return true
	}
	for _, configured := range p.config.IdentityHeaders {
		if len(name) == len(configured) && httpmsg.HasFoldedPrefix(name, configured) {
			return true
		}
	}
	for _, prefix := range p.config.IdentityHeaderPrefixes {
		if httpmsg.HasFoldedPrefix(name, prefix) {
			return true
		}
	}
	return false
}

func begins(folded []byte, prefixes []string) bool {
	for _, prefix := range prefixes {
		if len(folded) >= len(prefix) && string(folded[:len(prefix)]) == prefix {
			return true
		}
	}
	return false
}

// passesAsTrailer reports whether a trailer of a backend may reach a client.
func (p *Proxy) passesAsTrailer(name string) bool {
	return !p.withheldFromClient(name) && !strings.EqualFold(name, "Content-Length") && !strings.EqualFold(name, "Location")
}
