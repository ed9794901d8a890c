package aggregator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	genericadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-openapi/pkg/common"

	"portico.dev/internal/auth/authn"
	"portico.dev/internal/coreapi"
	"portico.dev/internal/coreapi/admission"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/respond"
	"portico.dev/internal/run"
	"portico.dev/internal/store"
)

// Embedded contains the additions of a program that embeds the front door, and the options that only such a program
// has.
type Embedded struct {
	// Groups are further local groups, Definitions are the OpenAPI definitions of their kinds, and BuildDocument
	// builds their documents.
	Groups        []registry.Group
	Definitions   common.GetOpenAPIDefinitions
	BuildDocument coreapi.DocumentBuilder
	// Hidden reports whether a built-in group-version is hidden from clients: they get a 404 for it, and no document
	// contains it. Its kinds still work inside the process. It is not called for apiregistration.k8s.io. If nil, all
	// group-versions are visible.
	Hidden func(schema.GroupVersion) bool
	// Tokens and Requests authenticate credentials that no other authenticator accepts, in order; tokens first.
	Tokens   []authenticator.Token
	Requests []authenticator.Request
	// Authorizers are called before the configured authorizers, in order.
	Authorizers []authorizer.Authorizer
	// Admission are further admission plugins, which run after the built-in ones.
	Admission []AdmissionPlugin
	// Handlers serve further paths outside the API, after authentication and authorization (as non-resource URLs). A
	// path that ends with a slash includes all paths below it.
	Handlers map[string]http.Handler
	// Members start in order, when every part but the listener is ready, and stop after the listener.
	Members []run.Member
	// Listener is used instead of BindAddress and SecurePort. Run closes it. May be nil.
	Listener net.Listener
	// HoldConnections is how long connections to Listener wait to be accepted while the front door starts. Default 0:
	// they are accepted at once, and requests get a 503 until the front door has started.
	HoldConnections time.Duration
	// NoListener disables the listener: requests arrive through Handler and the in-process clients.
	NoListener bool
	// NamespaceDeletionDelay is the time between the deletion of a namespace and the deletion of its contents.
	// Default a second.
	NamespaceDeletionDelay time.Duration
	// NoServiceManager leaves messages to the service manager (systemd) to the program. Default false.
	NoServiceManager bool
	// Volatile disables syncing the embedded etcd to disk, and enables Snapshot, Restore and Advance.
	Volatile bool
}

// AdmissionPlugin is an admission plugin with its name.
type AdmissionPlugin struct {
	Name   string
	Plugin genericadmission.Interface
}

// reservedPaths are not available for handlers of embedding programs.
var reservedPaths = []string{"/", "/api", "/apis", "/openapi", "/healthz", "/livez", "/readyz", "/version", "/metrics"}

func (c *Config) validateEmbedded() error {
	e := &c.Embedded
	var errs []error
	for path := range e.Handlers {
		if len(path) < 2 || path[0] != '/' || slices.Contains(reservedPaths, "/"+firstSegment(path)) {
			errs = append(errs, fmt.Errorf("handler of %q: the path must begin with a slash and not be one of %v, or below one", path, reservedPaths))
		}
	}
	if e.Listener != nil && e.NoListener {
		errs = append(errs, errors.New("a listener is given, and there is to be none; choose one of the two"))
	}
	if e.Volatile && len(c.EtcdServers) > 0 {
		errs = append(errs, errors.New("an external etcd cannot be volatile"))
	}
	names := sets.New[string]()
	for _, p := range c.Admission.Plugins {
		names.Insert(p.Name)
	}
	for _, p := range e.Admission {
		if p.Name == "" || p.Plugin == nil || names.Has(p.Name) {
			errs = append(errs, fmt.Errorf("admission plugin %q: it needs a name that no other plugin has, and a plugin", p.Name))
		}
		names.Insert(p.Name)
	}
	versions := sets.New[schema.GroupVersion]()
	for _, g := range builtInGroups() {
		versions.Insert(g.Version)
	}
	for _, g := range e.Groups {
		if versions.Has(g.Version) || g.Version.Group == "" {
			errs = append(errs, fmt.Errorf("group-version %s: it is built in; choose another", g.Version))
		}
		versions.Insert(g.Version)
	}
	return errors.Join(errs...)
}

func firstSegment(path string) string {
	for i := 1; i < len(path); i++ {
		if path[i] == '/' {
			return path[1:i]
		}
	}
	return path[1:]
}

// admission returns the configuration of admission with the plugins of the embedding program.
func (c *Config) admission() admission.Config {
	all := c.Admission
	all.Plugins = slices.Clone(all.Plugins)
	for _, p := range c.Embedded.Admission {
		all.Plugins = append(all.Plugins, admission.Plugin{
			Name: p.Name, Default: true,
			New: func(admission.Deps, io.Reader) (genericadmission.Interface, error) { return p.Plugin, nil },
		})
	}
	return all
}

// hidden reports whether a local group-version is hidden from clients.
func (h *parts) hidden(gv schema.GroupVersion) bool {
	e := h.cfg.Embedded
	return e.Hidden != nil && gv != apiregistrationv1.SchemeGroupVersion && slices.Contains(h.core.BuiltIn(), gv) && e.Hidden(gv)
}

// visible returns the built-in group-versions that clients see.
func (h *parts) visible() []schema.GroupVersion {
	return slices.DeleteFunc(slices.Clone(h.core.BuiltIn()), h.hidden)
}

// localGroupVersions returns the group-versions that the router serves locally.
func (h *parts) localGroupVersions() sets.Set[schema.GroupVersion] {
	all := h.core.GroupVersions()
	if h.cfg.Embedded.Hidden == nil {
		return all
	}
	shown := sets.New[schema.GroupVersion]()
	for gv := range all {
		if !h.hidden(gv) {
			shown.Insert(gv)
		}
	}
	return shown
}

// clock is the time that Advance moves forward.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// URL returns the URL at which clients on this machine reach the front door, once it is Ready. Without a listener the
// URL contains a name that does not resolve.
func (a *Aggregator) URL() string { return a.url }

// errNotRunning is returned by calls that require a ready front door.
var errNotRunning = errors.New("the front door is not ready")

// running returns the parts of a ready front door.
func (a *Aggregator) running() (*parts, error) {
	h := a.parts.Load()
	if h == nil {
		return nil, errNotRunning
	}
	return h, nil
}

// Handler returns a handler that serves requests as the listener does. Before Ready it responds with a 503.
func (a *Aggregator) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h, err := a.running()
		if err != nil {
			respond.Error(w, r, apierrors.NewServiceUnavailable(err.Error()))
			return
		}
		h.chain.ServeHTTP(w, r)
	})
}

// ClientConfig issues a client certificate for a user and returns the configuration of its clients.
func (a *Aggregator) ClientConfig(name string, groups []string, ttl time.Duration) (*rest.Config, error) {
	h, err := a.running()
	if err != nil {
		return nil, err
	}
	if h.cfg.Embedded.NoListener {
		return nil, errors.New("the front door has no listener; use an in-process client")
	}
	certPEM, keyPEM, err := h.keys.ClientKeyPair(name, groups, ttl)
	if err != nil {
		return nil, err
	}
	if err := h.checkAccepted(certPEM); err != nil {
		return nil, err
	}
	cluster := h.clusterFor(a.url)
	return &rest.Config{Host: a.url, TLSClientConfig: rest.TLSClientConfig{
		CAData: cluster.CertificateAuthorityData, ServerName: cluster.TLSServerName, CertData: certPEM, KeyData: keyPEM,
	}}, nil
}

// Kubeconfig returns the result of ClientConfig as a kubeconfig.
func (a *Aggregator) Kubeconfig(name string, groups []string, ttl time.Duration) ([]byte, error) {
	c, err := a.ClientConfig(name, groups, ttl)
	if err != nil {
		return nil, err
	}
	cluster := &clientcmdapi.Cluster{Server: c.Host, TLSServerName: c.ServerName, CertificateAuthorityData: c.CAData}
	return kubeconfig(cluster, name, c.CertData, c.KeyData)
}

// InProcessConfig returns the configuration of clients that act as a user without a socket. Their requests pass the
// chain, including authorization.
func (a *Aggregator) InProcessConfig(name string, groups []string) (*rest.Config, error) {
	h, err := a.running()
	if err != nil {
		return nil, err
	}
	return &rest.Config{Host: "https://portico.invalid", QPS: -1, Transport: coreapi.InProcess(asUser(name, groups, h.chain))}, nil
}

type userKey struct{}

// asUser returns a handler that passes requests to next as a user without a credential.
func asUser(name string, groups []string, next http.Handler) http.Handler {
	u := &user.DefaultInfo{Name: name, Groups: groups}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, u)))
	})
}

// inProcessAuthenticator authenticates the users of asUser, and passes all other requests to next.
type inProcessAuthenticator struct{ next *authn.Authenticator }

func (a inProcessAuthenticator) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	if u, ok := r.Context().Value(userKey{}).(user.Info); ok {
		return &authenticator.Response{User: authn.WithAuthenticated(u)}, true, nil
	}
	return a.next.AuthenticateRequest(r)
}

// LocalConfig returns the configuration of clients for all local groups, including hidden ones. These clients are
// authorized for everything.
func (a *Aggregator) LocalConfig() (*rest.Config, error) {
	h, err := a.running()
	if err != nil {
		return nil, err
	}
	return unthrottled(h.core.ClientConfig(self)), nil
}

// Snapshot returns the contents of a volatile store.
func (a *Aggregator) Snapshot(ctx context.Context) (store.Contents, error) {
	h, err := a.running()
	if err != nil {
		return nil, err
	}
	return h.store.ReadContents(ctx)
}

// Restore replaces the contents of a volatile store with a snapshot.
func (a *Aggregator) Restore(ctx context.Context, contents store.Contents) error {
	h, err := a.running()
	if err != nil {
		return err
	}
	return h.store.ReplaceContents(ctx, contents)
}

// Advance moves time forward for service account tokens, and for objects that have a lease in etcd (Events).
func (a *Aggregator) Advance(ctx context.Context, d time.Duration) error {
	h, err := a.running()
	if err != nil {
		return err
	}
	if d < 0 {
		return fmt.Errorf("time cannot go back by %s", -d)
	}
	ahead := time.Duration(h.clock.ahead.Add(int64(d)))
	return h.store.ExpireKeys(ctx, ahead)
}
