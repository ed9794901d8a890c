package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestGoawayChance(t *testing.T) {
	for _, c := range []float64{-0.1, 0.03, 1} {
		if _, err := goawayFilter(c, 0); err == nil {
			t.Errorf("goawayFilter(%g) returned no error, want an error", c)
		}
	}
	closed := func(chance float64, interval time.Duration, proto int) (n int) {
		wrap, err := goawayFilter(chance, interval)
		if err != nil {
			t.Fatal(err)
		}
		h := wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		for range 5000 {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.ProtoMajor = proto
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Header().Get("Connection") == "close" {
				n++
			}
		}
		return n
	}
	// The expected number is 100. The bounds are more than seven standard deviations away.
	if n := closed(MaxGoawayChance, 0, 2); n < 30 || n > 175 {
		t.Errorf("%d of 5000 HTTP/2 requests got Connection: close at a chance of one in fifty, want 30 to 175", n)
	}
	if n := closed(MaxGoawayChance, 0, 1); n != 0 {
		t.Errorf("%d of 5000 HTTP/1.1 requests got Connection: close, want 0", n)
	}
	if n := closed(0, 0, 2); n != 0 {
		t.Errorf("%d of 5000 requests got Connection: close at a chance of 0, want 0", n)
	}
	if n := closed(MaxGoawayChance, time.Hour, 2); n != 1 {
		t.Errorf("%d of 5000 requests got Connection: close within an interval, want 1", n)
	}
	synctest.Test(t, func(t *testing.T) {
		wrap, err := goawayFilter(MaxGoawayChance, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		h := wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		n := 0
		for range 60 { // seconds
			for range 500 { // 10 of them are expected
				r := httptest.NewRequest(http.MethodGet, "/", nil)
				r.ProtoMajor = 2
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				if w.Header().Get("Connection") == "close" {
					n++
				}
			}
			time.Sleep(time.Second)
		}
		if n != 6 {
			t.Errorf("%d requests got Connection: close in a minute at an interval of ten seconds, want 6", n)
		}
	})
}

func TestStrictTransportSecurity(t *testing.T) {
	for name, c := range map[string]struct {
		directives []string
		want, err  string
	}{
		"none":          {},
		"an age":        {directives: []string{"max-age=31536000"}, want: "max-age=31536000"},
		"all":           {directives: []string{"max-age=1", "includeSubDomains", "preload"}, want: "max-age=1; includeSubDomains; preload"},
		"no age":        {directives: []string{"preload"}, err: "needs max-age"},
		"a wrong one":   {directives: []string{"max-age=1", "forever"}, err: `"forever"`},
		"a line broken": {directives: []string{"max-age=1\r\nX: y"}, err: "none of"},
	} {
		wrap, err := hstsFilter(c.directives)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("hstsFilter(%q) error = %v, want an error that contains %q", c.directives, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("hstsFilter(%q) failed for %s: %v, want no error", c.directives, name, err)
			continue
		}
		w := httptest.NewRecorder()
		wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		if got := w.Header().Get("Strict-Transport-Security"); got != c.want {
			t.Errorf("Strict-Transport-Security of %s = %q, want %q", name, got, c.want)
		}
	}
}
