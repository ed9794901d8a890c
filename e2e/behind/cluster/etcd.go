package cluster

import (
	"fmt"
	"net/url"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"portico.dev/e2e/programs"
)

// Etcd is an etcd in this process, on a free local port.
type Etcd struct {
	// URL is the client URL.
	URL    string
	server *embed.Etcd
}

// StartEtcd starts an etcd with an empty data directory and a log file.
func StartEtcd(dir, log string) (*Etcd, error) {
	anywhere := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	c := embed.NewConfig()
	c.Dir, c.LogOutputs = dir, []string{log}
	c.ListenClientUrls, c.AdvertiseClientUrls, c.ListenPeerUrls = anywhere, anywhere, nil
	c.EnableGRPCGateway = false
	server, err := embed.StartEtcd(c)
	if err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	select {
	case <-server.Server.ReadyNotify():
	case <-time.After(programs.Patience):
		server.Close()
		return nil, fmt.Errorf("etcd is not ready after %s; its log is %s", programs.Patience, log)
	}
	return &Etcd{URL: "http://" + server.Clients[0].Addr().String(), server: server}, nil
}

// Close stops etcd.
func (e *Etcd) Close() { e.server.Close() }
