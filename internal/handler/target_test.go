package handler

import (
	"net/url"
	"testing"
)

// What plainTarget takes, it takes apart as the library does.
func FuzzPlainTarget(f *testing.F) {
	for _, target := range []string{"/", "/api/v1/pods?watch=1", "//x/y", "/a?", "/a??", "/a?b?", "/a%20b", "/a b", "/ü", "/a#b", "/a?b#c", "/a:b", "/a;b", "*", "/a?\x7f", "/a?\n", "/~a_b-c.d"} {
		f.Add(target)
	}
	f.Fuzz(func(t *testing.T, target string) {
		var got url.URL
		if target == "" || !plainTarget(target, &got) {
			return
		}
		want, err := url.ParseRequestURI(target)
		if err != nil || got != *want {
			t.Errorf("%q: %#v, want %#v, %v", target, got, want, err)
		}
	})
}
