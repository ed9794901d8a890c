package server

import (
	"io"
	"net/http"
	"strconv"
	"testing"
)

// A39: a response without a body has no length, no coding and no DATA, independent of its handler.
func TestA39BodilessResponsesHaveNoLength(t *testing.T) {
	s := start(t, Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code, _ := strconv.Atoi(r.URL.Path[1:])
		h := w.Header()
		h.Set("Content-Length", "5")
		h.Set("Transfer-Encoding", "trailers")
		h.Set("X-Kept", "it")
		if code < 200 {
			w.WriteHeader(code)
			h.Del("Content-Length")
			code = http.StatusOK
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, "hello")
	})})
	for i, status := range []string{"204", "304", "103", "204"} {
		p := s.dial(t)
		p.open(1, true, ":method", []string{"GET", "GET", "GET", "HEAD"}[i], ":scheme", "https", ":authority", "a", ":path", "/"+status)
		seen := p.answers()
		got := seen.wait(1)
		want := ""
		if status == "103" {
			if len(got.interim) != 1 || got.interim[0] != status {
				t.Errorf("status %s: interim responses = %q, want %s", status, got.interim, status)
			}
			status, want = "200", "hello"
		}
		if got.status != status || got.body != want || got.header.Get("X-Kept") != "it" || got.header.Get("Transfer-Encoding") != "" ||
			want == "" && got.header.Get("Content-Length") != "" {
			t.Errorf("response = %+v, want status %s and body %q without a length", got, status, want)
		}
	}
}
