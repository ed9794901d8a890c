package conformance_test

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/auth/authtest"
	"portico.dev/internal/auth/delegated"
	"portico.dev/internal/extserver/hosttest"
	"portico.dev/internal/pki"
	"portico.dev/internal/tools/conformance"
	"portico.dev/pkg/extension"
)

// testFrontDoor is a host, and the parts of an API server that it and the examiner use.
type testFrontDoor struct {
	t       *testing.T
	host    *hosttest.Server
	proxies *authtest.CA
	front   *authtest.Server

	mu      sync.Mutex // guards the following fields
	data    map[string]string
	version int
	changed chan struct{}
}

const configMaps = "/api/v1/namespaces/kube-system/configmaps"

// build starts the host behind a front door, with delegated authentication and authorization.
func build(t *testing.T) *testFrontDoor {
	w := &testFrontDoor{t: t, proxies: authtest.NewCA(t, "front-proxy-ca"), version: 1, changed: make(chan struct{})}
	w.data = map[string]string{
		"requestheader-client-ca-file":       string(w.proxies.PEM()),
		"requestheader-allowed-names":        `["front-proxy-client"]`,
		"requestheader-username-headers":     `["X-Remote-User"]`,
		"requestheader-group-headers":        `["X-Remote-Group"]`,
		"requestheader-extra-headers-prefix": `["X-Remote-Extra-"]`,
	}
	w.front = authtest.Serve(t, w)
	trust, err := delegated.New(delegated.Config{Client: w.client()})
	must(t, err)
	hosttest.Run(t, trust.Run, trust.Ready())
	w.host = hosttest.Serve(t, func(c *extension.Config) {
		c.Authenticator, c.Authorizer = trust, trust
		c.ShutdownTimeout = time.Minute
	}, resources()...)
	return w
}

func (w *testFrontDoor) client() *rest.Config {
	return &rest.Config{Host: w.front.URL, TLSClientConfig: rest.TLSClientConfig{CAData: w.front.RootPEM}}
}

func (w *testFrontDoor) url() string   { return "https://" + w.host.Address() }
func (w *testFrontDoor) roots() []byte { return w.host.As("nobody").CAData }

// pair is a front proxy's certificate.
func (w *testFrontDoor) pair() *pki.KeyPair {
	c := w.proxies.Client(w.t, "front-proxy-client")
	key, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	must(w.t, err)
	pair, err := pki.StaticKeyPair(authtest.PEM(c.Leaf), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
	must(w.t, err)
	return pair
}

func (w *testFrontDoor) server() *conformance.Server {
	return &conformance.Server{URL: w.url(), Roots: w.roots(), FrontProxy: w.pair(), User: "system:admin", Groups: []string{"system:masters"}}
}

// ServeHTTP is the front door: it serves its paths, and forwards the rest to the host.
func (w *testFrontDoor) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	switch path := r.URL.Path; {
	case path == configMaps+"/extension-apiserver-authentication":
		w.configMap(rw, r)
	case path == configMaps:
		w.follow(rw, r)
	case path == "/apis/authorization.k8s.io/v1/subjectaccessreviews":
		var review authorizationv1.SubjectAccessReview
		_ = json.NewDecoder(r.Body).Decode(&review) // an invalid body allows no access
		rw.WriteHeader(http.StatusCreated)
		write(rw, review)
	case path == "/apis/apiregistration.k8s.io/v1/apiservices/v1."+group:
		write(rw, w.apiService())
	case path == "/api/v1/namespaces/shop/services/widgets":
		write(rw, corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "widgets"},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "127.0.0.1"},
		})
	case path == "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices":
		write(rw, discoveryv1.EndpointSliceList{})
	default:
		w.carry(masters).ServeHTTP(rw, r)
	}
}

func (w *testFrontDoor) apiService() apiregistrationv1.APIService {
	at, err := url.Parse(w.url())
	must(w.t, err)
	port, err := strconv.Atoi(at.Port())
	must(w.t, err)
	return apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1." + group},
		Spec: apiregistrationv1.APIServiceSpec{Group: group, Version: "v1", InsecureSkipTLSVerify: true,
			Service: &apiregistrationv1.ServiceReference{Namespace: "shop", Name: "widgets", Port: new(int32(port))}},
	}
}

func (w *testFrontDoor) object() corev1.ConfigMap {
	return corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, Data: w.data,
		ObjectMeta: metav1.ObjectMeta{Name: "extension-apiserver-authentication", Namespace: "kube-system", ResourceVersion: strconv.Itoa(w.version)}}
}

func (w *testFrontDoor) configMap(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.Method == http.MethodPut {
		var updated corev1.ConfigMap
		if err := json.NewDecoder(r.Body).Decode(&updated); err != nil || updated.ResourceVersion != strconv.Itoa(w.version) {
			rw.WriteHeader(http.StatusConflict)
			return
		}
		w.data = updated.Data
		w.version++
		close(w.changed)
		w.changed = make(chan struct{})
	}
	write(rw, w.object())
}

// follow is a watch of the ConfigMap.
func (w *testFrontDoor) follow(rw http.ResponseWriter, r *http.Request) {
	seen, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	flush := http.NewResponseController(rw).Flush
	rw.WriteHeader(http.StatusOK)
	for {
		_ = flush()
		w.mu.Lock()
		if w.version > seen {
			seen = w.version
			write(rw, map[string]any{"type": "MODIFIED", "object": w.object()})
			_ = flush()
		}
		changed := w.changed
		w.mu.Unlock()
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		}
	}
}

// identity returns the identity headers of a forwarded request. nil forwards it unchanged and without a certificate.
type identity func(r *http.Request) http.Header

func masters(*http.Request) http.Header {
	return http.Header{"X-Remote-User": {"system:admin"}, "X-Remote-Group": {"system:masters"}}
}

// carry forwards to the host as a front proxy does.
func (w *testFrontDoor) carry(who identity) http.Handler {
	to, err := url.Parse(w.url())
	must(w.t, err)
	trusted, nobody := w.transport(w.pair()), w.transport(nil)
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		headers := who(r)
		// Read first: a ReverseProxy over HTTP/2 may wait for ever for a body that the host answers without reading.
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		proxy := &httputil.ReverseProxy{
			FlushInterval: -1, Transport: nobody,
			Rewrite: func(p *httputil.ProxyRequest) {
				p.SetURL(to)
				for name, values := range headers {
					p.Out.Header[name] = values
				}
			},
		}
		if headers != nil {
			proxy.Transport = trusted
		}
		proxy.ServeHTTP(rw, r)
	})
}

func (w *testFrontDoor) transport(certificate *pki.KeyPair) *http.Transport {
	config, err := pki.ClientConfig(pki.ClientOptions{ServerName: "127.0.0.1", Roots: w.roots(), Certificate: certificate})
	must(w.t, err)
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, DisableCompression: true}
	w.t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// verified reports whether a request has a front proxy's certificate.
func (w *testFrontDoor) verified(r *http.Request) bool {
	return len(r.TLS.PeerCertificates) > 0 && r.TLS.PeerCertificates[0].CheckSignatureFrom(w.proxies.Cert) == nil
}

func write(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
