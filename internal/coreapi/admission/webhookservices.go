package admission

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	clienttransport "k8s.io/client-go/transport"

	"portico.dev/internal/transport"
)

// WebhookServices sends requests to webhooks that are Services in the same way as package transport sends them to extension
// servers: to ready endpoints, over pooled and pinged connections, without endpoints that refuse connections, and with a retry
// at another endpoint if the first one provably did not process the request.
//
// A Service with one TLS configuration has one transport.Backend, even if several webhooks name it. The first request creates
// it, Refresh updates its endpoints, and Sweep closes it when no object names it, or Close. All methods are safe for concurrent
// use.
type WebhookServices struct {
	find func(namespace, name string, port int32) (*transport.Spec, error)
	set  *transport.Set

	mu       sync.Mutex // guards backends, sources and made
	backends map[types.NamespacedName][]*webhookBackend
	sources  map[string]func() []Reference
	made     int // number of backends created
}

// webhookService is a port of a Service.
type webhookService struct {
	namespace, name string
	port            int32
}

func (s webhookService) key() types.NamespacedName {
	return types.NamespacedName{Namespace: s.namespace, Name: s.name}
}

// A Reference is a webhook in an API object that is a Service.
type Reference struct {
	// Object is the name of the object.
	Object          string
	Namespace, Name string
	// Port is 0 for the default, 443.
	Port     int32
	Path     string
	CABundle []byte
}

// defaultWebhookPort is the default of the API.
const defaultWebhookPort = 443

func (r *Reference) names(s webhookService) bool {
	port := cmp.Or(r.Port, defaultWebhookPort)
	return webhookService{r.Namespace, r.Name, port} == s
}

// NewWebhookServices returns a WebhookServices without connections. find returns the current Spec for a port of a Service from
// caches, of which Name, ServerName and Endpoints are used. Its error is the reason why the Service is unavailable.
// o.Certificate must be nil: the server identifies itself to webhooks only through an admission kubeconfig.
func NewWebhookServices(find func(namespace, name string, port int32) (*transport.Spec, error), o transport.Options) *WebhookServices {
	return &WebhookServices{
		find: find, set: transport.New(o),
		backends: map[types.NamespacedName][]*webhookBackend{}, sources: map[string]func() []Reference{},
	}
}

// AddSource adds a source of the webhooks that objects of a kind name: list reads caches. Errors contain the object, and Sweep
// keeps the listed webhooks. A second source of one kind replaces the first.
func (w *WebhookServices) AddSource(kind string, list func() []Reference) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sources[kind] = list
}

// Refresh updates the endpoints of a Service's backends. It must be called after each change of the Service or its
// EndpointSlices.
func (w *WebhookServices) Refresh(namespace, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.backends[types.NamespacedName{Namespace: namespace, Name: name}] {
		w.resolve(b)
	}
}

// Sweep closes backends that no object names and that have no request in progress. They accept no more requests, but responses
// may still be read. The last request to an unnamed backend sweeps again. Sweep must be called after an object that names
// webhooks was changed or deleted.
func (w *WebhookServices) Sweep() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.backends) == 0 {
		return
	}
	keep := map[*transport.Backend]bool{}
	for service, list := range w.backends {
		list = slices.DeleteFunc(list, func(b *webhookBackend) bool {
			gone := b.close(!w.named(b))
			if r := b.reached.Load(); !gone && r.backend != nil {
				keep[r.backend] = true
			}
			return gone
		})
		if w.backends[service] = list; len(list) == 0 {
			delete(w.backends, service)
		}
	}
	w.set.Retain(keep)
}

// Close closes all connections and waits for their goroutines. Later requests fail.
func (w *WebhookServices) Close() {
	w.set.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, list := range w.backends {
		for _, b := range list {
			b.reached.Store(&reachedBy{err: errShutdown})
		}
	}
}

var errShutdown = errors.New("the front door is shutting down")

// named reports whether an object names the webhook. Without any source every webhook counts as named. It requires mu.
func (w *WebhookServices) named(b *webhookBackend) bool {
	for _, list := range w.sources {
		if slices.ContainsFunc(list(), b.isNamedBy) {
			return true
		}
	}
	return len(w.sources) == 0
}

// objects returns the kind and the names of its objects that name the webhook at path.
func (w *WebhookServices) objects(kind string, b *webhookIdentity, path string) string {
	w.mu.Lock()
	list := w.sources[kind]
	w.mu.Unlock()
	if list == nil {
		return kind
	}
	var names []string
	for _, r := range list() {
		if strings.Trim(r.Path, "/") == strings.Trim(path, "/") && b.isNamedBy(r) && !slices.Contains(names, r.Object) {
			names = append(names, r.Object)
		}
	}
	slices.Sort(names)
	return strings.TrimSpace(kind + " " + strings.Join(names, " or "))
}

// webhookIdentity is a Service of webhooks with the TLS identity of its servers.
type webhookIdentity struct {
	service webhookService
	tls     *tls.Config
	// own contains the CA certificates of an admission kubeconfig, to which k8s.io/apiserver appends the caBundle.
	own []byte
	// otherRoots is set if certificates are not verified against caBundle.
	otherRoots bool
	// credentials identifies the client certificate.
	credentials string
	// library is k8s.io/apiserver's transport. It makes no connection, but reloads client certificates while it is in use.
	library http.RoundTripper
}

// webhookBackend holds the connections to a webhookIdentity.
type webhookBackend struct {
	webhookIdentity
	id      string
	reached atomic.Pointer[reachedBy]
	// sending counts the requests that wait for a connection or a response. Connections in setup end with the backend.
	sending atomic.Int32
	unnamed atomic.Bool // result of the last sweep
	closed  atomic.Bool
}

// close closes b if it is unnamed and has no request in progress, and reports whether it did. It requires mu. The order of
// operations here and in begin and end ensures that no request is sent to a closed backend, and that the last request finds
// unnamed set.
func (b *webhookBackend) close(unnamed bool) bool {
	b.unnamed.Store(unnamed)
	if !unnamed {
		return false
	}
	b.closed.Store(true)
	if b.sending.Load() > 0 {
		b.closed.Store(false)
		return false
	}
	return true
}

// begin reports whether a request may be sent to b. If not, the caller must use another backend. end must be called in both
// cases.
func (b *webhookBackend) begin() bool {
	b.sending.Add(1)
	return !b.closed.Load()
}

// end reports whether a sweep is due.
func (b *webhookBackend) end() (sweep bool) {
	return b.sending.Add(-1) == 0 && b.unnamed.Load()
}

// reachedBy is the transport to a Service, or the error that prevents it.
type reachedBy struct {
	backend *transport.Backend // nil only with an error
	err     error
}

func (b *webhookIdentity) isNamedBy(r Reference) bool {
	return r.names(b.service) && (b.otherRoots || sameRoots(b.tls.RootCAs, rootsOf(b.own, r.CABundle)))
}

// rootsOf returns the certificates of two bundles, or nil for the system's roots if both are empty.
func rootsOf(own, bundle []byte) *x509.CertPool {
	if len(own)+len(bundle) == 0 {
		return nil
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(own)
	pool.AppendCertsFromPEM(bundle)
	return pool
}

func sameRoots(a, b *x509.CertPool) bool {
	return a == nil && b == nil || a != nil && b != nil && a.Equal(b)
}

func (b *webhookIdentity) sameAs(o *webhookIdentity) bool {
	return b.service == o.service && b.credentials == o.credentials && b.otherRoots == o.otherRoots && string(b.own) == string(o.own) &&
		b.tls.ServerName == o.tls.ServerName && sameRoots(b.tls.RootCAs, o.tls.RootCAs)
}

// begin returns the backend in use for described. end must be called with it after the request.
func (w *WebhookServices) begin(described *webhookIdentity) *webhookBackend {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.backends[described.service.key()] {
		if b.sameAs(described) {
			b.begin()
			return b
		}
	}
	b := &webhookBackend{webhookIdentity: *described}
	w.made++
	b.id = strconv.Itoa(w.made)
	w.resolve(b)
	w.backends[b.service.key()] = append(w.backends[b.service.key()], b)
	b.begin()
	b.unnamed.Store(!w.named(b)) // its object may have been deleted before the request arrived
	return b
}

// end is called when a request to b has a response.
func (w *WebhookServices) end(b *webhookBackend) {
	if b.end() {
		w.Sweep()
	}
}

// resolve finds the endpoints of b. It requires mu, so that the last change wins.
func (w *WebhookServices) resolve(b *webhookBackend) {
	s := b.service
	spec, err := w.find(s.namespace, s.name, s.port)
	var (
		now   reachedBy
		named transport.Spec // without endpoints if there is an error, so that connections end
	)
	if err != nil {
		now.err = fmt.Errorf("it is unavailable: %w", err)
	} else {
		named = *spec
	}
	named.Name = fmt.Sprintf("%s/%s:%d", s.namespace, s.name, s.port)
	named.ServerName = b.tls.ServerName
	backend, failed := w.set.BackendWithTLS(named, b.id, b.tls)
	if failed != nil {
		now.err = errShutdown // the only possible reason
	}
	now.backend = backend
	b.reached.Store(&now)
}

// wrapper replaces k8s.io/apiserver's transport to a Service.
func (w *WebhookServices) wrapper(kind string, service webhookService, config *rest.Config) clienttransport.WrapperFunc {
	model := webhookIdentity{service: service, own: slices.Clone(config.CAData), otherRoots: config.CAFile != ""}
	hasFiles := config.CertFile != "" || config.ExecProvider != nil || config.AuthProvider != nil
	certificate, insecure := string(config.CertData), config.Insecure
	return func(library http.RoundTripper) http.RoundTripper {
		verify, err := utilnet.TLSClientConfig(library)
		if err == nil && verify == nil {
			err = errors.New("it has none")
		}
		if err != nil {
			return failingTransport{fmt.Errorf("TLS configuration of service %s/%s: %w", service.namespace, service.name, err)}
		}
		b := model
		b.tls, b.library = verify, library
		b.credentials = fmt.Sprint(insecure, certificate)
		if hasFiles {
			b.credentials = fmt.Sprintf("%p", library)
		}
		return &serviceTransport{services: w, kind: kind, described: &b}
	}
}

type failingTransport struct{ err error }

func (t failingTransport) RoundTrip(*http.Request) (*http.Response, error) { return nil, t.err }

// serviceTransport sends the requests of a k8s.io/apiserver client. k8s.io/apiserver keeps clients after their objects are
// deleted, so serviceTransport holds a description instead of connections.
type serviceTransport struct {
	services  *WebhookServices
	kind      string
	described *webhookIdentity
	last      atomic.Pointer[webhookBackend]
}

func (t *serviceTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	b := t.begin()
	defer t.services.end(b)
	reached := b.reached.Load()
	if reached.err != nil {
		return nil, t.describe(&b.webhookIdentity, r, reached.err)
	}
	response, err := reached.backend.RoundTrip(r)
	if err != nil {
		return nil, t.describe(&b.webhookIdentity, r, err)
	}
	return response, nil
}

// begin returns the backend for a request.
func (t *serviceTransport) begin() *webhookBackend {
	if b := t.last.Load(); b != nil {
		if b.begin() {
			return b
		}
		t.services.end(b)
	}
	b := t.services.begin(t.described)
	t.last.Store(b)
	return b
}

// describe returns err with the objects that name the webhook, its Service, the last endpoint, and the reason in the words of
// Portico's 503 responses.
func (t *serviceTransport) describe(b *webhookIdentity, r *http.Request, err error) error {
	at := fmt.Sprintf("%s: service %s/%s", t.services.objects(t.kind, b, r.URL.Path), b.service.namespace, b.service.name)
	var failed *transport.Error
	if !errors.As(err, &failed) {
		return &webhookError{at + ": " + err.Error(), err}
	}
	if failed.Endpoint != "" {
		at += ": endpoint " + failed.Endpoint
	}
	if failed.Attempts > 1 {
		at += fmt.Sprintf(", the last of %d attempts", failed.Attempts)
	}
	if transport.IsTunnelError(failed) { // it contains the entire reason
		return &webhookError{at + ": " + strings.TrimPrefix(failed.Err.Error(), failed.Op+": "), err}
	}
	return &webhookError{at + ": " + reasonOf(failed) + ": " + strings.TrimPrefix(failed.Err.Error(), failed.Op+": "), err}
}

// reasonOf returns the reason in the words of the proxy.
func reasonOf(e *transport.Error) string {
	switch {
	case e.Protocol:
		return "it answered with something that is not HTTP"
	case errors.Is(e.Err, transport.ErrHeaderTimeout), e.Op == transport.OpRoundTrip && errors.Is(e.Err, context.DeadlineExceeded):
		return "it did not answer in time"
	case e.Class == transport.ClassCanceled && errors.Is(e.Err, context.Canceled):
		return "the request was canceled before it answered"
	}
	_, text, _ := e.Explain()
	return text
}

// webhookError is the failed call of a webhook.
type webhookError struct {
	text string
	err  error
}

func (e *webhookError) Error() string { return e.text }
func (e *webhookError) Unwrap() error { return e.err }
