package egress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/server/egressselector"

	"portico.dev/internal/metrics"
	"portico.dev/internal/pki"
	"portico.dev/internal/transport"
)

// Selector holds the tunnels of an EgressSelectorConfiguration. A nil *Selector has no tunnels.
type Selector struct {
	tunnels map[string]*tunnel // by network
	// dial connects to every network instead of tunnels. May be nil.
	dial   func(ctx context.Context, address string) (net.Conn, error)
	follow []func(context.Context, *zap.Logger) error

	// life ends with Run, which closes every connection over gRPC. running counts the goroutines of these
	// connections.
	life    context.Context
	end     context.CancelFunc
	running sync.WaitGroup
}

// The names of the networks in the file.
var (
	networkCluster      = egressselector.Cluster.String()
	networkControlPlane = egressselector.ControlPlane.String()
	networkEtcd         = egressselector.Etcd.String()
)

// Load reads an EgressSelectorConfiguration. It does not connect to the servers.
func Load(file string, m *metrics.Egress) (*Selector, error) {
	config, err := egressselector.ReadEgressSelectorConfiguration(file)
	if err != nil {
		return nil, err
	}
	if err := egressselector.ValidateEgressSelectorConfiguration(config).ToAggregate(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	s := &Selector{tunnels: map[string]*tunnel{}}
	s.life, s.end = context.WithCancel(context.Background())
	for _, selection := range config.EgressSelections {
		network := strings.ToLower(selection.Name)
		if selection.Connection.ProxyProtocol == apiserver.ProtocolDirect {
			continue
		}
		t := &tunnel{network: network, selector: s, slots: make(chan struct{}, maxPending), metrics: m}
		if err := s.configure(t, selection.Connection); err != nil {
			s.end()
			return nil, fmt.Errorf("%s: egress selection %q: %w", file, selection.Name, err)
		}
		s.tunnels[network] = t
	}
	return s, nil
}

// LoadTunnel reads an EgressSelectorConfiguration as Load does. Its tunnel to the cluster, which it must have, has another name in
// messages and metrics.
func LoadTunnel(file, name string, m *metrics.Egress) (*Selector, error) {
	s, err := Load(file, m)
	if err != nil {
		return nil, err
	}
	t := s.tunnels[networkCluster]
	if t == nil {
		s.end()
		return nil, fmt.Errorf("%s: the tunnel of the egress selection %q is missing", file, networkCluster)
	}
	t.network = name
	return s, nil
}

// Use returns a Selector that connects to all networks with dial.
func Use(dial func(ctx context.Context, address string) (net.Conn, error)) *Selector {
	s := &Selector{dial: dial}
	s.life, s.end = context.WithCancel(context.Background())
	return s
}

// configure sets the address and protocol of the server of t.
func (s *Selector) configure(t *tunnel, c apiserver.Connection) error {
	t.protocol, t.open = protocolHTTPConnect, t.openConnect
	if c.ProxyProtocol == apiserver.ProtocolGRPC {
		t.protocol, t.open = protocolGRPC, t.openStream
	}
	if uds := c.Transport.UDS; uds != nil {
		t.carrier, t.server = carrierUDS, uds.UDSName
		return nil
	}
	t.carrier = carrierTCP
	u, err := url.Parse(c.Transport.TCP.URL)
	if err != nil {
		return err
	}
	if u.Hostname() == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return fmt.Errorf("url %q: is more or less than a scheme, a host and a port", c.Transport.TCP.URL)
	}
	t.server = net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme]))
	if c.Transport.TCP.TLSConfig == nil {
		return nil // http://, the only scheme that validation permits without TLSConfig
	}
	t.tls, err = s.loadTLS(u.Hostname(), c.Transport.TCP.TLSConfig)
	return err
}

// loadTLS reads the TLS configuration of a tunnel's server. Run reloads the files.
func (s *Selector) loadTLS(host string, c *apiserver.TLSConfig) (*serverTLS, error) {
	if err := pki.CheckPrivate(c.ClientKey); err != nil {
		return nil, fmt.Errorf("clientKey: %w", err)
	}
	pair, err := pki.LoadKeyPair(c.ClientCert, c.ClientKey)
	if err != nil {
		return nil, err
	}
	s.follow = append(s.follow, pair.Run)
	t := &serverTLS{name: cmp.Or(c.TLSServerName, host), certificate: pair}
	if c.CABundle == "" {
		return t, nil
	}
	if t.roots, err = pki.LoadBundle(c.CABundle); err != nil {
		return nil, err
	}
	s.follow = append(s.follow, t.roots.Run)
	return t, nil
}

// Cluster returns the tunnel to nodes, pods and Services. If it is nil, they are dialled directly.
func (s *Selector) Cluster() *transport.Tunnel { return s.tunnel(networkCluster) }

// ControlPlane returns the tunnel to webhooks with URLs and to servers named in flags. If it is nil, they are dialled
// directly.
func (s *Selector) ControlPlane() *transport.Tunnel { return s.tunnel(networkControlPlane) }

// Etcd returns the tunnel to etcd. If it is nil, etcd is dialled directly.
func (s *Selector) Etcd() *transport.Tunnel { return s.tunnel(networkEtcd) }

func (s *Selector) tunnel(network string) *transport.Tunnel {
	switch {
	case s == nil:
		return nil
	case s.dial != nil:
		return &transport.Tunnel{Network: network, Dial: s.dial, Received: time.Now}
	case s.tunnels[network] == nil:
		return nil
	}
	t := s.tunnels[network]
	return &transport.Tunnel{Network: t.network, Dial: t.dial, Received: func() time.Time { return time.Unix(0, t.answered.Load()) }}
}

// Run reloads the files that the configuration names until ctx ends. It then closes every connection over gRPC and
// waits for its goroutines. It must be called once, and must be stopped after all users of the tunnels.
func (s *Selector) Run(ctx context.Context, log *zap.Logger) error {
	g, following := errgroup.WithContext(ctx)
	for _, follow := range s.follow {
		g.Go(func() error { return follow(following, log) })
	}
	err := g.Wait()
	<-ctx.Done()
	s.end()
	s.running.Wait()
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}
