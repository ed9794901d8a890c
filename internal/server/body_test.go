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

// A body that does not come ends with the request's deadline, over both protocols, and the client is told.
func TestABodyThatDoesNotComeEndsWithTheDeadline(t *testing.T) {
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

// A body that is none is its sender's fault.
func TestBrokenRequestBodyIsReported(t *testing.T) {
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
	text, _ := io.ReadAll(res.Body) // what came is what is looked at
	if res.StatusCode != http.StatusBadRequest || !strings.Contains(string(text), `"reason":"BadRequest"`) {
		t.Errorf("%s %s", res.Status, text)
	}
}
