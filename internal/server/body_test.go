package server

import (
	"bufio"
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"portico.dev/internal/respond"
)

// A body that does not arrive ends with the request's deadline, over both protocols, and the client receives a Timeout status.
func TestMissingRequestBodyTimesOutAtDeadline(t *testing.T) {
	b := newBench("alice *")
	b.handler = ForLocal(nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
			text, _ := io.ReadAll(res.Body) // the test checks the part that arrived
			return res.StatusCode, string(text)
		}
		if code, text := ask("20s", strings.NewReader("whole")); code != http.StatusOK || text != "whole" {
			t.Errorf("POST with a complete body, HTTP/2 %t = %d %s, want 200 whole", h2, code, text)
		}
		slow, send := io.Pipe()
		go func() { _, _ = send.Write([]byte("some")) }()
		code, text := ask("200ms", slow)
		_ = send.Close()
		if code != http.StatusGatewayTimeout || !strings.Contains(text, `"reason":"Timeout"`) || !strings.Contains(text, "did not come before the deadline") {
			t.Errorf("POST with a body that stalls, HTTP/2 %t = %d %s, want 504 with the reason Timeout", h2, code, text)
		}
	}
}

// A malformed body results in a 400.
func TestMalformedRequestBodyReturns400(t *testing.T) {
	b := newBench("alice *")
	b.handler = ForLocal(nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			respond.Error(w, r, err)
		}
	})).ServeHTTP
	l := b.listen(t, 30*time.Second)
	c, err := tls.Dial("tcp", l.address, &tls.Config{RootCAs: l.roots, NextProtos: []string{"http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	_, err = io.WriteString(c, "POST /api/v1/namespaces/n/configmaps HTTP/1.1\r\nHost: a\r\nTest-User: alice\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\n")
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(res.Body) // the test checks the part that arrived
	if res.StatusCode != http.StatusBadRequest || !strings.Contains(string(text), `"reason":"BadRequest"`) {
		t.Errorf("POST with a malformed chunk = %s %s, want 400 with the reason BadRequest", res.Status, text)
	}
}
