package dispatch

import (
	"net/http"
	"net/url"

	"portico.dev/internal/filters"
)

// plainRead returns the query of a get or list whose response does not depend on earlier responses: a request without
// preconditions, ranges and exact resource versions. It returns false for other requests.
func plainRead(r *filters.Request, longRunning []string) (query url.Values, plain bool) {
	info := r.Info
	if r.Method != http.MethodGet || info.Verb != "get" && info.Verb != "list" || r.LongRunning || isLongRunning(r, longRunning) ||
		r.ContentLength != 0 || len(r.TransferEncoding) > 0 {
		return nil, false
	}
	for _, name := range [...]string{"Upgrade", "Range", "If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since", "If-Range"} {
		if r.Header[name] != nil {
			return nil, false
		}
	}
	if r.URL.RawQuery == "" {
		return nil, true
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, false
	}
	version := query.Get("resourceVersion")
	return query, version == "" || version == "0"
}
