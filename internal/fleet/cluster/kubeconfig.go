package cluster

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"k8s.io/client-go/rest"

	"portico.dev/internal/filters"
	"portico.dev/internal/pki"
)

// singleUserInFlight limits the requests of the only user, beyond the limits of the front and of the cluster's own fairness.
const singleUserInFlight = 2000

// FromKubeconfig returns the configuration for the cluster of a kubeconfig with the user of the kubeconfig. The caller sets the
// fields Proxy and Logger, and the fields of Transport except Tunnel.
func FromKubeconfig(given *rest.Config) (Config, error) {
	address, err := addressOf(given)
	if err != nil {
		return Config{}, err
	}
	client := rest.CopyConfig(given)
	if err := rest.LoadTLSFiles(client); err != nil {
		return Config{}, err
	}
	credentials, err := newCredentials(client)
	if err != nil {
		return Config{}, err
	}
	c := Config{
		Name: address.Host, MaxInFlight: singleUserInFlight, Credentials: credentials, Identify: impersonate, SingleUser: true,
		Server: Server{
			Endpoints: []string{net.JoinHostPort(address.Hostname(), cmp.Or(address.Port(), "443"))}, Path: address.EscapedPath(),
			Host: address.Host, ServerName: cmp.Or(client.ServerName, address.Hostname()),
			CABundle: client.CAData, Insecure: client.Insecure,
		},
	}
	c.Transport.Tunnel, err = tunnelFor(client, address)
	return c, err
}

// addressOf returns the URL of the API server.
func addressOf(c *rest.Config) (*url.URL, error) {
	address, _, err := rest.DefaultServerUrlFor(c)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the server of the kubeconfig, %q: %w", c.Host, err)
	case address.Scheme != "https":
		return nil, fmt.Errorf("the server of the kubeconfig is %s, and credentials are sent over https only", address)
	}
	address.Path = strings.TrimRight(address.Path, "/")
	return address, nil
}

const impersonatePrefix = "Impersonate-"

// impersonate implements Config.Identify. It replaces the impersonated user of the kubeconfig by the one that the client
// impersonates, if there is one. The API server decides whether it may.
func impersonate(header http.Header, r *filters.Request) error {
	if !impersonates(r.Header) {
		return nil
	}
	maps.DeleteFunc(header, func(name string, _ []string) bool { return strings.HasPrefix(name, impersonatePrefix) })
	for name, values := range r.Header {
		if strings.HasPrefix(name, impersonatePrefix) {
			header[name] = values
		}
	}
	return nil
}

func impersonates(header http.Header) bool {
	for name := range header {
		if strings.HasPrefix(name, impersonatePrefix) {
			return true
		}
	}
	return false
}

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

// Apply implements Credentials.
func (c *credentials) Apply(ctx context.Context, header http.Header) error {
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

// Refused implements Credentials: client-go requests new credentials from a plugin.
func (c *credentials) Refused(ctx context.Context) { _, _ = c.ask(ctx, http.StatusUnauthorized) }

// Certificate implements Credentials.
func (c *credentials) Certificate() *pki.KeyPair { return c.certificate }

// ask returns the header that client-go adds to a request. The response to the request has the given status.
func (c *credentials) ask(ctx context.Context, status int) (http.Header, error) {
	r, err := http.NewRequestWithContext(context.WithValue(ctx, statusKey{}, status), http.MethodGet, "https://cluster/", nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.headers.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	_ = resp.Body.Close() // it is empty
	return resp.Request.Header, nil
}

// capture is a transport that does not send a request: it returns it in a response with the status in its context.
type capture struct{}

type statusKey struct{}

// RoundTrip implements http.RoundTripper.
func (capture) RoundTrip(r *http.Request) (*http.Response, error) {
	status, ok := r.Context().Value(statusKey{}).(int)
	if !ok {
		return nil, fmt.Errorf("%s is not a captured request", r.URL)
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}
