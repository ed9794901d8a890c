// Package conditional reads the headers by which a client says what it has already and what it can read.
//
// Discovery and OpenAPI answer from bytes that were made before anybody asked: all that is left to do for a request is
// to find out whether they have to be sent, and in which form.
package conditional

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Holds reports whether the request's If-None-Match names the ETag: strong or weak, alone or in a list, or any with "*".
// Upstream compares the whole header with the tag; a proxy in between that weakens tags makes it send everything again.
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

// Quality reads the weight of a clause. None is 1, and what is no weight is 0.
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
