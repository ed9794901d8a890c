package httpmsg

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Lengths and numbers of the parts of a message. The same limits apply to both versions of HTTP, so that a client can
// forward a request that the other version's server accepted.
const (
	// MaxMethod limits a method, in bytes.
	MaxMethod = 32
	// MaxTarget limits a target: path and query, in bytes.
	MaxTarget = 32 << 10
	// MaxAuthority limits a host with its port, in bytes.
	MaxAuthority = 253 + len(":65535")
	// MaxFieldName and MaxFieldValue limit one field, in bytes. A value may be nearly as long as a whole header.
	MaxFieldName, MaxFieldValue = 256, 62 << 10
	// MaxFields limits the fields of a received request without a grant (LargeHeaders). Each crumb of a cookie counts as
	// one.
	MaxFields = 500
	// MaxFieldsSent limits the fields of a request that is sent: a front proxy adds some, one for each group of the user.
	MaxFieldsSent = 2 * MaxLargeFields
	// MaxTrailers limits the trailers of a message.
	MaxTrailers = 64
)

// limit is a rule about a length or a number.
type limit struct {
	element string
	max     int
	unit    string
	code    int // status code of the error
	source  string
}

var limits = []limit{
	{Method.name, MaxMethod, "bytes", http.StatusNotImplemented, "RFC 9112, 3: a method longer than any that the server implements is answered 501. The longest registered method has 17 bytes"},
	{"target", MaxTarget, "bytes", http.StatusRequestURITooLong, "RFC 9112, 3: 414; servers should accept at least 8000 bytes. RFC 9110, 4.1 and 15.5.15"},
	{Authority.name, MaxAuthority, "bytes", http.StatusBadRequest, "RFC 1035, 2.3.4: 255 octets in the DNS wire format are 253 characters of text; a colon and five digits are added (RFC 3986, 3.2.2 and 3.2.3)"},
	{FieldName.name, MaxFieldName, "bytes", http.StatusRequestHeaderFieldsTooLarge, "RFC 9110, 5.4; RFC 6585, 5. CVE-2021-40346 was an overflow of a length in one byte"},
	{FieldValue.name, MaxFieldValue, "bytes", http.StatusRequestHeaderFieldsTooLarge, "RFC 9110, 5.4; RFC 6585, 5"},
	{"fields of a request that is received", MaxFields, "fields", http.StatusRequestHeaderFieldsTooLarge, "RFC 9110, 5.4; RFC 6585, 5. Over HTTP/2 each Cookie field counts (RFC 9113, 8.2.3)"},
	{"fields of a request with a large header", MaxLargeFields, "fields", http.StatusRequestHeaderFieldsTooLarge, "RFC 9110, 5.4; RFC 6585, 5. A user may have thousands of groups, each of which is a field. See [large headers](#large-headers)"},
	{"fields of a request that is sent", MaxFieldsSent, "fields", 0, "RFC 9110, 5.4: includes the fields that a front proxy adds"},
	{"trailers", MaxTrailers, "fields", 0, "RFC 9110, 6.5; RFC 9112, 7.1.2. With more, the body fails (HTTP/1.1) or the stream is reset (HTTP/2)"},
}

// tooLongError returns the error for an element that is too long.
func tooLongError(element string) *RequestError {
	i := slices.IndexFunc(limits, func(b limit) bool { return b.element == element })
	b := &limits[i]
	return &RequestError{Element: element, Code: b.code, Reason: fmt.Sprintf("the %s of the request is longer than %d %s", element, b.max, b.unit)}
}

// CheckLengths returns nil if a field is not too long. It does not check its bytes.
func CheckLengths(name, value string) error {
	switch {
	case len(name) > MaxFieldName:
		return tooLongError(FieldName.name)
	case len(value) > MaxFieldValue:
		return tooLongError(FieldValue.name)
	}
	return nil
}

// CheckCount returns nil if a received request may have n fields. extra is the number of granted fields
// (ConnHeaders.Extra).
func CheckCount(n, extra int) error {
	if most := MaxFields + extra; n > most {
		return &RequestError{Element: "fields", Code: http.StatusRequestHeaderFieldsTooLarge, Reason: fmt.Sprintf("the request has more than %d header fields", most)}
	}
	return nil
}

// ParseContentLength returns the length of a body, or -1 without Content-Length. ok is false for invalid and for several
// values.
func ParseContentLength(values []string) (n int64, ok bool) {
	if len(values) == 0 {
		return -1, true
	}
	s := values[0]
	if len(values) > 1 || s == "" {
		return 0, false
	}
	for i := range len(s) {
		d := int64(s[i] - '0')
		if s[i] < '0' || s[i] > '9' || n > (1<<63-1-d)/10 {
			return 0, false
		}
		n = 10*n + d
	}
	return n, true
}

// forbiddenTrailers are the names that are not allowed in trailers, compared with FoldByte. A name that ends with a dash is
// a prefix.
var forbiddenTrailers = []struct {
	names  []string
	source string
}{
	{[]string{"content-length", "transfer-encoding", "trailer"}, "RFC 9110, 6.5.1: framing"},
	{[]string{"host", "forwarded", "via", "x-forwarded-", "x-real-ip"}, "RFC 9110, 6.5.1: routing"},
	{[]string{"cache-control", "expect", "if-", "max-forwards", "pragma", "range", "te"}, "RFC 9110, 6.5.1: modifiers of a request"},
	{[]string{"authorization", "cookie", "proxy-authenticate", "proxy-authorization", "realm", "set-cookie", "www-authenticate"}, "RFC 9110, 6.5.1: authentication"},
	{[]string{"content-encoding", "content-range", "content-type"}, "RFC 9110, 6.5.1: how the content is processed"},
	{[]string{"connection", "keep-alive", "proxy-connection", "upgrade"}, "RFC 9110, 7.6.1; RFC 9113, 8.2.2: connection fields"},
	{[]string{"x-remote-", "impersonate-"}, "identities: attack rows A1 to A8"},
}

// ValidTrailer reports whether a field may be a trailer. Other trailers are dropped when received, and not sent.
func ValidTrailer(name string) bool {
	for i := range forbiddenTrailers {
		for _, no := range forbiddenTrailers[i].names {
			if (len(name) == len(no) || no[len(no)-1] == '-') && HasFoldedPrefix(name, no) {
				return false
			}
		}
	}
	return IsToken(name)
}

// IsConnectionHeader reports whether a canonical name belongs to a field that HTTP/2 does not allow.
func IsConnectionHeader(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Connection", "Transfer-Encoding", "Upgrade":
		return true
	}
	return false
}

// SameAuthority reports whether two https authorities are equal, without regard to case and the default port.
func SameAuthority(a, b string) bool {
	return strings.EqualFold(strings.TrimSuffix(a, ":443"), strings.TrimSuffix(b, ":443"))
}
