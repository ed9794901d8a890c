package proxy

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/filters"
	"portico.dev/internal/request"
)

// BenchmarkHeader measures the header for the backend, with the identity, made from a client's header.
func BenchmarkHeader(b *testing.B) {
	r, err := http.NewRequestWithContext(request.WithAuditID(b.Context(), "audit-1"), http.MethodGet, "https://front"+resource, http.NoBody)
	if err != nil {
		b.Fatal(err)
	}
	r.RemoteAddr = "10.0.0.1:1234"
	asked := http.Header{
		"User-Agent": {"kubectl/v1.37.1"}, "Accept": {"application/json"}, "Accept-Encoding": {"gzip"}, "Kubectl-Command": {"kubectl get"},
		"Kubectl-Session": {"4c1c0dd8-4f6c-4a58-9a5b-6c2c7d2f1a10"},
	}
	r.Header = asked
	x := &exchange{proxy: New(Config{}), r: r, request: filters.RequestOf(r), info: &apirequest.RequestInfo{}}
	b.ReportAllocs()
	for b.Loop() {
		x.values.n = 0
		if err := writeIdentity(x.requestHeader(), &RequestHeaders, alice, &x.values); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkResponse measures a response from the header to the last byte, between a body in memory and a client that accepts
// all bytes at once.
func BenchmarkResponse(b *testing.B) {
	for _, size := range []int{1 << 10, 100 << 10} {
		for _, known := range []bool{true, false} {
			b.Run(fmt.Sprintf("%dKB/length known=%t", size>>10, known), func(b *testing.B) {
				header := http.Header{
					"Content-Type": {"application/json"}, "Date": {"Sat, 21 Nov 2026 09:08:07 GMT"}, "Cache-Control": {"no-cache, private"},
				}
				resp := &http.Response{StatusCode: http.StatusOK, Header: header, ContentLength: -1}
				if known {
					resp.ContentLength = int64(size)
				}
				text, w := make([]byte, size), &discard{header: http.Header{}}
				body := bytes.NewReader(text)
				r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "https://front"+resource, http.NoBody)
				if err != nil {
					b.Fatal(err)
				}
				p := New(Config{})
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					clear(w.header)
					body.Reset(text)
					resp.Body = io.NopCloser(body)
					x := &exchange{proxy: p, w: w, r: r, request: filters.RequestOf(r)}
					l := x.beginUpstream(time.Minute)
					x.relay(resp, l)
					l.release()
				}
			})
		}
	}
}
