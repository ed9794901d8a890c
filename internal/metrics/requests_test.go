package metrics

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// A long-running request has no duration, and one of the same labels that is over has.
func TestCount(t *testing.T) {
	reg := prometheus.NewRegistry()
	r := NewRequests(reg)
	s := Served{Verb: "GET", Group: "g", Version: "v1", Resource: "things", Scope: "resource", Component: "apiserver", Code: 200}
	r.Count(s, -1)
	if n := testutil.CollectAndCount(r.Duration); n != 0 {
		t.Errorf("%d durations of a request that has none", n)
	}
	r.Count(s, 0.01)
	r.Count(s, 0.01)
	s.Code = 404
	r.Count(s, 0.01)
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
		t.Errorf("%d series of durations, not one for both codes", n)
	}
}
