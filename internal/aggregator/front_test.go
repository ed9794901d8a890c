package aggregator

import (
	"crypto/tls"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"portico.dev/internal/pki"
	"portico.dev/internal/replicas/peers"
)

func TestProfilesNeedAdministrator(t *testing.T) {
	t.Parallel()
	admin, stop := open(t, t.TempDir())
	if code, body := get(t, admin, "/debug/pprof/goroutine?debug=1"); code != http.StatusOK || !strings.Contains(body, "goroutine profile") {
		t.Errorf("GET of a profile by system:masters = %d %s, want 200 and a goroutine profile", code, body)
	}
	ordinary := rest.CopyConfig(admin)
	ordinary.Impersonate = rest.ImpersonationConfig{UserName: "alice", Groups: []string{"system:authenticated"}}
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/profile?seconds=1"} {
		if code, body := get(t, ordinary, path); code != http.StatusForbidden {
			t.Errorf("GET %s by an ordinary user = %d %s, want 403", path, code, body)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// Browsers, curl and Java choose a client certificate by the names.
func TestHandshakeSendsClientCANames(t *testing.T) {
	t.Parallel()
	admin, stop := open(t, t.TempDir())
	for serverName, want := range map[string]int{"localhost": 2, peers.ServerName: 0} {
		var seen pki.Inspection
		conn, err := tls.Dial("tcp", strings.TrimPrefix(admin.Host, "https://"), pki.InspectionConfig(serverName, nil, &seen))
		if err != nil {
			t.Fatalf("dial with the server name %s failed: %v, want no error", serverName, err)
		}
		_ = conn.Close()
		if !seen.Asked || len(seen.AcceptableCAs) != want {
			t.Errorf("%s: a client certificate is asked for: %t, of %d CAs, want %d", serverName, seen.Asked, len(seen.AcceptableCAs), want)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestDisabledProfilingReturns404(t *testing.T) {
	t.Parallel()
	admin, stop := open(t, t.TempDir(), func(c *Config) { c.Profiling = false })
	if code, body := get(t, admin, "/debug/pprof/"); code != http.StatusNotFound {
		t.Errorf("GET /debug/pprof/ with profiling disabled = %d %s, want 404", code, body)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// Metrics that Kubernetes declares STABLE or BETA are served without --all-metrics too.
func TestOnlyAlphaMetricsNeedAllMetrics(t *testing.T) {
	t.Parallel()
	help := regexp.MustCompile(`(?m)^# HELP (\S+) (.*)$`)
	served := func(all bool) map[string]string {
		t.Helper()
		admin, stop := open(t, t.TempDir(), func(c *Config) { c.AllMetrics = all })
		code, page := get(t, admin, "/metrics")
		if code != http.StatusOK {
			t.Fatalf("GET /metrics with AllMetrics %t = %d %s, want 200", all, code, page)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		texts := map[string]string{}
		for _, line := range help.FindAllStringSubmatch(page, -1) {
			texts[line[1]] = line[2]
		}
		return texts
	}
	// The libraries have one registry for all tests, and its metrics increase. Therefore the larger page is read first.
	all := served(true)
	some := served(false)
	for name, text := range all {
		if _, ok := some[name]; !ok && !strings.Contains(text, "[ALPHA]") && !strings.HasPrefix(name, "go_") {
			t.Errorf("%s (%s) is served with --all-metrics only, want it always", name, text)
		}
	}
	for _, name := range []string{"apiserver_flowcontrol_demand_seats", "go_memory_classes_total_bytes"} {
		if _, ok := all[name]; !ok {
			t.Errorf("%s is missing with --all-metrics, want it", name)
		}
		if _, ok := some[name]; ok {
			t.Errorf("%s is served without --all-metrics, want it left out", name)
		}
	}
	for _, name := range []string{"apiserver_flowcontrol_priority_level_seat_utilization", "workqueue_work_duration_seconds", "go_goroutines",
		"go_cpu_classes_gc_total_cpu_seconds_total", "go_sched_latencies_seconds", "process_open_fds"} {
		if _, ok := some[name]; !ok {
			t.Errorf("%s is missing without --all-metrics, want it", name)
		}
	}
}
