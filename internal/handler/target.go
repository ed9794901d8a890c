package handler

import (
	"net/url"
	"strings"
)

// ParseTarget is url.ParseRequestURI, which costs more.
func ParseTarget(target string, u *url.URL) error {
	if plainTarget(target, u) {
		return nil
	}
	parsed, err := url.ParseRequestURI(target)
	if err != nil {
		return err
	}
	*u = *parsed
	return nil
}

// plainTarget is ParseTarget for a path with nothing special in it, and any query.
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
	for i := range len(query) {
		if query[i] < ' ' || query[i] == 0x7f {
			return false
		}
	}
	u.Path, u.RawQuery, u.ForceQuery = path, query, asked && query == ""
	return true
}
