package http1

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// A39: a response without a body has no length, no coding and no body bytes, independent of its handler. An interim response has no
// connection-specific fields.
func TestA39BodilessResponsesHaveNoLength(t *testing.T) {
	a := implementations[1].open(t, rules{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code, _ := strconv.Atoi(r.URL.Path[1:])
		h := w.Header()
		h.Set("Content-Length", "5")
		h.Set("Transfer-Encoding", "chunked")
		h.Set("Upgrade", "a")
		h.Set("Trailer", "A")
		if code < 200 {
			w.WriteHeader(code)
			code = http.StatusNoContent
		}
		h.Del("Upgrade")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, "hello")
	}))
	for _, status := range []string{"204", "304", "103"} {
		said := hear(t, a.dial(t), "GET /"+status+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		text := strings.ToLower(said)
		for _, never := range []string{"content-length", "transfer-encoding", "upgrade", "hello"} {
			if strings.Contains(text, never) {
				t.Errorf("response with status %s = %q, want it without %q", status, said, never)
			}
		}
		if !strings.HasPrefix(text, "http/1.1 "+status) || strings.HasPrefix(text, "http/1.1 103") && strings.Contains(strings.Split(text, "\r\n\r\n")[0], "trailer") {
			t.Errorf("response with status %s = %q, want this status and no trailer", status, said)
		}
	}
}
