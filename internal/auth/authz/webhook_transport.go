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
	// maxCalls bounds calls to one webhook that are under way. A request whose call does not come to be fails at once, by
	// the failure policy: waiting for its turn it would hold a place that requests which need no webhook could have.
	maxCalls = 128
	// maxAnswerBytes bounds a SubjectAccessReview that comes back. It carries the question again, extra included.
	maxAnswerBytes = 1 << 20

	dialTimeout = 5 * time.Second
	// A connection that died silently is found by pings within pingAfter and pingTimeout, and not by every call in turn.
	pingAfter   = 5 * time.Second
	pingTimeout = 3 * time.Second
	idleTimeout = 90 * time.Second
)

var errBusy = errors.New("too many calls are under way")

// webhookTransport is the HTTP transport to one webhook.
type webhookTransport struct {
	transport *http.Transport
	calls     chan struct{}
	users     transport.Shares // divides the calls among the users of requests
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

// RoundTrip implements [http.RoundTripper]. It returns when the whole answer is there, so that a call counts until then.
func (t *webhookTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	end, ok := t.begin(r.Context())
	if !ok {
		if r.Body != nil {
			_ = r.Body.Close() // the caller's, read or not
		}
		return nil, errBusy
	}
	defer end()
	resp, err := t.transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // all that counts of it has been read
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

// begin counts a call until end is called. ok is false if too many are under way. The requests of one user do not use all calls.
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
