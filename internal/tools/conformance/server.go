package conformance

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/apiservice"
	"portico.dev/internal/pki"
	"portico.dev/internal/transport"
)

// Server describes the direct access to an extension server.
type Server struct {
	// URL is the address of the server.
	URL string
	// ServerName is the name that its certificate must be valid for. Default: the host of URL.
	ServerName string
	// Roots is the PEM bundle that verifies its certificate. If it is nil, the system roots are used.
	Roots []byte
	// Insecure accepts any certificate.
	Insecure bool
	// FrontProxy is the client certificate of a front proxy that the server trusts. If it is nil, requests are
	// anonymous.
	FrontProxy *pki.KeyPair
	// User and Groups are sent in X-Remote-* headers.
	User   string
	Groups []string
}

// caller returns a caller that acts as a front proxy.
func (s *Server) caller(timeout time.Duration) (*caller, error) {
	c, err := s.bare(timeout, s.FrontProxy)
	if err == nil && s.User != "" {
		c.headers = remote(s.User, s.Groups...)
	}
	return c, err
}

func remote(user string, groups ...string) http.Header {
	return http.Header{"X-Remote-User": {user}, "X-Remote-Group": groups}
}

// bare returns a caller with the given certificate, which may be nil, and without headers.
func (s *Server) bare(timeout time.Duration, certificate *pki.KeyPair) (*caller, error) {
	base, err := url.Parse(s.URL)
	if err != nil || base.Scheme != "https" || base.Host == "" {
		return nil, fmt.Errorf("url %q: must be https://HOST:PORT", s.URL)
	}
	name := s.ServerName
	if name == "" {
		name = base.Hostname()
	}
	config, err := pki.ClientConfig(pki.ClientOptions{ServerName: name, Roots: s.Roots, Insecure: s.Insecure, Certificate: certificate})
	if err != nil {
		return nil, err
	}
	return newCaller(base, config, timeout), nil
}

func newCaller(base *url.URL, config *tls.Config, timeout time.Duration) *caller {
	return &caller{base: base, timeout: timeout, client: &http.Client{
		Transport: &http.Transport{
			TLSClientConfig: config, ForceAttemptHTTP2: true, DisableCompression: true,
			DialContext:         (&net.Dialer{Timeout: timeout}).DialContext,
			TLSHandshakeTimeout: timeout, IdleConnTimeout: time.Minute,
		},
		CheckRedirect: keepOpen,
	}}
}

// keepOpen returns redirects as responses, because front doors do not follow them.
func keepOpen(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func frontCaller(config *rest.Config, timeout time.Duration) (*caller, error) {
	config = rest.CopyConfig(config)
	config.Timeout, config.DisableCompression = 0, true // client-go would decompress bodies that a check must see compressed
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of the kubeconfig: %w", err)
	}
	client.CheckRedirect = keepOpen
	base, _, err := rest.DefaultServerURL(config.Host, "", schema.GroupVersion{}, true)
	if err != nil {
		return nil, fmt.Errorf("server of the kubeconfig: %w", err)
	}
	return &caller{client: client, base: base, timeout: timeout}, nil
}

// throughFront prepares an examination through the API server. It also tries to reach the server directly, for the
// checks that require it.
func (e *Examiner) throughFront(ctx context.Context) (*examination, error) {
	var object apiregistrationv1.APIService
	path := "/apis/apiregistration.k8s.io/v1/apiservices/" + url.PathEscape(e.cfg.APIService)
	if err := e.front.get(ctx, path).into(&object); err != nil {
		return nil, fmt.Errorf("read the APIService: %w", err)
	}
	if object.Spec.Service == nil {
		return nil, fmt.Errorf("APIService %s has no extension server: the API server serves it itself", object.Name)
	}
	x := &examination{cfg: e.cfg, ask: e.front, front: e.front, gv: schema.GroupVersion{Group: object.Spec.Group, Version: object.Spec.Version}}
	x.server, x.whyNoServer = e.behind(ctx, &object)
	return x, nil
}

// behind returns an endpoint of the APIService that accepts connections from this machine, or the reason why it
// cannot.
func (e *Examiner) behind(ctx context.Context, object *apiregistrationv1.APIService) (*Server, string) {
	ref := object.Spec.Service
	var service corev1.Service
	if err := e.front.get(ctx, "/api/v1/namespaces/"+ref.Namespace+"/services/"+ref.Name).into(&service); err != nil {
		return nil, "where the extension server is cannot be found out: " + err.Error()
	}
	var slices discoveryv1.EndpointSliceList
	a := e.front.get(ctx, "/apis/discovery.k8s.io/v1/namespaces/"+ref.Namespace+"/endpointslices", "labelSelector", discoveryv1.LabelServiceName+"="+ref.Name)
	if err := a.into(&slices); err != nil {
		return nil, "where the extension server is cannot be found out: " + err.Error()
	}
	found := make([]*discoveryv1.EndpointSlice, len(slices.Items))
	for i := range slices.Items {
		found[i] = &slices.Items[i]
	}
	port := int32(443)
	if ref.Port != nil {
		port = *ref.Port
	}
	//lint:ignore SA1019 deprecated, and still written for Services without selector
	var endpoints corev1.Endpoints
	if apiservice.UsesEndpoints(&service, port, found) && e.front.get(ctx, "/api/v1/namespaces/"+ref.Namespace+"/endpoints/"+ref.Name).into(&endpoints) == nil {
		found = append(found, apiservice.MirrorEndpoints(&service, &endpoints)...)
	}
	spec, problem := apiservice.Resolve(&object.Spec, &service, found, true)
	if problem != nil {
		return nil, "the Service leads nowhere: " + problem.Message
	}
	for _, endpoint := range spec.Endpoints {
		if reachable(ctx, endpoint, e.cfg.Timeout) {
			return &Server{URL: "https://" + endpoint.Address, ServerName: spec.ServerName, Roots: object.Spec.CABundle, Insecure: spec.Insecure}, ""
		}
	}
	return nil, "the extension server cannot be reached from here; `conformance url` from where it can"
}

func reachable(ctx context.Context, endpoint transport.Endpoint, timeout time.Duration) bool {
	conn, err := (&net.Dialer{Timeout: min(timeout, 3*time.Second)}).DialContext(ctx, "tcp", endpoint.Address)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}
