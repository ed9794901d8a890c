package drill

import (
	"bytes"
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	"portico.dev/internal/fleet/v1alpha1"
	"portico.dev/internal/pki"
	"portico.dev/internal/tools/drill/faulty"
)

// relayName is the name in the serving certificates of relays.
const relayName = "apiserver." + Domain

// relay is an API server of a Cluster as the front door reaches it in a drill. It forwards requests unchanged to a real API
// server, which does not notice what happens to the relay. It adds no credentials, except for a front door that has presented
// the certificate of the Cluster.
type relay struct {
	server         *faulty.Server
	certificate    *pki.KeyPair           // nil if the Cluster has none
	own, anonymous *httputil.ReverseProxy // with the certificate, and without
	phase          atomic.Int32
	served         atomic.Int64 // requests of clients
}

// Phases of a relay. A kube-apiserver that stops reports it at /readyz before it closes its port, and one that starts refuses
// requests until its caches are complete.
const (
	running int32 = iota
	stopping
	starting
)

// newRelay returns a relay to an endpoint of a Cluster, which does not listen yet.
func newRelay(endpoint, listen string, cluster *v1alpha1.ClusterServer, credentials *corev1.Secret) (*relay, error) {
	r := &relay{}
	var err error
	if cert := credentials.Data[corev1.TLSCertKey]; len(cert) > 0 {
		if r.certificate, err = pki.StaticKeyPair(cert, credentials.Data[corev1.TLSPrivateKeyKey]); err != nil {
			return nil, err
		}
	}
	if r.anonymous, err = forwardTo(endpoint, cluster, nil); err != nil {
		return nil, err
	}
	if r.own, err = forwardTo(endpoint, cluster, r.certificate); err != nil {
		return nil, err
	}
	r.server, err = faulty.New(faulty.Config{ServerName: relayName, Address: net.JoinHostPort(listen, "0"), Handler: r})
	return r, err
}

// forwardTo returns a handler that sends requests to an endpoint. The stream of a request that fails is reset.
func forwardTo(endpoint string, cluster *v1alpha1.ClusterServer, certificate *pki.KeyPair) (*httputil.ReverseProxy, error) {
	o := pki.ClientOptions{ServerName: serverName(cluster), Insecure: cluster.InsecureSkipTLSVerify, Certificate: certificate}
	if len(cluster.CABundle) > 0 {
		o.Roots = cluster.CABundle
	}
	config, err := pki.ClientConfig(o)
	if err != nil {
		return nil, err
	}
	to := url.URL{Scheme: "https", Host: o.ServerName}
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&to)
			r.Out.Host = to.Host
		},
		Transport: &http.Transport{
			TLSClientConfig: config, ForceAttemptHTTP2: true, DisableCompression: true, IdleConnTimeout: clientPatience,
			DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return (&net.Dialer{Timeout: clientPatience}).DialContext(ctx, network, endpoint)
			},
		},
		FlushInterval: -1, // events of watches
		ErrorLog:      log.New(io.Discard, "", 0),
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}, nil
}

// ServeHTTP implements http.Handler.
func (r *relay) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	phase, probe := r.phase.Load(), q.URL.Path == "/readyz"
	switch {
	case phase == starting:
		http.Error(w, "the caches are not complete", http.StatusForbidden)
		return
	case phase == stopping && probe:
		http.Error(w, "[-]shutdown failed: reason withheld", http.StatusInternalServerError)
		return
	case phase == stopping:
		w.Header().Set("Connection", "close") // net/http's HTTP/2 server then sends GOAWAY
	}
	if !probe {
		r.served.Add(1)
	}
	if r.presented(q) {
		r.own.ServeHTTP(w, q)
		return
	}
	r.anonymous.ServeHTTP(w, q)
}

// close closes the idle connections to the API server.
func (r *relay) close() {
	for _, p := range []*httputil.ReverseProxy{r.own, r.anonymous} {
		p.Transport.(*http.Transport).CloseIdleConnections()
	}
}

// presented reports whether the client has proven that it has the certificate of the Cluster.
func (r *relay) presented(q *http.Request) bool {
	return r.certificate != nil && q.TLS != nil && len(q.TLS.PeerCertificates) > 0 &&
		bytes.Equal(q.TLS.PeerCertificates[0].Raw, r.certificate.Leaf().Raw)
}
