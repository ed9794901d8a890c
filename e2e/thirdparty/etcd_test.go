package thirdparty

import (
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"portico.dev/e2e/programs"
)

// startEtcd starts an etcd on a free port of this machine and returns its URL.
func startEtcd(t *testing.T) string {
	t.Helper()
	anywhere := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	c := embed.NewConfig()
	c.Dir, c.LogOutputs = t.TempDir(), []string{filepath.Join(logs, "sample-etcd.log")}
	c.ListenClientUrls, c.AdvertiseClientUrls, c.ListenPeerUrls = anywhere, anywhere, nil
	c.EnableGRPCGateway = false
	server, err := embed.StartEtcd(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	select {
	case <-server.Server.ReadyNotify():
	case <-time.After(programs.Patience):
		t.Fatalf("etcd was not ready in time, want ready; its log is %s", c.LogOutputs[0])
	}
	return "http://" + server.Clients[0].Addr().String()
}
