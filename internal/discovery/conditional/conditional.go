// Package conditional reads the request headers that decide whether prepared bytes are sent and in which encoding:
// If-None-Match and Accept-Encoding.
package conditional

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Holds reports whether the request's If-None-Match matches the ETag: strong or weak, alone or in a list, or any with "*".
// Upstream compares the whole header with the tag, so that a proxy that weakens tags makes it send the document again.
func Holds(r *http.Request, etag string) bool {
	for _, header := range r.Header.Values("If-None-Match") {
		for tag := range strings.SplitSeq(header, ",") {
			tag = strings.TrimSpace(tag)
			if tag == "*" || strings.TrimPrefix(tag, "W/") == etag {
				return true
			}
		}
	}
	return false
}

// TakesGzip reports whether the request's Accept-Encoding allows gzip.
func TakesGzip(r *http.Request) bool {
	return slices.ContainsFunc(strings.Split(strings.Join(r.Header.Values("Accept-Encoding"), ","), ","), func(clause string) bool {
		coding, params, _ := strings.Cut(clause, ";")
		coding = strings.ToLower(strings.TrimSpace(coding))
		if coding != "gzip" && coding != "*" {
			return false
		}
		q, ok := strings.CutPrefix(strings.ReplaceAll(params, " ", ""), "q=")
		return !ok || Quality(q) > 0
	})
}

// Quality parses the weight of a clause: 1 when empty, 0 when invalid.
func Quality(q string) float64 {
	if q == "" {
		return 1
	}
	v, err := strconv.ParseFloat(q, 64)
	if err != nil || !(v >= 0 && v <= 1) {
		return 0
	}
	return v
}
