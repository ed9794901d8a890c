package aggregator

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	networkingv1 "k8s.io/api/networking/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"portico.dev/internal/coreapi"
	"portico.dev/internal/coreapi/allocation"
	"portico.dev/internal/lifecycle"
	"portico.dev/internal/lifecycle/quotas"
	"portico.dev/internal/run"
)

// ServicesConfig configures addresses and ports of Services, and the Service kubernetes.
type ServicesConfig struct {
	// ClusterIPRanges is one range, or one of each family. Default 10.0.0.0/24, as in kube-apiserver. Danger: after a
	// change, existing Services keep addresses outside the new range, and the Service kubernetes has another address.
	ClusterIPRanges []string
	// NodePorts default to 30000-32767.
	NodePorts allocation.PortRange
	// AdvertiseAddress is the address at which workloads reach this replica. Default BindAddress; if that is loopback
	// or unspecified, the address of the interface with the default route.
	AdvertiseAddress string
	// EventTTL is how long Events are kept. 0 keeps them until they are deleted. Default an hour.
	EventTTL time.Duration
	// QuotaSync is how often the usage of quotas is recounted without a change. Default 5 minutes.
	QuotaSync time.Duration
}

func defaultServices() ServicesConfig {
	return ServicesConfig{
		ClusterIPRanges: []string{allocation.DefaultClusterIPRange.String()}, NodePorts: allocation.DefaultNodePorts,
		EventTTL: time.Hour, QuotaSync: quotas.DefaultSync,
	}
}

func (c *ServicesConfig) addFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&c.ClusterIPRanges, "service-cluster-ip-range", c.ClusterIPRanges, "CIDR for the cluster IPs of Services, or one for IPv4 and one for IPv6; the first is the default family")
	fs.Var(&c.NodePorts, "service-node-port-range", "port range for the node ports of Services, first-last")
	fs.StringVar(&c.AdvertiseAddress, "advertise-address", c.AdvertiseAddress, "IP address of this server in the endpoints of the Service kubernetes; default --bind-address, or the address of the interface with the default route")
	fs.DurationVar(&c.EventTTL, "event-ttl", c.EventTTL, "how long Events are kept; 0 keeps them until they are deleted")
	fs.DurationVar(&c.QuotaSync, "resource-quota-sync-period", c.QuotaSync, "interval of full recounts of resource quotas")
}

func (c *ServicesConfig) validate(bad func(flag, format string, args ...any)) {
	const flag = "service-cluster-ip-range"
	switch len(c.ClusterIPRanges) {
	case 0:
		bad(flag, "a range is needed, such as %s", allocation.DefaultClusterIPRange)
	case 1, 2:
	default:
		bad(flag, "%d ranges; give one, or one of IPv4 and one of IPv6", len(c.ClusterIPRanges))
	}
	var families []bool
	for _, text := range c.ClusterIPRanges {
		r, err := netip.ParsePrefix(text)
		if err != nil {
			bad(flag, "%q is not a range of addresses: %v", text, err)
			continue
		}
		if err := allocation.CheckRange(r); err != nil {
			bad(flag, "%v", err)
		}
		if slices.Contains(families, r.Addr().Is4()) {
			bad(flag, "two ranges of one family; give one of IPv4 and one of IPv6")
		}
		families = append(families, r.Addr().Is4())
	}
	if a, err := netip.ParseAddr(c.AdvertiseAddress); c.AdvertiseAddress != "" {
		switch {
		case err != nil:
			bad("advertise-address", "%q is not an IP address", c.AdvertiseAddress)
		case a.IsLoopback() || a.IsUnspecified() || a.IsMulticast() || a.IsLinkLocalUnicast():
			bad("advertise-address", "%s cannot be an endpoint of a Service; set an address that workloads can reach", a)
		}
	}
	if c.EventTTL != 0 && c.EventTTL < time.Second {
		bad("event-ttl", "%s is less than a second; 0 keeps Events until they are deleted", c.EventTTL)
	}
	if c.QuotaSync <= 0 {
		bad("resource-quota-sync-period", "%s is not positive", c.QuotaSync)
	}
}

// ranges returns the parsed ranges, which validate has checked.
func (c *ServicesConfig) ranges() []netip.Prefix {
	var out []netip.Prefix
	for _, text := range c.ClusterIPRanges {
		if r, err := netip.ParsePrefix(text); err == nil {
			out = append(out, r.Masked())
		}
	}
	return out
}

func (c *ServicesConfig) network() coreapi.ServiceNetwork {
	return coreapi.ServiceNetwork{ClusterIPRanges: c.ranges(), NodePorts: c.NodePorts}
}

// advertised returns the address at which workloads reach this server. It is invalid on a machine without a network.
//
// If the front door listens on loopback, advertised returns the address of this machine, as kube-apiserver does,
// although no server listens there: the API refuses loopback addresses in endpoints, because a workload would connect
// to itself.
func (c *Config) advertised() netip.Addr {
	if a, err := netip.ParseAddr(c.Services.AdvertiseAddress); err == nil {
		return a.Unmap()
	}
	ip, err := utilnet.ResolveBindAddress(net.ParseIP(c.BindAddress))
	if err != nil {
		return netip.Addr{}
	}
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

// clusterNames returns the addresses at which workloads reach the front door: its address, and the address of its
// Service.
func (c *Config) clusterNames() []string {
	var names []string
	if a := c.advertised(); a.IsValid() {
		names = append(names, a.String())
	}
	for _, r := range c.Services.ranges()[:1] {
		names = append(names, allocation.FirstAddress(r).String())
	}
	return names
}

// addressSeparator separates the name of a replica from its address, so that other replicas learn both.
const addressSeparator = "@"

// replicaAddress returns this replica's name with the address at which workloads reach it.
func (h *parts) replicaAddress() string {
	name := run.InstanceName()
	if a := h.cfg.advertised(); a.IsValid() && h.listener != nil {
		name += addressSeparator + netip.AddrPortFrom(a, h.port()).String()
	}
	return name
}

// port requires a front door with a listener.
func (h *parts) port() uint16 { return uint16(h.listener.Addr().(*net.TCPAddr).Port) }

// replicaAddresses returns the addresses of the live replicas.
func (h *parts) replicaAddresses() []netip.AddrPort {
	others, _ := h.replicas.Received()
	names := []string{h.replicas.Name()}
	for name := range others {
		names = append(names, name)
	}
	var all []netip.AddrPort
	for _, name := range names {
		_, at, _ := strings.Cut(name, addressSeparator)
		if a, err := netip.ParseAddrPort(at); err == nil {
			all = append(all, a)
		}
	}
	return all
}

// election reports whether this replica leads.
func (h *parts) election() (bool, <-chan struct{}) {
	changed := h.replicas.Changed() // before Received, so that no change is missed
	_, leads := h.replicas.Received()
	return leads, changed
}

// frontDoor returns the Service kubernetes. It is empty without a listener.
func (h *parts) frontDoor() lifecycle.FrontDoor {
	if h.listener == nil {
		return lifecycle.FrontDoor{}
	}
	return lifecycle.FrontDoor{
		Address: allocation.FirstAddress(h.cfg.Services.ranges()[0]), Port: int32(h.port()),
		Replicas: h.replicaAddresses, Changed: h.replicas.Changed,
		Services: h.informers.Services(), EndpointSlices: h.informers.EndpointSlices(),
	}
}

// publishedRanges returns the ranges for ServiceCIDRs, or nil if --runtime-config disables ServiceCIDRs.
func (h *parts) publishedRanges() []netip.Prefix {
	if !slices.Contains(h.core.BuiltIn(), networkingv1.SchemeGroupVersion) {
		return nil
	}
	return h.cfg.Services.ranges()
}
