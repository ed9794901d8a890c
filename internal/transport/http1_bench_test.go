package transport

import (
	"crypto/tls"
	"net"
	"strings"
	"sync"
	"testing"

	"portico.dev/internal/pki"
)

// benchAnswer is 1 KB with ten headers.
var benchAnswer = []byte(okHead + "Audit-Id: 0b5c8c9e-9f0f-4d0a-8f6e-1f1c3b0f6b1a\r\nCache-Control: no-cache, private\r\nContent-Type: application/json\r\n" +
	"Date: Sun, 22 Nov 2026 03:25:10 GMT\r\nEtag: \"abcdef\"\r\nVary: Accept-Encoding\r\nX-Content-Type-Options: nosniff\r\n" +
	"X-Kubernetes-Pf-Flowschema-Uid: 5a1b2c3d-9f0f-4d0a-8f6e-1f1c3b0f6b1a\r\nX-Kubernetes-Pf-Prioritylevel-Uid: 5a1b2c3d-9f0f-4d0a-8f6e-1f1c3b0f6b1a\r\n" +
	"Content-Length: 1024\r\n\r\n" + strings.Repeat("x", 1024))

var benchRequest = []byte("GET /apis/metrics.example.com/v1/namespaces/default/pods/a HTTP/1.1\r\nHost: metrics.kube-system.svc\r\n" +
	"User-Agent: kubectl/v1.37.0\r\nAccept: application/json\r\nX-Remote-User: jane\r\nX-Remote-Group: system:authenticated\r\n\r\n")

// BenchmarkMessage measures the inspection of a response and of a request.
func BenchmarkMessage(b *testing.B) {
	for name, text := range map[string][]byte{"answer": benchAnswer, "request": benchRequest} {
		b.Run(name, func(b *testing.B) {
			var m messageParser
			b.ReportAllocs()
			for b.Loop() {
				m.expectRequest()
				if name == "answer" {
					m.expectResponse(false, false)
				}
				if n, _, done, err := m.feed(text); n != len(text) || !done || err != nil {
					b.Fatalf("feed(%s) = %d, done %t, error %v, want %d, done, no error", name, n, done, err, len(text))
				}
			}
		})
	}
}

// BenchmarkHTTP1Conn measures a request and its response over TLS, with and without the inspection. The server is
// included.
func BenchmarkHTTP1Conn(b *testing.B) {
	ca, err := pki.NewAuthority("bench")
	if err != nil {
		b.Fatal(err)
	}
	cert, key, err := ca.Issue(pki.Leaf{CommonName: serviceName, DNSNames: []string{serviceName}, Server: true})
	if err != nil {
		b.Fatal(err)
	}
	pair, err := pki.StaticKeyPair(cert, key)
	if err != nil {
		b.Fatal(err)
	}
	config, err := pki.ClientConfig(pki.ClientOptions{ServerName: serviceName, Roots: ca.PEM()})
	if err != nil {
		b.Fatal(err)
	}
	for _, way := range []string{"bare", "looked at"} {
		b.Run(way, func(b *testing.B) {
			near, far := streams(b)
			var wg sync.WaitGroup
			wg.Go(func() { answerAlways(tls.Server(far, pki.ServerConfig(pair))) })
			k := newSocketConn(near)
			var c net.Conn
			if tc := tls.Client(k, config); way == "bare" {
				c = tls.Client(near, config)
			} else {
				c = &http1Conn{Conn: tc, validates: true, socket: k, pool: &connPool{options: &Options{}}}
			}
			into := make([]byte, 4096)
			b.ReportAllocs()
			for b.Loop() {
				k.idle.Store(true) // net/http's reader would be waiting now
				if _, err := c.Write(benchRequest); err != nil {
					b.Fatal(err)
				}
				for n := 0; n < len(benchAnswer); {
					m, err := c.Read(into)
					if err != nil {
						b.Fatal(err)
					}
					n += m
				}
			}
			_ = near.Close()
			wg.Wait()
		})
	}
}

func answerAlways(c net.Conn) {
	into := make([]byte, 4096)
	for {
		if _, err := c.Read(into); err != nil {
			return
		}
		if _, err := c.Write(benchAnswer); err != nil {
			return
		}
	}
}
