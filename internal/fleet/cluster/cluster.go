package cluster

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"portico.dev/internal/filters"
	"portico.dev/internal/proxy"
	"portico.dev/internal/run"
	"portico.dev/internal/transport"
)

// Config is the configuration of a Cluster. Every field is required.
type Config struct {
	// Client has the address of the API server, its CA and the credentials, as a kubeconfig does.
	Client *rest.Config
	// Transport configures the connections. New sets its fields Certificate and Tunnel.
	Transport transport.Options
	Proxy     *proxy.Proxy
	Logger    *zap.Logger
}

// Cluster serves the requests for one cluster. It is safe for concurrent use.
type Cluster struct {
	url         *url.URL // of the API server, without a slash at its end
	credentials *credentials
	set         *transport.Set
	server      server
	proxy       *proxy.Proxy
	documents   *documents
	causes      *causes
}

// maxInFlight limits the requests to a cluster, beyond the limits of the front and of the cluster's own fairness.
const maxInFlight = 2000

// New returns a Cluster. It opens no connection.
func New(c Config) (*Cluster, error) {
	address, err := addressOf(c.Client)
	if err != nil {
		return nil, err
	}
	client := rest.CopyConfig(c.Client)
	if err := rest.LoadTLSFiles(client); err != nil {
		return nil, err
	}
	made := &Cluster{url: address, proxy: c.Proxy}
	if made.credentials, err = newCredentials(client); err != nil {
		return nil, err
	}
	o := c.Transport
	o.Certificate = made.credentials.certificate
	if o.Tunnel, err = tunnelFor(client, address); err != nil {
		return nil, err
	}
	made.set = transport.New(o)
	backend, err := made.set.Backend(transport.Spec{
		Name: address.Host, ServerName: serverName(client, address), CABundle: client.CAData, Insecure: client.Insecure,
		LoopbackOK: true, MaxInFlight: maxInFlight, Endpoints: []transport.Endpoint{{Address: withPort(address)}},
	})
	if err != nil {
		made.set.Close()
		return nil, err
	}
	made.server = server{backend, made.credentials}
	made.documents, made.causes = newDocuments(made.fetch, made.name(), c.Logger), newCauses(made.fetch)
	return made, nil
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

func withPort(u *url.URL) string {
	if u.Port() != "" {
		return u.Host
	}
	return net.JoinHostPort(u.Hostname(), "443")
}

func serverName(c *rest.Config, address *url.URL) string {
	if c.ServerName != "" {
		return c.ServerName
	}
	return address.Hostname()
}

// URL returns the address of the API server.
func (c *Cluster) URL() string { return c.url.String() }

// Run keeps the documents current until ctx ends, and then closes the connections.
func (c *Cluster) Run(ctx context.Context) error {
	defer c.set.Close()
	return run.Every(ctx, followInterval, c.documents.follow)
}

// Fetched returns a channel that is closed when the documents have been fetched once, or could not be.
func (c *Cluster) Fetched() <-chan struct{} { return c.documents.followed }

// Serve implements the handler of all paths of the cluster. Documents come from memory while the API server does not answer.
func (c *Cluster) Serve(w http.ResponseWriter, r *filters.Request) {
	r.Record.ServedBy = "cluster"
	if path, ok := documentOf(r.Request); ok && c.documents.serve(w, r, path) {
		return
	}
	r.Record.Proxied = true
	c.proxy.ServeTarget(w, r, &proxy.Target{
		Server: c.server, Host: c.url.Host, Path: c.url.EscapedPath() + rawPath(r.URL), RawQuery: r.URL.RawQuery,
		Name: c.name(), Explain: explain, Identify: c.identify, Judge: func(resp *http.Response) error { return c.judge(r, resp) }, Redirects: true, Bounded: true,
	})
}

// explain replaces texts that are about extension servers.
func explain(cause, text string) string {
	if cause == "ForbiddenAddress" {
		return "its address is this front itself, link-local, multicast, or a cloud's metadata service; the kubeconfig may be the one of a front that has ended"
	}
	return text
}

func (c *Cluster) name() string { return "the API server at " + c.url.Host }

// rawPath returns the path as the client spelled it.
func rawPath(u *url.URL) string {
	if u.RawPath != "" {
		return u.RawPath
	}
	return u.EscapedPath()
}

// identify writes the credentials of the kubeconfig, and the user that the client impersonates. The API server decides whether
// it may.
func (c *Cluster) identify(header http.Header, r *filters.Request) error {
	if err := c.credentials.apply(r.Context(), header); err != nil {
		return apierrors.NewUnauthorized("the credentials for " + c.name() + " are not available: " + err.Error())
	}
	impersonate(header, r.Header)
	return nil
}

const impersonatePrefix = "Impersonate-"

// impersonate replaces the impersonated user in header by the one in from, if there is one.
func impersonate(header, from http.Header) {
	if !impersonates(from) {
		return
	}
	maps.DeleteFunc(header, func(name string, _ []string) bool { return strings.HasPrefix(name, impersonatePrefix) })
	for name, values := range from {
		if strings.HasPrefix(name, impersonatePrefix) {
			header[name] = values
		}
	}
}

func impersonates(header http.Header) bool {
	for name := range header {
		if strings.HasPrefix(name, impersonatePrefix) {
			return true
		}
	}
	return false
}

// judge replaces the 503 of an unavailable APIService by one with the cause, and checks redirects.
func (c *Cluster) judge(r *filters.Request, resp *http.Response) error {
	switch {
	case resp.StatusCode == http.StatusServiceUnavailable:
		return c.causes.explain(r)
	case resp.Header.Get("Location") != "":
		return c.redirect(resp)
	}
	return nil
}

// redirect makes a Location that leads to the API server lead to the front. Clients that follow others would send their
// credentials there (CVE-2022-3172).
func (c *Cluster) redirect(resp *http.Response) error {
	given := resp.Header.Get("Location")
	location, err := c.url.Parse(given)
	if err != nil || strings.Contains(given, `\`) || location.Host != c.url.Host || location.Scheme != c.url.Scheme || location.User != nil {
		return refusedRedirect(c.name())
	}
	path, ok := strings.CutPrefix(location.EscapedPath(), c.url.EscapedPath())
	if !ok || !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") {
		return refusedRedirect(c.name())
	}
	rest := url.URL{RawQuery: location.RawQuery, Fragment: location.Fragment}
	resp.Header.Set("Location", path+rest.String())
	return nil
}

func refusedRedirect(server string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusBadGateway, Reason: "BackendRedirect",
		Message: server + " redirects the request to another server, which is not followed",
	}}
}

// fetcher gets a document of the API server at an unescaped path. It keeps the header.
type fetcher func(ctx context.Context, path, query string, header http.Header) (*http.Response, error)

func (c *Cluster) fetch(ctx context.Context, path, query string, header http.Header) (*http.Response, error) {
	target := *c.url
	target.Path, target.RawPath, target.RawQuery = c.url.Path+path, "", query
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, err
	}
	r.Header = header
	if err := c.credentials.apply(ctx, header); err != nil {
		return nil, err
	}
	return c.server.RoundTrip(r)
}

// server notices credentials that the API server refuses.
type server struct {
	*transport.Backend
	credentials *credentials
}

// RoundTrip implements proxy.Server.
func (s server) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := s.Backend.RoundTrip(r)
	if err == nil && resp.StatusCode == http.StatusUnauthorized {
		s.credentials.refused(r.Context())
	}
	return resp, err
}
