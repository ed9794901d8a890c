package aggregator

import (
	"bytes"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	aggregatorinformers "k8s.io/kube-aggregator/pkg/client/informers/externalversions"

	"portico.dev/internal/auth/rbac"
	"portico.dev/internal/auth/satoken"
	"portico.dev/internal/clients"
)

// tokenLookup finds what service account tokens are bound to. Tokens are wired before the informers that it reads.
type tokenLookup struct{ satoken.Live }

// self is who the front door is when it calls itself. It never leaves the process.
var self = &user.DefaultInfo{Name: "system:apiserver", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}

// wireClients is our own way in, and the caches that every controller shares.
func (h *parts) wireClients() (err error) {
	config := unthrottled(h.core.ClientConfig(self))
	if h.clients, err = clients.New(config); err != nil {
		return fmt.Errorf("client of the local groups: %w", err)
	}
	founding := unthrottled(h.core.FoundingConfig(self))
	if h.startClients, err = clients.New(founding); err != nil {
		return fmt.Errorf("client of what every cluster starts with: %w", err)
	}
	if h.aggregator, err = aggregatorclient.NewForConfig(founding); err != nil {
		return fmt.Errorf("client of apiservices: %w", err)
	}
	h.informers = clients.NewInformers(h.clients, trimInformerObjects())
	h.services = aggregatorinformers.NewSharedInformerFactoryWithOptions(h.aggregator, 0, aggregatorinformers.WithTransform(trimInformerObjects()))
	core := h.informers.Core().V1()
	h.tokenLookup.Live = satoken.Live{
		ServiceAccounts: core.ServiceAccounts().Lister(), Pods: core.Pods().Lister(),
		Secrets: core.Secrets().Lister(), Nodes: core.Nodes().Lister(), Client: h.clients.CoreV1(),
	}
	h.requestInformers()
	return nil
}

// requestInformers asks for every cache before the factories start, because they start only what was asked for.
func (h *parts) requestInformers() {
	core, roles := h.informers.Core().V1(), h.informers.Rbac().V1()
	for _, informer := range []interface {
		Informer() cache.SharedIndexInformer
	}{
		core.Namespaces(), core.ServiceAccounts(), core.Pods(), core.Secrets(), core.Nodes(), core.Services(),
		core.ResourceQuotas(),
		h.informers.Discovery().V1().EndpointSlices(),
		roles.Roles(), roles.RoleBindings(), roles.ClusterRoles(), roles.ClusterRoleBindings(),
		h.services.Apiregistration().V1().APIServices(),
	} {
		informer.Informer()
	}
}

// unthrottled lifts client-go's own rate limit: what these clients ask is answered in this process.
func unthrottled(c *rest.Config) *rest.Config {
	c.QPS = -1
	return c
}

// trimInformerObjects drops what the shared informers would hold and nobody reads. What is written back to the API without it keeps it
// there: a write that says nothing of managed fields leaves them as they are.
func trimInformerObjects() cache.TransformFunc {
	bundles := &bundleCache{}
	return func(obj any) (any, error) {
		if accessor, err := meta.Accessor(obj); err == nil {
			accessor.SetManagedFields(nil)
		}
		if a, ok := obj.(*apiregistrationv1.APIService); ok {
			a.Spec.CABundle = bundles.intern(a.Spec.CABundle)
		}
		return rbac.Lean(obj), nil
	}
}

// bundleCache has the CA bundles that were met lately, so that APIServices whose backends have one authority share its bytes.
type bundleCache struct {
	mu    sync.Mutex
	known [8][]byte
	next  int
}

// intern is b, or the same bytes that were met before. Nobody may change them.
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
