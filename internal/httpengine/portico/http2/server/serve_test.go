package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// served is Portico's server with TLS.
type served struct {
	*Server
	address string
	roots   *x509.CertPool
	root    []byte
}

func start(t testing.TB, c Config) *served {
	t.Helper()
	certificate := httptest.NewUnstartedServer(nil)
	certificate.StartTLS()
	config := certificate.TLS.Clone()
	config.NextProtos = []string{"h2"}
	config.DynamicRecordSizingDisabled = true
	roots := x509.NewCertPool()
	roots.AddCert(certificate.Certificate())
	certificate.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if c.Logf == nil {
		c.Logf = t.Logf
	}
	s := &served{Server: New(c), address: l.Addr().String(), roots: roots, root: certificate.Certificate().Raw}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			raw, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				conn := tls.Server(raw, config)
				if conn.Handshake() != nil {
					_ = raw.Close()
					return
				}
				s.Begin(conn)()
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		s.Close()
		all.Wait()
	})
	return s
}

func (s *served) client(t testing.TB) *http.Client {
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: s.roots, ServerName: "example.com"}, ForceAttemptHTTP2: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 30 * time.Second}
}

func TestRequestsGetCompleteResponses(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	s := start(t, Config{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Path", r.URL.Path)
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		n := 3
		_, _ = fmt.Sscan(r.URL.Query().Get("n"), &n)
		_, _ = io.WriteString(w, strings.Repeat("x", n))
		_, _ = w.Write(body)
	})})
	client := s.client(t)
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			for _, n := range []int{0, 1, 4096, 4097, 70_000, 1 << 20} {
				sent := strings.Repeat("y", n)
				res, err := client.Post(fmt.Sprintf("https://%s/p/%d?n=%d", s.address, i, n), "text/plain", strings.NewReader(sent))
				if err != nil {
					t.Error(err)
					return
				}
				body, err := io.ReadAll(res.Body)
				res.Body.Close()
				if err != nil || string(body) != strings.Repeat("x", n)+sent {
					t.Errorf("body = %d bytes, error %v, want %d bytes and no error", len(body), err, 2*n)
				}
				if got := res.Header.Get("X-Path"); got != fmt.Sprint("/p/", i) {
					t.Errorf("X-Path = %s, want /p/%d", got, i)
				}
			}
		})
	}
	all.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}
