package respond

import (
	"net/http"
	"slices"
	"strings"
)

// ETagMatches reports whether the request's If-None-Match matches the ETag. It accepts strong and weak tags, lists,
// and "*". Upstream compares the whole header with the tag, so it resends the document if a proxy weakens the tag.
func ETagMatches(r *http.Request, etag string) bool {
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

// AcceptsGzip reports whether the request's Accept-Encoding allows gzip.
func AcceptsGzip(r *http.Request) bool {
	return slices.ContainsFunc(strings.Split(strings.Join(r.Header.Values("Accept-Encoding"), ","), ","), func(clause string) bool {
		coding, params, _ := strings.Cut(clause, ";")
		coding = strings.ToLower(strings.TrimSpace(coding))
		if coding != "gzip" && coding != "*" {
			return false
		}
		q, ok := strings.CutPrefix(strings.ReplaceAll(params, " ", ""), "q=")
		return !ok || quality(q) > 0
	})
}
