package serve

import (
	"net/url"
	"strings"
)

// address fills in what the request is for.
func (st *stream) address(h *head) error {
	st.req.URL, st.req.RequestURI = &st.url, h.path
	if h.method == "CONNECT" {
		st.url.Host, st.req.RequestURI = h.authority, h.authority
		return nil
	}
	if plainTarget(h.path, &st.url) {
		return nil
	}
	u, err := url.ParseRequestURI(h.path)
	if err != nil {
		return malformed("a path that is none")
	}
	st.url = *u
	return nil
}

// plainTarget is url.ParseRequestURI for a path with nothing special in it, and any query.
func plainTarget(target string, u *url.URL) bool {
	if target[0] != '/' {
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
	for i := range len(query) {
		if query[i] < ' ' || query[i] == 0x7f {
			return false
		}
	}
	u.Path, u.RawQuery, u.ForceQuery = path, query, asked && query == ""
	return true
}
