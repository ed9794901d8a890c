package aggregator

import (
	"crypto/tls"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"portico.dev/internal/peers"
	"portico.dev/internal/pki"
)

func TestProfilesAreForAdministrators(t *testing.T) {
	t.Parallel()
	admin, stop := open(t, t.TempDir())
	if code, body := get(t, admin, "/debug/pprof/goroutine?debug=1"); code != http.StatusOK || !strings.Contains(body, "goroutine profile") {
		t.Errorf("system:masters: %d %s", code, body)
	}
	ordinary := rest.CopyConfig(admin)
	ordinary.Impersonate = rest.ImpersonationConfig{UserName: "alice", Groups: []string{"system:authenticated"}}
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/profile?seconds=1"} {
		if code, body := get(t, ordinary, path); code != http.StatusForbidden {
			t.Errorf("an ordinary user, %s: %d %s", path, code, body)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// Browsers, curl and Java choose a client certificate by the names.
func TestClientCAsAreNamedInTheHandshake(t *testing.T) {
	t.Parallel()
	admin, stop := open(t, t.TempDir())
	for serverName, want := range map[string]int{"localhost": 2, peers.ServerName: 0} {
		var seen pki.Inspection
		conn, err := tls.Dial("tcp", strings.TrimPrefix(admin.Host, "https://"), pki.InspectionConfig(serverName, nil, &seen))
		if err != nil {
			t.Fatalf("%s: %v", serverName, err)
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

func TestProfilesAreNotServedWhenTheyAreTurnedOff(t *testing.T) {
	t.Parallel()
	admin, stop := open(t, t.TempDir(), func(c *Config) { c.Profiling = false })
	if code, body := get(t, admin, "/debug/pprof/"); code != http.StatusNotFound {
		t.Errorf("%d %s", code, body)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
