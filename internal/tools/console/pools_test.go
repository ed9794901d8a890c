package console

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/apiservice"
	"portico.dev/internal/transport"
)

// Two APIServices of one Service, one of which has a CA bundle that does not fit the server.
func TestPageOfAPIServiceShowsOnlyItsPool(t *testing.T) {
	const service, failure = "monitoring/adapter:443", "certificate signed by unknown authority"
	wrong, right := []byte("wrong"), []byte("right")
	poolOf := func(ca []byte, version, failure string) apiservice.BackendState {
		return apiservice.BackendState{
			Report: transport.Report{Name: service, Trust: transport.Trust(ca, false), InFlight: int64(len(version)), Endpoints: []transport.EndpointReport{{LastFailure: failure}}},
			Probes: []apiservice.ProbeState{{URL: "https://adapter.monitoring.svc:443/apis/custom.metrics.k8s.io/" + version, Error: failure}},
		}
	}
	object := func(ca []byte, version string) apiregistrationv1.APIService {
		var o apiregistrationv1.APIService
		text := fmt.Sprintf(`{"metadata":{"name":"%s.custom.metrics.k8s.io"},"spec":{"group":"custom.metrics.k8s.io","version":%q,"service":{"namespace":"monitoring","name":"adapter"}}}`, version, version)
		if err := json.Unmarshal([]byte(text), &o); err != nil {
			t.Fatal(err)
		}
		o.Spec.CABundle = ca
		return o
	}
	answers := func(n int) string {
		var b strings.Builder
		fmt.Fprintf(&b, "# TYPE %s counter\n", metricAnswers)
		for i, ca := range [][]byte{wrong, right} {
			fmt.Fprintf(&b, "%s{backend=%q,class=\"2xx\",trust=%q} %d\n", metricAnswers, service, transport.Trust(ca, false), (i+1)*n)
		}
		return b.String()
	}
	c := &Console{state: newState()}
	s, now := c.state, time.Now()
	s.setAPIServices([]apiregistrationv1.APIService{object(wrong, "v1beta1"), object(right, "v1beta2"), object(nil, "v1")}, now)
	for i := range 2 {
		counted, err := readMetrics(strings.NewReader(answers(10 * i)))
		if err != nil {
			t.Fatal(err)
		}
		at := now.Add(time.Duration(i) * time.Second)
		s.charts.next(at)
		s.setFrontDoor(&apiservice.DebugState{Replica: "front", Backends: []apiservice.BackendState{poolOf(wrong, "v1beta1", failure), poolOf(right, "v1beta2", "")}}, at)
		s.setMetrics("front", counted, at, true)
	}
	for _, test := range []struct {
		name, certificate string
		want              []string // failure, requests a second, error of the probe
	}{
		{"v1beta1.custom.metrics.k8s.io", "caBundle " + transport.Trust(wrong, false), []string{failure, "10", failure}},
		{"v1beta2.custom.metrics.k8s.io", "caBundle " + transport.Trust(right, false), []string{"", "20", ""}},
		{"v1.custom.metrics.k8s.io", "system roots", nil}, // the front door has no pool for it yet
	} {
		d, ok := c.detail(t.Context(), test.name)
		if !ok {
			t.Fatalf("no detail of %s, want one", test.name)
		}
		if d.Certificate != test.certificate || d.Insecure {
			t.Errorf("certificate of %s = %q, insecure %v; want %q", test.name, d.Certificate, d.Insecure, test.certificate)
		}
		var got []string
		for _, b := range d.Backends {
			got = append(got, b.Endpoints[0].LastFailure, fmt.Sprint(latest(b.Series.Rate)))
		}
		for _, p := range d.Probes {
			got = append(got, p.Error)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("pool of %s = %q, want %q", test.name, got, test.want)
		}
	}
	var trust []string
	for _, b := range s.backendsOf(pool{}, listPoints) {
		trust = append(trust, b.Trust)
	}
	if want := []string{"caBundle " + transport.Trust(right, false), "caBundle " + transport.Trust(wrong, false)}; !slices.Equal(trust, want) {
		t.Errorf("trust of all backends, busiest first = %q, want %q", trust, want)
	}
}

func TestPoolsMatchByServiceAndTrust(t *testing.T) {
	const service = "ns/a:443"
	for _, test := range []struct {
		selected, other pool
		want            bool
	}{
		{pool{}, pool{service, "system"}, true},
		{pool{service, "system"}, pool{service, "system"}, true},
		{pool{service, "system"}, pool{service, "insecure"}, false},
		{pool{service, "system"}, pool{"ns/b:443", "system"}, false},
		{pool{service, "system"}, pool{service, ""}, true}, // an older server
	} {
		if got := test.selected.matches(test.other); got != test.want {
			t.Errorf("%+v matches %+v = %v, want %v", test.selected, test.other, got, test.want)
		}
	}
}
