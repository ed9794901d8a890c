package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"portico.dev/internal/metrics"
	"portico.dev/internal/replicas/peers"
)

func TestDataForSlowClientsIsReported(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	config := ChainConfig{Buffered: metrics.NewBuffered(reg)}
	first, second := config.newSlowClients(), config.newSlowClients() // of two chains
	first.used.Take("alice", 1000, first.budget)
	second.used.Take("bob", 24, second.budget)
	report := func() float64 {
		t.Helper()
		families, err := reg.Gather()
		if err != nil || len(families) != 1 || len(families[0].Metric) != 1 {
			t.Fatalf("metrics = %v, %v; want one series", families, err)
		}
		return families[0].Metric[0].GetGauge().GetValue()
	}
	if got := report(); got != 1024 {
		t.Errorf("portico_buffered_bytes = %v, want 1024", got)
	}
	first.used.Give("alice", 1000)
	if got := report(); got != 24 {
		t.Errorf("portico_buffered_bytes after the first response = %v, want 24", got)
	}
}

// provenReplica accepts every request as one of another replica, for alice.
type provenReplica struct{}

func (provenReplica) Verify(*http.Request) (*peers.Statement, error) {
	return &peers.Statement{Name: "alice"}, nil
}

func TestPeerRequestIsReportedWhileItIsServed(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := metrics.NewPeers(reg)
	expect := func(when, value string) {
		t.Helper()
		want := "# HELP portico_peer_requests_serving Requests of other replicas that are being served, with watches and other long-running ones.\n" +
			"# TYPE portico_peer_requests_serving gauge\nportico_peer_requests_serving " + value + "\n"
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "portico_peer_requests_serving"); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	served := 0
	chain := NewPeerChain(newBench("alice *").config, provenReplica{}, m, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		served++
		expect("during the request", "1")
		if served == 2 {
			panic(http.ErrAbortHandler)
		}
	}))
	for range 2 { // the second one is aborted
		func() {
			defer func() { _ = recover() }()
			chain.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/api/v1/namespaces/ns/pods", nil))
		}()
		expect("after the request", "0")
	}
	if served != 2 {
		t.Errorf("%d requests were served, want 2", served)
	}
}
