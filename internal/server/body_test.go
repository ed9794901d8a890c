package server

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"portico.dev/internal/respond"
)

// A body that does not come ends with the request's deadline, over both protocols, and the client is told.
func TestABodyThatDoesNotComeEndsWithTheDeadline(t *testing.T) {
	b := newBench("alice *")
	b.handler = ForLocal(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			respond.Error(w, r, err)
			return
		}
		_, _ = w.Write(body)
	})).ServeHTTP
	l := b.listen(t, 30*time.Second)
	for _, h2 := range []bool{true, false} {
		ask := func(timeout string, body io.Reader) (int, string) {
			t.Helper()
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+l.address+"/api/v1/namespaces/n/configmaps?timeout="+timeout, body)
			r.Header.Set("Test-User", "alice")
			res, err := l.client(t, h2).Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			text, _ := io.ReadAll(res.Body) // what came is what is looked at
			return res.StatusCode, string(text)
		}
		if code, text := ask("20s", strings.NewReader("whole")); code != http.StatusOK || text != "whole" {
			t.Errorf("HTTP/2 %t: a body that comes: %d %s", h2, code, text)
		}
		slow, send := io.Pipe()
		go func() { _, _ = send.Write([]byte("some")) }()
		code, text := ask("200ms", slow)
		_ = send.Close()
		if code != http.StatusGatewayTimeout || !strings.Contains(text, `"reason":"Timeout"`) || !strings.Contains(text, "did not come before the deadline") {
			t.Errorf("HTTP/2 %t: a body that does not come: %d %s", h2, code, text)
		}
	}
}
