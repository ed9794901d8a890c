package server

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// benchChild selects the server of the process.
const benchChild = "PORTICO_BENCH_SERVER"

func TestMain(m *testing.M) {
	if kind := os.Getenv(benchChild); kind != "" {
		serveForBench(kind)
		return
	}
	os.Exit(m.Run())
}

// serveForBench runs a server until its standard input ends. For each input line it prints its resource usage.
func serveForBench(kind string) {
	answer := []byte(strings.Repeat("x", 1<<10))
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h["Audit-Id"] = []string{"9b4f0c9e-7d3f-4b77-9d9c-1d1f6c2f4a10"}
		h["Cache-Control"] = []string{"no-cache, private"}
		h["Content-Type"] = []string{"application/json"}
		_, _ = w.Write(answer)
	})
	var address string
	var root []byte
	if kind == "ours" {
		s := start(&testing.B{}, Config{Handler: handler, MaxConcurrentStreams: 1000, Logf: func(string, ...any) {}})
		address, root = s.address, s.root
	} else {
		s := httptest.NewUnstartedServer(handler)
		s.EnableHTTP2 = true
		s.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 1000}
		s.StartTLS()
		address, root = s.Listener.Addr().String(), s.Certificate().Raw
	}
	fmt.Println(address, base64.StdEncoding.EncodeToString(root))
	var profile *os.File
	if dir := os.Getenv("PORTICO_BENCH_PROFILE"); dir != "" {
		profile, _ = os.Create(dir + "/" + kind + ".prof")
		_ = pprof.StartCPUProfile(profile)
	}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var use syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &use)
		var mem runtime.MemStats
		runtime.ReadMemStats(&mem)
		fmt.Println(use.Utime.Nano()+use.Stime.Nano(), mem.Mallocs, mem.TotalAlloc)
	}
	if profile != nil {
		pprof.StopCPUProfile()
		_ = profile.Close()
	}
}

// child is a server in a separate process, so that the cost of clients is not measured.
type child struct {
	in      io.WriteCloser
	out     *bufio.Reader
	address string
	roots   *x509.CertPool
}

func startChild(b *testing.B, kind string) *child {
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), benchChild+"="+kind)
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	c := &child{in: in, out: bufio.NewReader(out), roots: x509.NewCertPool()}
	var root string
	if _, err := fmt.Fscanln(c.out, &c.address, &root); err != nil {
		b.Fatal(err)
	}
	raw, _ := base64.StdEncoding.DecodeString(root)
	certificate, err := x509.ParseCertificate(raw)
	if err != nil {
		b.Fatal(err)
	}
	c.roots.AddCert(certificate)
	return c
}

func (c *child) used(b *testing.B) (cpu, mallocs, bytes int64) {
	fmt.Fprintln(c.in)
	if _, err := fmt.Fscanln(c.out, &cpu, &mallocs, &bytes); err != nil {
		b.Fatal(err)
	}
	return cpu, mallocs, bytes
}

// BenchmarkServers measures the CPU time and the allocations of each server for a GET of 1 KB.
func BenchmarkServers(b *testing.B) {
	for _, load := range []struct {
		name        string
		conns, each int
	}{{"1x32", 1, 32}, {"1x256", 1, 256}, {"32x8", 32, 8}, {"1x1", 1, 1}} {
		for _, kind := range []string{"library", "ours"} {
			b.Run(load.name+"/"+kind, func(b *testing.B) {
				c := startChild(b, kind)
				clients := make([]*http.Transport, load.conns)
				for i := range clients {
					clients[i] = &http.Transport{
						TLSClientConfig:   &tls.Config{RootCAs: c.roots, ServerName: "example.com"},
						ForceAttemptHTTP2: true, HTTP2: &http.HTTP2Config{StrictMaxConcurrentRequests: true},
					}
				}
				run := func(n int) {
					var left atomic.Int64
					left.Store(int64(n))
					var all sync.WaitGroup
					for _, tr := range clients {
						for range load.each {
							all.Go(func() {
								for left.Add(-1) >= 0 {
									get(b, tr, c.address)
								}
							})
						}
					}
					all.Wait()
				}
				run(2000)
				cpu, mallocs, bytes := c.used(b)
				b.ResetTimer()
				run(b.N)
				b.StopTimer()
				cpu2, mallocs2, bytes2 := c.used(b)
				b.ReportMetric(float64(cpu2-cpu)/float64(b.N)/1000, "server-us/op")
				b.ReportMetric(float64(mallocs2-mallocs)/float64(b.N), "server-allocs/op")
				b.ReportMetric(float64(bytes2-bytes)/float64(b.N), "server-B/op")
				for _, tr := range clients {
					tr.CloseIdleConnections()
				}
			})
		}
	}
}

func get(b *testing.B, tr *http.Transport, address string) {
	r, err := http.NewRequest(http.MethodGet, "https://"+address+"/apis/bench.example/v1/namespaces/a/things/one", nil)
	if err != nil {
		b.Error(err)
		return
	}
	r.Header["Authorization"] = []string{"Bearer 0123456789abcdef0123456789abcdef"}
	r.Header["Accept"] = []string{"application/json"}
	res, err := tr.RoundTrip(r)
	if err != nil {
		b.Error(err)
		return
	}
	if n, err := io.Copy(io.Discard, res.Body); err != nil || n != 1<<10 {
		b.Errorf("body = %d bytes, error %v, want 1024 bytes", n, err)
	}
	_ = res.Body.Close()
}
