package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"portico.dev/pkg/frontdoor"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// backend serves notes.example.com/v1 to every client; the test does not check it.
func backend(t *testing.T) string {
	t.Helper()
	documents := map[string]string{
		"/apis/notes.example.com/v1": `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"notes.example.com/v1","resources":[` +
			`{"name":"notes","singularName":"note","namespaced":false,"kind":"Note","verbs":["get","list"]}]}`,
		"/apis/notes.example.com/v1/notes": `{"kind":"NoteList","apiVersion":"notes.example.com/v1","metadata":{},"items":[{"metadata":{"name":"one"}}]}`,
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, ok := documents[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, strings.Replace(body, "one", "one-for-"+r.Header.Get("X-Remote-User"), 1))
	}))
	certificate, file := certificateFor(t, "notes-example-com.default.svc")
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String() + "=" + file
}

// certificateFor makes a certificate that is its own CA, and a file with it.
func certificateFor(t *testing.T, name string) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	file := filepath.Join(t.TempDir(), "ca.crt")
	must(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), 0o600))
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}, file
}

func TestEverythingComesFromBackends(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	address := listener.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, frontdoor.Config{Listener: listener, Storage: frontdoor.Storage{InMemory: true}},
			[]string{"notes.example.com/v1=" + backend(t)}, "secret=alice")
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	t.Cleanup(transport.CloseIdleConnections)
	get := func(path, token string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+path, nil)
		must(t, err)
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := transport.RoundTrip(r)
		if err != nil {
			return 0, err.Error()
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		must(t, err)
		return response.StatusCode, string(body)
	}
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	// Asks until the answer is 200 and has all that is wanted.
	wait := func(path, what string, wanted func(body string) bool) {
		t.Helper()
		for {
			code, body := get(path, "secret")
			if code == http.StatusOK && wanted(body) {
				return
			}
			select {
			case <-tick.C:
			case err := <-done:
				done <- nil
				t.Fatal(err)
			case <-deadline.C:
				t.Fatalf("%s: GET = %d %s, want it within the deadline", what, code, body)
			}
		}
	}
	const notes = "/apis/notes.example.com/v1/notes"
	wait(notes, "the backend is served, and learns of the user", func(body string) bool { return strings.Contains(body, "one-for-alice") })
	for path, want := range map[string]int{"/api/v1/namespaces": http.StatusNotFound, "/apis/apps/v1": http.StatusNotFound, "/hello": http.StatusOK} {
		if code, body := get(path, "secret"); code != want {
			t.Errorf("GET %s = %d %s, want %d", path, code, body, want)
		}
	}
	for token, want := range map[string]int{"": http.StatusForbidden, "wrong": http.StatusUnauthorized} {
		if code, body := get(notes, token); code != want {
			t.Errorf("GET with the token %q = %d %s, want %d", token, code, body, want)
		}
	}
	// Requests are passed on before the documents of the backend were read, which discovery needs.
	wait("/apis", "discovery has the groups of the front door and of the backend, and no other", func(body string) bool {
		return strings.Count(body, `"groupVersion"`) == 4 && strings.Contains(body, "notes.example.com")
	})
}
