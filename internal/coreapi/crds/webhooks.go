package crds

import (
	"context"
	"fmt"
	"net"
	"net/url"

	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
)

// Webhooks is the way to the webhooks that convert instances between versions.
type Webhooks struct {
	// Services finds out where a Service leads. Nil: a webhook that is a Service is refused when it is called.
	Services webhook.ServiceResolver
	// Dial makes every connection to a webhook, and may refuse to. Nil: the standard dialer, which refuses nothing.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

func (h Webhooks) resolver() webhook.ServiceResolver {
	if h.Services == nil {
		return noServices{}
	}
	return h.Services
}

type noServices struct{}

func (noServices) ResolveEndpoint(namespace, name string, _ int32) (*url.URL, error) {
	return nil, fmt.Errorf("conversion webhook is service %s/%s, and this server reaches conversion webhooks by url only; set spec.conversion.webhook.clientConfig.url", namespace, name)
}

// dialer puts Dial into what the library connects with. Nothing else identifies us to a webhook, as upstream without an
// admission kubeconfig.
func (h Webhooks) dialer() webhook.AuthenticationInfoResolverWrapper {
	return func(inner webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver {
		if h.Dial == nil {
			return inner
		}
		return &webhook.AuthenticationInfoResolverDelegator{
			ClientConfigForFunc: func(hostPort string) (*rest.Config, error) {
				return h.dialled(inner.ClientConfigFor(hostPort))
			},
			ClientConfigForServiceFunc: func(name, namespace string, port int) (*rest.Config, error) {
				return h.dialled(inner.ClientConfigForService(name, namespace, port))
			},
		}
	}
}

func (h Webhooks) dialled(config *rest.Config, err error) (*rest.Config, error) {
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.Dial = h.Dial
	return config, nil
}
