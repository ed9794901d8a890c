package aggregator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/spf13/pflag"

	"portico.dev/internal/metrics"
	"portico.dev/internal/replicas/peers"
	"portico.dev/internal/store"
	"portico.dev/internal/transport"
)

// PeersConfig configures how replicas forward requests to each other.
type PeersConfig struct {
	// Enabled makes replicas forward requests for backends that only some of them reach. Default true.
	Enabled bool
	// AdvertiseIP and AdvertisePort are the address at which other replicas reach this one. The default is the
	// address of the listener, or, if it listens on all addresses, --advertise-address or an address of this machine;
	// and the listener's port.
	AdvertiseIP   string
	AdvertisePort string
}

func (c *PeersConfig) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&c.Enabled, "peer-proxy", c.Enabled, "forward requests for backends that this replica cannot reach to a replica that can, and serve such requests of other replicas")
	fs.StringVar(&c.AdvertiseIP, "peer-advertise-ip", c.AdvertiseIP, "IP address by which other replicas reach this one; default the address that it listens on, or --advertise-address if it listens on all")
	fs.StringVar(&c.AdvertisePort, "peer-advertise-port", c.AdvertisePort, "port by which other replicas reach this one; default the port that it listens on")
}

func (c *PeersConfig) validate(bad func(flag, format string, args ...any)) {
	if _, err := netip.ParseAddr(c.AdvertiseIP); c.AdvertiseIP != "" && err != nil {
		bad("peer-advertise-ip", "%q is not an IP address", c.AdvertiseIP)
	}
	if port, err := strconv.Atoi(c.AdvertisePort); c.AdvertisePort != "" && (err != nil || port < 1 || port > 65535) {
		bad("peer-advertise-port", "%q is not a port", c.AdvertisePort)
	}
}

// wirePeers leaves h.peers nil if replicas do not forward requests.
func (h *parts) wirePeers() (err error) {
	if !h.cfg.Peers.Enabled {
		return nil
	}
	h.peers, err = peers.New(peers.Config{
		Section: h.replicas.Section("peers"), Name: h.replicas.Name(), Address: h.peerAddress(), GroupVersions: h.core.BuiltIn(),
		Transport: transport.Options{
			Tunnel: h.Egress.ControlPlane(), OwnAddresses: h.ownAddresses, Engine: h.cfg.BackendEngine, MaxInFlight: maxPeerRequests,
			MaxReplayTotal: h.Memory.Share(transport.MaxReplayTotal, 32), Logger: h.log.Named("peers"),
		},
		Metrics: h.Metrics.Peers, Changed: h.hopsChanged, Logger: h.log.Named("peers"),
	})
	if err != nil {
		return fmt.Errorf("identity among replicas: %w", err)
	}
	h.Metrics.Buffered.Add(metrics.BufferedPeerRetries, h.peers.KeptBodies)
	h.replicas.UsePresence(h.presence)
	return nil
}

// presence checks whether another replica is alive.
func (h *parts) presence(ctx context.Context, name string) store.Presence {
	switch refused, err := h.peers.Lives(ctx, name); {
	case err == nil:
		return store.Present
	case refused:
		return store.Gone
	case errors.Is(err, peers.ErrNotReachable):
		return store.Unknown
	}
	return store.Silent
}

// maxPeerRequests limits the concurrent requests that this replica forwards to one set of replicas.
const maxPeerRequests = 1000

// peerAddress returns the address at which other replicas reach this one. It is empty if they do not.
func (h *parts) peerAddress() string {
	if h.listener == nil {
		return ""
	}
	c := h.cfg.Peers
	host, port := c.AdvertiseIP, c.AdvertisePort
	if host == "" {
		host = h.cfg.BindAddress
		if at, ok := h.listener.Addr().(*net.TCPAddr); ok && !at.IP.IsUnspecified() {
			host = at.IP.String()
		} else if a := h.cfg.advertised(); a.IsValid() {
			host = a.String()
		}
	}
	if port == "" {
		port = strconv.Itoa(int(h.port()))
	}
	return net.JoinHostPort(host, port)
}

// hops reports whether requests can be forwarded to a replica.
func (h *parts) hops(replica string) bool { return h.peers != nil && h.peers.Reachable(replica) }

func (h *parts) hopsChanged() { h.APIServices.HopsChanged() }
