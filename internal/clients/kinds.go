package clients

import (
	"context"
	"fmt"
	"reflect"
	"time"

	coreapi "k8s.io/api/core/v1"
	discoveryapi "k8s.io/api/discovery/v1"
	networkingapi "k8s.io/api/networking/v1"
	nodeapi "k8s.io/api/node/v1"
	rbacapi "k8s.io/api/rbac/v1"
	schedulingapi "k8s.io/api/scheduling/v1"
	storageapi "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	corev1 "k8s.io/client-go/informers/core/v1"
	discoveryv1 "k8s.io/client-go/informers/discovery/v1"
	networkingv1 "k8s.io/client-go/informers/networking/v1"
	nodev1 "k8s.io/client-go/informers/node/v1"
	rbacv1 "k8s.io/client-go/informers/rbac/v1"
	schedulingv1 "k8s.io/client-go/informers/scheduling/v1"
	storagev1 "k8s.io/client-go/informers/storage/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
	nodelisters "k8s.io/client-go/listers/node/v1"
	rbaclisters "k8s.io/client-go/listers/rbac/v1"
	schedulinglisters "k8s.io/client-go/listers/scheduling/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

func (i *Informers) Endpoints() corev1.EndpointsInformer {
	//lint:ignore SA1019 deprecated, and still written for Services without selector
	return informerOf(i, coreapi.SchemeGroupVersion, "endpoints", "Endpoints", &coreapi.Endpoints{}, corelisters.NewEndpointsLister)
}
func (i *Informers) LimitRanges() corev1.LimitRangeInformer {
	return informerOf(i, coreapi.SchemeGroupVersion, "limitranges", "LimitRange", &coreapi.LimitRange{}, corelisters.NewLimitRangeLister)
}
func (i *Informers) Namespaces() corev1.NamespaceInformer {
	return unindexed(i, coreapi.SchemeGroupVersion, "namespaces", "Namespace", &coreapi.Namespace{}, corelisters.NewNamespaceLister)
}
func (i *Informers) Nodes() corev1.NodeInformer {
	return informerOf(i, coreapi.SchemeGroupVersion, "nodes", "Node", &coreapi.Node{}, corelisters.NewNodeLister)
}
func (i *Informers) Pods() corev1.PodInformer {
	return informerOf(i, coreapi.SchemeGroupVersion, "pods", "Pod", &coreapi.Pod{}, corelisters.NewPodLister)
}
func (i *Informers) ResourceQuotas() corev1.ResourceQuotaInformer {
	return informerOf(i, coreapi.SchemeGroupVersion, "resourcequotas", "ResourceQuota", &coreapi.ResourceQuota{}, corelisters.NewResourceQuotaLister)
}
func (i *Informers) Secrets() corev1.SecretInformer {
	return informerOf(i, coreapi.SchemeGroupVersion, "secrets", "Secret", &coreapi.Secret{}, corelisters.NewSecretLister)
}
func (i *Informers) ServiceAccounts() corev1.ServiceAccountInformer {
	return unindexed(i, coreapi.SchemeGroupVersion, "serviceaccounts", "ServiceAccount", &coreapi.ServiceAccount{}, corelisters.NewServiceAccountLister)
}
func (i *Informers) Services() corev1.ServiceInformer {
	return informerOf(i, coreapi.SchemeGroupVersion, "services", "Service", &coreapi.Service{}, corelisters.NewServiceLister)
}

func (i *Informers) EndpointSlices() discoveryv1.EndpointSliceInformer {
	return informerOf(i, discoveryapi.SchemeGroupVersion, "endpointslices", "EndpointSlice", &discoveryapi.EndpointSlice{}, discoverylisters.NewEndpointSliceLister)
}

func (i *Informers) IngressClasses() networkingv1.IngressClassInformer {
	return informerOf(i, networkingapi.SchemeGroupVersion, "ingressclasses", "IngressClass", &networkingapi.IngressClass{}, networkinglisters.NewIngressClassLister)
}
func (i *Informers) ServiceCIDRs() networkingv1.ServiceCIDRInformer {
	return informerOf(i, networkingapi.SchemeGroupVersion, "servicecidrs", "ServiceCIDR", &networkingapi.ServiceCIDR{}, networkinglisters.NewServiceCIDRLister)
}

func (i *Informers) RuntimeClasses() nodev1.RuntimeClassInformer {
	return informerOf(i, nodeapi.SchemeGroupVersion, "runtimeclasses", "RuntimeClass", &nodeapi.RuntimeClass{}, nodelisters.NewRuntimeClassLister)
}

func (i *Informers) ClusterRoleBindings() rbacv1.ClusterRoleBindingInformer {
	return informerOf(i, rbacapi.SchemeGroupVersion, "clusterrolebindings", "ClusterRoleBinding", &rbacapi.ClusterRoleBinding{}, rbaclisters.NewClusterRoleBindingLister)
}
func (i *Informers) ClusterRoles() rbacv1.ClusterRoleInformer {
	return informerOf(i, rbacapi.SchemeGroupVersion, "clusterroles", "ClusterRole", &rbacapi.ClusterRole{}, rbaclisters.NewClusterRoleLister)
}
func (i *Informers) RoleBindings() rbacv1.RoleBindingInformer {
	return unindexed(i, rbacapi.SchemeGroupVersion, "rolebindings", "RoleBinding", &rbacapi.RoleBinding{}, rbaclisters.NewRoleBindingLister)
}
func (i *Informers) Roles() rbacv1.RoleInformer {
	return informerOf(i, rbacapi.SchemeGroupVersion, "roles", "Role", &rbacapi.Role{}, rbaclisters.NewRoleLister)
}

func (i *Informers) PriorityClasses() schedulingv1.PriorityClassInformer {
	return informerOf(i, schedulingapi.SchemeGroupVersion, "priorityclasses", "PriorityClass", &schedulingapi.PriorityClass{}, schedulinglisters.NewPriorityClassLister)
}

func (i *Informers) StorageClasses() storagev1.StorageClassInformer {
	return informerOf(i, storageapi.SchemeGroupVersion, "storageclasses", "StorageClass", &storageapi.StorageClass{}, storagelisters.NewStorageClassLister)
}

// kindInformer is the informer of one kind. For pods, it implements PodInformer with L as PodLister. client-go's informers link
// a hundred methods for each kind, and a client.
type kindInformer[L any] struct {
	informer  cache.SharedIndexInformer
	newLister func(cache.Indexer) L
}

func informerOf[L any](i *Informers, gv schema.GroupVersion, resource, kind string, object runtime.Object, newLister func(cache.Indexer) L) kindInformer[L] {
	return kindInformer[L]{i.forResource(gv.WithResource(resource), gv.WithKind(kind), object), newLister}
}

// unindexed is like informerOf, for a kind with many objects that are not listed by namespace. A lister for one namespace scans
// all objects.
func unindexed[L any](i *Informers, gv schema.GroupVersion, resource, kind string, object runtime.Object, newLister func(cache.Indexer) L) kindInformer[L] {
	return kindInformer[L]{i.informer(gv.WithResource(resource), gv.WithKind(kind), object, cache.Indexers{}), newLister}
}

// Informer returns the informer shared by all callers of the factory.
func (k kindInformer[L]) Informer() cache.SharedIndexInformer { return k.informer }

// Lister returns a lister of the informer's objects.
func (k kindInformer[L]) Lister() L { return k.newLister(k.informer.GetIndexer()) }

// ForResource returns the informer of any resource of Kubernetes' own groups, including groups that are not in [Interface],
// because the parameter of an admission policy may be of any kind. It returns the same informer as the method for the kind.
func (i *Informers) ForResource(resource schema.GroupVersionResource) (informers.GenericInformer, error) {
	kind, ok := kindOf(resource)
	if !ok {
		return nil, fmt.Errorf("%s: no such resource of Kubernetes' own groups", resource)
	}
	object, err := scheme.Scheme.New(kind)
	if err != nil {
		return nil, err
	}
	return genericInformer{resource.GroupResource(), i.forResource(resource, kind, object)}, nil
}

// objectType distinguishes objects with metadata from other types of a group, such as APIGroup.
var objectType = reflect.TypeFor[metav1.ObjectMetaAccessor]()

// kindOf returns the kind with this plural that has a list kind, which excludes options and reviews.
func kindOf(resource schema.GroupVersionResource) (schema.GroupVersionKind, bool) {
	gv := resource.GroupVersion()
	known := scheme.Scheme.KnownTypes(gv)
	for name, goType := range known {
		kind := gv.WithKind(name)
		if plural, _ := meta.UnsafeGuessKindToResource(kind); plural == resource && known[name+"List"] != nil && reflect.PointerTo(goType).Implements(objectType) {
			return kind, true
		}
	}
	return schema.GroupVersionKind{}, false
}

func (i *Informers) forResource(resource schema.GroupVersionResource, kind schema.GroupVersionKind, object runtime.Object) cache.SharedIndexInformer {
	return i.informer(resource, kind, object, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
}

func (i *Informers) informer(resource schema.GroupVersionResource, kind schema.GroupVersionKind, object runtime.Object, indexers cache.Indexers) cache.SharedIndexInformer {
	return i.InformerFor(object, func(_ kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		client := i.client.CoreV1().RESTClient()
		listWatch := &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				list, err := scheme.Scheme.New(kind.GroupVersion().WithKind(kind.Kind + "List"))
				if err != nil {
					return nil, err
				}
				return list, listRequest(client, resource, options).Do(ctx).Into(list)
			},
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				options.Watch = true
				return listRequest(client, resource, options).Watch(ctx)
			},
		}
		return cache.NewSharedIndexInformerWithOptions(cache.ToListWatcherWithWatchListSemantics(listWatch, i.client), object,
			cache.SharedIndexInformerOptions{ResyncPeriod: resync, Indexers: indexers})
	})
}

// listRequest returns the request of a list or watch in all namespaces, as the typed clients send it.
func listRequest(client rest.Interface, resource schema.GroupVersionResource, options metav1.ListOptions) *rest.Request {
	path := []string{"/apis", resource.Group, resource.Version, resource.Resource}
	if resource.Group == "" {
		path = []string{"/api", resource.Version, resource.Resource}
	}
	var timeout time.Duration
	if options.TimeoutSeconds != nil {
		timeout = time.Duration(*options.TimeoutSeconds) * time.Second
	}
	return client.Get().UseProtobufAsDefaultIfPreferred(true).AbsPath(path...).
		VersionedParams(&options, scheme.ParameterCodec).Timeout(timeout)
}

type genericInformer struct {
	resource schema.GroupResource
	informer cache.SharedIndexInformer
}

func (g genericInformer) Informer() cache.SharedIndexInformer { return g.informer }
func (g genericInformer) Lister() cache.GenericLister {
	return cache.NewGenericLister(g.informer.GetIndexer(), g.resource)
}
