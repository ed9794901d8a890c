package metrics

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
)

// A long-running request has no duration. A finished request with the same labels has one.
func TestCount(t *testing.T) {
	reg := prometheus.NewRegistry()
	r := NewRequests(reg)
	s := Served{Verb: "GET", Group: "g", Version: "v1", Resource: "things", Scope: "resource", Component: "apiserver", Code: 200}
	r.Count(s, -1, 0)
	if n := testutil.CollectAndCount(r.Duration) + testutil.CollectAndCount(r.SLI); n != 0 {
		t.Errorf("%d durations of a long-running request, want 0", n)
	}
	r.Count(s, 0.01, 0)
	r.Count(s, 0.01, 0)
	s.Code = 404
	r.Count(s, 0.01, 0)
	want := `
# HELP apiserver_request_total Requests by verb, group, version, resource, scope, component and HTTP code.
# TYPE apiserver_request_total counter
apiserver_request_total{code="200",component="apiserver",group="g",resource="things",scope="resource",subresource="",verb="GET",version="v1"} 3
apiserver_request_total{code="404",component="apiserver",group="g",resource="things",scope="resource",subresource="",verb="GET",version="v1"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "apiserver_request_total"); err != nil {
		t.Error(err)
	}
	if n := testutil.CollectAndCount(r.Duration); n != 1 {
		t.Errorf("%d series of durations, want 1 for both codes", n)
	}
}

// The time in webhooks and queues is part of the request duration. It is excluded from the SLI duration.
func TestSLIDurationExcludesWebhooksAndQueues(t *testing.T) {
	reg := prometheus.NewRegistry()
	r := NewRequests(reg)
	s := Served{Verb: "POST", Version: "v1", Resource: "pods", Scope: "namespace", Component: "apiserver", Code: 201}
	r.Count(s, 2, 1.75)
	r.Count(s, 1, 1.5) // webhooks that ran concurrently; their durations are added
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]float64{}
	for _, f := range families {
		if f.GetType() == dto.MetricType_HISTOGRAM {
			native := f.Metric[0].Histogram.Schema != nil
			if classic := len(f.Metric[0].Histogram.Bucket) > 0; !classic || native != (f.GetName() == "apiserver_request_duration_seconds") {
				t.Errorf("%s: classic buckets = %v, native = %v, want classic buckets, and native only for apiserver_request_duration_seconds", f.GetName(), classic, native)
			}
			sums[f.GetName()] = f.Metric[0].Histogram.GetSampleSum()
		}
	}
	if sums["apiserver_request_duration_seconds"] != 3 || sums["apiserver_request_sli_duration_seconds"] != 0.25 {
		t.Errorf("sums = %v, want 3 for the duration and 0.25 for the SLI duration", sums)
	}
}
