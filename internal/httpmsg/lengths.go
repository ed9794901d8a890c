package httpmsg

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// The lengths and numbers of the parts of a message. The same limits hold for both versions of HTTP, so that one client can
// send on what the other version's server accepted.
const (
	// MaxMethod bounds a method, in bytes.
	MaxMethod = 32
	// MaxTarget bounds a target: path and query, in bytes.
	MaxTarget = 32 << 10
	// MaxAuthority bounds a host with its port, in bytes.
	MaxAuthority = 253 + len(":65535")
	// MaxFieldName and MaxFieldValue bound one field, in bytes. A value may be nearly as long as a whole header.
	MaxFieldName, MaxFieldValue = 256, 62 << 10
	// MaxFields bounds the fields of a received request without a grant (LargeHeaders). Each crumb of a cookie counts as one.
	MaxFields = 500
	// MaxFieldsSent bounds the fields of a request that is sent: a front proxy adds some, one for each group of the user.
	MaxFieldsSent = 2 * MaxLargeFields
	// MaxTrailers bounds the trailers of a message.
	MaxTrailers = 64
)

// limit is a rule about a length or a number.
type limit struct {
	element string
	max     int
	unit    string
	code    int // the status for what exceeds it
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

// tooLongError is the error for an element that is too long.
func tooLongError(element string) *RequestError {
	i := slices.IndexFunc(limits, func(b limit) bool { return b.element == element })
	b := &limits[i]
	return &RequestError{Element: element, Code: b.code, Reason: fmt.Sprintf("the %s of the request is longer than %d %s", element, b.max, b.unit)}
}

// CheckLengths is nil for a field that is not too long. Its bytes are checked elsewhere.
func CheckLengths(name, value string) error {
	switch {
	case len(name) > MaxFieldName:
		return tooLongError(FieldName.name)
	case len(value) > MaxFieldValue:
		return tooLongError(FieldValue.name)
	}
	return nil
}

// CheckCount is nil for a number of fields that a received request may have. extra fields were granted (ConnHeaders.Extra).
func CheckCount(n, extra int) error {
	if most := MaxFields + extra; n > most {
		return &RequestError{Element: "fields", Code: http.StatusRequestHeaderFieldsTooLarge, Reason: fmt.Sprintf("the request has more than %d header fields", most)}
	}
	return nil
}

// lengthRules are the rules for Content-Length.
var lengthRules = []rule{
	{"digits only: no sign, no space, no fraction, no list", "RFC 9110, 8.6: 1*DIGIT"},
	{"no more than 9223372036854775807", "RFC 9110, 8.6: a recipient must guard against overflows"},
	{"once, also when the values agree", "RFC 9110, 8.6: a recipient may refuse; RFC 9112, 6.3"},
	{"not with Transfer-Encoding", "RFC 9112, 6.1 and 6.3; attack row A19. HTTP/2 has no Transfer-Encoding (RFC 9113, 8.2.2)"},
	{"equal to the length of the body", "RFC 9112, 6.3; RFC 9113, 8.1.1"},
	{"never sent in a 1xx, 204 or 304 response; refused in a 1xx or 204 response of a backend unless it is 0", "RFC 9110, 8.6 and 6.4.1; RFC 9112, 6.1"},
}

// ParseContentLength is the length of a body, or -1 without Content-Length. ok is false for invalid and for several values.
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

// forbiddenTrailers are the names that no trailer may have, compared with FoldByte. A name that ends with a dash is a
// prefix.
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

// connectionHeaders are the fields that HTTP/2 does not have, and what is done about them.
var connectionHeaders = []rule{
	{"connection, keep-alive, proxy-connection, transfer-encoding, upgrade", "RFC 9113, 8.2.2: 400 in a request; removed from responses of backends; never sent"},
	{`te other than "trailers"`, "RFC 9113, 8.2.2: 400 in a request"},
	{"a pseudo-header field in trailers", "RFC 9113, 8.1: the stream is reset"},
	{"host that differs from :authority", "RFC 9113, 8.3.1: 400; the default port may be left out"},
}

// IsConnectionHeader reports whether a canonical name is that of a field that HTTP/2 does not have.
func IsConnectionHeader(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Connection", "Transfer-Encoding", "Upgrade":
		return true
	}
	return false
}

// SameAuthority reports whether two authorities of https are equal, without regard to case and the default port.
func SameAuthority(a, b string) bool {
	return strings.EqualFold(strings.TrimSuffix(a, ":443"), strings.TrimSuffix(b, ":443"))
}

// largeHeaderRules explains who may send a large header.
const largeHeaderRules = `
### Large headers

A header with more than 65536 bytes or 500 fields is large. kube-apiserver accepts such headers, and a user with thousands of groups
needs them: front proxies send one X-Remote-Group for each group, and impersonating clients one Impersonate-Group.

| client | may send large headers |
| --- | --- |
| front proxy or another replica, by the certificate of its connection | always |
| any other client, before it is authenticated | while [memory for large headers](overload.md#bounds-that-always-hold) is free. Over HTTP/2, a connection on which no request was authenticated may send 100 at once and ten a second; more close it |
| authenticated user | while the user's share of that memory is free; beyond it 503 with Retry-After |

Each 64 KiB step of a header is charged before it is read. If there is no memory for it, the limits without a large header hold.
Identity headers may have 917504 bytes in total, counting 32 bytes more for each field, on the way to a backend. With
--http-engine=library only front proxies and other replicas may send more than 65536 bytes.
`

// PrintRules writes the tables that docs/http-rules.md shows.
func PrintRules(w io.Writer) error {
	var b strings.Builder
	line := func(cells ...string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	b.WriteString("## Bytes\n\n")
	line("element", "bytes", "source")
	line("---", "---", "---")
	for _, e := range []*Element{Method, FieldName, FieldValue, Path, Query, Authority} {
		for _, r := range e.rows {
			line(e.name, printable(r.bytes), r.source)
		}
	}
	b.WriteString("\n## Lengths and numbers\n\n")
	line("element", "at most", "beyond it", "source")
	line("---", "---", "---", "---")
	for _, r := range limits {
		answer := "fails"
		if r.code != 0 {
			answer = strconv.Itoa(r.code)
		}
		line(r.element, fmt.Sprintf("%d %s", r.max, r.unit), answer, r.source)
	}
	line("all headers", fmt.Sprintf("%d bytes", MaxHeader), "431", "RFC 6585, 5; RFC 9113, 6.5.2. Over HTTP/1.1 the request line counts too; over HTTP/2 the size is counted as in that section, and 320 bytes more are allowed. "+
		"Headers of up to twice this size compressed, or four times decoded, reset the stream. Larger ones, or more than ten such headers at once and one a second, close the connection")
	line("all headers of a request with a large header", fmt.Sprintf("%d bytes", MaxLargeHeader), "431", "net/http's default limit, which kube-apiserver has; counted as the limit above. See [large headers](#large-headers)")
	b.WriteString(largeHeaderRules)
	b.WriteString("\n## Content-Length\n\n")
	line("rule", "source")
	line("---", "---")
	for _, r := range lengthRules {
		line(r.bytes, r.source)
	}
	b.WriteString("\n## Forbidden trailers\n\nThe names are forbidden in any spelling that a backend may fold onto them. The front door drops such a trailer, and answers a request that announces one with 400.\n\n")
	line("names", "source")
	line("---", "---")
	for _, r := range forbiddenTrailers {
		names := slices.Clone(r.names)
		for i, n := range names {
			if strings.HasSuffix(n, "-") {
				names[i] = n + "*"
			}
		}
		line(strings.Join(names, ", "), r.source)
	}
	b.WriteString("\n## Fields that HTTP/2 forbids\n\n")
	line("field", "source")
	line("---", "---")
	for _, r := range connectionHeaders {
		line(r.bytes, r.source)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// printable is a set of bytes as documentation shows it: runs of more than two by their ends.
func printable(bytes string) string {
	sorted := []byte(bytes)
	slices.Sort(sorted)
	var parts []string
	show := func(c byte) string {
		if c > ' ' && c < 0x7f && c != '|' && c != '`' && c != '\\' {
			return "`" + string(c) + "`"
		}
		return fmt.Sprintf("0x%02x", c)
	}
	for i := 0; i < len(sorted); {
		j := i
		for j+1 < len(sorted) && sorted[j+1] == sorted[j]+1 {
			j++
		}
		if j > i+1 {
			parts = append(parts, show(sorted[i])+" to "+show(sorted[j]))
		} else {
			for _, c := range sorted[i : j+1] {
				parts = append(parts, show(c))
			}
		}
		i = j + 1
	}
	return strings.Join(parts, " ")
}
