package coreapi

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apiserver/pkg/audit"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/request"
)

// wrapped is the writer that a handler chain puts around the writer of the connection. Its only method beyond
// http.ResponseWriter is Unwrap.
type wrapped struct {
	http.ResponseWriter
}

func (w wrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func TestWebSocketWatchWorksThroughWrappedWriters(t *testing.T) {
	h := start(t)
	namespace(t, h.typed(t, admin), "work")
	resolver := request.NewResolver()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, err := resolver.Info(r)
		if err != nil {
			t.Error(err)
		}
		ctx := apirequest.WithUser(apirequest.WithRequestInfo(audit.WithAuditContext(r.Context()), info), admin)
		h.Handler().ServeHTTP(wrapped{w}, r.WithContext(ctx))
	}))
	defer server.Close()
	r, err := http.NewRequestWithContext(within(t), http.MethodGet, server.URL+"/api/v1/namespaces?watch=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if line, err := bufio.NewReader(answer.Body).ReadString('\n'); err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("watch over a socket = %d %q, %v, want 200 and a line", answer.StatusCode, line, err)
	}
}
