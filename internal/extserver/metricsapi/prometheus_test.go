package metricsapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"portico.dev/internal/extserver/prometheus"
	"portico.dev/pkg/extension"
)

// prometheusServer answers the four queries and records them.
type prometheusServer struct {
	mu      sync.Mutex
	answers map[string]string // by a word of the query; absent: the server fails
	asked   []string
}

func (p *prometheusServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	query := r.FormValue("query")
	p.asked = append(p.asked, query)
	for word, elements := range p.answers {
		if strings.Contains(query, word) {
			warnings := ""
			if strings.Contains(elements, "n2") {
				warnings = `,"warnings":["one store is down"]`
			}
			says(200, strings.TrimSuffix(vector(elements), "}")+warnings+"}")(w, r)
			return
		}
	}
	says(503, `{"status":"error","errorType":"unavailable","error":"no such store"}`)(w, r)
}

func (p *prometheusServer) set(word, elements string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if elements == "" {
		delete(p.answers, word)
		return
	}
	p.answers[word] = elements
}

// says returns a handler with a fixed response in the format of Prometheus.
func says(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

func vector(elements string) string {
	return `{"status":"success","data":{"resultType":"vector","result":[` + elements + `]}}`
}

func element(value string, labels ...string) string {
	var pairs []string
	for i := 0; i+1 < len(labels); i += 2 {
		pairs = append(pairs, fmt.Sprintf("%q:%q", labels[i], labels[i+1]))
	}
	return fmt.Sprintf(`{"metric":{%s},"value":[%d,%q]}`, strings.Join(pairs, ","), time.Now().Unix(), value)
}

func container(value, pod, name string) string {
	return element(value, "namespace", "shop", "pod", pod, "container", name)
}

func elements(all ...string) string { return strings.Join(all, ",") }

// api lists one Node and one Pod.
func api(w http.ResponseWriter, r *http.Request) {
	object := `{"metadata":{"name":"n1","labels":{"zone":"a"}}}`
	if strings.HasSuffix(r.URL.Path, "/pods") {
		object = `{"metadata":{"namespace":"shop","name":"web","labels":{"app":"web"}}}`
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{},"items":[`+object+`]}`)
}

func startPrometheusSource(t *testing.T, s *PrometheusSource) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		must(t, <-done)
	})
}

func TestPrometheusSeriesBecomeNodesAndPods(t *testing.T) {
	p := &prometheusServer{answers: map[string]string{
		"node_cpu_seconds_total": elements(element("1.5", "instance", "N1:9100"), element("2", "node", "n2", "instance", "10.0.0.2:9100"), element("NaN", "node", "n3")),
		"node_memory_MemTotal":   elements(element("1073741824", "instance", "n1:9100"), element("1024", "node", "n2"), element("1024", "node", "n3"), element("1024", "node", "n4")),
		"container_cpu":          elements(container("0.25", "web", "main"), container("0.5", "web", "proxy"), container("1", "half", "main"), element("9", "pod", "nowhere")),
		"container_memory":       elements(container("1024", "web", "main"), container("2048", "web", "proxy"), container("1", "half", "main"), container("1", "half", "new")),
	}}
	server := httptest.NewServer(p)
	defer server.Close()
	front := httptest.NewServer(http.HandlerFunc(api))
	defer front.Close()
	s, err := NewPrometheusSource(PrometheusConfig{Prometheus: prometheus.Config{URL: server.URL}, Window: 90 * time.Second, Resolution: 20 * time.Millisecond, MaxAge: time.Hour,
		Client: &rest.Config{Host: front.URL}})
	must(t, err)
	if s.Stored(t.Context()) == nil {
		t.Error("Stored before the first query = nil, want an error")
	}
	startPrometheusSource(t, s)
	eventually(t, "labels of both", func() bool {
		nodes, _ := s.Nodes(t.Context(), extension.Query{Name: "n1"})
		pods, _ := s.Pods(t.Context(), extension.Query{Namespace: "shop", Name: "web"})
		return len(nodes) == 1 && nodes[0].Labels["zone"] == "a" && len(pods) == 1 && pods[0].Labels["app"] == "web"
	})
	nodes, _ := s.Nodes(t.Context(), extension.Query{})
	if len(nodes) != 2 || nodes[0].Cores != 1.5 || nodes[0].WorkingSet != 1<<30 || nodes[1].Name != "n2" || nodes[0].Window != 90*time.Second {
		t.Errorf("nodes = %+v, want 2 with the values of the server", nodes)
	}
	pods, _ := s.Pods(t.Context(), extension.Query{})
	if len(pods) != 1 || len(pods[0].Containers) != 2 || pods[0].Containers[1].Name != "proxy" || pods[0].Containers[1].Cores != 0.5 || pods[0].Containers[1].WorkingSet != 2048 {
		t.Errorf("pods = %+v, want one with 2 containers and the values of the server", pods)
	}
	if s.LastError() != nil || s.Stored(t.Context()) != nil {
		t.Errorf("LastError = %v, want a complete measurement without errors", s.LastError())
	}
	p.mu.Lock()
	if !slices.ContainsFunc(p.asked, func(q string) bool { return strings.Contains(q, "[90s]") }) {
		t.Errorf("queries = %q, want one with the window [90s]", p.asked[:4])
	}
	p.mu.Unlock()

	p.set("container_cpu", "")
	eventually(t, "trouble with pods", func() bool { return s.LastError() != nil && strings.Contains(s.LastError().Error(), "metrics of pods") })
	if nodes, _ := s.Nodes(t.Context(), extension.Query{}); len(nodes) != 2 {
		t.Errorf("nodes after the query of the Pods failed = %+v, want 2", nodes)
	}
	var refused *prometheus.Error
	if !errors.As(s.LastError(), &refused) || refused.Code != 503 {
		t.Errorf("LastError = %v, want a prometheus.Error with code 503", s.LastError())
	}
	p.set("container_cpu", container("0.25", "web", "main")+","+container("0.5", "web", "proxy"))
	eventually(t, "the end of trouble", func() bool { return s.LastError() == nil })
}

func TestUnreachablePrometheusGivesNoMetrics(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	s, err := NewPrometheusSource(PrometheusConfig{Prometheus: prometheus.Config{URL: server.URL}, Resolution: 20 * time.Millisecond})
	must(t, err)
	startPrometheusSource(t, s)
	eventually(t, "trouble", func() bool { return s.LastError() != nil })
	if nodes, err := s.Nodes(t.Context(), extension.Query{}); err != nil || len(nodes) != 0 {
		t.Errorf("Nodes of an unreachable server = %v, error %v, want none and no error", nodes, err)
	}
	if s.Stored(t.Context()) == nil {
		t.Error("Stored without metrics = nil, want an error")
	}
}
