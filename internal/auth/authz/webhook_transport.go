package authz

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"

	"portico.dev/internal/pki"
	"portico.dev/internal/transport"
)

const (
	// maxCalls limits the calls in flight to one webhook. A request above the limit fails immediately, according to
	// the failure policy. If it waited, it would hold a seat that requests without webhooks could use.
	maxCalls = 128
	// maxAnswerBytes limits the SubjectAccessReview in a response, which repeats the request with all extra
	// attributes.
	maxAnswerBytes = 1 << 20

	dialTimeout = 5 * time.Second
	// Pings detect a dead connection after pingAfter plus pingTimeout, so that calls do not each have to time out.
	pingAfter   = 5 * time.Second
	pingTimeout = 3 * time.Second
	idleTimeout = 90 * time.Second
)

var errBusy = errors.New("too many calls are under way")

// webhookTransport is the HTTP transport to one webhook.
type webhookTransport struct {
	transport *http.Transport
	calls     chan struct{}
	users     transport.Shares // divides the calls among users
}

func newWebhookTransport(config *rest.Config, dial func(ctx context.Context, network, address string) (net.Conn, error)) (*webhookTransport, error) {
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	options, err := clientTLS(config)
	if err != nil {
		return nil, err
	}
	tls, err := pki.ClientConfig(options)
	if err != nil {
		return nil, err
	}
	proxy := http.ProxyFromEnvironment
	if config.Proxy != nil {
		proxy = config.Proxy
	}
	return &webhookTransport{
		calls: make(chan struct{}, maxCalls),
		transport: &http.Transport{
			Proxy: proxy, TLSClientConfig: tls, ForceAttemptHTTP2: true, TLSHandshakeTimeout: dialTimeout,
			DialContext:         dial,
			MaxIdleConnsPerHost: maxCalls / 4, IdleConnTimeout: idleTimeout, MaxResponseHeaderBytes: 64 << 10,
			HTTP2: &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		},
	}, nil
}

// RoundTrip implements [http.RoundTripper]. It returns after reading the whole response, so that the call counts as
// in flight until then.
func (t *webhookTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	end, ok := t.begin(r.Context())
	if !ok {
		if r.Body != nil {
			_ = r.Body.Close() // RoundTrip must close the body, even on errors
		}
		return nil, errBusy
	}
	defer end()
	resp, err := t.transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // the body has been read by then
	if resp.StatusCode/100 == 3 {
		return nil, fmt.Errorf("answered %s; redirects are not followed", resp.Status)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes+1))
	if err != nil {
		return nil, err
	}
	if len(body) > maxAnswerBytes {
		return nil, fmt.Errorf("answered with more than %d bytes", maxAnswerBytes)
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

// begin counts a call until end is called. ok is false if too many calls are in flight, in total or for the same
// user.
func (t *webhookTransport) begin(ctx context.Context) (end func(), ok bool) {
	give := func() {}
	if who, known := apirequest.UserFrom(ctx); known {
		name := who.GetName()
		if ok, _ := t.users.Take(name, 1, maxCalls); !ok {
			return nil, false
		}
		give = func() { t.users.Give(name, 1) }
	}
	select {
	case t.calls <- struct{}{}:
		return func() { <-t.calls; give() }, true
	default:
		give()
		return nil, false
	}
}

func (t *webhookTransport) close() { t.transport.CloseIdleConnections() }
