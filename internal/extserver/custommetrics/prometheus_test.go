package custommetrics_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/metrics/pkg/client/custom_metrics"
	"k8s.io/metrics/pkg/client/external_metrics"

	"portico.dev/internal/auth/authtest"
	"portico.dev/internal/clients/apiclient"
	"portico.dev/internal/extserver/custommetrics"
	"portico.dev/internal/extserver/hosttest"
	"portico.dev/internal/extserver/prometheus"
	"portico.dev/pkg/extension"
)

const ruleFile = `rules:
- seriesQuery: 'http_requests_total{namespace!="",pod!=""}'
  resources: {template: <<.Resource>>}
  name: {matches: ^(.*)_total$, as: "${1}_per_second"}
  metricsQuery: sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)
- seriesQuery: 'node_load{node!=""}'
  resources: {overrides: {node: {resource: node}}}
  metricsQuery: <<.Series>>{<<.LabelMatchers>>}
externalRules:
- seriesQuery: queue_depth
  resources: {overrides: {namespace: {resource: namespace}}}
  metricsQuery: <<.Series>>{<<.LabelMatchers>>}
`

// server is a Prometheus that answers in the format of the real API from a table of queries and results.
type server struct {
	*httptest.Server
	mu      sync.Mutex
	series  map[string][]map[string]string
	vectors map[string]string // by query: the result of a vector
	broken  bool
	asked   []string
}

func newServer(t *testing.T) *server {
	s := &server{series: map[string][]map[string]string{
		`http_requests_total{namespace!="",pod!=""}`: {
			{"__name__": "http_requests_total", "namespace": "shop", "pod": "web-1", "verb": "GET", "instance": "a"},
			{"__name__": "http_requests_total", "namespace": "shop", "pod": "web-2", "verb": "GET", "instance": "b"},
		},
		`node_load{node!=""}`: {{"__name__": "node_load", "node": "n1"}},
		`queue_depth`:         {{"__name__": "queue_depth", "namespace": "shop", "queue": "mail"}},
	}, vectors: map[string]string{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case s.broken:
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, `{"status":"error","errorType":"unavailable","error":"TSDB not ready"}`)
	case strings.HasSuffix(r.URL.Path, "/api/v1/series"):
		data, _ := json.Marshal(s.series[r.FormValue("match[]")])
		fmt.Fprintf(w, `{"status":"success","data":%s}`, data)
	default:
		query := r.FormValue("query")
		s.asked = append(s.asked, query)
		result, ok := s.vectors[query]
		switch {
		case !ok:
			result = "[]"
		case strings.HasPrefix(result, "error "):
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `{"status":"error","errorType":"bad_data","error":%q}`, result)
			return
		}
		fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":%s},"warnings":["partial answer"]}`, result)
	}
}

func (s *server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// vector is a result with one sample for each "label=value,label=value:number".
func vector(samples ...string) string {
	var out []string
	for _, s := range samples {
		text, number, _ := strings.Cut(s, ":")
		metric := map[string]string{}
		for pair := range strings.SplitSeq(text, ",") {
			k, v, _ := strings.Cut(pair, "=")
			metric[k] = v
		}
		raw, _ := json.Marshal(metric)
		out = append(out, fmt.Sprintf(`{"metric":%s,"value":[1700000000.5,%q]}`, raw, number))
	}
	return "[" + strings.Join(out, ",") + "]"
}

// api is a front door with three pods.
func api(t *testing.T) http.HandlerFunc {
	pods := map[string]labels.Set{"web-1": {"app": "web"}, "web-2": {"app": "web"}, "db": {"app": "db"}}
	return func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api", "/apis":
			fmt.Fprint(w, `{"apiVersion":"apidiscovery.k8s.io/v2","kind":"APIGroupDiscoveryList","items":[]}`)
		case "/api/v1/namespaces/shop/pods":
			selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
			if err != nil {
				t.Error(err)
			}
			list := metav1.PartialObjectMetadataList{}
			for name, set := range pods {
				if selector.Matches(set) {
					list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}})
				}
			}
			_ = json.NewEncoder(w).Encode(list)
		default:
			w.WriteHeader(http.StatusForbidden)
			_ = json.NewEncoder(w).Encode(apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", fmt.Errorf("no")).ErrStatus)
		}
	}
}

// testHost is a host with both groups from a Prometheus.
type testHost struct {
	*hosttest.Server
	prometheus *server
	provider   *custommetrics.PrometheusProvider
}

func open(t *testing.T, more ...custommetrics.CustomSource) *testHost {
	t.Helper()
	s := newServer(t)
	frontDoor := authtest.Serve(t, api(t))
	client, err := apiclient.New(&rest.Config{Host: frontDoor.URL, TLSClientConfig: rest.TLSClientConfig{CAData: frontDoor.RootPEM}})
	must(t, err)
	known := custommetrics.NewObjects(custommetrics.ObjectsConfig{Client: client})
	asks, err := prometheus.New(prometheus.Config{URL: s.URL})
	must(t, err)
	t.Cleanup(asks.Close)
	config, err := custommetrics.ReadRules("rules.yaml", []byte(ruleFile))
	must(t, err)
	provider, err := custommetrics.NewPrometheusProvider(custommetrics.PrometheusConfig{File: "rules.yaml", Client: asks, Rules: config, Objects: known, Interval: 20 * time.Millisecond})
	must(t, err)
	hosttest.Run(t, known.Run, nil)
	hosttest.Run(t, provider.Run, nil)
	hosttest.Eventually(t, "series are known", func() bool { return provider.Source().LastError() == nil })
	resources := append(custommetrics.Custom(append(more, provider.Custom())...), custommetrics.External(provider.External()))
	return &testHost{hosttest.Serve(t, func(c *extension.Config) {
		c.Sources = func() []extension.Source { return []extension.Source{provider.Source()} }
	}, resources...), s, provider}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The clients are the clients of the HorizontalPodAutoscaler controller.
func (h *testHost) custom(t *testing.T, version string) custom_metrics.CustomMetricsClient {
	t.Helper()
	client, err := custom_metrics.NewForVersionForConfig(h.As("hpa"), testrestmapper.TestOnlyStaticRESTMapper(scheme.Scheme),
		schema.GroupVersion{Group: custommetrics.CustomGroup, Version: version})
	must(t, err)
	return client
}

const rates = `sum(rate(http_requests_total{namespace="shop",pod=~"web-1|web-2"}[2m])) by (pod)`

func TestAutoscalerClientReadsCustomMetrics(t *testing.T) {
	h := open(t)
	h.prometheus.set(func() {
		h.prometheus.vectors = map[string]string{
			rates: vector("pod=web-1:1.5", "pod=web-2:0.25", "pod=other:9"),
			`sum(rate(http_requests_total{verb="GET",namespace="shop",pod="web-1"}[2m])) by (pod)`: vector("pod=web-1:3"),
			`sum(rate(http_requests_total{namespace="shop"}[2m])) by (namespace)`:                  vector("namespace=shop:7"),
			`node_load{node="n1"}`: vector("node=n1:0.75"),
		}
	})
	pod := schema.GroupKind{Kind: "Pod"}
	for _, version := range []string{"v1beta1", "v1beta2"} {
		t.Run(version, func(t *testing.T) {
			c := h.custom(t, version)
			web := labels.SelectorFromSet(labels.Set{"app": "web"})
			list, err := c.NamespacedMetrics("shop").GetForObjects(pod, web, "http_requests_per_second", labels.Everything())
			must(t, err)
			if len(list.Items) != 2 {
				t.Fatalf("http_requests_per_second of the Pods = %+v, want 2 items", list)
			}
			first := list.Items[0]
			if first.DescribedObject.Kind != "Pod" || first.DescribedObject.APIVersion != "v1" || first.DescribedObject.Name != "web-1" ||
				first.DescribedObject.Namespace != "shop" || first.Value.MilliValue() != 1500 || list.Items[1].Value.MilliValue() != 250 ||
				first.WindowSeconds == nil || *first.WindowSeconds != 120 || first.Timestamp.Unix() != 1700000000 || first.Metric.Name != "http_requests_per_second" {
				t.Errorf("first item = %+v, want 1500m for the Pod shop/web-1 over 120 seconds", first)
			}
			one, err := c.NamespacedMetrics("shop").GetForObject(pod, "web-1", "http_requests_per_second", labels.SelectorFromSet(labels.Set{"verb": "GET"}))
			must(t, err)
			if one.Value.Value() != 3 || one.Metric.Selector == nil || one.Metric.Selector.MatchLabels["verb"] != "GET" {
				t.Errorf("metric of web-1 with verb=GET = %+v, want 3 with the selector", one)
			}
			space, err := c.RootScopedMetrics().GetForObject(schema.GroupKind{Kind: "Namespace"}, "shop", "http_requests_per_second", labels.Everything())
			must(t, err)
			if space.Value.Value() != 7 || space.DescribedObject.Kind != "Namespace" || space.DescribedObject.Name != "shop" {
				t.Errorf("metric of the Namespace shop = %+v, want 7", space)
			}
			node, err := c.RootScopedMetrics().GetForObject(schema.GroupKind{Kind: "Node"}, "n1", "node_load", labels.Everything())
			must(t, err)
			if node.Value.MilliValue() != 750 || node.WindowSeconds != nil {
				t.Errorf("metric node_load of n1 = %+v, want 750m without a window", node)
			}
		})
	}
}

func TestAutoscalerClientReadsExternalMetrics(t *testing.T) {
	h := open(t)
	h.prometheus.set(func() {
		h.prometheus.vectors = map[string]string{
			`queue_depth{queue="mail",namespace="shop"}`: vector("__name__=queue_depth,namespace=shop,queue=mail:12", "namespace=other,queue=mail:99"),
		}
	})
	client, err := external_metrics.NewForConfig(h.As("hpa"))
	must(t, err)
	list, err := client.NamespacedMetrics("shop").List("queue_depth", labels.SelectorFromSet(labels.Set{"queue": "mail"}))
	must(t, err)
	if len(list.Items) != 1 || list.Items[0].Value.Value() != 12 || list.Items[0].MetricLabels["queue"] != "mail" || list.Items[0].MetricName != "queue_depth" {
		t.Errorf("queue_depth with queue=mail = %+v, want one item of 12", list.Items)
	}
	if _, err := client.NamespacedMetrics("shop").List("nothing", labels.Everything()); !apierrors.IsNotFound(err) {
		t.Errorf("List of an unknown external metric: error = %v, want NotFound", err)
	}
}

func TestDiscoveryListsResourceMetricPairs(t *testing.T) {
	h := open(t)
	client, err := discovery.NewDiscoveryClientForConfig(h.As("hpa"))
	must(t, err)
	for gv, want := range map[string]string{
		"custom.metrics.k8s.io/v1beta1":   "namespaces/http_requests_per_second nodes/node_load pods/http_requests_per_second",
		"custom.metrics.k8s.io/v1beta2":   "namespaces/http_requests_per_second nodes/node_load pods/http_requests_per_second",
		"external.metrics.k8s.io/v1beta1": "queue_depth",
	} {
		list, err := client.ServerResourcesForGroupVersion(gv)
		must(t, err)
		var names []string
		for _, r := range list.APIResources {
			names = append(names, r.Name)
			if r.Verbs.String() != "[get]" || r.Namespaced != (strings.HasPrefix(r.Name, "pods/") || r.Name == "queue_depth") {
				t.Errorf("discovery entry of %s = %+v, want only the verb get and the right scope", gv, r)
			}
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("resources of %s = %s, want %s", gv, got, want)
		}
	}
	t.Run("a new series shows without a restart", func(t *testing.T) {
		h.prometheus.set(func() {
			h.prometheus.series["queue_depth"] = append(h.prometheus.series["queue_depth"], map[string]string{"__name__": "queue_age", "queue": "mail"})
		})
		hosttest.Eventually(t, "queue_age is listed", func() bool { return slices.Contains(h.provider.ExternalMetrics(), "queue_age") })
		must(t, err)
	})
	t.Run("what was known stays while the server is away", func(t *testing.T) {
		h.prometheus.set(func() { h.prometheus.broken = true })
		hosttest.Eventually(t, "trouble is told", func() bool { return h.provider.Source().LastError() != nil })
		if text := h.provider.Source().LastError().Error(); !strings.Contains(text, "rules.yaml:") || !strings.Contains(text, "TSDB not ready") {
			t.Errorf("LastError of the source = %s, want the line of the rule and \"TSDB not ready\"", text)
		}
		if len(h.provider.CustomMetrics()) != 3 {
			t.Errorf("metrics while the server is unavailable = %v, want the last 3", h.provider.CustomMetrics())
		}
	})
}

const (
	pods = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/"
	rate = "/http_requests_per_second"
)

func TestInvalidMetricRequestsAreRejected(t *testing.T) {
	h := open(t)
	h.prometheus.set(func() {
		h.prometheus.vectors = map[string]string{
			`sum(rate(http_requests_total{namespace="shop",pod="bad"}[2m])) by (pod)`: "error parse error",
			`sum(rate(http_requests_total{namespace="shop",pod="nan"}[2m])) by (pod)`: vector("pod=nan:NaN"),
		}
	})
	for _, c := range []struct {
		situation, path string
		code            int
		want            string
	}{
		{"no such metric", pods + "web-1/nothing", 404, "the server could not find the metric nothing for pods"},
		{"an object without it", pods + "web-9" + rate, 404, "the server could not find the metric http_requests_per_second for pods web-9"},
		{"an object without it, selected", pods + "web-9" + rate + "?metricLabelSelector=verb%3DGET", 404, "for pods web-9 with selector verb=GET"},
		{"a value that is no number", pods + "nan" + rate, 404, "for pods nan"},
		{"an impossible name", pods + "x%22%7D+or+vector(1)" + rate, 404, "could not find the metric"},
		{"a selector that selects nobody", pods + "*" + rate + "?labelSelector=app%3Dnobody", 200, `"items":[]`},
		{"a selector that is none", pods + "*" + rate + "?labelSelector=a%3D%3D%3Db", 400, "labelSelector"},
		{"a selector that Prometheus cannot be asked", pods + "*" + rate + "?metricLabelSelector=a-b%3D1", 400, "cannot be a label of Prometheus"},
		{"a query that the server finds wrong", pods + "bad" + rate, 500, "rules.yaml:2: metricsQuery: prometheus: bad_data"},
		{"all namespaces", "/apis/custom.metrics.k8s.io/v1beta2/namespaces/*/metrics" + rate, 400, "cannot fetch metrics for multiple namespaces at once"},
		{"a resource without metric", "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods", 404, ""},
		{"too deep", pods + "web-1" + rate + "/x", 404, ""},
		{"objects that the server may not list", "/apis/custom.metrics.k8s.io/v1beta2/nodes/*/node_load", 500, "the extension server's own identity lacks this right"},
		{"as a table", pods + "*" + rate, 406, "application/json"},
		{"an external metric of no namespace", "/apis/external.metrics.k8s.io/v1beta1/queue_depth", 404, ""},
		{"a watch", "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/queue_depth?watch=true", 405, ""},
	} {
		t.Run(c.situation, func(t *testing.T) {
			accept := "application/json"
			if c.code == 406 {
				accept += ";as=Table;v=v1;g=meta.k8s.io"
			}
			a := h.Get("hpa", c.path, "Accept", accept)
			if a.StatusCode != c.code || !strings.Contains(a.Body, c.want) {
				t.Errorf("GET %s = %d %s, want %d and a body that contains %q", c.path, a.StatusCode, a.Body, c.code, c.want)
			}
			if c.code >= 400 && !strings.Contains(a.Body, `"kind":"Status"`) {
				t.Errorf("body of the error response = %s, want a Status", a.Body)
			}
		})
	}
	t.Run("a write", func(t *testing.T) {
		if a := h.Do("hpa", http.MethodPost, pods+"web-1"+rate, nil); a.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("POST of a metric = %d %s, want 405", a.StatusCode, a.Body)
		}
	})
	t.Run("the server is away", func(t *testing.T) {
		h.prometheus.set(func() { h.prometheus.broken = true })
		a := h.Get("hpa", pods+"web-1"+rate)
		if a.StatusCode != http.StatusServiceUnavailable || !strings.Contains(a.Body, "TSDB not ready") {
			t.Errorf("GET while Prometheus is unavailable = %d %s, want 503 with \"TSDB not ready\"", a.StatusCode, a.Body)
		}
	})
}

func TestProtobufAndWarnings(t *testing.T) {
	h := open(t)
	h.prometheus.set(func() {
		h.prometheus.vectors = map[string]string{rates: vector("pod=web-1:1", "pod=web-1:2", "pod=web-2:3")}
	})
	path := pods + "*" + rate + "?labelSelector=app%3Dweb"
	a := h.Get("hpa", path, "Accept", "application/vnd.kubernetes.protobuf")
	if a.StatusCode != 200 || !strings.HasPrefix(a.Body, "k8s\x00") || !strings.Contains(a.Body, "MetricValueList") {
		t.Errorf("GET in protobuf = %d %q, want 200 with a MetricValueList", a.StatusCode, a.Body)
	}
	said := strings.Join(a.Header.Values("Warning"), "\n")
	if !strings.Contains(said, "partial answer") || !strings.Contains(said, `more than one value for pods \"web-1\"`) {
		t.Errorf("warnings = %s, want a partial answer and more than one value for web-1", said)
	}
}
