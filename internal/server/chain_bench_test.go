package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/audit"
	"portico.dev/internal/auth/authn"
	"portico.dev/internal/auth/authz"
	"portico.dev/internal/auth/rbac"
	"portico.dev/internal/fairness"
	"portico.dev/internal/logging"
	"portico.dev/internal/metrics"
)

// BenchmarkChain measures the complete chain between net/http's server and the handler: token file authentication,
// RBAC, fairness and metrics, and optionally the audit log and the access log in files. The
// handler does nothing. The request and its writer are reused.
//
//	go test ./internal/server -run '^$' -bench Chain -cpu 2
func BenchmarkChain(b *testing.B) {
	bench := newBench()
	bench.useFairness(b, 600, nil)
	for _, shape := range []string{"proxied", "local"} {
		for _, c := range []struct {
			name          string
			audit, access bool
		}{{"bare", false, false}, {"audit", true, false}, {"log", false, true}, {"audit+log", true, true}} {
			h := benchChain(b, bench.config.Fairness, c.audit, c.access, benchEnd(shape))
			for _, parallel := range []int{1, 32} {
				b.Run(fmt.Sprintf("%s/%s/%d", shape, c.name, parallel), func(b *testing.B) { benchParallel(b, h, shape, parallel) })
			}
		}
	}
}

func benchParallel(b *testing.B, h http.Handler, shape string, parallel int) {
	b.ReportAllocs()
	before := cpuTime(b)
	defer func() { b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op") }()
	if parallel == 1 {
		k := newRequestSender(b.Context(), shape)
		for b.Loop() {
			k.knock(h)
		}
		return
	}
	b.SetParallelism((parallel + 1) / 2) // for two processors
	b.RunParallel(func(pb *testing.PB) {
		k := newRequestSender(b.Context(), shape)
		for pb.Next() {
			k.knock(h)
		}
	})
	b.StopTimer()
}

// cpuTime is the CPU time of the process, including the log writers and the garbage collector.
func cpuTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// requestSender sends one request repeatedly.
type requestSender struct {
	given   http.Request
	header  http.Header
	writer  idleWriter
	request http.Request
}

func newRequestSender(ctx context.Context, shape string) *requestSender {
	path := "/apis/bench.example.com/v1/namespaces/ns1/things/one"
	if shape == "local" {
		path = "/api/v1/namespaces/ns1/configmaps/one"
	}
	ctx, cancel := context.WithCancel(ctx) // as net/http's
	_ = cancel
	k := &requestSender{
		header: http.Header{
			"Authorization": {"Bearer bench-token"}, "Accept": {"application/json"}, "Accept-Encoding": {"gzip"},
			"User-Agent": {"kubectl/v1.37.2 (linux/amd64) kubernetes/abcdef0"},
		},
		writer: idleWriter{header: http.Header{}},
	}
	r := &http.Request{
		Method: http.MethodGet, URL: &url.URL{Path: path}, RequestURI: path, Proto: "HTTP/2.0", ProtoMajor: 2, Host: "front:6443",
		RemoteAddr: "10.0.0.1:41234", Header: http.Header{}, Body: http.NoBody, TLS: &tls.ConnectionState{},
	}
	k.given = *r.WithContext(ctx)
	return k
}

func (k *requestSender) knock(h http.Handler) {
	k.request = k.given
	clear(k.request.Header)
	maps.Copy(k.request.Header, k.header)
	clear(k.writer.header)
	k.writer.code = 0
	h.ServeHTTP(&k.writer, &k.request)
	if k.writer.code != http.StatusOK {
		panic(fmt.Sprint("answered ", k.writer.code))
	}
}

type idleWriter struct {
	header http.Header
	code   int
}

func (w *idleWriter) Header() http.Header         { return w.header }
func (w *idleWriter) WriteHeader(code int)        { w.code = code }
func (w *idleWriter) Write(p []byte) (int, error) { return len(p), nil }
func (w *idleWriter) Flush()                      {}

// benchChain stops every component that it starts when the benchmark ends.
func benchChain(b *testing.B, turns *fairness.Fairness, audited, logged bool, end http.Handler) http.Handler {
	b.Helper()
	reg, dir := prometheus.NewRegistry(), b.TempDir()
	c := ChainConfig{
		Fairness: turns, Ready: func() error { return nil }, Metrics: metrics.NewRequests(reg),
		Logger: zap.NewNop(), Drainer: NewDrainer(),
	}
	tokens := filepath.Join(dir, "tokens")
	if err := os.WriteFile(tokens, []byte("bench-token,alice,u-1,\"dev,ops\"\n"), 0o600); err != nil {
		b.Fatal(err)
	}
	var err error
	if c.Authenticator, err = authn.New(authn.Config{TokenFile: tokens, Anonymous: true, Metrics: metrics.NewAuth(reg), Logger: zap.NewNop()}); err != nil {
		b.Fatal(err)
	}
	if c.Authorizer, err = benchRules(reg); err != nil {
		b.Fatal(err)
	}
	if audited {
		a, err := audit.New(audit.Config{LogPath: filepath.Join(dir, "audit.log"), Metrics: metrics.NewAudit(reg), Logger: zap.NewNop()})
		if err != nil {
			b.Fatal(err)
		}
		runUntilEnd(b, a.Run, closedChannel())
		c.Audit = a
	}
	if logged {
		c.AccessLog = benchAccessLog(b, dir)
	}
	h, err := NewChain(c, end)
	if err != nil {
		b.Fatal(err)
	}
	return h
}

func closedChannel() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

func benchAccessLog(b *testing.B, dir string) *zap.Logger {
	f, err := os.Create(filepath.Join(dir, "access.log"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = f.Close() })
	log, err := logging.Default().To(f)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = log.Sync() })
	return log.Named("access")
}

// benchEnd returns a handler that writes 1 KB and reports what local and proxied handlers report.
func benchEnd(shape string) http.Handler {
	body, contentType := make([]byte, 1<<10), []string{"application/json"}
	end := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = contentType
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write(body)
	})
	if shape == "local" {
		local := ForLocal(nil, end)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			recordFrom(r.Context()).ServedBy = "local"
			local.ServeHTTP(w, r)
		})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := recordFrom(r.Context())
		rec.ServedBy = "v1.bench.example.com"
		rec.HoldSeat(false)
		defer rec.CancelSeatRelease()
		rec.Attempted("10.0.0.2:8443", 1)
		end.ServeHTTP(w, r)
	})
}

func benchRules(reg prometheus.Registerer) (*authz.Authorizer, error) {
	rules := rbac.New(zap.NewNop())
	meta := metav1.ObjectMeta{Name: "things", Namespace: "ns1"}
	rules.Load(rbac.Policy{
		Roles: []*rbacv1.Role{{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
			Verbs: []string{"get", "list", "watch"}, APIGroups: []string{"bench.example.com", "example.com", ""}, Resources: []string{"things", "configmaps"},
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
