package http1

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
)

const tenHeaders = "Host: example.com\r\nUser-Agent: bench/1\r\nAccept: application/json\r\nAuthorization: Bearer 0123456789abcdef\r\n" +
	"Accept-Language: en\r\nKubectl-Command: get\r\nKubectl-Session: 1\r\nX-Request-Id: 1\r\nTraceparent: 00-1-1-00\r\nCache-Control: no-cache\r\nVia: x\r\n"

func benchHandler(size int) http.Handler {
	answer := []byte(strings.Repeat("x", size))
	kind := []string{"application/json"}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Type"] = kind
		if r.Body != http.NoBody {
			var room [4096]byte
			for {
				if _, err := r.Body.Read(room[:]); err != nil {
					break
				}
			}
		}
		_, _ = w.Write(answer)
	})
}

var loads = []struct {
	name, request string
	size          int
}{
	{"get1k", "GET /apis/bench.example/v1/namespaces/a/things/one HTTP/1.1\r\n" + tenHeaders + "\r\n", 1 << 10},
	{"post1k", "POST /apis/bench.example/v1/namespaces/a/things HTTP/1.1\r\n" + tenHeaders + "Content-Length: 1024\r\n\r\n" + strings.Repeat("y", 1<<10), 1 << 10},
	{"get100k", "GET /apis/bench.example/v1/things HTTP/1.1\r\n" + tenHeaders + "\r\n", 100 << 10},
}

// BenchmarkServers lets one client send requests to each server in the same process. The cost of the client is equal for both.
func BenchmarkServers(b *testing.B) {
	for _, load := range loads {
		for _, kind := range []string{"library", "ours"} {
			b.Run(load.name+"/"+kind, func(b *testing.B) {
				var address string
				var roots *x509.CertPool
				if kind == "ours" {
					s := start(b, Config{Handler: benchHandler(load.size)})
					address, roots = s.address, s.roots
				} else {
					s := httptest.NewUnstartedServer(benchHandler(load.size))
					s.StartTLS()
					b.Cleanup(s.Close)
					address, roots = s.Listener.Addr().String(), x509.NewCertPool()
					roots.AddCert(s.Certificate())
				}
				c, err := tls.Dial("tcp", address, &tls.Config{RootCAs: roots, ServerName: "example.com", NextProtos: []string{"http/1.1"}})
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { _ = c.Close() })
				ask := asker(b, c, load.request)
				for range 100 {
					ask()
				}
				b.ReportAllocs()
				before := cpu(b)
				b.ResetTimer()
				for range b.N {
					ask()
				}
				b.StopTimer()
				b.ReportMetric(float64(cpu(b)-before)/float64(b.N)/1000, "cpu-us/op")
			})
		}
	}
}

func cpu(tb testing.TB) int64 {
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		tb.Fatal(err)
	}
	return use.Utime.Nano() + use.Stime.Nano()
}

// asker returns a client that does not allocate. It takes the length of the responses from the first one.
func asker(tb testing.TB, c *tls.Conn, request string) func() {
	sent := []byte(request)
	if _, err := c.Write(sent); err != nil {
		tb.Fatal(err)
	}
	var first bytes.Buffer
	in := bufio.NewReader(c)
	res, err := http.ReadResponse(bufio.NewReader(io.TeeReader(onebyte{in}, &first)), nil)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		tb.Fatal(err)
	}
	room := make([]byte, first.Len())
	return func() {
		if _, err := c.Write(sent); err != nil {
			tb.Fatal(err)
		}
		if _, err := io.ReadFull(in, room); err != nil {
			tb.Fatal(err)
		}
	}
}

// onebyte reads one byte at a time, so that it does not read ahead.
type onebyte struct{ io.Reader }

func (o onebyte) Read(p []byte) (int, error) { return o.Reader.Read(p[:min(1, len(p))]) }
