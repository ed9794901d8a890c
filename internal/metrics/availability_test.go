package metrics

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestAvailabilityMetricNamesMatchKubeAggregator(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	a := NewAvailability(reg)
	a.Set("v1.example.com", false)
	a.Set("v1.apps", true)
	a.Lost("v1.example.com", "FailedDiscoveryCheck")
	a.Lost("v1.example.com", "MissingEndpoints")

	want := `
# HELP aggregator_unavailable_apiservice 1 for each APIService that this replica finds unavailable, 0 for the others.
# TYPE aggregator_unavailable_apiservice gauge
aggregator_unavailable_apiservice{name="v1.apps"} 0
aggregator_unavailable_apiservice{name="v1.example.com"} 1
# HELP aggregator_unavailable_apiservice_total Times that this replica saw an APIService become unavailable, by reason.
# TYPE aggregator_unavailable_apiservice_total counter
aggregator_unavailable_apiservice_total{name="v1.example.com",reason="FailedDiscoveryCheck"} 1
aggregator_unavailable_apiservice_total{name="v1.example.com",reason="MissingEndpoints"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
		t.Fatal(err)
	}
}

func TestAvailabilitySeriesAreDeletedWithObject(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	a := NewAvailability(reg)
	a.Set("v1.example.com", false)
	a.Lost("v1.example.com", "FailedDiscoveryCheck")
	a.Forget("v1.example.com")
	if n, err := testutil.GatherAndCount(reg); err != nil || n != 0 {
		t.Fatalf("%d series after Forget, error %v, want 0", n, err)
	}
}
