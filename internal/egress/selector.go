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

// Selector is the tunnels of an EgressSelectorConfiguration. A nil *Selector has none.
type Selector struct {
	tunnels map[string]*tunnel // by network
	follow  []func(context.Context, *zap.Logger) error

	// life ends with Run, and with it every connection over gRPC, whose goroutines are counted by running.
	life    context.Context
	end     context.CancelFunc
	running sync.WaitGroup
}

// The networks that there are, as the file calls them.
var (
	networkCluster      = egressselector.Cluster.String()
	networkControlPlane = egressselector.ControlPlane.String()
	networkEtcd         = egressselector.Etcd.String()
)

// Load reads an EgressSelectorConfiguration. No connection is made.
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

// configure sets how the server of t is reached.
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
		return nil // http://, which validation allows without it only
	}
	t.tls, err = s.loadTLS(u.Hostname(), c.Transport.TCP.TLSConfig)
	return err
}

// loadTLS reads what TLS to a tunnel's server needs, from files that Run follows.
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

// Cluster is the tunnel to nodes, pods and Services. Nil: there is none, and they are dialled directly.
func (s *Selector) Cluster() *transport.Tunnel { return s.tunnel(networkCluster) }

// ControlPlane is the tunnel to webhooks that are URLs, and to what flags name. Nil as in Cluster.
func (s *Selector) ControlPlane() *transport.Tunnel { return s.tunnel(networkControlPlane) }

// Etcd is the tunnel to etcd. Nil as in Cluster.
func (s *Selector) Etcd() *transport.Tunnel { return s.tunnel(networkEtcd) }

func (s *Selector) tunnel(network string) *transport.Tunnel {
	if s == nil || s.tunnels[network] == nil {
		return nil
	}
	t := s.tunnels[network]
	return &transport.Tunnel{Network: network, Dial: t.dial, Received: func() time.Time { return time.Unix(0, t.answered.Load()) }}
}

// Run follows the files that the configuration names until ctx ends. Then it ends every connection over gRPC and waits for its
// goroutines. It is called once, and to be ended after everything that dials.
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
