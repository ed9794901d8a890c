package transport

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

	"portico.dev/internal/httpengine"
	"portico.dev/internal/httpengine/engine"
	"portico.dev/internal/pki"
)

// BenchmarkPath measures the cost of a request to a backend in this process, compared with net/http's HTTP/2. The backend runs in a separate
// process, so it is not included; the client is.
//
//	go test -run xxx -bench Path -benchtime 20000x -count 3 ./internal/transport
func BenchmarkPath(b *testing.B) {
	y := newBenchEnvironment(b)
	for _, what := range []struct{ name, method, path, body string }{
		{"get1KB", http.MethodGet, "/small", ""},
		{"post1KB", http.MethodPost, "/small", strings.Repeat("p", 1<<10)},
		{"list100KB", http.MethodGet, "/large", ""},
	} {
		for _, concurrency := range []int{1, 32, 256} {
			for _, way := range y.ways() {
				b.Run(fmt.Sprintf("%s/conc=%d/%s", what.name, concurrency, way.name), func(b *testing.B) {
					y.load(b, way, what.method, what.path, what.body, concurrency)
				})
			}
		}
	}
}

// BenchmarkWatches measures the cost of an event that is sent to a thousand streams at once.
func BenchmarkWatches(b *testing.B) {
	y := newBenchEnvironment(b)
	for _, way := range y.ways() {
		b.Run(way.name, func(b *testing.B) { y.watches(b, way, 1000) })
	}
}

// BenchmarkIdle measures the cost of an idle connection, with a thousand of them: memory, and the CPU time of all for one
// minute.
func BenchmarkIdle(b *testing.B) {
	y := newBenchEnvironment(b)
	const conns = 1000
	type opener func() (send func(*http.Request) (*http.Response, error), close func())
	for i, open := range []opener{
		func() (func(*http.Request) (*http.Response, error), func()) {
			t := y.newLibrary(b)
			t.HTTP2 = &http.HTTP2Config{SendPingTimeout: 500 * time.Millisecond, PingTimeout: 20 * time.Second}
			return t.RoundTrip, t.CloseIdleConnections
		},
		func() (func(*http.Request) (*http.Response, error), func()) {
			return y.newBackend(b).Probe().RoundTrip, func() {}
		},
	} {
		b.Run([]string{"library", "ours"}[i], func(b *testing.B) {
			for b.Loop() {
				before := resident()
				var closes []func()
				for range conns {
					send, close := open()
					resp, err := send(y.request(b, http.MethodGet, "/small", ""))
					if err != nil {
						b.Fatal(err)
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
					closes = append(closes, close)
				}
				b.ReportMetric(float64(resident()-before)/conns, "bytes/conn")
				start := usage(b)
				<-time.After(6 * time.Second)
				b.ReportMetric(10*(usage(b).cpu-start.cpu).Seconds(), "cpu-s/minute")
				for _, close := range closes {
					close()
				}
			}
		})
	}
}

func resident() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

type benchEnvironment struct {
	set     *Set
	made    int
	address string
	ca      *pki.Authority
	backend *Backend
	library http.RoundTripper
	other   *Backend // by engine.Library
}

type benchWay struct {
	name string
	send func(*http.Request) (*http.Response, error)
}

func (y *benchEnvironment) ways() []benchWay {
	return []benchWay{
		{"library", y.library.RoundTrip},
		{"engine-library", y.other.RoundTrip},
		{"ours", y.backend.RoundTrip},
	}
}

const benchBackend = "PORTICO_BENCH_BACKEND"

func newBenchEnvironment(b *testing.B) *benchEnvironment {
	ca, err := pki.NewAuthority("bench")
	if err != nil {
		b.Fatal(err)
	}
	cert, key, err := ca.Issue(pki.Leaf{CommonName: serviceName, DNSNames: []string{serviceName}, Server: true})
	if err != nil {
		b.Fatal(err)
	}
	facts, err := json.Marshal([][]byte{cert, key})
	if err != nil {
		b.Fatal(err)
	}
	c := exec.Command(os.Args[0], "-test.run=^$")
	c.Env, c.Stderr = append(os.Environ(), benchBackend+"="+string(facts)), os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = in.Close(); _ = c.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	y := &benchEnvironment{address: strings.TrimSpace(line), ca: ca}
	y.set = New(Options{AllowLoopback: true})
	b.Cleanup(y.set.Close)
	y.backend, y.library = y.newBackend(b), y.newLibrary(b)
	other := New(Options{AllowLoopback: true, Engine: httpengine.Library})
	b.Cleanup(other.Close)
	if y.other, err = other.Backend(y.spec()); err != nil {
		b.Fatal(err)
	}
	return y
}

func (y *benchEnvironment) newBackend(b *testing.B) *Backend {
	backend, err := y.set.Backend(y.spec())
	if err != nil {
		b.Fatal(err)
	}
	return backend
}

// spec returns the specification of another backend at each call.
func (y *benchEnvironment) spec() Spec {
	y.made++
	return Spec{
		Name: fmt.Sprintf("ns/svc-%d:443", y.made), ServerName: serviceName, CABundle: y.ca.PEM(), Endpoints: []Endpoint{{Address: y.address}},
	}
}

func (y *benchEnvironment) newLibrary(b *testing.B) *http.Transport {
	config, err := pki.ClientConfig(pki.ClientOptions{ServerName: serviceName, Roots: y.ca.PEM()})
	if err != nil {
		b.Fatal(err)
	}
	t := &http.Transport{TLSClientConfig: config, DisableCompression: true, MaxIdleConnsPerHost: 300, Protocols: new(http.Protocols)}
	t.Protocols.SetHTTP2(true)
	b.Cleanup(t.CloseIdleConnections)
	return t
}

// serveBench runs in the backend's process.
func serveBench(facts string) error {
	var pair [][]byte
	if err := json.Unmarshal([]byte(facts), &pair); err != nil {
		return err
	}
	keys, err := pki.StaticKeyPair(pair[0], pair[1])
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	small, large := []byte(strings.Repeat("s", 1<<10)), []byte(strings.Repeat("l", 100<<10))
	event := []byte(strings.Repeat("e", 511) + "\n")
	var mu sync.Mutex
	next := make(chan struct{})
	s := &http.Server{TLSConfig: pki.ServerConfig(keys), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/large":
			_, _ = w.Write(large)
		case "/watch":
			mu.Lock()
			wait := next
			mu.Unlock()
			_ = http.NewResponseController(w).Flush()
			for {
				select {
				case <-wait:
				case <-r.Context().Done():
					return
				}
				mu.Lock()
				wait = next
				mu.Unlock()
				_, _ = w.Write(event)
				_ = http.NewResponseController(w).Flush()
			}
		case "/tick":
			mu.Lock()
			close(next)
			next = make(chan struct{})
			mu.Unlock()
		default:
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = w.Write(small)
		}
	})}
	go func() { _ = s.ServeTLS(l, "", "") }()
	fmt.Println(l.Addr())
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, s.Close())
}

type used struct {
	cpu    time.Duration
	allocs uint64
	bytes  uint64
}

func usage(b *testing.B) used {
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		b.Fatal(err)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return used{time.Duration(ru.Utime.Nano() + ru.Stime.Nano()), m.Mallocs, m.TotalAlloc}
}

func report(b *testing.B, before used, n int) {
	after := usage(b)
	b.ReportMetric(float64((after.cpu-before.cpu).Nanoseconds())/float64(n)/1e3, "cpu-us/op")
	b.ReportMetric(float64(after.allocs-before.allocs)/float64(n), "mallocs/op")
	b.ReportMetric(float64(after.bytes-before.bytes)/float64(n), "bytes/op")
}

func (y *benchEnvironment) request(b *testing.B, method, path, body string) *http.Request {
	var from io.Reader
	if body != "" {
		from = engine.NewBytesBody([]byte(body))
	}
	r, err := http.NewRequestWithContext(b.Context(), method, "https://"+y.address+path, from)
	if err != nil {
		b.Fatal(err)
	}
	r.ContentLength = int64(len(body))
	r.Header = http.Header{
		"Accept": {"application/json"}, "User-Agent": {"bench"}, "X-Remote-User": {"alice"}, "X-Remote-Group": {"dev", "ops", "system:authenticated"},
	}
	return r
}

func (y *benchEnvironment) load(b *testing.B, way benchWay, method, path, body string, concurrency int) {
	run := func(n int) {
		var wg sync.WaitGroup
		work := make(chan struct{}, n)
		for range n {
			work <- struct{}{}
		}
		close(work)
		for range concurrency {
			wg.Go(func() {
				room := make([]byte, 64<<10)
				for range work {
					resp, err := way.send(y.request(b, method, path, body))
					if err != nil {
						b.Error(err)
						return
					}
					n, err := 0, error(nil)
					for err == nil {
						var m int
						m, err = resp.Body.Read(room)
						n += m
					}
					_ = resp.Body.Close()
					if err != io.EOF || n < 1<<10 {
						b.Errorf("body of the response = %d bytes with the error %v, want at least %d and io.EOF", n, err, 1<<10)
					}
				}
			})
		}
		wg.Wait()
	}
	run(max(8*concurrency, 500)) // connections, buffers, caches
	before := usage(b)
	b.ResetTimer()
	run(b.N)
	b.StopTimer()
	report(b, before, b.N)
}

// watches sends b.N events to each of the streams.
func (y *benchEnvironment) watches(b *testing.B, way benchWay, streams int) {
	var wg sync.WaitGroup
	came := make(chan struct{}, streams)
	var bodies []io.Closer
	for range streams {
		resp, err := way.send(y.request(b, http.MethodGet, "/watch", ""))
		if err != nil {
			b.Fatal(err)
		}
		bodies = append(bodies, resp.Body)
		wg.Go(func() {
			room := make([]byte, 4<<10)
			for n := 0; ; {
				m, err := resp.Body.Read(room)
				if err != nil {
					return
				}
				for n += m; n >= 512; n -= 512 {
					came <- struct{}{}
				}
			}
		})
	}
	tick := func() {
		resp, err := way.send(y.request(b, http.MethodGet, "/tick", ""))
		if err != nil {
			b.Fatal(err)
		}
		_ = resp.Body.Close()
		for range streams {
			<-came
		}
	}
	tick()
	before := usage(b)
	b.ResetTimer()
	for range b.N {
		tick()
	}
	b.StopTimer()
	report(b, before, b.N*streams)
	for _, body := range bodies {
		_ = body.Close()
	}
	wg.Wait()
}
