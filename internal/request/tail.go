package request

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// splitTail splits a path after the last segment that determines an authorization attribute: the subresource of a
// resource. tail begins with a slash. It is empty for paths without a subresource, for non-resource paths, and for
// the deprecated forms /api/v1/watch/... and /api/v1/proxy/....
//
// The segments are split before decoding. If they contain no escaped slash, k8s.io/apiserver's RequestInfoFactory
// finds the same segments in the decoded path.
func splitTail(raw string) (attributes, tail string) {
	const most = 8 // /apis/GROUP/VERSION/namespaces/NAMESPACE/RESOURCE/NAME/SUBRESOURCE
	parts := strings.SplitN(raw[1:], "/", most+1)
	n := 2 // api/VERSION
	switch parts[0] {
	case "api":
	case "apis":
		n = 3
	default:
		return raw, ""
	}
	if len(parts) <= n || parts[n] == "watch" || parts[n] == "proxy" {
		return raw, ""
	}
	if parts[n] == "namespaces" && len(parts) > n+2 && parts[n+2] != "status" && parts[n+2] != "finalize" {
		n += 2
	}
	n += 3
	if len(parts) <= n {
		return raw, ""
	}
	end := n // one slash before each segment
	for _, part := range parts[:n] {
		end += len(part)
	}
	return raw[:end], raw[end:]
}

// checkTail checks a path after its subresource. The tail is forwarded unchanged, and the receiver may decode it more
// than once. Therefore it must not contain a dot segment or a control byte after any number of decodings.
func checkTail(tail string) error {
	for segment := range strings.SplitSeq(tail, "/") {
		if len(segment) > MaxSegmentBytes {
			return fmt.Errorf("a path segment is longer than %d bytes", MaxSegmentBytes)
		}
		if err := checkBytes(segment, "/%"); err != nil {
			return err
		}
	}
	for range MaxEscapes + 1 {
		if err := checkDecodedTail(tail); err != nil {
			return err
		}
		decoded := decodeOnce(tail)
		if decoded == tail {
			return nil
		}
		tail = decoded
	}
	return fmt.Errorf("the path is escaped more than %d times", MaxEscapes)
}

func checkDecodedTail(tail string) error {
	for i := range len(tail) {
		if tail[i] < 0x20 || tail[i] == 0x7f {
			return errors.New("the path has an escaped control byte")
		}
	}
	for segment := range strings.FieldsFuncSeq(tail, func(c rune) bool { return c == '/' || c == '\\' }) {
		if name, _, _ := strings.Cut(segment, ";"); name == "." || name == ".." {
			return fmt.Errorf("the path has a dot segment %q", segment)
		}
	}
	return nil
}

// decodeOnce decodes the escapes of s. A percent sign that does not begin an escape is kept.
func decodeOnce(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	decoded := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' {
			if c, err := decodeEscape(s[i:]); err == nil {
				decoded = append(decoded, c)
				i += 2
				continue
			}
		}
		decoded = append(decoded, s[i])
	}
	return string(decoded)
}

// customMetricsPrefix is the prefix of paths for custom metrics, which contain an object and its metric:
// pods/NAME/METRIC. Generated clients use a single parameter for this part and escape its slashes.
const customMetricsPrefix = "/apis/custom.metrics.k8s.io/"

var unescapeSlashes = strings.NewReplacer("%2F", "/", "%2f", "/")

// Canonicalize checks the target of r and returns r with the path that all later handlers use. rawPath and rawQuery
// are the target before decoding. If CheckTarget returns an error, Canonicalize returns r and that error.
func Canonicalize(r *http.Request, rawPath, rawQuery string) (*http.Request, error) {
	canonical := canonicalPath(rawPath)
	if err := CheckTarget(canonical, rawQuery); err != nil {
		return r, err
	}
	if canonical == rawPath {
		return r, nil
	}
	path, err := url.PathUnescape(canonical)
	if err != nil {
		return r, fmt.Errorf("decode the path: %w", err)
	}
	u := *r.URL
	u.Path, u.RawPath = path, canonical
	out := r.WithContext(r.Context())
	out.URL = &u
	if _, query, hasQuery := strings.Cut(r.RequestURI, "?"); hasQuery {
		out.RequestURI = canonical + "?" + query
	} else {
		out.RequestURI = canonical
	}
	return out, nil
}

// canonicalPath returns the path that replaces raw before any other processing.
//
// In a custom metrics path, an escaped slash in the part that determines authorization attributes is replaced by a
// slash, as kube-apiserver forwards it: pods%2F%2A%2Fmetric becomes pods/%2A/metric. So the authorized path is the
// path that a backend receives. Other paths are returned unchanged. CheckTarget checks the result.
func canonicalPath(raw string) string {
	if !strings.HasPrefix(raw, customMetricsPrefix) {
		return raw
	}
	attributes, _ := splitTail(raw)
	if !strings.Contains(attributes, "%2F") && !strings.Contains(attributes, "%2f") {
		return raw
	}
	return unescapeSlashes.Replace(raw)
}

// RawPath returns the path of u before decoding. (*url.URL).EscapedPath returns a different encoding for a path with
// bytes that RFC 3986 requires to be escaped, such as "|". In that encoding an escaped slash becomes a slash.
func RawPath(u *url.URL) string {
	if u.RawPath != "" {
		if decoded, err := url.PathUnescape(u.RawPath); err == nil && decoded == u.Path {
			return u.RawPath
		}
	}
	return u.EscapedPath()
}
