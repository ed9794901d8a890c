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

	"k8s.io/client-go/rest"

	"portico.dev/internal/pki"
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
	select {
	case t.calls <- struct{}{}:
		defer func() { <-t.calls }()
	default:
		if r.Body != nil {
			_ = r.Body.Close() // the caller's, read or not
		}
		return nil, errBusy
	}
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

func (t *webhookTransport) close() { t.transport.CloseIdleConnections() }
