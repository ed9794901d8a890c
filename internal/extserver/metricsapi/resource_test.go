package metricsapi

import (
	"context"
	"errors"
	"testing"
	"time"

	"portico.dev/pkg/extension"
)

// staticSource is a source with fixed results.
type staticSource struct {
	nodes []NodeUsage
	pods  []PodUsage
	err   error
}

func (f staticSource) Nodes(context.Context, extension.Query) ([]NodeUsage, error) {
	return f.nodes, f.err
}
func (f staticSource) Pods(context.Context, extension.Query) ([]PodUsage, error) {
	return f.pods, f.err
}

func TestQuantitiesMatchMetricsServer(t *testing.T) {
	at := time.Unix(1700000000, 0)
	n := nodesV1(staticSource{nodes: []NodeUsage{{Name: "a", Usage: Usage{1.25, 3000001 << 10}, Span: Span{at, 10*time.Second + 3*time.Millisecond + 7*time.Microsecond}}}})
	items, err := n.List(t.Context(), extension.Query{})
	if err != nil || len(items) != 1 {
		t.Fatalf("List = %v, error %v, want 1 item and no error", items, err)
	}
	m := items[0]
	if cpu, memory := m.Usage.Cpu().String(), m.Usage.Memory().String(); cpu != "1250m" || memory != "3000001Ki" {
		t.Errorf("cpu = %s, memory = %s, want 1250m and 3000001Ki", cpu, memory)
	}
	if m.Window.Duration.String() != "10.003s" || !m.Timestamp.Time.Equal(at) || !m.CreationTimestamp.Time.Equal(at) {
		t.Errorf("window = %s, timestamp = %s, want 10.003s and the time of the measurement", m.Window.Duration, m.Timestamp)
	}
}

func TestBothVersionsServeEqualItems(t *testing.T) {
	source := staticSource{
		nodes: []NodeUsage{{Name: "a", Labels: map[string]string{"k": "v"}, Usage: Usage{0.5, 1 << 20}}},
		pods: []PodUsage{{Namespace: "ns", Name: "p", Labels: map[string]string{"app": "x"}, Containers: []ContainerUsage{
			{"one", Usage{0.25, 1 << 20}}, {"two", Usage{0.5, 2 << 20}},
		}}},
	}
	v1, err := nodesV1(source).List(t.Context(), extension.Query{})
	if err != nil {
		t.Fatal(err)
	}
	beta, err := nodesV1beta1(source).List(t.Context(), extension.Query{})
	if err != nil {
		t.Fatal(err)
	}
	if len(beta) != len(v1) || beta[0].Name != v1[0].Name || beta[0].Labels["k"] != "v" || beta[0].Usage.Memory().Cmp(*v1[0].Usage.Memory()) != 0 {
		t.Errorf("v1 = %+v, v1beta1 = %+v, want equal items", v1, beta)
	}
	if a, b := nodesV1(source).Columns(v1), nodesV1beta1(source).Columns(beta); len(a) != 4 || len(b) != 4 || a[1].Value(&v1[0]) != b[1].Value(&beta[0]) {
		t.Errorf("columns of v1 = %v, of v1beta1 = %v, want 4 equal columns", a, b)
	}
	pods, err := podsV1(source).List(t.Context(), extension.Query{})
	if err != nil {
		t.Fatal(err)
	}
	betaPods, err := podsV1beta1(source).List(t.Context(), extension.Query{})
	if err != nil {
		t.Fatal(err)
	}
	a, b := podsV1(source).Columns(pods), podsV1beta1(source).Columns(betaPods)
	for i, want := range []any{"p", "750m", "3Mi", "0s"} {
		if got, beta := a[i].Value(&pods[0]), b[i].Value(&betaPods[0]); got != want || beta != want {
			t.Errorf("column %s: v1 = %v, v1beta1 = %v, want %v", a[i].Name, got, beta, want)
		}
	}
	if got := pods[0].Containers[0].Usage.Cpu().String(); got != "250m" || pods[0].Labels["app"] != "x" {
		t.Errorf("object after its row was built: cpu = %s, labels = %v, want it unchanged with 250m", got, pods[0].Labels)
	}
}

func TestListBeforeFirstMeasurementIsEmpty(t *testing.T) {
	n := podsV1(&Cache{})
	items, err := n.List(t.Context(), extension.Query{})
	if err != nil || items == nil || len(items) != 0 {
		t.Errorf("List before the first measurement = %v, error %v, want an empty list and no error", items, err)
	}
	if columns := n.Columns(items); len(columns) != 2 {
		t.Errorf("%d columns of an empty list, want 2", len(columns))
	}
}

func TestSourceErrorIsReturned(t *testing.T) {
	broken := errors.New("no counters")
	if _, err := nodesV1beta1(staticSource{err: broken}).List(t.Context(), extension.Query{}); !errors.Is(err, broken) {
		t.Errorf("List of a source that fails: error = %v, want %v", err, broken)
	}
}
