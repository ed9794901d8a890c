package frame

import "net/textproto"

// commonNames are the header names that the proxied path meets, as net/http writes them.
var commonNames = []string{
	"Accept", "Accept-Charset", "Accept-Encoding", "Accept-Language", "Accept-Ranges", "Access-Control-Allow-Credentials",
	"Access-Control-Allow-Headers", "Access-Control-Allow-Methods", "Access-Control-Allow-Origin", "Access-Control-Expose-Headers",
	"Access-Control-Max-Age", "Access-Control-Request-Headers", "Access-Control-Request-Method", "Age", "Allow", "Audit-Id",
	"Authorization", "Baggage", "Cache-Control", "Connection", "Content-Disposition", "Content-Encoding", "Content-Language",
	"Content-Length", "Content-Location", "Content-Range", "Content-Type", "Cookie", "Date", "Etag", "Expect", "Expires",
	"Forwarded", "From", "Host", "If-Match", "If-Modified-Since", "If-None-Match", "If-Range", "If-Unmodified-Since",
	"Impersonate-Group", "Impersonate-Uid", "Impersonate-User", "Keep-Alive", "Kubectl-Command", "Kubectl-Session",
	"Last-Modified", "Link", "Location", "Max-Forwards", "Origin", "Proxy-Authenticate", "Proxy-Authorization",
	"Proxy-Connection", "Range", "Referer", "Refresh", "Retry-After", "Server", "Set-Cookie", "Strict-Transport-Security", "Te",
	"Traceparent", "Tracestate", "Trailer", "Transfer-Encoding", "Upgrade", "User-Agent", "Vary", "Via", "Warning",
	"Www-Authenticate", "X-Content-Type-Options", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Frame-Options",
	"X-Kubernetes-Pf-Flowschema-Uid", "X-Kubernetes-Pf-Prioritylevel-Uid", "X-Real-Ip", "X-Remote-Group", "X-Remote-Uid",
	"X-Remote-User", "X-Request-Id",
}

// knownNames has the names of the wire, each as itself.
var canonicalOf, lowerOf, knownNames = func() (canonical, lower, known map[string]string) {
	canonical, lower, known = make(map[string]string, len(commonNames)), make(map[string]string, len(commonNames)), make(map[string]string, len(commonNames))
	for _, name := range commonNames {
		l := lowered(name)
		canonical[l], lower[name], known[l] = name, l, l
	}
	return canonical, lower, known
}()

// Canonical is a name of the wire as net/http writes it.
func Canonical(lower string) string {
	if name, ok := canonicalOf[lower]; ok {
		return name
	}
	return textproto.CanonicalMIMEHeaderKey(lower)
}

// Lower is a name of net/http as the wire has it. It is false for what is no header name.
func Lower(name string) (string, bool) {
	if l, ok := lowerOf[name]; ok {
		return l, true
	}
	l := lowered(name)
	return l, validName(l) && l[0] != ':'
}

// lowered is strings.ToLower for ASCII, and nothing else: the letters that only look like ASCII must stay what they are.
func lowered(name string) string {
	for i := range len(name) {
		if c := name[i]; c >= 'A' && c <= 'Z' {
			b := []byte(name)
			for ; i < len(b); i++ {
				if c := b[i]; c >= 'A' && c <= 'Z' {
					b[i] = c + 'a' - 'A'
				}
			}
			return string(b)
		}
	}
	return name
}
