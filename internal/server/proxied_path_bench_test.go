package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/audit"
	"portico.dev/internal/auth/authn"
	"portico.dev/internal/auth/authz"
	"portico.dev/internal/auth/rbac"
	"portico.dev/internal/dispatch"
	"portico.dev/internal/httpengine"
	"portico.dev/internal/metrics"
	"portico.dev/internal/pki"
	"portico.dev/internal/proxy"
	"portico.dev/internal/routetable"
	"portico.dev/internal/transport"
)

// BenchmarkProxiedPath measures the cost of a request in each of these processes: a bare httputil.ReverseProxy that uses HTTP/2
// or HTTP/1.1 to the backend, and the front door with a token file, RBAC and the audit log, with either engine towards the
// backend. Each runs in a separate process, so that client and backend are not in the figures, except in p99-us, which is the
// latency for the client. The client uses HTTP/2.
//
//	go test -run xxx -bench ProxiedPath -benchtime 20000x -count 3 ./internal/server
//
// PORTICO_BENCH_PROFILES names a directory for CPU profiles of the proxies, PORTICO_BENCH_ALLOCS one for every allocation,
// which makes the other figures worthless.
func BenchmarkProxiedPath(b *testing.B) {
	env := newEnvironment(b)
	for _, what := range []struct{ name, method, path, body string }{
		{"get1KB", http.MethodGet, "/apis/bench.example.com/v1/namespaces/ns1/things/small", ""},
		{"list100KB", http.MethodGet, "/apis/bench.example.com/v1/namespaces/ns1/things", ""},
		{"post1KB", http.MethodPost, "/apis/bench.example.com/v1/namespaces/ns1/things", strings.Repeat("p", 1<<10)},
	} {
		for _, concurrency := range []int{1, 32, 256} {
			for _, kind := range kinds {
				b.Run(fmt.Sprintf("%s/conc=%d/%s", what.name, concurrency, kind), func(b *testing.B) {
					env.load(b, env.proxies[kind], what.method, what.path, what.body, concurrency)
				})
			}
		}
	}
}

const (
	benchRole  = "PORTICO_BENCH_ROLE"
	benchFacts = "PORTICO_BENCH_FACTS"
	benchToken = "bench-token"
)

var kinds = []string{"bare-h2", "bare-h1", "portico", portico + string(httpengine.Library)}

// portico is the prefix of the name of a front door that reaches its backend by an engine other than the default.
const portico = "portico-"

// environmentFacts is the input of a proxy process.
type environmentFacts struct {
	Backend string
	CA      []byte
	Dir     string // serving and client certificates, the token file
}

type benchEnvironment struct {
	proxies map[string]*proxyProcess
	ca      *pki.Authority
}

type proxyProcess struct {
	address string
	in      io.Writer
	out     *bufio.Reader
	mu      sync.Mutex // one question at a time
}

// usage is the resource usage of a proxy process so far.
type usage struct {
	CPU    time.Duration
	Allocs uint64
	Bytes  uint64
	RSS    int64
}

func newEnvironment(b *testing.B) *benchEnvironment {
	ca, err := pki.NewAuthority("bench")
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	y := &benchEnvironment{proxies: map[string]*proxyProcess{}, ca: ca}
	write := func(name string, l pki.Leaf) *pki.KeyPair {
		cert, key, err := ca.Issue(l)
		if err != nil {
			b.Fatal(err)
		}
		for file, data := range map[string][]byte{name + ".crt": cert, name + ".key": key} {
			if err := os.WriteFile(filepath.Join(dir, file), data, 0o600); err != nil {
				b.Fatal(err)
			}
		}
		pair, err := pki.StaticKeyPair(cert, key)
		if err != nil {
			b.Fatal(err)
		}
		return pair
	}
	write("serving", pki.Leaf{CommonName: "front", DNSNames: []string{"front"}, Server: true})
	write("client", pki.Leaf{CommonName: "front-proxy-client", Client: true})
	if err := os.WriteFile(filepath.Join(dir, "tokens"), []byte(benchToken+",alice,u-1,\"dev,ops\"\n"), 0o600); err != nil {
		b.Fatal(err)
	}
	backend := benchBackendServer(b, write("backend", pki.Leaf{CommonName: "svc.ns.svc", DNSNames: []string{"svc.ns.svc"}, Server: true}))
	facts, err := json.Marshal(environmentFacts{Backend: backend, CA: ca.PEM(), Dir: dir})
	if err != nil {
		b.Fatal(err)
	}
	for _, kind := range kinds {
		y.proxies[kind] = startProxy(b, kind, facts)
	}
	return y
}

func benchBackendServer(b *testing.B, pair *pki.KeyPair) string {
	small, large := []byte(strings.Repeat("s", 1<<10)), []byte(strings.Repeat("l", 100<<10))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	s := &http.Server{TLSConfig: pki.ServerConfig(pair), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method == http.MethodPost:
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write(small)
		case strings.HasSuffix(r.URL.Path, "/small"):
			_, _ = w.Write(small)
		default:
			_, _ = w.Write(large)
		}
	})}
	go func() { _ = s.ServeTLS(l, "", "") }()
	b.Cleanup(func() { _ = s.Close() })
	return l.Addr().String()
}

func startProxy(b *testing.B, kind string, facts []byte) *proxyProcess {
	c := exec.Command(os.Args[0], "-test.run=^$")
	c.Env = append(os.Environ(), benchRole+"="+kind, benchFacts+"="+string(facts))
	c.Stderr = os.Stderr
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
	p := &proxyProcess{in: in, out: bufio.NewReader(out)}
	b.Cleanup(func() {
		_ = in.Close() // ends the process
		_ = c.Wait()
	})
	line, err := p.out.ReadString('\n')
	if err != nil {
		b.Fatal(kind, err)
	}
	p.address = strings.TrimSpace(line)
	return p
}

func (p *proxyProcess) ask(b *testing.B, what string) usage {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := fmt.Fprintln(p.in, what); err != nil {
		b.Fatal(err)
	}
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		b.Fatal(err)
	}
	var u usage
	if err := json.Unmarshal(line, &u); err != nil {
		b.Fatal(err)
	}
	return u
}

// load sends b.N requests from the given number of goroutines, eight per connection.
func (y *benchEnvironment) load(b *testing.B, p *proxyProcess, method, path, body string, concurrency int) {
	clients := make([]*http.Client, (concurrency+7)/8)
	for i := range clients {
		config, err := pki.ClientConfig(pki.ClientOptions{ServerName: "front", Roots: y.ca.PEM()})
		if err != nil {
			b.Fatal(err)
		}
		t := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
		clients[i] = &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		defer t.CloseIdleConnections()
	}
	var mu sync.Mutex // guards took
	var took []time.Duration
	run := func(n int) {
		took = make([]time.Duration, 0, n)
		var wg sync.WaitGroup
		work := make(chan struct{}, n)
		for range n {
			work <- struct{}{}
		}
		close(work)
		for i := range concurrency {
			wg.Go(func() {
				var own []time.Duration
				for range work {
					if b.Failed() {
						return
					}
					start := time.Now()
					benchRequest(b, clients[i/8], method, "https://"+p.address+path, body)
					own = append(own, time.Since(start))
				}
				mu.Lock()
				defer mu.Unlock()
				took = append(took, own...)
			})
		}
		wg.Wait()
	}
	run(max(4*concurrency, 200)) // connections, buffers, caches
	if dir := os.Getenv("PORTICO_BENCH_PROFILES"); dir != "" {
		p.ask(b, "profile "+filepath.Join(dir, strings.ReplaceAll(b.Name(), "/", "_")+".pprof"))
		defer p.ask(b, "stop")
	}
	before := p.ask(b, "usage")
	b.ResetTimer()
	run(b.N)
	b.StopTimer()
	after := p.ask(b, "usage")
	if dir := os.Getenv("PORTICO_BENCH_ALLOCS"); dir != "" {
		p.ask(b, "allocs "+filepath.Join(dir, strings.ReplaceAll(b.Name(), "/", "_")+".allocs"))
	}
	if b.Failed() {
		return
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
	b.ReportMetric(float64((after.CPU-before.CPU).Nanoseconds())/float64(b.N)/1e3, "cpu-us/op")
	b.ReportMetric(float64(after.Allocs-before.Allocs)/float64(b.N), "proxy-allocs/op")
	b.ReportMetric(float64(after.Bytes-before.Bytes)/float64(b.N), "proxy-B/op")
	b.ReportMetric(float64(after.RSS), "rss-KB")
}

func benchRequest(b *testing.B, c *http.Client, method, target, body string) {
	var from io.Reader
	if body != "" {
		from = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(b.Context(), method, target, from)
	if err != nil {
		b.Error(err)
		return
	}
	r.Header.Set("Authorization", "Bearer "+benchToken)
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "bench")
	resp, err := c.Do(r)
	if err != nil {
		b.Error(err)
		return
	}
	n, err := io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	if err != nil || resp.StatusCode/100 != 2 || n < 1<<10 {
		b.Errorf("response = %s with %d bytes, error %v, want 2xx with at least 1024 bytes", resp.Status, n, err)
	}
}

// serveBench is a proxy process: it prints its address, and then its usage for each question.
func serveBench(kind string) error {
	var facts environmentFacts
	if err := json.Unmarshal([]byte(os.Getenv(benchFacts)), &facts); err != nil {
		return err
	}
	if os.Getenv("PORTICO_BENCH_ALLOCS") != "" {
		runtime.MemProfileRate = 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	handler, err := benchHandler(ctx, kind, &facts)
	if err != nil {
		return err
	}
	pair, err := pki.LoadKeyPair(filepath.Join(facts.Dir, "serving.crt"), filepath.Join(facts.Dir, "serving.key"))
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if kind == "portico" || strings.HasPrefix(kind, portico) {
		s := New(Config{
			Listener: l, TLS: pki.ServerConfig(pair), Handler: handler, Health: NewHealth(zap.NewNop()),
			Drainer: NewDrainer(), Proxy: proxy.New(proxy.Config{}), Logger: zap.NewNop(),
		})
		go func() { _ = s.Accept(ctx) }()
		go func() { _ = s.Run(ctx) }()
	} else {
		s := &http.Server{TLSConfig: pki.ServerConfig(pair), Handler: handler, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 100}}
		go func() { _ = s.ServeTLS(l, "", "") }()
	}
	fmt.Println(l.Addr())
	return answerQuestions()
}

func answerQuestions() error {
	in := bufio.NewScanner(os.Stdin)
	var profile *os.File
	for in.Scan() {
		switch what, file, _ := strings.Cut(in.Text(), " "); what {
		case "profile":
			var err error
			if profile, err = os.Create(file); err != nil {
				return err
			}
			if err := pprof.StartCPUProfile(profile); err != nil {
				return err
			}
		case "allocs":
			if err := writeAllocs(file); err != nil {
				return err
			}
		case "stop":
			pprof.StopCPUProfile()
			_ = profile.Close()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		var ru syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
			return err
		}
		cpu := time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
		line, err := json.Marshal(usage{CPU: cpu, Allocs: m.Mallocs, Bytes: m.TotalAlloc, RSS: ru.Maxrss})
		if err != nil {
			return err
		}
		fmt.Println(string(line))
	}
	return in.Err()
}

func writeAllocs(file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(pprof.Lookup("allocs").WriteTo(f, 0), f.Close())
}

func benchHandler(ctx context.Context, kind string, facts *environmentFacts) (http.Handler, error) {
	client, err := pki.LoadKeyPair(filepath.Join(facts.Dir, "client.crt"), filepath.Join(facts.Dir, "client.key"))
	if err != nil {
		return nil, err
	}
	if by, other := strings.CutPrefix(kind, portico); other {
		return benchFront(ctx, facts, client, httpengine.Name(by))
	} else if kind == "portico" {
		return benchFront(ctx, facts, client, httpengine.Portico)
	}
	config, err := pki.ClientConfig(pki.ClientOptions{ServerName: "svc.ns.svc", Roots: facts.CA, Certificate: client})
	if err != nil {
		return nil, err
	}
	t := &http.Transport{TLSClientConfig: config, DisableCompression: true, MaxIdleConnsPerHost: 300, Protocols: new(http.Protocols)}
	t.Protocols.SetHTTP1(kind == "bare-h1")
	t.Protocols.SetHTTP2(kind == "bare-h2")
	if kind == "bare-h1" {
		config.NextProtos = []string{"http/1.1"}
	}
	to := &url.URL{Scheme: "https", Host: facts.Backend}
	return &httputil.ReverseProxy{
		Transport:  t,
		BufferPool: &benchPool{},
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.SetXForwarded()
			r.Out.Header.Del("Authorization")
			r.Out.Header["X-Remote-User"] = []string{"alice"}
			r.Out.Header["X-Remote-Group"] = []string{"dev", "ops", "system:authenticated"}
		},
	}, nil
}

type benchPool struct{ pool sync.Pool }

func (p *benchPool) Get() []byte {
	if b, ok := p.pool.Get().(*[]byte); ok {
		return *b
	}
	return make([]byte, 32<<10)
}

func (p *benchPool) Put(b []byte) { p.pool.Put(&b) }

func benchFront(ctx context.Context, facts *environmentFacts, client *pki.KeyPair, by httpengine.Name) (http.Handler, error) {
	reg := prometheus.NewRegistry()
	set := transport.New(transport.Options{
		MaxInFlight: 10_000, // all clients are one user
		Engine:      by, AllowLoopback: true, Certificate: client, Metrics: metrics.NewBackends(reg),
		OnSuccess: func(*transport.Backend) {}, OnFailure: func(*transport.Backend, error) {},
	})
	backend, err := set.Backend(transport.Spec{
		Name: "ns/svc:443", ServerName: "svc.ns.svc", CABundle: facts.CA, Endpoints: []transport.Endpoint{{Address: facts.Backend}},
	})
	if err != nil {
		return nil, err
	}
	who, err := authn.New(authn.Config{
		TokenFile: filepath.Join(facts.Dir, "tokens"), Anonymous: true, Metrics: metrics.NewAuth(reg), Logger: zap.NewNop(),
	})
	if err != nil {
		return nil, err
	}
	may, err := thingsRules(reg)
	if err != nil {
		return nil, err
	}
	trail, err := audit.New(audit.Config{LogPath: os.DevNull, Metrics: metrics.NewAudit(reg), Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	go func() { _ = trail.Run(ctx) }()
	requests := metrics.NewRequests(reg)
	gv := schema.GroupVersion{Group: "bench.example.com", Version: "v1"}
	table := routetable.NewTable([]*routetable.Route{{
		GroupVersion: gv, Name: "v1.bench.example.com", Backend: backend,
		Condition: apiregistrationv1.APIServiceCondition{Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue},
	}}, true)
	nobody := http.NotFoundHandler()
	return NewChain(ChainConfig{
		Authenticator: who, Authorizer: may, Ready: func() error { return nil }, Audit: trail, Metrics: requests,
		Logger: zap.NewNop(), Drainer: NewDrainer(),
	}, &Router{
		Groups: dispatch.New(dispatch.Config{
			Routes: func() *routetable.Table { return table }, Local: nobody, Discovery: nobody,
			Proxy: proxy.New(proxy.Config{Logger: zap.NewNop(), Requests: requests}),
		}),
		Discovery: nobody, OpenAPI: nobody, Static: nobody,
	})
}

func thingsRules(reg prometheus.Registerer) (*authz.Authorizer, error) {
	rules := rbac.New(zap.NewNop())
	meta := metav1.ObjectMeta{Name: "things", Namespace: "ns1"}
	rules.Load(rbac.Policy{
		Roles: []*rbacv1.Role{{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
			Verbs: []string{"get", "list", "watch", "create"}, APIGroups: []string{"bench.example.com"}, Resources: []string{"things"},
		}}}},
		RoleBindings: []*rbacv1.RoleBinding{{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "things"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "alice"}},
		}},
	})
	return authz.New(authz.Config{
		Modes: []string{authz.ModeRBAC}, RBAC: rules, Metrics: metrics.NewAuthorization(reg), Logger: zap.NewNop(),
		WebhookVersion: authz.DefaultWebhookVersion,
	})
}
