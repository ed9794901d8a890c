package cluster

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"sync"

	"k8s.io/client-go/rest"

	"portico.dev/internal/pki"
)

// credentials are the credentials of a kubeconfig: a certificate, a token, a token file, a password, or the result of a plugin.
// client-go reads them, so that kubectl would use the same ones.
type credentials struct {
	headers     http.RoundTripper                // client-go's, which ends in capture
	certificate *pki.KeyPair                     // nil without a certificate
	issue       func() (*tls.Certificate, error) // nil if certificates come from no plugin

	mu     sync.Mutex // guards issued
	issued *tls.Certificate
}

// newCredentials reads the credentials. The TLS files of config are loaded.
func newCredentials(config *rest.Config) (*credentials, error) {
	headers, err := rest.HTTPWrappersForConfig(config, capture{})
	if err != nil {
		return nil, fmt.Errorf("the credentials of the kubeconfig: %w", err)
	}
	c := &credentials{headers: headers}
	if len(config.CertData) > 0 {
		if c.certificate, err = pki.StaticKeyPair(config.CertData, config.KeyData); err != nil {
			return nil, fmt.Errorf("the client certificate of the kubeconfig: %w", err)
		}
		return c, nil
	}
	settings, err := config.TransportConfig()
	if err != nil {
		return nil, fmt.Errorf("the credentials of the kubeconfig: %w", err)
	}
	if settings.HasCertCallback() {
		c.issue = settings.TLS.GetCertHolder.GetCert
	}
	if err := c.renew(); err != nil {
		return nil, fmt.Errorf("the credentials of the kubeconfig: %w", err)
	}
	if c.certificate == nil {
		c.issue = nil // a plugin that issues tokens
	}
	return c, nil
}

// renew uses the certificate that a plugin has issued, if it issues any.
func (c *credentials) renew() error {
	if c.issue == nil {
		return nil
	}
	issued, err := c.issue()
	switch {
	case err != nil:
		return err
	case issued == nil || len(issued.Certificate) == 0:
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if issued == c.issued {
		return nil
	}
	if c.certificate == nil {
		c.certificate = &pki.KeyPair{}
	}
	c.issued = issued
	return c.certificate.Use(issued)
}

// apply adds the credentials to a header.
func (c *credentials) apply(ctx context.Context, header http.Header) error {
	if err := c.renew(); err != nil {
		return err
	}
	captured, err := c.ask(ctx, http.StatusOK)
	if err != nil {
		return err
	}
	for name, values := range captured {
		if name != "User-Agent" {
			header[name] = values
		}
	}
	return nil
}

// refused tells client-go that the API server does not accept the credentials, so that it requests new ones from a plugin.
func (c *credentials) refused(ctx context.Context) { _, _ = c.ask(ctx, http.StatusUnauthorized) }

// ask returns the header that client-go adds to a request. The response to the request has the given status.
func (c *credentials) ask(ctx context.Context, status int) (http.Header, error) {
	call := &captured{status: status}
	r, err := http.NewRequestWithContext(context.WithValue(ctx, captureKey{}, call), http.MethodGet, "https://cluster/", nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.headers.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	_ = resp.Body.Close() // it is empty
	return call.header, nil
}

// capture is a transport that keeps the header of a request and does not send it.
type capture struct{}

type captureKey struct{}

// captured is a request to capture, in its context.
type captured struct {
	status int
	header http.Header
}

// RoundTrip implements http.RoundTripper.
func (capture) RoundTrip(r *http.Request) (*http.Response, error) {
	call, ok := r.Context().Value(captureKey{}).(*captured)
	if !ok {
		return nil, fmt.Errorf("%s is not a captured request", r.URL)
	}
	call.header = r.Header
	return &http.Response{StatusCode: call.status, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}
