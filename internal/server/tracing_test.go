package server

import (
	"context"
	"encoding/hex"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"portico.dev/internal/routetable"
)

// gatherer is an OTLP collector in the test process.
type gatherer struct {
	collector.UnimplementedTraceServiceServer
	mu    sync.Mutex // guards spans
	spans []*otlp.Span
}

func (g *gatherer) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, resource := range r.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			g.spans = append(g.spans, scope.Spans...)
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// traced sends requests through a chain with tracing, and returns the spans and the header that reached the backend.
func traced(t *testing.T, perMillion int, headers ...string) (spans []*otlp.Span, arrived http.Header) {
	t.Helper()
	g := &gatherer{}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	collector.RegisterTraceServiceServer(s, g)
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(l) })
	p := NewTracerProvider(TracingConfig{Endpoint: l.Addr().String(), SamplingRatePerMillion: perMillion, Service: "aggregator", Interval: 10 * time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	started := make(chan struct{})
	running.Go(func() {
		close(started)
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	<-started
	b := newBench("alice *", "admin *")
	b.config.Tracer = p.Tracer()
	b.remote(t, routetable.Options{}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { arrived = r.Header }))
	deadline := time.Now().Add(30 * time.Second)
	ofRequest := func(s *otlp.Span) bool { return s.Kind == otlp.Span_SPAN_KIND_SERVER }
	for arrived == nil || perMillion > 0 && !slices.ContainsFunc(spans, ofRequest) && time.Now().Before(deadline) {
		// The provider accepts spans once it runs. A request before that has none, and an early one may have only its attempt's span.
		if w := b.do(t, http.MethodGet, foo+"/status", headers...); w.Code != http.StatusOK {
			t.Fatalf("GET of the status = %d %s, want 200", w.Code, w.Body)
		}
		<-time.After(30 * time.Millisecond)
		g.mu.Lock()
		spans = slices.Clone(g.spans)
		g.mu.Unlock()
	}
	cancel()
	running.Wait() // sends the remaining spans
	s.Stop()
	wg.Wait()
	return g.spans, arrived
}

const (
	theirTrace  = "0af7651916cd43dd8448eb211c80319c"
	traceparent = "Traceparent: 00-" + theirTrace + "-b7ad6b7169203331-01"
)

func TestTraceIsPropagatedFromClientToBackend(t *testing.T) {
	spans, arrived := traced(t, 1_000_000, "Test-User: alice", traceparent, "Baggage: secret=canary", "Tracestate: a=b")
	if len(spans) < 2 {
		t.Fatalf("%d spans of the request, want at least 2", len(spans))
	}
	last := spans[len(spans)-2:]
	request, attempt := last[0], last[1]
	if request.Kind != otlp.Span_SPAN_KIND_SERVER {
		request, attempt = attempt, request
	}
	if request.Name != "GET foos/status" || attempt.Name != "attempt" || attempt.Kind != otlp.Span_SPAN_KIND_CLIENT {
		t.Errorf("spans = %q and %q of kind %v, want GET foos/status and attempt of kind client", request.Name, attempt.Name, attempt.Kind)
	}
	if string(attempt.ParentSpanId) != string(request.SpanId) || string(attempt.TraceId) != string(request.TraceId) {
		t.Errorf("attempt = %v, want it to be a child of the request %v", attempt, request)
	}
	want := "00-" + hex.EncodeToString(attempt.TraceId) + "-" + hex.EncodeToString(attempt.SpanId) + "-01"
	if got := arrived.Get("Traceparent"); got != want {
		t.Errorf("Traceparent at the backend = %q, want %q", got, want)
	}
	if arrived.Get("Baggage") != "" || arrived.Get("Tracestate") != "" {
		t.Errorf("header at the backend = %v, want no Baggage and no Tracestate", arrived)
	}
	// alice is an ordinary user: her trace is linked, not continued.
	if hex.EncodeToString(request.TraceId) == theirTrace || len(request.Links) != 1 || hex.EncodeToString(request.Links[0].TraceId) != theirTrace {
		t.Errorf("trace of the request = %x with the links %v, want a new trace with a link to %s", request.TraceId, request.Links, theirTrace)
	}
	text := request.String() + attempt.String()
	if strings.Contains(text, "canary") || strings.Contains(text, "alice") {
		t.Errorf("spans = %s, want neither the baggage nor the user", text)
	}
}

func TestTraceOfPrivilegedClientIsContinued(t *testing.T) {
	for _, test := range []struct {
		name      string
		headers   []string
		continued bool
	}{
		{"an administrator", []string{"Test-User: admin", "Test-Group: system:masters"}, true},
		{"who watches over us", []string{"Test-User: admin", "Test-Group: system:monitoring"}, true},
		{"anybody", []string{"Test-User: alice", "Test-Group: dev"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			// The sampling rate is 0. A span is sampled only because the caller requests it.
			spans, arrived := traced(t, 0, append(test.headers, traceparent)...)
			got := arrived.Get("Traceparent")
			if strings.Contains(got, theirTrace) != test.continued || strings.HasSuffix(got, "-01") != test.continued || got == "" {
				t.Errorf("Traceparent at the backend = %q, want the client's trace, sampled, if continued (%t)", got, test.continued)
			}
			if !test.continued && len(spans) != 0 {
				t.Errorf("%d spans were sampled, want 0", len(spans))
			}
		})
	}
}

func TestD12OversizedTraceContextIsIgnored(t *testing.T) {
	for _, headers := range [][]string{
		{traceparent + strings.Repeat("x", 1<<20)},
		{traceparent, traceparent},
		{"Traceparent: 00-nonsense"},
	} {
		_, arrived := traced(t, 0, append(headers, "Test-User: admin", "Test-Group: system:masters")...)
		if got := arrived.Get("Traceparent"); strings.Contains(got, theirTrace) || len(got) > 100 {
			t.Errorf("Traceparent at the backend = %.100q, want a new one of at most 100 bytes", got)
		}
	}
}

// An unreachable collector costs only spans.
func TestUnreachableCollectorDropsSpans(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	l, err := net.Listen("tcp", "127.0.0.2:0") // no other process listens there: the port stays closed
	if err != nil {
		l, err = net.Listen("tcp", "127.0.0.1:0") // on hosts with a single loopback address
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	p := NewTracerProvider(TracingConfig{Endpoint: l.Addr().String(), SamplingRatePerMillion: 1_000_000, Interval: time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	b := newBench("alice *")
	b.config.Tracer = p.Tracer()
	start := time.Now()
	for range 100 {
		if w := b.do(t, http.MethodGet, foo, "Test-User: alice"); w.Code != http.StatusOK {
			t.Fatalf("GET without a collector = %d, want 200", w.Code)
		}
	}
	if took := time.Since(start); took > time.Minute {
		t.Errorf("time of 100 requests = %s, want at most a minute", took)
	}
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("provider still runs 20 seconds after the cancellation, want it stopped")
	}
}
