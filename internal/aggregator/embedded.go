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

// Embedded is what a program that embeds the front door adds to it, and what it can do besides a program of its own.
type Embedded struct {
	// Groups are further local groups, Definitions the OpenAPI definitions of their kinds, and BuildDocument what builds their documents.
	Groups        []registry.Group
	Definitions   common.GetOpenAPIDefinitions
	BuildDocument coreapi.DocumentBuilder
	// Hidden reports whether clients do not see a built-in group-version: they get 404 for it, and it is in no document. Its kinds
	// work inside all the same. It is not asked about apiregistration.k8s.io. Nil: none is hidden.
	Hidden func(schema.GroupVersion) bool
	// Tokens and Requests authenticate what no other authenticator knows, in order; tokens first.
	Tokens   []authenticator.Token
	Requests []authenticator.Request
	// Authorizers are asked before those that the settings name, in order.
	Authorizers []authorizer.Authorizer
	// Admission are further admission plugins, which run after the built-in ones.
	Admission []AdmissionPlugin
	// Handlers serve further paths outside of the API, after authentication and authorization (as non-resource URLs). A path that
	// ends with a slash serves all below too.
	Handlers map[string]http.Handler
	// Members start in order, when everything but the listener is ready, and stop after it.
	Members []run.Member
	// Listener is where to listen, instead of BindAddress and SecurePort. Run closes it. Nil: those.
	Listener net.Listener
	// HoldConnections is how long connections to Listener wait, while the front door starts, to be accepted. Default 0: they are accepted at
	// once, and requests answered 503 until it has started.
	HoldConnections time.Duration
	// NoListener serves nothing by itself: requests come through Handler and the in-process clients.
	NoListener bool
	// NamespaceDeletionDelay passes between the deletion of a namespace and that of its contents. Default a second.
	NamespaceDeletionDelay time.Duration
	// NoServiceManager leaves messages to the service manager (systemd) to the program. Default false.
	NoServiceManager bool
	// Volatile makes the embedded etcd force nothing to disk, and Snapshot, Restore and Advance work.
	Volatile bool
}

// AdmissionPlugin is an admission plugin with its name.
type AdmissionPlugin struct {
	Name   string
	Plugin genericadmission.Interface
}

// reservedPaths are those that handlers of embedding programs cannot have.
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

// admission is the configuration of admission with the plugins of the embedding program.
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

// hidden reports whether clients do not see a local group-version.
func (h *parts) hidden(gv schema.GroupVersion) bool {
	e := h.cfg.Embedded
	return e.Hidden != nil && gv != apiregistrationv1.SchemeGroupVersion && slices.Contains(h.core.BuiltIn(), gv) && e.Hidden(gv)
}

// visible are the built-in group-versions that clients see.
func (h *parts) visible() []schema.GroupVersion {
	return slices.DeleteFunc(slices.Clone(h.core.BuiltIn()), h.hidden)
}

// localGroupVersions are those that the router serves locally.
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

// clock is the time for whatever Advance moves forward.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// URL, once Ready, is where clients on this machine reach the front door. Without a listener it is a name that nothing resolves.
func (a *Aggregator) URL() string { return a.url }

// errNotRunning is the answer to calls that need a front door that is ready.
var errNotRunning = errors.New("the front door is not ready")

// running returns the parts of a front door that is ready.
func (a *Aggregator) running() (*parts, error) {
	h := a.parts.Load()
	if h == nil {
		return nil, errNotRunning
	}
	return h, nil
}

// Handler serves requests as the listener does. Before Ready it answers 503.
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

// Kubeconfig is ClientConfig as a kubeconfig.
func (a *Aggregator) Kubeconfig(name string, groups []string, ttl time.Duration) ([]byte, error) {
	c, err := a.ClientConfig(name, groups, ttl)
	if err != nil {
		return nil, err
	}
	cluster := &clientcmdapi.Cluster{Server: c.Host, TLSServerName: c.ServerName, CertificateAuthorityData: c.CAData}
	return kubeconfig(cluster, name, c.CertData, c.KeyData)
}

// InProcessConfig configures clients that act as a user without a socket: requests pass the chain, authorization included.
func (a *Aggregator) InProcessConfig(name string, groups []string) (*rest.Config, error) {
	h, err := a.running()
	if err != nil {
		return nil, err
	}
	return &rest.Config{Host: "https://portico.invalid", QPS: -1, Transport: coreapi.InProcess(asUser(name, groups, h.chain))}, nil
}

type userKey struct{}

// asUser is next for requests of a user who needs no credential.
func asUser(name string, groups []string, next http.Handler) http.Handler {
	u := &user.DefaultInfo{Name: name, Groups: groups}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, u)))
	})
}

// inProcessAuthenticator knows the users of asUser, and asks next for those of all other requests.
type inProcessAuthenticator struct{ next *authn.Authenticator }

func (a inProcessAuthenticator) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	if u, ok := r.Context().Value(userKey{}).(user.Info); ok {
		return &authenticator.Response{User: authn.WithAuthenticated(u)}, true, nil
	}
	return a.next.AuthenticateRequest(r)
}

// LocalConfig configures clients of all local groups, hidden ones too, which are authorized for everything.
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

// Restore makes the contents of a volatile store those of a snapshot.
func (a *Aggregator) Restore(ctx context.Context, contents store.Contents) error {
	h, err := a.running()
	if err != nil {
		return err
	}
	return h.store.ReplaceContents(ctx, contents)
}

// Advance moves time forward for the service account tokens and the objects that have a lease in etcd (Events).
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
