package aggregator

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"syscall"
	"time"

	"portico.dev/internal/apiservice"
	"portico.dev/internal/coreapi/admission"
	"portico.dev/internal/transport"
)

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
