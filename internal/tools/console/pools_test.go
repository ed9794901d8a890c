package console

import (
	"slices"
	"testing"

	"portico.dev/internal/apiservice"
	"portico.dev/internal/transport"
)

func TestPoolsOfOneServiceAreShownSeparately(t *testing.T) {
	const service = "monitoring/adapter:443"
	pool := func(name, path, failure string) apiservice.BackendState {
		return apiservice.BackendState{
			Report: transport.Report{Name: name, Endpoints: []transport.EndpointReport{{LastFailure: failure}}},
			Probes: []apiservice.ProbeState{{URL: "https://adapter.monitoring.svc:443" + path}},
		}
	}
	pools := []apiservice.BackendState{
		pool(service, "/apis/custom.metrics.k8s.io/v1beta1", "certificate signed by unknown authority"),
		pool(service, "/apis/custom.metrics.k8s.io/v1beta2", ""),
		pool("other/server:443", "/apis/other.example.com/v1", ""),
	}
	for _, test := range []struct {
		name     string
		selected poolSelection
		want     []string // the last failures, sorted
	}{
		{"the APIService of one pool", poolSelection{service, "/apis/custom.metrics.k8s.io/v1beta2"}, []string{""}},
		{"the APIService of another pool", poolSelection{service, "/apis/custom.metrics.k8s.io/v1beta1"}, []string{"certificate signed by unknown authority"}},
		{"an APIService that no pool probes", poolSelection{service, "/apis/new.example.com/v1"}, []string{"", "certificate signed by unknown authority"}},
		{"all pools", poolSelection{}, []string{"", "", "certificate signed by unknown authority"}},
	} {
		s := newState()
		s.replicas["front"] = &replica{backends: pools}
		var shown []string
		for _, b := range s.backendsOf(test.selected, detailPoints) {
			shown = append(shown, b.Endpoints[0].LastFailure)
		}
		slices.Sort(shown)
		if !slices.Equal(shown, test.want) {
			t.Errorf("%s: shown failures %q, want %q", test.name, shown, test.want)
		}
	}
}
