package custommetrics_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/extserver/custommetrics"
	"portico.dev/internal/extserver/hosttest"
	"portico.dev/pkg/extension"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// adapter is a provider that serves some metrics of Pods and of no other resource. Its value identifies the provider.
type adapter struct {
	metrics []string
	value   int64
	err     error
}

func (a adapter) CustomMetrics() []custommetrics.Metric {
	var out []custommetrics.Metric
	for _, name := range a.metrics {
		out = append(out, custommetrics.Metric{Resource: schema.GroupResource{Resource: "pods"}, Namespaced: true, Name: name})
	}
	return out
}

func (a adapter) ExternalMetrics() []string { return a.metrics }

func (a adapter) knows(metric string) error {
	for _, name := range a.metrics {
		if name == metric {
			return a.err
		}
	}
	return custommetrics.ErrUnknown
}

func (a adapter) CustomValues(_ context.Context, q custommetrics.CustomQuery) ([]custommetrics.CustomValue, error) {
	if err := a.knows(q.Name); err != nil {
		return nil, err
	}
	return []custommetrics.CustomValue{{
		Object: custommetrics.Object{APIVersion: "v1", Kind: "Pod", Namespace: q.Namespace, Name: q.Object},
		Value:  *resource.NewQuantity(a.value, resource.DecimalSI), Timestamp: time.Unix(1700000000, 0),
	}}, nil
}

func (a adapter) ExternalValues(_ context.Context, _, metric string, _ labels.Selector) ([]custommetrics.ExternalValue, error) {
	if err := a.knows(metric); err != nil {
		return nil, err
	}
	return []custommetrics.ExternalValue{{Value: *resource.NewQuantity(a.value, resource.DecimalSI), Timestamp: time.Unix(1700000000, 0)}}, nil
}

func (a adapter) source(name string, trouble error) extension.Source {
	return extension.Source{Name: name, LastError: func() error { return trouble }}
}

// share hosts both groups for two adapters. If trouble is set, the second one fails.
func share(t *testing.T, first, second adapter, trouble error) *hosttest.Server {
	t.Helper()
	one, two := first.source("one", nil), second.source("two", trouble)
	resources := append(
		custommetrics.Custom(custommetrics.CustomSource{Source: one, CustomProvider: first}, custommetrics.CustomSource{Source: two, CustomProvider: second}),
		custommetrics.External(custommetrics.ExternalSource{Source: one, ExternalProvider: first}, custommetrics.ExternalSource{Source: two, ExternalProvider: second}))
	return hosttest.Serve(t, nil, resources...)
}

func TestFirstSourceWithTheMetricServesIt(t *testing.T) {
	away := errors.New("connection refused")
	for _, c := range []struct {
		situation     string
		first, second adapter
		trouble       error
		metric        string
		code          int
		want          string
		warning       string
	}{
		{"only the first knows it", adapter{metrics: []string{"a"}, value: 1}, adapter{metrics: []string{"b"}, value: 2}, nil, "a", 200, `"value":"1"`, ""},
		{"only the second knows it", adapter{metrics: []string{"a"}, value: 1}, adapter{metrics: []string{"b"}, value: 2}, nil, "b", 200, `"value":"2"`, ""},
		{"both know it", adapter{metrics: []string{"a"}, value: 1}, adapter{metrics: []string{"a"}, value: 2}, nil, "a", 200, `"value":"1"`, ""},
		{"the first knows it and fails", adapter{metrics: []string{"a"}, err: away}, adapter{metrics: []string{"a"}, value: 2}, nil, "a", 200, `"value":"2"`, "one: connection refused"},
		{"one fails at something else", adapter{metrics: []string{"a"}, err: away}, adapter{metrics: []string{"b"}, value: 2}, nil, "b", 200, `"value":"2"`, ""},
		{"who knows it fails", adapter{metrics: []string{"a"}, err: away}, adapter{metrics: []string{"b"}}, nil, "a", 500, "one: connection refused", "one: connection refused"},
		{"nobody knows it", adapter{metrics: []string{"a"}}, adapter{metrics: []string{"b"}}, nil, "c", 404, "the server could not find the metric c for", ""},
		{"nobody knows it, and one cannot say", adapter{metrics: []string{"a"}}, adapter{}, away, "c", 503, "two: connection refused", "two: connection refused"},
		{"the request is to blame", adapter{metrics: []string{"a"}, err: apierrors.NewBadRequest("no")}, adapter{metrics: []string{"a"}}, nil, "a", 400, "no", ""},
	} {
		t.Run(c.situation, func(t *testing.T) {
			s := share(t, c.first, c.second, c.trouble)
			for _, path := range []string{
				"/apis/custom.metrics.k8s.io/v1beta1/namespaces/ns/pods/p/" + c.metric,
				"/apis/custom.metrics.k8s.io/v1beta2/namespaces/ns/pods/p/" + c.metric,
				"/apis/external.metrics.k8s.io/v1beta1/namespaces/ns/" + c.metric,
			} {
				a := s.Get("hpa", path)
				if a.StatusCode != c.code || !strings.Contains(a.Body, c.want) {
					t.Errorf("GET %s = %d %s, want %d and a body that contains %q", path, a.StatusCode, a.Body, c.code, c.want)
				}
				if said := strings.Join(a.Header.Values("Warning"), "\n"); !strings.Contains(said, c.warning) || c.warning == "" && said != "" {
					t.Errorf("warnings of GET %s = %q, want %q", path, said, c.warning)
				}
			}
		})
	}
}

func TestDiscoveryMergesSources(t *testing.T) {
	s := share(t, adapter{metrics: []string{"b", "a"}}, adapter{metrics: []string{"b", "c"}}, errors.New("away"))
	for path, want := range map[string]string{
		"/apis/custom.metrics.k8s.io/v1beta2":   `"pods/a" "pods/b" "pods/c"`,
		"/apis/external.metrics.k8s.io/v1beta1": `"a" "b" "c"`,
	} {
		a := s.Get("hpa", path)
		at := 0
		for name := range strings.SplitSeq(want, " ") {
			next := strings.Index(a.Body[at:], `"name":`+name)
			if a.StatusCode != http.StatusOK || next < 0 || strings.Count(a.Body, `"name":`+name) != 1 {
				t.Fatalf("GET %s = %d, want 200 with %s once and in order; body: %s", path, a.StatusCode, name, a.Body)
			}
			at += next
		}
	}
}

// The exact responses of prometheus-adapter. Autoscalers of all versions read them.
func TestResponsesMatchPrometheusAdapter(t *testing.T) {
	s := share(t, adapter{metrics: []string{"a"}, value: 3}, adapter{}, nil)
	for path, want := range map[string]string{
		"/apis/custom.metrics.k8s.io/v1beta2/namespaces/ns/pods/p/a": `{"kind":"MetricValueList","apiVersion":"custom.metrics.k8s.io/v1beta2","metadata":{},"items":[{` +
			`"describedObject":{"kind":"Pod","namespace":"ns","name":"p","apiVersion":"v1"},"metric":{"name":"a","selector":null},"timestamp":"2023-11-14T22:13:20Z","value":"3"}]}`,
		"/apis/custom.metrics.k8s.io/v1beta1/namespaces/ns/pods/p/a": `{"kind":"MetricValueList","apiVersion":"custom.metrics.k8s.io/v1beta1","metadata":{},"items":[{` +
			`"describedObject":{"kind":"Pod","namespace":"ns","name":"p","apiVersion":"v1"},"metricName":"a","timestamp":"2023-11-14T22:13:20Z","value":"3","selector":null}]}`,
		"/apis/external.metrics.k8s.io/v1beta1/namespaces/ns/a": `{"kind":"ExternalMetricValueList","apiVersion":"external.metrics.k8s.io/v1beta1","metadata":{},"items":[{` +
			`"metricName":"a","metricLabels":null,"timestamp":"2023-11-14T22:13:20Z","value":"3"}]}`,
	} {
		if a := s.Get("hpa", path); strings.TrimSpace(a.Body) != want {
			t.Errorf("%s:\ngot  %s\nwant %s", path, a.Body, want)
		}
	}
}
