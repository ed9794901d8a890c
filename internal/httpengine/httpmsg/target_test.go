package httpmsg

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// An accepted target has the same parts as in net/url and contains no whitespace.
func FuzzParseTarget(f *testing.F) {
	for _, target := range []string{"/", "/api/v1/pods?watch=1", "//x/y", "/a?", "/a??", "/a?b?", "/a%20b", "/a b", "/ü", "/a#b", "/a?b#c", "/a:b", "/a;b", "*",
		"/a?\x7f", "/a?\n", "/~a_b-c.d", "https://a:1/b?c", "http://[::1]", "https://a", "https://u@a/", "/x HTTP/1.1", "/a?%zz", "urn:a:b"} {
		f.Add(target)
	}
	f.Fuzz(func(t *testing.T, target string) {
		var got url.URL
		if ParseTarget(http.MethodGet, target, &got) != nil {
			return
		}
		want, err := url.ParseRequestURI(target)
		if err != nil || got != *want {
			t.Errorf("ParseTarget(%q) = %#v, want %#v, error %v", target, got, want, err)
		}
		if words := strings.FieldsFunc(target, func(r rune) bool { return r <= ' ' || r >= 0x7f }); len(words) != 1 || words[0] != target {
			t.Errorf("accepted target %q contains whitespace or control characters, want an error", target)
		}
	})
}
