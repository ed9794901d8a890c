package nodes

import (
	"math"
	"strings"
	"testing"
)

const metrics = `# TYPE apiserver_request_duration_seconds histogram
apiserver_request_duration_seconds_bucket{verb="GET",resource="pods",subresource="",le="0.1"} 50
apiserver_request_duration_seconds_bucket{verb="GET",resource="pods",subresource="",le="0.2"} 100
apiserver_request_duration_seconds_bucket{verb="GET",resource="pods",subresource="",le="+Inf"} 100
apiserver_request_duration_seconds_sum{verb="GET",resource="pods",subresource=""} 9
apiserver_request_duration_seconds_count{verb="GET",resource="pods",subresource=""} 100
apiserver_request_duration_seconds_bucket{verb="GET",resource="nodes",subresource="",le="0.1"} 300
apiserver_request_duration_seconds_bucket{verb="GET",resource="nodes",subresource="",le="0.2"} 300
apiserver_request_duration_seconds_bucket{verb="GET",resource="nodes",subresource="",le="+Inf"} 300
apiserver_request_duration_seconds_sum{verb="GET",resource="nodes",subresource=""} 9
apiserver_request_duration_seconds_count{verb="GET",resource="nodes",subresource=""} 300
apiserver_request_duration_seconds_bucket{verb="PATCH",resource="pods",subresource="status",le="0.1"} 0
apiserver_request_duration_seconds_bucket{verb="PATCH",resource="pods",subresource="status",le="0.2"} 0
apiserver_request_duration_seconds_bucket{verb="PATCH",resource="pods",subresource="status",le="+Inf"} 7
apiserver_request_duration_seconds_sum{verb="PATCH",resource="pods",subresource="status"} 9
apiserver_request_duration_seconds_count{verb="PATCH",resource="pods",subresource="status"} 7
apiserver_request_duration_seconds_bucket{verb="GET",resource="",subresource="/readyz",le="+Inf"} 5
apiserver_request_duration_seconds_sum{verb="GET",resource="",subresource="/readyz"} 9
apiserver_request_duration_seconds_count{verb="GET",resource="",subresource="/readyz"} 5
`

// Calls are summed by class, with the slowest kind. Requests without a resource are excluded.
func TestCalls(t *testing.T) {
	calls, err := callsOf([]byte(metrics), durationMetric)
	if err != nil || len(calls) != 2 {
		t.Fatalf("callsOf = %+v, %v; want two classes", calls, err)
	}
	near := func(got, want float64) bool { return math.Abs(got-want) < 1e-6 }
	if c := calls[0]; c.Class != mutating || c.Count != 7 || !near(c.P99, 200) || c.Worst != "" {
		t.Errorf("mutating calls = %+v, want 7 with the last bound as p99 and no slowest kind", c)
	}
	// 350 of 400 are at most 0.1 s; the 396th is 46/50 of the way through the next bucket.
	if c := calls[1]; c.Class != single || c.Count != 400 || !near(c.P99, 192) || c.Worst != "GET pods" || !near(c.WorstP99, 198) {
		t.Errorf("calls for one object = %+v, want 400 with p99 192 ms and GET pods as the slowest kind", c)
	}
	if _, err := callsOf([]byte(metrics), sliMetric); err == nil {
		t.Error("callsOf a page without the metric returned no error, want one")
	}
}

func TestReport(t *testing.T) {
	phase := func(name string, seconds, cpu, rss float64) Phase {
		return Phase{Name: name, Seconds: seconds, Uses: []Use{{Process: serverProcess, CPU: cpu, RSS: rss}, {Process: etcdProcess, CPU: cpu, RSS: rss}, {Process: "kwok", CPU: 1000, RSS: 1000}}}
	}
	row := &Row{Who: others, Phases: []Phase{phase("a", 10, 0.5, 100), phase("b", 10, 1, 150), phase("c", 10, 5, 250), phase("d", 10, 1, 200)}}
	row.Probes = []Probe{{Name: "PUT", Class: mutating, Requests: 10, P99: 1500, Failed: 2, Example: "429 Too Many Requests"}, {Name: "list", Class: lists, P99: 20_000}}
	row.SLI = []Calls{{Class: single, Count: 1, P99: 10, Worst: "GET pods", WorstP99: 999}}
	r := &Report{Settings: Settings{Nodes: 100, Pods: 1000}, Rows: []*Row{row}}
	// Both processes count: 0.1 cores without Nodes, 0.2 with; 200 MiB and 400.
	e := r.Estimates()[0]
	near := func(got, want float64) bool { return math.Abs(got-want) < 1e-6 }
	if !near(e.IdlePerThousand, 1000) || !near(e.PerPod, 10) || !near(e.KiBPerNode, 2048) || !near(e.Idle, 5.1) || !near(e.Memory, 10_200) || !near(e.Cores, 6.1) {
		t.Errorf("estimate = %+v, want the use of both processes", e)
	}
	r.Machine.Cores, r.Machine.Load = 2, "0.50"
	if page, err := r.Markdown(); err != nil || strings.Contains(string(page), "had other load") {
		t.Errorf("page of an idle machine = %v\n%s\nwant no note about other load", err, page)
	}
	r.Machine.Load = "2.50"
	page, err := r.Markdown()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"The machine had other load", "| changes one object, by a client | kube-apiserver | 1000 | 1500: **not met** |", "| lists, by a client | kube-apiserver | 30000 | 20000 |",
		"| reads one object, by its metrics, worst kind of call | kube-apiserver | 1000 | 999 |", "Failed requests: 2 of PUT (429 Too Many Requests).",
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page has no %q, want it:\n%s", want, page)
		}
	}
}
