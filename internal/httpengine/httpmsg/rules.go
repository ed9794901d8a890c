// Package httpmsg contains the common parts of HTTP/1.1 and HTTP/2. A handler must receive the same request with both
// versions. The rules for the parts of a request also apply to clients, which forward requests.
package httpmsg

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// The bytes that the parts of a request may contain. Both servers refuse other bytes (400), and both clients refuse to send
// them: a value in one protocol may be structure in the other. A space in the :path of HTTP/2 would end the target of an
// HTTP/1.1 request line, and the rest would be read as the version.
//
// Each part has rules, each with the section that specifies it, and a table of 256 entries built from them. A rule that
// departs from the grammar includes the reason.

// Element is a part of a request.
type Element struct {
	name    string
	rows    []rule
	allowed [256]bool
}

// rule is a set of allowed bytes with its specification.
type rule struct{ bytes, source string }

const (
	letters    = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	digits     = "0123456789"
	unreserved = letters + digits + "-._~"
	subDelims  = "!$&'()*+,;="
	unwise     = "[]^`{|}"
)

var (
	// Method is a case-sensitive token.
	Method = newElement("method", rule{"!#$%&'*+-.^_`|~" + digits + letters, "RFC 9110, 9.1 and 5.6.2: tchar"})

	// FieldName is a token. In HTTP/2 it is in lower case (RFC 9113, section 8.2.1), which the HTTP/2 decoder checks.
	FieldName = newElement("field name", rule{"!#$%&'*+-.^_`|~" + digits + letters, "RFC 9110, 5.1 and 5.6.2: tchar"})

	// FieldValue is a value without the blanks and tabs at its ends, which both servers remove.
	FieldValue = newElement("field value",
		rule{byteRange(0x21, 0x7e), "RFC 9110, 5.5: VCHAR"},
		rule{byteRange(0x80, 0xff), "RFC 9110, 5.5: obs-text, opaque, passed on unchanged"},
		rule{" \t", "RFC 9110, 5.5: SP and HTAB between other bytes"})

	// Path is the path of a target. It begins with a slash.
	Path = newElement("path",
		rule{"/", "RFC 3986, 3.3: between segments"},
		rule{unreserved, "RFC 3986, 3.3 pchar, 2.3: unreserved"},
		rule{subDelims, "RFC 3986, 3.3 pchar, 2.2: sub-delims"},
		rule{":@", "RFC 3986, 3.3: pchar"},
		rule{"%", "RFC 3986, 2.1: before two hexadecimal digits, which are checked too"},
		rule{unwise, "RFC 2396, 2.4.3: unwise; clients send them unescaped (WHATWG URL, 1.3), and every parser reads them in the same way"})

	// Query is the part of a target after the first question mark.
	Query = newElement("query",
		rule{"/?", "RFC 3986, 3.4"},
		rule{unreserved, "RFC 3986, 3.4 pchar, 2.3: unreserved"},
		rule{subDelims, "RFC 3986, 3.4 pchar, 2.2: sub-delims"},
		rule{":@", "RFC 3986, 3.4: pchar"},
		rule{"%", "RFC 3986, 2.1: before two hexadecimal digits, which are checked too"},
		rule{unwise + `\`, "RFC 2396, 2.4.3: unwise; as in a path. Some parsers treat a backslash in a path as a slash; none does so in a query"},
		rule{`"<>`, "RFC 2396, 2.4.3: delims; command-line clients send them unescaped, and they have no meaning in a request"})

	// Authority is the host of a request and its port: Host, :authority, or the target of CONNECT.
	Authority = newElement("authority",
		rule{unreserved, "RFC 3986, 3.2.2: reg-name; RFC 1035, 2.3.1. DNS names contain no sub-delims and no escapes; readers of X-Forwarded-Host treat a comma as a list separator"},
		rule{":", "RFC 3986, 3.2.3: before the port, and in an IPv6 address"},
		rule{"[]", "RFC 3986, 3.2.2: around an IPv6 address"})
)

func newElement(name string, rows ...rule) *Element {
	e := &Element{name: name, rows: rows}
	for _, r := range rows {
		for i := range len(r.bytes) {
			e.allowed[r.bytes[i]] = true
		}
	}
	return e
}

func byteRange(first, last byte) string {
	b := make([]byte, 0, int(last-first)+1)
	for c := int(first); c <= int(last); c++ {
		b = append(b, byte(c))
	}
	return string(b)
}

// Allows reports whether e may contain the byte c.
func (e *Element) Allows(c byte) bool { return e.allowed[c] }

// RequestError is the error for a request that HTTP, or one of its versions, cannot carry. It is an error of the sender.
type RequestError struct {
	// Element is the invalid part of the request.
	Element string
	// Reason is a sentence for the sender. It does not contain unprintable bytes of the request.
	Reason string
	// Code is the status code of the response. 0 means 400.
	Code int
}

// Status returns the status code of the response.
func (e *RequestError) Status() int {
	return cmp.Or(e.Code, http.StatusBadRequest)
}

func (e *RequestError) Error() string { return e.Reason }

func (e *Element) errorf(format string, args ...any) *RequestError {
	return &RequestError{Element: e.name, Reason: "the " + e.name + " of the request " + fmt.Sprintf(format, args...)}
}

// checkBytes returns nil if e may contain all bytes of s.
func (e *Element) checkBytes(s string) error {
	for i := range len(s) {
		if !e.allowed[s[i]] {
			return e.errorf("has the byte 0x%02x at offset %d, which it cannot have", s[i], i)
		}
	}
	return nil
}

// checkEscaped is checkBytes for elements with percent-encoding.
func (e *Element) checkEscaped(s string) error {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case !e.allowed[c]:
			return e.errorf("has the byte 0x%02x at offset %d, which must be escaped as %%%02X", c, i, c)
		case c != '%':
		case len(s)-i < 3 || !isHex(s[i+1]) || !isHex(s[i+2]):
			return e.errorf("has a percent sign at offset %d that begins no escape; a percent sign itself is %%25", i)
		default:
			i += 2
		}
	}
	return nil
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// CheckMethod returns nil for a valid method. All errors in this file are *RequestError.
func CheckMethod(s string) error {
	if s == "" {
		return Method.errorf("is empty")
	}
	if len(s) > MaxMethod {
		return tooLongError(Method.name)
	}
	return Method.checkBytes(s)
}

// IsToken reports whether s is a valid field name.
func IsToken(s string) bool {
	for i := range len(s) {
		if !FieldName.allowed[s[i]] {
			return false
		}
	}
	return s != ""
}

// CheckField returns nil for a field that a request may have.
func CheckField(name, value string) error {
	if !IsToken(name) {
		return FieldName.errorf("%q is not a token", name)
	}
	if !ValidFieldValue(value) {
		return FieldValue.errorf("%s has a control byte", name)
	}
	if value != TrimBlanks(value) {
		return FieldValue.errorf("%s begins or ends with a blank", name)
	}
	return CheckLengths(name, value)
}

// ValidFieldValue reports whether v is a valid field value. It checks eight bytes at a time, because credentials are long.
func ValidFieldValue(v string) bool {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	i := 0
	var word [8]byte
	for ; i+8 <= len(v); i += 8 {
		copy(word[:], v[i:])
		x := binary.LittleEndian.Uint64(word[:])
		del := x ^ 0x7f*ones
		// The expression marks bytes below 0x20, 0x7f, and possibly other bytes because of a borrow.
		if ((x-0x20*ones)&^x|(del-ones)&^del)&high != 0 && FieldValue.checkBytes(v[i:i+8]) != nil {
			return false
		}
	}
	for ; i < len(v); i++ {
		if !FieldValue.allowed[v[i]] {
			return false
		}
	}
	return true
}

// TrimBlanks removes only blanks and tabs from the ends of a value. Unlike in some parsers, a CR is not a blank.
func TrimBlanks(s string) string {
	for s != "" && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for s != "" && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}

// CheckAuthority returns nil for a host with or without a port, and for an empty string, which represents a request without
// a host (RFC 9112, section 3.2). A user before the host is refused (RFC 9110, section 4.2.4; RFC 9113, section 8.3.1).
func CheckAuthority(s string) error {
	if err := Authority.checkBytes(s); err != nil || s == "" {
		return err
	}
	if len(s) > MaxAuthority {
		return tooLongError(Authority.name)
	}
	host, port := s, ""
	if s[0] == '[' {
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return Authority.errorf("has a bracket that does not close")
		}
		if a, err := netip.ParseAddr(s[1:end]); err != nil || !a.Is6() {
			return Authority.errorf("has brackets about what is no IPv6 address")
		}
		if host, port = s[:end+1], s[end+1:]; port != "" && port[0] != ':' {
			return Authority.errorf("has more than a port after its address")
		}
	} else if i := strings.IndexByte(s, ':'); i >= 0 {
		host, port = s[:i], s[i:]
	}
	if host == "" || s[0] != '[' && strings.ContainsAny(host, "[]") {
		return Authority.errorf("has no host, or one that is none")
	}
	if port == "" || port == ":" {
		return nil
	}
	if len(port) > len(":65535") || strings.Trim(port[1:], digits) != "" {
		return Authority.errorf("has a port that is no number of up to five digits")
	}
	return nil
}

// CheckPath returns nil for a valid path of a target.
func CheckPath(s string) error {
	if s == "" || s[0] != '/' {
		return Path.errorf("does not begin with a slash")
	}
	return Path.checkEscaped(s)
}

// CheckQuery returns nil for a valid query of a target, without its question mark.
func CheckQuery(s string) error { return Query.checkEscaped(s) }

// ParseTarget parses the target of a request (RFC 9112, section 3.2; RFC 9113, sections 8.3.1 and 8.5): an authority with
// its port for CONNECT, an asterisk for OPTIONS, otherwise a path or the URL of a host.
func ParseTarget(method, target string, u *url.URL) error {
	switch {
	case len(target) > MaxTarget:
		return tooLongError("target")
	case method == http.MethodConnect:
		if err := CheckAuthority(target); err != nil {
			return err
		}
		if i := strings.LastIndexByte(target, ':'); i < 0 || i == len(target)-1 || target[len(target)-1] == ']' {
			return Authority.errorf("has no port, which CONNECT needs")
		}
		u.Host = target
		return nil
	case target == "*":
		if method != http.MethodOptions {
			return Path.errorf("is an asterisk, which only OPTIONS may have")
		}
		u.Path = "*"
		return nil
	}
	if parseSimpleTarget(target, u) {
		return nil
	}
	if err := checkTarget(target); err != nil {
		return err
	}
	parsed, err := url.ParseRequestURI(target)
	if err != nil {
		return Path.errorf("cannot be read")
	}
	*u = *parsed
	return nil
}

// checkTarget checks a path with its query, optionally preceded by a scheme and a host.
func checkTarget(target string) error {
	if target == "" || target[0] != '/' {
		scheme, rest, ok := strings.Cut(target, "://")
		if !ok || !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https") {
			return Path.errorf("does not begin with a slash")
		}
		end := strings.IndexAny(rest, "/?")
		if end < 0 {
			end = len(rest)
		}
		if err := CheckAuthority(rest[:end]); err != nil {
			return err
		}
		if end == 0 {
			return Authority.errorf("is empty")
		}
		if target = rest[end:]; target == "" || target[0] == '?' {
			target = "/" + target
		}
	}
	path, query, _ := strings.Cut(target, "?")
	if err := CheckPath(path); err != nil {
		return err
	}
	return CheckQuery(query)
}

// CheckRequest returns nil for a request that both versions of HTTP can carry. Clients call it before they send a request.
func CheckRequest(r *http.Request) error {
	if r.URL == nil {
		return Path.errorf("is missing: there is no URL")
	}
	if r.Method == http.MethodConnect {
		return Method.errorf("is CONNECT, which is not sent")
	}
	if r.Method != "" { // empty means GET
		if err := CheckMethod(r.Method); err != nil {
			return err
		}
	}
	host := cmp.Or(r.Host, r.URL.Host)
	ascii, err := httpguts.PunycodeHostPort(host)
	if err != nil {
		return Authority.errorf("is no name")
	}
	if err := CheckAuthority(ascii); err != nil {
		return err
	}
	if err := checkURL(r); err != nil {
		return err
	}
	fields := 0
	for name, values := range r.Header {
		if fields += len(values); fields > MaxFieldsSent {
			return &RequestError{Element: "fields", Code: http.StatusRequestHeaderFieldsTooLarge, Reason: fmt.Sprintf("the request has more than %d header fields", MaxFieldsSent)}
		}
		for _, value := range values {
			if err := CheckField(name, value); err != nil {
				return err
			}
		}
		if len(values) == 0 && !IsToken(name) {
			return FieldName.errorf("%q is not a token", name)
		}
	}
	return checkTrailers(r.Trailer)
}

func checkTrailers(h http.Header) error {
	if len(h) > MaxTrailers {
		return tooLongError("trailers")
	}
	for name := range h {
		if !ValidTrailer(name) {
			return &RequestError{Element: "trailers", Reason: fmt.Sprintf("the request has a trailer %q, which must not be one", name)}
		}
	}
	return nil
}

// checkURL checks the target in its written form, without building a string.
func checkURL(r *http.Request) error {
	u := r.URL
	path := u.Opaque
	switch {
	case path == "":
		if path = u.EscapedPath(); path == "" {
			path = "/"
		}
	case strings.HasPrefix(path, "//"): // consists of a host and a path: (*url.URL).RequestURI
		path = u.Scheme + ":" + path
	}
	if path == "*" {
		if r.Method != http.MethodOptions {
			return Path.errorf("is an asterisk, which only OPTIONS may have")
		}
	} else if err := checkTargetPath(path); err != nil {
		return err
	}
	if len(path)+len("?")+len(u.RawQuery) > MaxTarget {
		return tooLongError("target")
	}
	return CheckQuery(u.RawQuery)
}

func checkTargetPath(path string) error {
	if path[0] == '/' {
		return Path.checkEscaped(path)
	}
	if strings.IndexByte(path, '?') >= 0 {
		return Path.errorf("has a question mark")
	}
	return checkTarget(path)
}

// FoldByte folds a byte of a field name like the most careless backends. CGI (RFC 3875, section 4.1.18) and its successors
// convert names to variable names: letters lose their case, and all bytes other than letters and digits become the same
// byte (CVE-2025-64484 and similar; attack row A8).
func FoldByte(c byte) byte { return foldTable[c] }

var foldTable = func() (t [256]byte) {
	for c := range t {
		switch c := byte(c); {
		case 'A' <= c && c <= 'Z':
			t[c] = c + 'a' - 'A'
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
			t[c] = c
		default:
			t[c] = '-'
		}
	}
	return t
}()

// HasFoldedPrefix reports whether the folded name begins with the folded prefix. It does not allocate.
func HasFoldedPrefix(name, prefix string) bool {
	if len(name) < len(prefix) {
		return false
	}
	for i := range len(prefix) {
		if foldTable[name[i]] != foldTable[prefix[i]] {
			return false
		}
	}
	return true
}

// parseSimpleTarget is ParseTarget for a path of plain characters with any query, the form of nearly all targets.
// url.ParseRequestURI costs more.
func parseSimpleTarget(target string, u *url.URL) bool {
	if target == "" || target[0] != '/' {
		return false
	}
	path, query, asked := strings.Cut(target, "?")
	for i := range len(path) {
		c := path[i]
		plain := c >= 'a' && c <= 'z' || c >= '-' && c <= '9' || c >= 'A' && c <= 'Z' || c == '_' || c == '~'
		if !plain {
			return false
		}
	}
	if CheckQuery(query) != nil {
		return false
	}
	u.Path, u.RawQuery, u.ForceQuery = path, query, asked && query == ""
	return true
}
