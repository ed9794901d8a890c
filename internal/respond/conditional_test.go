package respond

import (
	"net/http"
	"testing"
)

func with(name, value string) *http.Request {
	return &http.Request{Header: http.Header{name: {value}}}
}

func TestETagMatches(t *testing.T) {
	for header, want := range map[string]bool{
		`"A"`: true, `W/"A"`: true, `*`: true, `"B", "A"`: true, `"B",W/"A"`: true, ` "A" `: true,
		`"B"`: false, `A`: false, `"a"`: false, `w/"A"`: false, ``: false, `"AA"`: false,
	} {
		if got := ETagMatches(with("If-None-Match", header), `"A"`); got != want {
			t.Errorf("ETagMatches(%q) = %v, want %v", header, got, want)
		}
	}
	if ETagMatches(&http.Request{}, `"A"`) {
		t.Error("ETagMatches without If-None-Match = true, want false")
	}
}

func TestAcceptsGzip(t *testing.T) {
	for header, want := range map[string]bool{
		"gzip": true, "GZIP": true, "br, gzip;q=0.5": true, "*": true, "deflate,gzip": true,
		"": false, "br": false, "gzip;q=0": false, "gzip; q=0.0": false, "identity": false, "gzip;q=NaN": false,
	} {
		if got := AcceptsGzip(with("Accept-Encoding", header)); got != want {
			t.Errorf("AcceptsGzip(%q) = %v, want %v", header, got, want)
		}
	}
}

func FuzzConditionalHeaders(f *testing.F) {
	f.Add(`W/"A", *`)
	f.Add("gzip;q=1e999")
	f.Fuzz(func(t *testing.T, header string) {
		ETagMatches(with("If-None-Match", header), `"A"`)
		AcceptsGzip(with("Accept-Encoding", header))
		if q := quality(header); !(q >= 0 && q <= 1) {
			t.Errorf("quality(%q) = %v, want 0 to 1", header, q)
		}
	})
}
