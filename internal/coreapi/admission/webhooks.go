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

// Webhooks configures connections to webhooks that API objects name: admission webhooks, and conversion webhooks of custom
// resources.
//
// k8s.io/apiserver creates the clients from a rest.Config. It verifies a certificate for <service>.<namespace>.svc, or for the
// host of the URL, against the caBundle of the same configuration. It connects to URLs through Dial. The field Services sends
// requests to webhooks that are Services.
type Webhooks struct {
	// Services sends requests to webhooks that are Services. If it is nil, calls of such webhooks fail.
	Services *WebhookServices
	// Dial creates every connection to a webhook that is a URL, and may refuse addresses. If it is nil, the standard dialer is
	// used, which refuses none.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Resolver returns the resolver that k8s.io/apiserver requires. It is never nil. Services selects the endpoint later.
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

// unresolved returns the host that requests to the Service have in any case.
type unresolved struct{}

func (unresolved) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	return &url.URL{Scheme: "https", Host: net.JoinHostPort(name+"."+namespace+".svc", strconv.Itoa(int(port)))}, nil
}

// Wrapper makes k8s.io/apiserver connect through Dial and Services, and limits responses. kind is the kind of the objects that
// name the webhooks, for error messages. The server sends no other identification to a webhook, like upstream without an
// admission kubeconfig.
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
				// First, so that wrappers of the configuration stay outside.
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

// maxWebhookResponse limits a response of a webhook, in bytes. A conversion returns all objects of a list; an admission
// response needs a fraction of this.
const maxWebhookResponse = 64 << 20

// guardedTransport refuses redirects and limits responses. Otherwise a user who may write a webhook's configuration could make
// this server send requests to any address in its network (CVE-2020-8561), or fill its memory until the call times out (attack
// row C13). Every call has a deadline: configurations of k8s.io/apiserver have a timeout of 30 s.
type guardedTransport struct {
	to http.RoundTripper
}

func (w guardedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := w.to.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode >= 300 && answer.StatusCode < 400 {
		_ = answer.Body.Close()
		return nil, fmt.Errorf("the webhook answered with a redirect (%d), which is not followed; give its own address", answer.StatusCode)
	}
	answer.Body = &boundedBody{answer.Body, maxWebhookResponse}
	return answer, nil
}

// WrappedRoundTripper lets k8s.io/apimachinery find the transport below, to close idle connections.
func (w guardedTransport) WrappedRoundTripper() http.RoundTripper { return w.to }

// boundedBody returns an error at the limit, unlike io.LimitReader: a truncated response must not look complete.
type boundedBody struct {
	io.ReadCloser
	remaining int64
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if b.remaining <= 0 {
		return 0, fmt.Errorf("the webhook answered with more than %d bytes", int64(maxWebhookResponse))
	}
	if int64(len(p)) > b.remaining {
		p = p[:b.remaining]
	}
	n, err := b.ReadCloser.Read(p)
	b.remaining -= int64(n)
	return n, err
}
