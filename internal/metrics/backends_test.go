package metrics

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// The series equal the series of client_golang's vectors for the same counts. They exist with the value 0 before the first count, so
// that the first failure is an increase.
func TestBackendCountsAreExportedAsSeries(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	all := NewBackends(reg)
	b := all.For("ns/a:443", "system")
	if all.For("ns/a:443", "system") != b {
		t.Error("For of the same name returned another counter, want the same")
	}
	b.Answered(200, 3*time.Millisecond)
	b.Answered(204, 5*time.Millisecond)
	b.Answered(503, 2*time.Minute)
	b.Answered(99, time.Microsecond) // An invalid status has a duration and no class.
	b.Failed("tls")
	b.Failed("nothing")
	b.Dialled(true)
	b.Dialled(false)
	b.Dialled(false)
	b.Ejected()
	b.SetEjected(2)
	b.Limited()
	b.Broken()
	b.InFlight(3)
	b.InFlight(-1)
	b.Tunnels(1)
	want := `
# HELP portico_backend_answers_total Attempts that got response headers, by class of the HTTP code.
# TYPE portico_backend_answers_total counter
portico_backend_answers_total{backend="ns/a:443",class="1xx",trust="system"} 0
portico_backend_answers_total{backend="ns/a:443",class="2xx",trust="system"} 2
portico_backend_answers_total{backend="ns/a:443",class="3xx",trust="system"} 0
portico_backend_answers_total{backend="ns/a:443",class="4xx",trust="system"} 0
portico_backend_answers_total{backend="ns/a:443",class="5xx",trust="system"} 1
# HELP portico_backend_broken_responses_total Responses that ended before they were complete.
# TYPE portico_backend_broken_responses_total counter
portico_backend_broken_responses_total{backend="ns/a:443",trust="system"} 1
# HELP portico_backend_connections_total Connections tried, by outcome.
# TYPE portico_backend_connections_total counter
portico_backend_connections_total{backend="ns/a:443",outcome="failed",trust="system"} 2
portico_backend_connections_total{backend="ns/a:443",outcome="made",trust="system"} 1
# HELP portico_backend_ejected_endpoints Endpoints that are out of use now, as of the last check.
# TYPE portico_backend_ejected_endpoints gauge
portico_backend_ejected_endpoints{backend="ns/a:443",trust="system"} 2
# HELP portico_backend_ejections_total Endpoints taken out of use for a while.
# TYPE portico_backend_ejections_total counter
portico_backend_ejections_total{backend="ns/a:443",trust="system"} 1
# HELP portico_backend_failed_attempts_total Attempts that got no response headers, by the step that failed: dial, tls or roundtrip.
# TYPE portico_backend_failed_attempts_total counter
portico_backend_failed_attempts_total{backend="ns/a:443",step="dial",trust="system"} 0
portico_backend_failed_attempts_total{backend="ns/a:443",step="roundtrip",trust="system"} 0
portico_backend_failed_attempts_total{backend="ns/a:443",step="tls",trust="system"} 1
# HELP portico_backend_header_duration_seconds Time from sending an attempt to its response headers.
# TYPE portico_backend_header_duration_seconds histogram
portico_backend_header_duration_seconds_bucket{backend="ns/a:443",trust="system",le="0.001"} 1
portico_backend_header_duration_seconds_bucket{backend="ns/a:443",trust="system",le="0.0025"} 1
portico_backend_header_duration_seconds_bucket{backend="ns/a:443",trust="system",le="0.005"} 3
portico_backend_header_duration_seconds_bucket{backend="ns/a:443",trust="system",le="0.01"} 3
portico_backend_header_duration_seconds_bucket{backend="ns/a:443",trust="system",le="0.025"} 3
portico_backend_header_duration_seconds_bucket{backend="ns/a:443",trust="system",le="0.05"} 3
portico_backend_header_duration_seconds_bucket{backend="ns/a:443",trust="system",le="0.1"} 3
portico_backend_header_duration_seconds_bucket{backend="ns/a:443",trust="system",le="0.25"} 3
portico_backend_header_duration_seconds_bucket{backend="ns/a:443",trust="system",le="0.5"} 3
portico_backend_header_duration_seconds_bucket{backend="ns/a:443",trust="system",le="1"} 3
portico_backend_header_duration_seconds_bucket{backend="ns/a:443",trust="system",le="2.5"} 3
portico_backend_header_duration_seconds_bucket{backend="ns/a:443",trust="system",le="5"} 3
portico_backend_header_duration_seconds_bucket{backend="ns/a:443",trust="system",le="10"} 3
portico_backend_header_duration_seconds_bucket{backend="ns/a:443",trust="system",le="30"} 3
portico_backend_header_duration_seconds_bucket{backend="ns/a:443",trust="system",le="60"} 3
portico_backend_header_duration_seconds_bucket{backend="ns/a:443",trust="system",le="+Inf"} 4
portico_backend_header_duration_seconds_sum{backend="ns/a:443",trust="system"} 120.008001
portico_backend_header_duration_seconds_count{backend="ns/a:443",trust="system"} 4
# HELP portico_backend_limited_total Requests refused because the backend held as many as it may.
# TYPE portico_backend_limited_total counter
portico_backend_limited_total{backend="ns/a:443",trust="system"} 1
# HELP portico_backend_requests_in_flight Requests that hold one of the backend's places.
# TYPE portico_backend_requests_in_flight gauge
portico_backend_requests_in_flight{backend="ns/a:443",trust="system"} 2
# HELP portico_backend_upgraded_connections Upgraded connections that are open.
# TYPE portico_backend_upgraded_connections gauge
portico_backend_upgraded_connections{backend="ns/a:443",trust="system"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	all.Forget("ns/a:443", "system")
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
		t.Errorf("series after one of two users called Forget: %v", err)
	}
	all.Forget("ns/a:443", "system")
	b.Ejected() // late and without effect
	if err := testutil.GatherAndCompare(reg, strings.NewReader("")); err != nil {
		t.Errorf("series after Forget: %v, want none", err)
	}
}

func TestPoolsOfOneServiceHaveSeparateSeries(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	all := NewBackends(reg)
	all.For("ns/a:443", "system").Ejected()
	all.For("ns/a:443", "sha256:0123abcd").SetEjected(1)
	all.Forget("ns/a:443", "insecure") // does not exist
	const want = `
# HELP portico_backend_ejections_total Endpoints taken out of use for a while.
# TYPE portico_backend_ejections_total counter
portico_backend_ejections_total{backend="ns/a:443",trust="sha256:0123abcd"} 0
portico_backend_ejections_total{backend="ns/a:443",trust="system"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "portico_backend_ejections_total"); err != nil {
		t.Error(err)
	}
}

func TestNilMetricsCountNothing(t *testing.T) {
	var all *Backends
	b := all.For("ns/a:443", "system")
	b.Answered(200, time.Second)
	b.Failed("dial")
	b.Dialled(true)
	b.Ejected()
	b.Limited()
	b.InFlight(1)
	b.Tunnels(1)
	b.Broken()
	all.Forget("ns/a:443", "system")
}

func TestConcurrentCountsAndReads(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	all := NewBackends(reg)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 500 {
				all.For("ns/a:443", "system").Answered(200, time.Second)
			}
		})
	}
	for range 20 {
		if _, err := reg.Gather(); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	if n := all.For("ns/a:443", "system").classes[1].Load(); n != 2000 {
		t.Errorf("count = %d, want 2000", n)
	}
}
