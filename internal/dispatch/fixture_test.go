package dispatch

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/filters"
	"portico.dev/internal/httpengine/enginetest"
	"portico.dev/internal/metrics"
	"portico.dev/internal/proxy"
	"portico.dev/internal/request"
	"portico.dev/internal/routetable"
	"portico.dev/internal/transport"
)

var alice = &user.DefaultInfo{Name: "alice"}

const widgets = "/apis/example.com/v1/namespaces/a/widgets"

// probe is a handler that counts its requests, and responds with its name, or with serve.
type probe struct {
	name   string
	code   int
	header map[string]string
	calls  []*filters.Request
	serve  func(w http.ResponseWriter, r *filters.Request)
}

// Serve implements Handler.
func (p *probe) Serve(w http.ResponseWriter, r *filters.Request) {
	p.calls = append(p.calls, r)
	if p.serve != nil {
		p.serve(w, r)
		return
	}
	for name, value := range p.header {
		w.Header().Set(name, value)
	}
	if p.code != 0 {
		w.WriteHeader(p.code)
	}
	_, _ = w.Write([]byte(p.name))
}

func (p *probe) count() int { return len(p.calls) }

// ask sends a request through a chain without filters, and returns the response and the recorded request.
func ask(t testing.TB, h Handler, method, target string, header ...string) (*httptest.ResponseRecorder, *filters.Request) {
	t.Helper()
	w, made := httptest.NewRecorder(), httptest.NewRequest(method, target, nil)
	for i := 0; i < len(header); i += 2 {
		made.Header.Set(header[i], header[i+1])
	}
	info, err := request.NewResolver().Info(made)
	if err != nil {
		t.Fatal(err)
	}
	var asked *filters.Request
	within := filters.Chain(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = filters.RequestOf(r)
		h.Serve(&filters.Response{ResponseWriter: w}, asked)
	}), []filters.Filter{{Name: "recover", Wrap: filters.Recover(zap.NewNop(), metrics.NewRequests(prometheus.NewRegistry()))}})
	c := &filters.Context{Context: request.Context{Context: context.WithoutCancel(t.Context()), Info: info, User: alice, AuditID: "audit-1"}}
	within.ServeHTTP(w, made.WithContext(c))
	return w, asked
}

func newSet(t testing.TB) *transport.Set {
	t.Helper()
	set := transport.New(transport.Options{Engine: enginetest.Backend(t)})
	t.Cleanup(set.Close)
	return set
}

// configOf returns a configuration for a table.
func configOf(table *routetable.Table) Config {
	named := func(name string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(name)) })
	}
	return Config{Routes: func() *routetable.Table { return table }, Proxy: proxy.New(proxy.Config{}), Local: named("local"), Discovery: named("discovery")}
}
