package aggregator

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"

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

// knownKinds maps all kinds in the merged discovery documents, including last-known kinds of unavailable backends. It
// is nil before the first document.
func (h *parts) knownKinds() meta.RESTMapper {
	if h.Discovery == nil {
		return nil
	}
	snapshot := h.Discovery.Current()
	if snapshot == nil {
		return nil
	}
	return snapshot.RESTMapper()
}

// writeBootstrapObjects creates the namespaces, roles, bindings and priority classes of every cluster. It does not
// call webhooks and policies: they could be behind an extension server, which is not reachable before these objects
// exist.
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
	// hookDialTimeout is the timeout of http.DefaultTransport. The call that waits for it has its own deadline.
	hookDialTimeout = 30 * time.Second
	hookKeepAlive   = 30 * time.Second
)

// wireWebhooks builds the connections to webhooks that API objects name. The local groups are wired before the
// informers that findWebhook reads, but do not call webhooks before the informers run.
func (h *parts) wireWebhooks() admission.Webhooks {
	h.webhookServices = admission.NewWebhookServices(h.findWebhook, transport.Options{
		// Webhooks on the same machine are common. Extension servers are also called as webhooks, through the Service
		// kubernetes, so requests to own addresses are not refused either.
		AllowLoopback: true, Tunnel: h.Egress.Cluster(),
		Engine: h.cfg.BackendEngine, Zone: h.cfg.Zone, MaxConns: webhookConns, Logger: h.log.Named("webhooks"),
	})
	return admission.Webhooks{Services: h.webhookServices, Dial: h.webhookDialer()}
}

// webhookConns limits the connections to one endpoint of a webhook. Webhooks that support only HTTP/1.1, which is
// common, need one for each waiting write.
const webhookConns = 256

// findWebhook resolves the Service of a webhook in the same way as Services of extension servers.
func (h *parts) findWebhook(namespace, name string, port int32) (*transport.Spec, error) {
	return apiservice.Services{
		Services: h.informers.Services().Lister(), EndpointSlices: h.informers.EndpointSlices().Lister(), Endpoints: h.informers.Endpoints().Lister(),
		EndpointRouting: h.cfg.EnableAggregatorRouting,
	}.Spec(namespace, name, port)
}

// followWebhooks refreshes webhookServices after changes of Services, EndpointSlices and Endpoints. The handlers end
// with the informers.
func (h *parts) followWebhooks() error {
	service := func(obj any) {
		if s, ok := withoutTombstone(obj).(*corev1.Service); ok {
			h.webhookServices.Refresh(s.Namespace, s.Name)
		}
	}
	slice := func(obj any) {
		if s, ok := withoutTombstone(obj).(*discoveryv1.EndpointSlice); ok {
			h.webhookServices.Refresh(s.Namespace, s.Labels[discoveryv1.LabelServiceName])
		}
	}
	endpoints := func(obj any) {
		//lint:ignore SA1019 deprecated, and still written for Services without selector
		if e, ok := withoutTombstone(obj).(*corev1.Endpoints); ok {
			h.webhookServices.Refresh(e.Namespace, e.Name)
		}
	}
	for _, follow := range []struct {
		informer cache.SharedIndexInformer
		changed  func(any)
	}{{h.informers.Services().Informer(), service}, {h.informers.EndpointSlices().Informer(), slice}, {h.informers.Endpoints().Informer(), endpoints}} {
		_, err := follow.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    follow.changed,
			UpdateFunc: func(old, now any) { follow.changed(old); follow.changed(now) }, // a slice may move to another Service
			DeleteFunc: follow.changed,
		})
		if err != nil {
			return fmt.Errorf("follow services of webhooks: %w", err)
		}
	}
	return nil
}

func withoutTombstone(obj any) any {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		return gone.Obj
	}
	return obj
}

// closeWebhooks closes the connections to webhooks, after the local groups have stopped.
func (h *parts) closeWebhooks(ctx context.Context) error {
	<-ctx.Done()
	h.webhookServices.Close()
	return nil
}

// webhookDialer returns the dialer for webhooks that are URLs.
func (h *parts) webhookDialer() func(ctx context.Context, network, address string) (net.Conn, error) {
	if through := transport.Guarded(h.Egress.ControlPlane()).NetDialer(); through != nil {
		return through
	}
	return dialWebhook
}

// dialWebhook refuses the addresses of transport.CheckAddress: a user who may write the URL of a webhook must not
// reach a cloud's metadata service with it. Loopback is allowed, because webhooks on the same machine are common.
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
