package aggregator

import (
	"crypto/tls"
	"net/http"
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
