package request

import (
	"errors"
	"fmt"
	"strings"
)

// Limits of a request target. They are far above the needs of real clients.
const (
	MaxPathBytes       = 8 << 10
	MaxSegmentBytes    = 2 << 10
	MaxQueryBytes      = 64 << 10
	MaxQueryParameters = 1000
)

// MaxEscapes is how many times the tail of a path may be escaped: %2F is a slash escaped once, %252F twice.
const MaxEscapes = 3

// CheckTarget returns an error for a request target that two parsers may interpret differently.
//
// rawPath and rawQuery are the bytes of the request line, before any decoding. The authorized path is, byte for byte,
// the path that a backend receives (CVE-2022-3162 and its family; attack rows A16, A17 and A21). Dot segments,
// backslashes, control bytes, path parameters and unneeded escapes are refused everywhere. Escaped slashes, escaped
// percent signs and empty segments are accepted only in the tail of a path, after the subresource. No authorization
// attribute depends on the tail. Queries that parsers are known to interpret differently are refused.
func CheckTarget(rawPath, rawQuery string) error {
	if err := checkPath(rawPath); err != nil {
		return err
	}
	return checkQuery(rawQuery)
}

func checkPath(raw string) error {
	switch {
	case raw == "" || raw[0] != '/':
		return errors.New("the path must begin with a slash")
	case len(raw) > MaxPathBytes:
		return fmt.Errorf("the path is longer than %d bytes", MaxPathBytes)
	}
	if ordinary(raw) {
		return nil
	}
	err := checkSegments(raw)
	if err == nil {
		return nil
	}
	attributes, tail := splitTail(raw)
	switch {
	case tail == "":
		return err
	case attributes[len(attributes)-1] == '/':
		return errEmptySegment
	}
	if err := checkSegments(attributes); err != nil {
		return err
	}
	return checkTail(tail)
}

var errEmptySegment = errors.New("the path has an empty segment")

// checkSegments checks a path without a tail, or the part before the tail.
func checkSegments(raw string) error {
	// One trailing slash is accepted: clients use /apis/ and /healthz/, and all parsers interpret it the same way.
	trimmed := strings.TrimSuffix(raw[1:], "/")
	if trimmed == "" {
		if raw == "/" {
			return nil
		}
		return errEmptySegment
	}
	for segment := range strings.SplitSeq(trimmed, "/") {
		if err := checkSegment(segment); err != nil {
			return err
		}
	}
	return nil
}

// ordinary reports whether a path needs no further checks: it has short segments of letters, digits, dashes and dots,
// which are not empty and do not begin with a dot.
func ordinary(raw string) bool {
	if len(raw) > MaxSegmentBytes || raw[len(raw)-1] == '/' {
		return false
	}
	slash := false
	for i := range len(raw) {
		c := raw[i]
		switch {
		case 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || 'A' <= c && c <= 'Z':
			slash = false
		case slash:
			return false
		case c == '/':
			slash = true
		case c != '.':
			return false
		}
	}
	return true
}

func checkSegment(segment string) error {
	switch {
	case segment == "":
		return errEmptySegment
	case len(segment) > MaxSegmentBytes:
		return fmt.Errorf("a path segment is longer than %d bytes", MaxSegmentBytes)
	case segment == "." || segment == "..":
		return fmt.Errorf("the path has a dot segment %q", segment)
	}
	return checkBytes(segment, "")
}

// checkBytes checks each byte and each escape of a segment. The escapes of the bytes in allowed are accepted.
func checkBytes(segment, allowed string) error {
	for i := 0; i < len(segment); i++ {
		c := segment[i]
		switch {
		case c < 0x20 || c == 0x7f:
			return errors.New("the path has a control byte")
		case c == '\\' || c == ';' || c == '#' || c == '?':
			// Clients do not send fragments. A backend that removes one would read a different path than the
			// authorized one.
			return fmt.Errorf("the path has a %q", c)
		case c >= 0x80:
			return errors.New("the path has a byte that is not ASCII; escape it")
		case c != '%':
			continue
		}
		decoded, err := decodeEscape(segment[i:])
		if err != nil {
			return err
		}
		if strings.IndexByte(allowed, decoded) < 0 {
			if err := checkEscaped(decoded); err != nil {
				return err
			}
		}
		i += 2
	}
	return nil
}

// decodeEscape decodes the escape at the start of s, in canonical upper case or in the lower case that many clients
// use. Both encode the same byte, and neither is changed on the way to a backend.
func decodeEscape(s string) (byte, error) {
	if len(s) < 3 {
		return 0, errors.New("the path has an incomplete escape")
	}
	hi, ok1 := unhex(s[1])
	lo, ok2 := unhex(s[2])
	if !ok1 || !ok2 {
		return 0, fmt.Errorf("the path has a malformed escape %q", s[:3])
	}
	return hi<<4 | lo, nil
}

// checkEscaped refuses escapes that a parser could interpret as structure, and escapes of bytes that never need one,
// which are only used to evade comparisons.
func checkEscaped(c byte) error {
	switch {
	case c == '/' || c == '\\' || c == '%' || c == ';' || c == '.':
		return fmt.Errorf("the path has an escaped %q", c)
	case c < 0x20 || c == 0x7f:
		return errors.New("the path has an escaped control byte")
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c == '~':
		return fmt.Errorf("the path has a needless escape of %q", c)
	}
	return nil
}

func checkQuery(raw string) error {
	if len(raw) > MaxQueryBytes {
		return fmt.Errorf("the query is longer than %d bytes", MaxQueryBytes)
	}
	if raw == "" {
		return nil
	}
	if n := strings.Count(raw, "&") + 1; n > MaxQueryParameters {
		return fmt.Errorf("the query has more than %d parameters", MaxQueryParameters)
	}
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		switch {
		case c <= 0x20 || c == 0x7f:
			return errors.New("the query has a blank or a control byte; escape it")
		case c == ';':
			// Go drops such parameters and other parsers split at them, so the two sides of a proxy would disagree.
			return errors.New("the query has a semicolon; escape it as %3B")
		case c == '#':
			return errors.New("the query has a '#'; escape it as %23")
		case c == '%':
			if len(raw)-i < 3 {
				return errors.New("the query has an incomplete escape")
			}
			if _, ok := unhex(raw[i+1]); !ok {
				return fmt.Errorf("the query has a malformed escape %q", raw[i:i+3])
			}
			if _, ok := unhex(raw[i+2]); !ok {
				return fmt.Errorf("the query has a malformed escape %q", raw[i:i+3])
			}
			i += 2
		}
	}
	return checkSingleValued(raw)
}

// singleValued are the parameters of which Kubernetes reads one value. If repeated, two servers may read different
// values.
var singleValued = map[string]bool{
	"watch": true, "resourceVersion": true, "resourceVersionMatch": true, "limit": true, "continue": true,
	"labelSelector": true, "fieldSelector": true, "timeoutSeconds": true, "allowWatchBookmarks": true,
	"sendInitialEvents": true, "fieldManager": true, "fieldValidation": true, "force": true,
}

func checkSingleValued(raw string) error {
	var seen map[string]bool
	for pair := range strings.SplitSeq(raw, "&") {
		name, _, _ := strings.Cut(pair, "=")
		if !singleValued[name] {
			continue
		}
		if seen[name] {
			return fmt.Errorf("the query names %q more than once", name)
		}
		if seen == nil {
			seen = make(map[string]bool, 4)
		}
		seen[name] = true
	}
	return nil
}

func unhex(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}
