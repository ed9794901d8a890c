package frame

import (
	"net/textproto"
)

// commonNames are header names that are common on the proxied path, in canonical form.
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

// nameTable maps a small set of names to values without the cost of a map: by a hash of the length and three letters.
type nameTable[V any] struct {
	slots [nameSlots]struct {
		name  string
		value V
	}
}

const nameSlots = 512 // several for each name, so that there are few collisions

func nameSlot(name string) uint32 {
	n := uint32(len(name))
	return (n*37 + uint32(name[0])*5 + uint32(name[n-1])*101 + uint32(name[n/2])*17) % nameSlots
}

func (t *nameTable[V]) add(name string, value V) {
	at := nameSlot(name)
	for t.slots[at].name != "" {
		at = (at + 1) % nameSlots
	}
	t.slots[at].name, t.slots[at].value = name, value
}

// find returns the value of a name.
func (t *nameTable[V]) find(name string) (value V, ok bool) {
	if name == "" {
		return value, false
	}
	for at := nameSlot(name); t.slots[at].name != ""; at = (at + 1) % nameSlots {
		if t.slots[at].name == name {
			return t.slots[at].value, true
		}
	}
	return value, false
}

// canonicalNames and lowerNames map commonNames between their forms. knownNames contains the lower-case names, so that
// decoding them does not allocate. staticNames contains the first index of each name in the static table.
var (
	canonicalNames, lowerNames nameTable[string]
	staticNames                nameTable[uint32]
)

var knownNames = func() map[string]string {
	known := make(map[string]string, len(commonNames))
	for _, name := range commonNames {
		l := asciiLower(name)
		known[l] = l
		canonicalNames.add(l, name)
		lowerNames.add(name, l)
	}
	for i, f := range staticFields {
		if i == 0 || staticFields[i-1][0] != f[0] { // fields with the same name are adjacent
			staticNames.add(f[0], uint32(i+1))
		}
	}
	return known
}()

// CanonicalName returns the canonical form of a lower-case name.
func CanonicalName(lower string) string {
	if name, ok := canonicalNames.find(lower); ok {
		return name
	}
	return textproto.CanonicalMIMEHeaderKey(lower)
}

// LowerName returns the lower-case form of a header name. ok is false if it is not a valid header name.
func LowerName(name string) (string, bool) {
	if l, ok := lowerNames.find(name); ok {
		return l, true
	}
	l := asciiLower(name)
	return l, validName(l) && l[0] != ':'
}

// asciiLower is strings.ToLower for ASCII only: letters that Unicode folds to ASCII must not change.
func asciiLower(name string) string {
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

// staticFields is the static table of RFC 7541, appendix A. Its indices begin at 1.
var staticFields = [...][2]string{
	{":authority", ""}, {":method", "GET"}, {":method", "POST"}, {":path", "/"}, {":path", "/index.html"}, {":scheme", "http"},
	{":scheme", "https"}, {":status", "200"}, {":status", "204"}, {":status", "206"}, {":status", "304"}, {":status", "400"},
	{":status", "404"}, {":status", "500"}, {"accept-charset", ""}, {"accept-encoding", "gzip, deflate"}, {"accept-language", ""},
	{"accept-ranges", ""}, {"accept", ""}, {"access-control-allow-origin", ""}, {"age", ""}, {"allow", ""}, {"authorization", ""},
	{"cache-control", ""}, {"content-disposition", ""}, {"content-encoding", ""}, {"content-language", ""}, {"content-length", ""},
	{"content-location", ""}, {"content-range", ""}, {"content-type", ""}, {"cookie", ""}, {"date", ""}, {"etag", ""}, {"expect", ""},
	{"expires", ""}, {"from", ""}, {"host", ""}, {"if-match", ""}, {"if-modified-since", ""}, {"if-none-match", ""}, {"if-range", ""},
	{"if-unmodified-since", ""}, {"last-modified", ""}, {"link", ""}, {"location", ""}, {"max-forwards", ""},
	{"proxy-authenticate", ""}, {"proxy-authorization", ""}, {"range", ""}, {"referer", ""}, {"refresh", ""}, {"retry-after", ""},
	{"server", ""}, {"set-cookie", ""}, {"strict-transport-security", ""}, {"transfer-encoding", ""}, {"user-agent", ""}, {"vary", ""},
	{"via", ""}, {"www-authenticate", ""},
}

// staticIndex returns the index of a field in the static table, if the table contains it with its value, and otherwise the
// first index of its name, or 0.
func staticIndex(name, value string) (index uint32, whole bool) {
	first, ok := staticNames.find(name)
	if !ok || value == "" {
		return first, false
	}
	for i := int(first) - 1; i < len(staticFields) && staticFields[i][0] == name; i++ {
		if staticFields[i][1] == value {
			return uint32(i + 1), true
		}
	}
	return first, false
}
