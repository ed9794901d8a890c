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
	fs.StringSliceVar(&a.Enable, "enable-admission-plugins", a.Enable, "admission plugins to have beside those that are on by default; their order is fixed")
	fs.StringSliceVar(&a.Disable, "disable-admission-plugins", a.Disable, "admission plugins to do without although they are on by default")
	fs.BoolVar(&c.AllowPrivileged, "allow-privileged", c.AllowPrivileged, "let pods have privileged containers")
	fs.StringVar(&a.File, "admission-control-config-file", a.File, "AdmissionConfiguration of apiserver.config.k8s.io: what single admission plugins are configured with")
}

// knownKinds are those that were last known, of dead backends too. Nil while nothing is known yet.
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

// writeStartObjects brings what every cluster starts with: namespaces, roles and bindings, and the priority classes of the system.
// Webhooks and policies are not asked about it. They may be behind an extension server, which nobody can reach before this
// is done.
func (h *parts) writeStartObjects(ctx context.Context) error {
	if err := lifecycle.EnsureNamespaces(ctx, h.startClients); err != nil {
		return err
	}
	if err := rbac.EnsureBootstrap(ctx, h.startClients); err != nil {
		return err
	}
	if !h.core.GroupVersions().Has(schedulingv1.SchemeGroupVersion) {
		return nil
	}
	return plugins.EnsureSystemPriorityClasses(ctx, h.startClients)
}

const (
	// hookDialTimeout is the standard transport's; the call that waits for it has a deadline of its own.
	hookDialTimeout = 30 * time.Second
	hookKeepAlive   = 30 * time.Second
)

// webhooks is the way to the webhooks that objects of the API name.
func (h *parts) webhooks() admission.Webhooks {
	return admission.Webhooks{Services: serviceResolver{h}, Dial: dialWebhook}
}

// serviceResolver leads to a Service as the front door reaches those of extension servers. The local groups are wired before
// the informers that it reads, and call nobody before those run.
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

// dialWebhook connects to any address but those that no front door dials: whoever may write a webhook's URL must not reach
// a cloud's metadata service by it. Loopback passes, because webhooks beside the front door are usual.
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
