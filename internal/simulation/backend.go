package simulation

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"

	"portico.dev/internal/simulation/network"
	"portico.dev/internal/tools/drill/faulty"
)

const backendPort = 443

// backend is an extension server that can fail. Its objects survive its faults.
type backend struct {
	name   string
	group  string
	stores bool
	host   *network.Host

	server *faulty.Server
	end    context.CancelFunc
	ended  chan error
}

// namespace is the namespace of the Services of extension servers.
const backendNamespace = "extensions"

// newBackend returns a backend whose group-version is NAME.sim.example.com/v1. observe is called with each of its requests.
func newBackend(name string, stores bool, host *network.Host, observe func(*backend, *http.Request)) (*backend, error) {
	b := &backend{name: name, group: name + ".sim.example.com", stores: stores, host: host}
	server, err := faulty.New(faulty.Config{
		Group: b.group, ServerName: name + "." + backendNamespace + ".svc", Address: net.JoinHostPort(host.String(), strconv.Itoa(backendPort)),
		Stores: stores, Observe: func(r *http.Request) { observe(b, r) },
		Listen: func(address string) (net.Listener, error) {
			at, err := netip.ParseAddrPort(address)
			if err != nil {
				return nil, err
			}
			return host.Listen(at.Port())
		},
	})
	b.server = server
	return b, err
}

// start starts the server, and returns when it listens.
func (b *backend) start(ctx context.Context) error {
	ctx, b.end = context.WithCancel(ctx)
	b.ended = make(chan error, 1)
	go func() { b.ended <- b.server.Run(ctx) }()
	select {
	case <-b.server.Ready():
		return nil
	case err := <-b.ended:
		return fmt.Errorf("start backend %s: %w", b.name, err)
	}
}

func (b *backend) stop() error {
	if b.end == nil {
		return nil
	}
	b.end()
	return <-b.ended
}

// apiService returns the name of the backend's APIService.
func (b *backend) apiService() string { return "v1." + b.group }

// resource returns the plural name of the backend's resource.
func (b *backend) resource() string {
	if b.stores {
		return "widgets"
	}
	return "readings"
}

// path returns the path of the backend's resource in a namespace.
func (b *backend) path(namespace string) string {
	return "/apis/" + b.group + "/v1/namespaces/" + namespace + "/" + b.resource()
}
