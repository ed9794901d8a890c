package aggregator

import (
	"bytes"
	"fmt"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	aggregatorinformers "k8s.io/kube-aggregator/pkg/client/informers/externalversions"

	"portico.dev/internal/apiservice"
	"portico.dev/internal/auth/rbac"
	"portico.dev/internal/auth/serviceaccount"
	"portico.dev/internal/clients"
	routingclient "portico.dev/internal/routes/client"
	"portico.dev/internal/routes/v1alpha1"
)

// tokenLookup looks up the objects that service account tokens are bound to. Its informers are wired after the tokens.
type tokenLookup struct{ serviceaccount.LiveLookup }

// self is the user of in-process requests.
var self = &user.DefaultInfo{Name: "system:apiserver", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}

// wireClients builds the in-process clients, and the informers that all parts share.
func (h *parts) wireClients() (err error) {
	config := unthrottled(h.core.ClientConfig(self))
	if h.clients, err = clients.New(config); err != nil {
		return fmt.Errorf("client of the local groups: %w", err)
	}
	bootstrapConfig := unthrottled(h.core.BootstrapConfig(self))
	if h.bootstrapClients, err = clients.New(bootstrapConfig); err != nil {
		return fmt.Errorf("client of what every cluster starts with: %w", err)
	}
	if h.aggregator, err = aggregatorclient.NewForConfig(bootstrapConfig); err != nil {
		return fmt.Errorf("client of apiservices: %w", err)
	}
	if h.apiRoutes.Client, err = routingclient.New(bootstrapConfig); err != nil {
		return fmt.Errorf("client of apiroutes: %w", err)
	}
	h.informers = clients.NewInformers(h.clients, trimInformerObjects())
	h.apiRoutes.Namespaces = h.informers.Namespaces().Lister()
	h.apiRoutes.Informer = h.informers.InformerFor(&v1alpha1.APIRoute{}, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
		return routingclient.NewInformer(h.apiRoutes.Client)
	})
	if err := h.wireClusters(bootstrapConfig); err != nil {
		return err
	}
	h.services = aggregatorinformers.NewSharedInformerFactoryWithOptions(h.aggregator, 0, aggregatorinformers.WithTransform(trimInformerObjects()))
	shared := h.informers
	h.tokenLookup.LiveLookup = serviceaccount.LiveLookup{
		ServiceAccounts: shared.ServiceAccounts().Lister(), Pods: shared.Pods().Lister(),
		Secrets: shared.Secrets().Lister(), Nodes: shared.Nodes().Lister(), Client: h.clients.CoreV1(),
	}
	h.requestInformers()
	return h.followWebhooks()
}

// requestInformers requests every informer before the factories start, because a factory starts only requested
// informers.
func (h *parts) requestInformers() {
	shared := h.informers
	for _, informer := range []interface {
		Informer() cache.SharedIndexInformer
	}{
		shared.Namespaces(), shared.ServiceAccounts(), shared.Pods(), shared.Secrets(), shared.Nodes(), shared.Services(),
		shared.ResourceQuotas(),
		shared.EndpointSlices(), shared.Endpoints(),
		shared.Roles(), shared.RoleBindings(), shared.ClusterRoles(), shared.ClusterRoleBindings(),
		h.services.Apiregistration().V1().APIServices(),
	} {
		informer.Informer()
	}
}

// rbacInformers returns the shared informers of roles and bindings.
func (h *parts) rbacInformers() rbac.Informers {
	return rbac.Informers{
		ClusterRoles: h.informers.ClusterRoles(), ClusterRoleBindings: h.informers.ClusterRoleBindings(),
		Roles: h.informers.Roles(), RoleBindings: h.informers.RoleBindings(),
	}
}

// unthrottled disables client-go's rate limit: these clients stay in this process.
func unthrottled(c *rest.Config) *rest.Config {
	c.QPS = -1
	return c
}

// trimInformerObjects drops fields that no user of the shared informers reads. A write without managed fields leaves
// the stored ones unchanged.
func trimInformerObjects() cache.TransformFunc {
	bundles := &bundleCache{}
	return func(obj any) (any, error) {
		if accessor, err := meta.Accessor(obj); err == nil {
			accessor.SetManagedFields(nil)
		}
		switch o := obj.(type) {
		case *apiregistrationv1.APIService:
			o.Spec.CABundle = bundles.intern(o.Spec.CABundle)
		//lint:ignore SA1019 deprecated, and still written for Services without selector
		case *corev1.Endpoints:
			apiservice.TrimEndpoints(o)
		}
		return rbac.TransformBinding(obj), nil
	}
}

// bundleCache keeps recent CA bundles, so that APIServices with equal bundles share the bytes.
type bundleCache struct {
	mu    sync.Mutex
	known [8][]byte
	next  int
}

// intern returns b, or an equal slice that it returned before. Callers must not change it.
func (bs *bundleCache) intern(b []byte) []byte {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	for _, k := range bs.known {
		if bytes.Equal(k, b) && k != nil {
			return k
		}
	}
	bs.known[bs.next] = b
	bs.next = (bs.next + 1) % len(bs.known)
	return b
}

// jsonDeletions requests JSON for deletions. The metadata client prefers protobuf in every request and, unlike for
// lists, does not request only metadata for deletions. A backend with kinds that have no protobuf encoding therefore
// deletes the object, cannot encode it, and returns a 406 at every attempt. k8s.io/sample-apiserver is such a
// backend.
func jsonDeletions(next http.RoundTripper) http.RoundTripper {
	return deletions{next}
}

type deletions struct{ next http.RoundTripper }

func (d deletions) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodDelete {
		r = r.Clone(r.Context()) // a RoundTripper must not change its request
		r.Header.Set("Accept", runtime.ContentTypeJSON)
	}
	return d.next.RoundTrip(r)
}
