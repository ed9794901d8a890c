package cluster

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"

	"portico.dev/internal/pki"
	"portico.dev/internal/proxy"
	"portico.dev/internal/transport"
)

// benchmarkDirectory is an environment variable. If it is set, the test program is the API servers of BenchmarkIdle, with the
// serving certificate in that directory.
const benchmarkDirectory = "PORTICO_BENCHMARK_API_SERVERS"

// serveBenchmark serves requests if this process is the API servers, until its standard input ends.
func serveBenchmark() bool {
	directory := os.Getenv(benchmarkDirectory)
	if directory == "" {
		return false
	}
	pair, err := pki.LoadKeyPair(directory+"/cert", directory+"/key")
	if err != nil {
		log.Fatal(err)
	}
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(l.Addr().(*net.TCPAddr).Port)
	document := strings.Repeat(`{"name":"resources","singularName":"resource","namespaced":true}`, 500)
	s := &http.Server{TLSConfig: pki.ServerConfig(pair), ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/readyz":
			_, _ = io.WriteString(w, "ok")
		case r.URL.Path == "/version":
			_, _ = io.WriteString(w, `{"gitVersion":"v1.37.1"}`)
		case r.Header.Get("If-None-Match") != "":
			w.WriteHeader(http.StatusNotModified)
		default:
			w.Header().Set("ETag", `"1"`)
			_, _ = io.WriteString(w, document)
		}
	})}
	go func() { _ = s.ServeTLS(l, "", "") }()
	_, _ = io.Copy(io.Discard, os.Stdin)
	return true
}

// BenchmarkIdle reports the cost of 500 clusters with three API servers each that no client uses: probes, pings and documents.
func BenchmarkIdle(b *testing.B) {
	const clusters, observed = 500, 30 * time.Second
	directory, ca := b.TempDir(), newAuthority(b, "serving")
	cert, key, err := ca.Issue(pki.Leaf{CommonName: "kube-apiserver", DNSNames: []string{DefaultServerName}, Server: true})
	if err != nil {
		b.Fatal(err)
	}
	for name, data := range map[string][]byte{"cert": cert, "key": key} {
		if err := os.WriteFile(directory+"/"+name, data, 0o600); err != nil {
			b.Fatal(err)
		}
	}
	servers := exec.Command(os.Args[0])
	servers.Env = append(os.Environ(), benchmarkDirectory+"="+directory)
	input, err := servers.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	output, err := servers.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := servers.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = input.Close(); _ = servers.Wait() }()
	var port int
	if _, err := fmt.Fscan(bufio.NewReader(output), &port); err != nil {
		b.Fatal(err)
	}
	s := Server{CABundle: ca.PEM()}
	for i := range 3 {
		s.Endpoints = append(s.Endpoints, fmt.Sprintf("127.0.0.%d:%d", i+1, port))
	}
	credentials, before := &StaticCredentials{}, memory()
	if err := credentials.Use("token", nil, nil); err != nil {
		b.Fatal(err)
	}
	parent := transport.New(transport.Options{})
	defer parent.Close()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	var list []*Cluster
	for i := range clusters {
		c, err := New(Config{
			Name: fmt.Sprint(i), Server: s, Credentials: credentials, Identify: identifyAlike, Proxy: proxy.New(proxy.Config{}), Logger: zap.NewNop(),
			Transport: transport.Options{Parent: parent},
		})
		if err != nil {
			b.Fatal(err)
		}
		list = append(list, c)
		wg.Go(func() { _ = c.Run(ctx) })
	}
	time.Sleep(40 * time.Second) // the documents have been fetched
	for _, c := range list {
		if s := c.State(); !s.Ready || s.Version == "" {
			b.Fatalf("State() = %+v, want a ready cluster", s)
		}
	}
	used := processorTime(b)
	time.Sleep(observed)
	used = processorTime(b) - used
	after := memory()
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(100*used.Seconds()/observed.Seconds(), "%cpu")
	b.ReportMetric(float64(used.Microseconds())/observed.Seconds()/clusters, "µs/s/cluster")
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/clusters/1024, "heap-KiB/cluster")
	b.ReportMetric(float64(after.StackInuse-before.StackInuse)/clusters/1024, "stack-KiB/cluster")
	b.ReportMetric(float64(after.Sys-before.Sys)/clusters/1024, "sys-KiB/cluster")
}

func memory() (m runtime.MemStats) {
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m
}

func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
