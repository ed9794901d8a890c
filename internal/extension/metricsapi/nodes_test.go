package metricsapi

import (
	"context"
	"errors"
	"testing"
	"time"

	"portico.dev/internal/extension"
)

func source(usages []NodeUsage, err error) Source {
	return func(context.Context) ([]NodeUsage, error) { return usages, err }
}

func TestQuantitiesAreMetricsServers(t *testing.T) {
	at := time.Unix(1700000000, 0)
	n := nodesV1{source([]NodeUsage{{Name: "a", Cores: 1.25, WorkingSet: 3000001 << 10, Timestamp: at, Window: 10*time.Second + 3*time.Millisecond + 7*time.Microsecond}}, nil)}
	items, err := n.List(t.Context(), extension.Query{})
	if err != nil || len(items) != 1 {
		t.Fatalf("%v %v", items, err)
	}
	m := items[0]
	if cpu, memory := m.Usage.Cpu().String(), m.Usage.Memory().String(); cpu != "1250m" || memory != "3000001Ki" {
		t.Errorf("cpu %s, memory %s", cpu, memory)
	}
	if m.Window.Duration.String() != "10.003s" || !m.Timestamp.Time.Equal(at) || !m.CreationTimestamp.Time.Equal(at) {
		t.Errorf("window %s, timestamp %s", m.Window.Duration, m.Timestamp)
	}
}

func TestBothVersionsSayTheSame(t *testing.T) {
	n := nodesV1{source([]NodeUsage{{Name: "a", Labels: map[string]string{"k": "v"}, Cores: 0.5, WorkingSet: 1 << 20}}, nil)}
	v1, err := n.List(t.Context(), extension.Query{})
	if err != nil {
		t.Fatal(err)
	}
	beta, err := nodesV1beta1{n}.List(t.Context(), extension.Query{})
	if err != nil {
		t.Fatal(err)
	}
	if len(beta) != len(v1) || beta[0].Name != v1[0].Name || beta[0].Labels["k"] != "v" || beta[0].Usage.Memory().Cmp(*v1[0].Usage.Memory()) != 0 {
		t.Errorf("v1 %+v, v1beta1 %+v", v1, beta)
	}
	if a, b := n.Columns(v1), (nodesV1beta1{n}).Columns(beta); len(a) != 4 || len(b) != 4 || a[1].Value(&v1[0]) != b[1].Value(&beta[0]) {
		t.Errorf("columns differ: %v %v", a, b)
	}
}

func TestNothingMeasuredYet(t *testing.T) {
	n := nodesV1{source(nil, nil)}
	items, err := n.List(t.Context(), extension.Query{})
	if err != nil || items == nil || len(items) != 0 {
		t.Errorf("%v %v", items, err)
	}
	if columns := n.Columns(items); len(columns) != 2 {
		t.Errorf("%d columns of an empty list", len(columns))
	}
}

func TestSourceThatFails(t *testing.T) {
	broken := errors.New("no counters")
	if _, err := (nodesV1beta1{nodesV1{source(nil, broken)}}).List(t.Context(), extension.Query{}); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}
