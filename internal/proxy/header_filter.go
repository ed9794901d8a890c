package proxy

import (
	"bytes"
	"strings"

	"portico.dev/internal/httpengine/httpmsg"
)

// Names are folded before they are compared (httpmsg.FoldName): X.Remote_User is X-Remote-User to some servers. A name that
// is not a token is invalid and is dropped in both directions.

// longestFolded is the number of bytes of a name that are compared. It is longer than every name and prefix below.
const longestFolded = 48

// fold appends the folded beginning of name to b.
func fold(b []byte, name string) []byte {
	for i := range min(len(name), longestFolded) {
		b = append(b, httpmsg.FoldByte(name[i]))
	}
	return b
}

// hopByHop contains the headers that belong to one connection (RFC 9110, section 7.6.1), in either direction.
var hopByHop = map[string]bool{
	"connection": true, "keep-alive": true, "te": true, "trailer": true, "transfer-encoding": true, "upgrade": true,
	"http2-settings": true,
}

// privateHeaders contains the client headers that the proxy sets itself, or that only Portico may read.
var privateHeaders = map[string]bool{
	"authorization": true, "cookie": true, "forwarded": true, "x-real-ip": true, "x-original-url": true,
	"x-rewrite-url": true, "audit-id": true, "baggage": true, "host": true, "content-length": true,
	"x-portico-peer": true, // by which replicas prove the user of a request to each other
	// Portico sends 100 Continue when it reads the body. Forwarding Expect would require it to read an interim response
	// from the backend (CVE-2024-24791).
	"expect": true,
}

// identityPrefixes are the prefixes of headers that identify the user.
var identityPrefixes = []string{"x-remote-", "impersonate-"}

// privatePrefixes are further prefixes that are withheld from backends.
var privatePrefixes = []string{"x-forwarded-", "proxy-"}

// commonHeaders are headers that nearly every client sends and that are always forwarded.
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
	return privateHeaders[string(folded)] || hopByHop[string(folded)] || hasAnyPrefix(folded, privatePrefixes) || p.identifies(name, folded)
}

// withheldResponse contains the response headers that a backend must not set for Portico's origin. Only Portico decides
// about CORS, like upstream. Cookies are never forwarded to backends, so a backend has no legitimate use for setting one.
// The other headers have a lasting effect on the whole origin: its alternative addresses, its keys and certificates, the
// data that a browser clears, and the endpoints to which a browser reports failures.
var withheldResponse = map[string]bool{
	"access-control-allow-credentials": true, "access-control-allow-headers": true, "access-control-allow-methods": true,
	"access-control-allow-origin": true, "access-control-allow-private-network": true, "set-cookie": true, "set-cookie2": true, "refresh": true,
	"alt-svc": true, "strict-transport-security": true, "clear-site-data": true, "public-key-pins": true, "public-key-pins-report-only": true,
	"expect-ct": true, "nel": true, "report-to": true, "reporting-endpoints": true, "service-worker-allowed": true,
}

// commonResponseHeaders are headers that nearly every response has and that are always forwarded.
var commonResponseHeaders = map[string]bool{
	"Content-Type": true, "Content-Length": true, "Content-Encoding": true, "Date": true, "Cache-Control": true, "Vary": true, "Etag": true,
	"Audit-Id": true, "Location": true, "Warning": true, "Last-Modified": true, "X-Kubernetes-Pf-Flowschema-Uid": true,
	"X-Kubernetes-Pf-Prioritylevel-Uid": true,
}

// withheldFromClient reports whether a header or trailer of a backend must not reach a client. An identity header in a
// response could deceive a front proxy that merges trailers into headers, or that confuses response headers with request
// headers.
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

// identifies reports whether a header identifies the user, to a backend or to Portico.
func (p *Proxy) identifies(name string, folded []byte) bool {
	if hasAnyPrefix(folded, identityPrefixes) {
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

func hasAnyPrefix(folded []byte, prefixes []string) bool {
	for _, prefix := range prefixes {
		if len(folded) >= len(prefix) && string(folded[:len(prefix)]) == prefix {
			return true
		}
	}
	return false
}

// passesAsTrailer reports whether a backend's trailer may reach a client.
func (p *Proxy) passesAsTrailer(name string) bool {
	return !p.withheldFromClient(name) && !strings.EqualFold(name, "Content-Length") && !strings.EqualFold(name, "Location")
}
