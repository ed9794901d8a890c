// Package hooks is the way to the webhooks that objects of the API name: those of admission and those that convert
// custom resources.
//
// The library makes the clients, by rest.Config: it verifies a certificate for <service>.<namespace>.svc, or for the host
// of the URL, against the caBundle that stands beside it. What it does not know is where a Service leads, and which
// addresses it had better not dial.
package hooks

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"

	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
)

// Webhooks is how webhooks are reached.
type Webhooks struct {
	// Services finds out where a Service leads, each time a connection is made. Nil: a webhook that is a Service is
	// refused when it is called.
	Services webhook.ServiceResolver
	// Dial makes every connection to a webhook, and may refuse to. Nil: the standard dialer, which refuses nothing.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Resolver is never nil.
func (h Webhooks) Resolver() webhook.ServiceResolver {
	if h.Services == nil {
		return noServices{}
	}
	return h.Services
}

type noServices struct{}

func (noServices) ResolveEndpoint(namespace, name string, _ int32) (*url.URL, error) {
	return nil, fmt.Errorf("the webhook is service %s/%s, and this server reaches webhooks by url only; set clientConfig.url", namespace, name)
}

// Wrapper puts Dial into what the library connects with, and bounds what comes back. Nothing else identifies us to a webhook, as upstream without an
// admission kubeconfig.
func (h Webhooks) Wrapper() webhook.AuthenticationInfoResolverWrapper {
	return func(inner webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver {
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
	if h.Dial != nil {
		config.Dial = h.Dial
	}
	config.Wrap(func(to http.RoundTripper) http.RoundTripper { return wary{to} })
	return config, nil
}
