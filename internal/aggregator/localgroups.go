package aggregator

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"portico.dev/internal/apiservice"
	"portico.dev/internal/auth/rbac"
	"portico.dev/internal/coreapi/admission"
	"portico.dev/internal/coreapi/admission/plugins"
	"portico.dev/internal/lifecycle"
	"portico.dev/internal/transport"
)

func defaultAdmission() admission.Config { return admission.Config{Plugins: plugins.All()} }

func (c *Config) addAdmissionFlags(fs *pflag.FlagSet) {
	a := &c.Admission
	fs.StringSliceVar(&a.Enable, "enable-admission-plugins", a.Enable, "admission plugins to enable in addition to the default ones; the order in the list does not matter")
	fs.StringSliceVar(&a.Disable, "disable-admission-plugins", a.Disable, "default admission plugins to disable")
	fs.BoolVar(&c.AllowPrivileged, "allow-privileged", c.AllowPrivileged, "allow pods with privileged containers")
	fs.StringVar(&a.File, "admission-control-config-file", a.File, "AdmissionConfiguration of apiserver.config.k8s.io, which configures single admission plugins")
}

// knownKinds maps all kinds in the merged discovery documents, including last-known ones of dead backends. Nil before the
// first document.
func (h *parts) knownKinds() meta.RESTMapper {
	if h.discovery == nil {
		return nil
	}
	snapshot := h.discovery.Current()
	if snapshot == nil {
		return nil
	}
	return snapshot.RESTMapper()
}

// writeBootstrapObjects creates the namespaces, roles, bindings and priority classes of every cluster. Webhooks and policies
// are not called: they could be behind an extension server, which is not reachable before this is done.
func (h *parts) writeBootstrapObjects(ctx context.Context) error {
	if err := lifecycle.EnsureNamespaces(ctx, h.bootstrapClients); err != nil {
		return err
	}
	if err := rbac.EnsureBootstrap(ctx, h.bootstrapClients); err != nil {
		return err
	}
	if !h.core.GroupVersions().Has(schedulingv1.SchemeGroupVersion) {
		return nil
	}
	return plugins.EnsureSystemPriorityClasses(ctx, h.bootstrapClients)
}

const (
	// hookDialTimeout is the standard transport's; the call that waits for it has a deadline of its own.
	hookDialTimeout = 30 * time.Second
	hookKeepAlive   = 30 * time.Second
)

// webhooks says how webhooks that objects of the API name are reached.
func (h *parts) webhooks() admission.Webhooks {
	return admission.Webhooks{Services: serviceResolver{h}, Dial: dialWebhook}
}

// serviceResolver resolves Services of webhooks in the same way as those of extension servers. The local groups are wired
// before the informers that it reads, but call no webhook before these run.
type serviceResolver struct{ parts *parts }

// ResolveEndpoint implements [k8s.io/apiserver/pkg/util/webhook.ServiceResolver].
func (s serviceResolver) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	from := s.parts.informers
	ways := apiservice.Services{
		Services: from.Services().Lister(), EndpointSlices: from.EndpointSlices().Lister(),
		EndpointRouting: s.parts.cfg.EnableAggregatorRouting,
	}
	address, err := ways.Address(namespace, name, port)
	if err != nil {
		return nil, err
	}
	return &url.URL{Scheme: "https", Host: address}, nil
}

// dialWebhook refuses the addresses of transport.CheckAddress: whoever may write a webhook's URL must not reach a cloud's
// metadata service by it. Loopback is allowed, because webhooks on the same machine are common.
func dialWebhook(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{
		Timeout: hookDialTimeout, KeepAlive: hookKeepAlive,
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			at, err := netip.ParseAddrPort(address)
			if err != nil {
				return fmt.Errorf("read dialled address: %w", err)
			}
			return transport.CheckAddress(at)
		},
	}
	return dialer.DialContext(ctx, network, address)
}
