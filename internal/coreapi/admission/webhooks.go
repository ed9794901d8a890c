package admission

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"

	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
	clienttransport "k8s.io/client-go/transport"
)

// Webhooks says how webhooks that objects of the API name are reached: those of admission, and those that convert custom
// resources.
//
// The library makes the clients, by rest.Config: it verifies a certificate for <service>.<namespace>.svc, or for the host
// of the URL, against the caBundle beside it. It also connects to URLs, by Dial. Requests to Services are sent by Services.
type Webhooks struct {
	// Services sends requests to webhooks that are Services. Nil: calls of such webhooks fail.
	Services *WebhookServices
	// Dial makes every connection to a webhook that is a URL, and may refuse to. Nil: the standard dialer, which refuses
	// nothing.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Resolver returns what the library requires, never nil. It leaves the choice of an endpoint to Services.
func (h Webhooks) Resolver() webhook.ServiceResolver {
	if h.Services == nil {
		return noServices{}
	}
	return unresolved{}
}

type noServices struct{}

func (noServices) ResolveEndpoint(namespace, name string, _ int32) (*url.URL, error) {
	return nil, fmt.Errorf("the webhook is service %s/%s, and this server reaches webhooks by url only; set clientConfig.url", namespace, name)
}

// unresolved returns the host that requests to the Service have anyway.
type unresolved struct{}

func (unresolved) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	return &url.URL{Scheme: "https", Host: net.JoinHostPort(name+"."+namespace+".svc", strconv.Itoa(int(port)))}, nil
}

// Wrapper makes the library connect by Dial and Services, and bounds responses. kind is the kind of the objects
// that name the webhooks; errors tell it. Nothing else identifies this server to a webhook, as upstream without an admission
// kubeconfig.
func (h Webhooks) Wrapper(kind string) webhook.AuthenticationInfoResolverWrapper {
	return func(inner webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver {
		return &webhook.AuthenticationInfoResolverDelegator{
			ClientConfigForFunc: func(hostPort string) (*rest.Config, error) {
				return h.dialled(inner.ClientConfigFor(hostPort))
			},
			ClientConfigForServiceFunc: func(name, namespace string, port int) (*rest.Config, error) {
				config, err := h.dialled(inner.ClientConfigForService(name, namespace, port))
				if err != nil || h.Services == nil {
					return config, err
				}
				service := webhookService{namespace, name, int32(port)}
				// First, so that what the configuration wraps around the connection stays around it.
				config.WrapTransport = clienttransport.Wrappers(h.Services.wrapper(kind, service, config), config.WrapTransport)
				return config, nil
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
	config.Wrap(func(to http.RoundTripper) http.RoundTripper { return guardedTransport{to} })
	return config, nil
}

// maxWebhookResponse is the largest response of a webhook, in bytes. A conversion returns all objects of a list; an
// admission webhook needs a fraction of this.
const maxWebhookResponse = 64 << 20

// guardedTransport follows no redirect and reads no endless response. Otherwise whoever may write a webhook's configuration
// could make this server send requests to any address in its network (CVE-2020-8561), or fill its memory until the call
// times out (attack row C13). Every call has a deadline: the library's configurations have a timeout of 30 s.
type guardedTransport struct {
	to http.RoundTripper
}

func (w guardedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := w.to.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode >= 300 && answer.StatusCode < 400 {
		_ = answer.Body.Close() // nobody reads it
		return nil, fmt.Errorf("the webhook answered with a redirect (%d), which is not followed; give its own address", answer.StatusCode)
	}
	answer.Body = &boundedBody{answer.Body, maxWebhookResponse}
	return answer, nil
}

// WrappedRoundTripper lets the library find the transport below, to close idle connections.
func (w guardedTransport) WrappedRoundTripper() http.RoundTripper { return w.to }

// boundedBody fails where io.LimitReader would end: a part of a response must not be taken for the whole.
type boundedBody struct {
	io.ReadCloser
	left int64
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("the webhook answered with more than %d bytes", int64(maxWebhookResponse))
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	return n, err
}
