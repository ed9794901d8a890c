package httpmsg

import (
	"net/url"
	"strings"
)

// plainTarget is ParseTarget for a path with nothing special in it, and any query: nearly all are so, and the library costs
// more.
func plainTarget(target string, u *url.URL) bool {
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
