package aggregator

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"k8s.io/client-go/rest"

	"portico.dev/internal/httpengine/enginetest"
	"portico.dev/internal/pki"
)

// Replicas with different keys do not serve together. A replica that starts with different keys exits, and one that gets them
// later is not ready.
func TestReplicaWithDifferentKeysExits(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	sockets, err := os.MkdirTemp("", "p") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(sockets) })
	socket, dir := filepath.Join(sockets, "etcd"), t.TempDir()
	one, stopOne := open(t, dir, func(c *Config) { c.EtcdUnixSocket = socket })
	over := func(c *Config) { c.EtcdServers = []string{"unix://" + socket} }

	c := Default()
	c.DataDir, c.SecurePort, c.AccessLog = t.TempDir(), 0, false
	c.HTTPEngine, c.BackendEngine = enginetest.HTTP(t), enginetest.Backend(t)
	over(&c)
	different, err := New(c, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err = different.Run(ctx)
	if err == nil || !strings.Contains(err.Error(), "the client CA, front-proxy CA, service account keys, serving CA of this replica and of ") {
		t.Fatalf("Run of a replica with different keys: error = %v, want one that lists the keys", err)
	}

	second := beside(t, dir)
	clients := filepath.Join(second, "clients.crt")
	own, err := os.ReadFile(filepath.Join(dir, "pki", "client-ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	other, err := pki.NewAuthority("other")
	if err != nil {
		t.Fatal(err)
	}
	trust := func(text []byte) {
		t.Helper()
		if err := os.WriteFile(clients, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	trust(own)
	two, stopTwo := open(t, second, over, func(c *Config) { c.ClientCAFile = clients })
	probe := rest.AnonymousClientConfig(two)
	awaitReadiness(t, probe, "/readyz?verbose", http.StatusOK, "[+]shared-keys ok")
	trust(append(other.PEM(), own...)) // as in a rotation
	awaitReadiness(t, probe, "/readyz?verbose", http.StatusOK, "[+]shared-keys ok")
	trust(other.PEM())
	awaitReadiness(t, probe, "/readyz", http.StatusInternalServerError, "[-]shared-keys failed")
	awaitReadiness(t, one, "/readyz?verbose", http.StatusOK, "[+]shared-keys ok")
	awaitReadiness(t, one, "/metrics", http.StatusOK, "portico_replica_shared_keys_match 1")
	trust(own)
	awaitReadiness(t, probe, "/readyz?verbose", http.StatusOK, "[+]shared-keys ok")
	for _, stop := range []func() error{stopTwo, stopOne} {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
}
