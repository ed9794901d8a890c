package core

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"portico.dev/internal/coreapi/registry"
)

// Subresources that kubelets and pods serve: log, exec, attach, portforward and proxy.

var (
	proxyMethods       = []string{"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"}
	upgradeableMethods = []string{"GET", "POST"} // GET is for websockets
)

func podConnections(e *registry.Environment) map[string]rest.Storage {
	return map[string]rest.Storage{
		"pods/log": &podLog{e},
		"pods/exec": newConnection(e, &corev1.PodExecOptions{}, upgradeableMethods, func(ctx context.Context, c registry.Connector, from registry.Objects, name string, o *corev1.PodExecOptions) (http.Handler, error) {
			return c.Exec(ctx, from, name, o)
		}),
		"pods/attach": newConnection(e, &corev1.PodAttachOptions{}, upgradeableMethods, func(ctx context.Context, c registry.Connector, from registry.Objects, name string, o *corev1.PodAttachOptions) (http.Handler, error) {
			return c.Attach(ctx, from, name, o)
		}),
		"pods/portforward": newConnection(e, &corev1.PodPortForwardOptions{}, upgradeableMethods, func(ctx context.Context, c registry.Connector, from registry.Objects, name string, o *corev1.PodPortForwardOptions) (http.Handler, error) {
			return c.PortForward(ctx, from, name, o)
		}),
		"pods/proxy": newConnection(e, &corev1.PodProxyOptions{}, proxyMethods, func(ctx context.Context, c registry.Connector, from registry.Objects, id string, _ *corev1.PodProxyOptions) (http.Handler, error) {
			return c.ProxyPod(ctx, from, id)
		}),
	}
}

func nodeStorages(e *registry.Environment, _ *registry.REST) map[string]rest.Storage {
	return map[string]rest.Storage{"nodes/proxy": newConnection(e, &corev1.NodeProxyOptions{}, proxyMethods,
		func(ctx context.Context, c registry.Connector, from registry.Objects, id string, _ *corev1.NodeProxyOptions) (http.Handler, error) {
			return c.ProxyNode(ctx, from, id)
		})}
}

func serviceProxy(e *registry.Environment) rest.Storage {
	return newConnection(e, &corev1.ServiceProxyOptions{}, proxyMethods,
		func(ctx context.Context, c registry.Connector, from registry.Objects, id string, _ *corev1.ServiceProxyOptions) (http.Handler, error) {
			return c.ProxyService(ctx, from, id)
		})
}

// errNoConnector is returned by a server without a connector to nodes.
var errNoConnector = apierrors.NewServiceUnavailable("this server reaches no kubelets and no pods")

// connection is a subresource that proxies its requests to kubelets, pods or services.
type connection struct {
	e       *registry.Environment
	kind    runtime.Object
	methods []string
	connect func(ctx context.Context, id string, options runtime.Object) (http.Handler, error)
}

var _ rest.Connecter = (*connection)(nil)

func newConnection[T runtime.Object](e *registry.Environment, kind T, methods []string,
	connect func(ctx context.Context, c registry.Connector, from registry.Objects, id string, o T) (http.Handler, error),
) *connection {
	return &connection{e, kind, methods, func(ctx context.Context, id string, options runtime.Object) (http.Handler, error) {
		o, ok := options.(T)
		if !ok {
			return nil, fmt.Errorf("invalid options object: %#v", options)
		}
		if e.Connector == nil {
			return nil, errNoConnector
		}
		return connect(ctx, e.Connector, storedObjects{e}, id, o)
	}}
}

func (c *connection) New() runtime.Object { return c.kind.DeepCopyObject() }

func (c *connection) Destroy() {}

func (c *connection) ConnectMethods() []string { return c.methods }

// NewConnectOptions reports whether the path continues after the subresource.
func (c *connection) NewConnectOptions() (runtime.Object, bool, string) {
	if len(c.methods) == len(proxyMethods) {
		return c.New(), true, "path"
	}
	return c.New(), false, ""
}

func (c *connection) Connect(ctx context.Context, id string, options runtime.Object, _ rest.Responder) (http.Handler, error) {
	if len(c.methods) == len(upgradeableMethods) {
		if err := authorizedToCreate(ctx, c.e.Authorizer); err != nil {
			return nil, err
		}
	}
	return c.connect(ctx, id, options)
}

// authorizedToCreate refuses a websocket, which begins with a GET, to clients with read permission only
// (kubernetes/kubernetes#133515). kube-apiserver does so since 1.35 (AuthorizePodWebsocketUpgradeCreatePermission).
func authorizedToCreate(ctx context.Context, a authorizer.UnconditionalAuthorizer) error {
	info, ok := apirequest.RequestInfoFrom(ctx)
	if !ok {
		return apierrors.NewInternalError(errors.New("no request info in context"))
	}
	if info.Verb == "create" {
		return nil
	}
	attributes, err := filters.GetAuthorizerAttributes(ctx)
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("error building authorizer attributes: %w", err))
	}
	decision, reason, err := a.Authorize(ctx, asCreate{attributes})
	if err != nil {
		return err
	}
	if decision != authorizer.DecisionAllow {
		return apierrors.NewForbidden(corev1.Resource(info.Resource), info.Name, errors.New(reason))
	}
	return nil
}

type asCreate struct{ authorizer.Attributes }

func (asCreate) GetVerb() string { return "create" }

// podLog serves pods/log.
type podLog struct{ e *registry.Environment }

var (
	_ rest.GetterWithOptions = (*podLog)(nil)
	_ rest.StorageMetadata   = (*podLog)(nil)
)

func (l *podLog) New() runtime.Object { return &corev1.Pod{} }

func (l *podLog) Destroy() {}

func (l *podLog) NewGetOptions() (runtime.Object, bool, string) {
	return &corev1.PodLogOptions{}, false, ""
}

// ProducesMIMETypes and ProducesObject describe a log as text in OpenAPI documents.
func (l *podLog) ProducesMIMETypes(string) []string { return []string{"text/plain"} }

func (l *podLog) ProducesObject(string) any { return "" }

func (l *podLog) Get(ctx context.Context, name string, options runtime.Object) (runtime.Object, error) {
	o, ok := options.(*corev1.PodLogOptions)
	if !ok {
		return nil, fmt.Errorf("invalid options object: %#v", options)
	}
	if l.e.Connector == nil {
		return nil, errNoConnector
	}
	return l.e.Connector.Log(ctx, storedObjects{l.e}, name, o)
}

// storedObjects reads the objects of this server.
type storedObjects struct{ e *registry.Environment }

func (s storedObjects) get(ctx context.Context, resource, namespace, name string) (runtime.Object, error) {
	return s.e.Storage(corev1.Resource(resource)).Get(registry.ReadContext(ctx, "", resource, namespace, name), name, &metav1.GetOptions{})
}

func (s storedObjects) Node(ctx context.Context, name string) (*corev1.Node, error) {
	return as[*corev1.Node](s.get(ctx, "nodes", "", name))
}

func (s storedObjects) Pod(ctx context.Context, name string) (*corev1.Pod, error) {
	return as[*corev1.Pod](s.get(ctx, "pods", apirequest.NamespaceValue(ctx), name))
}

func (s storedObjects) Service(ctx context.Context, name string) (*corev1.Service, error) {
	return as[*corev1.Service](s.get(ctx, "services", apirequest.NamespaceValue(ctx), name))
}

func as[T runtime.Object](obj runtime.Object, err error) (T, error) {
	var none T
	if err != nil {
		return none, err
	}
	return obj.(T), nil
}

// EndpointSlices reads from the watch cache.
func (s storedObjects) EndpointSlices(ctx context.Context, service string) ([]*discoveryv1.EndpointSlice, error) {
	slices := s.e.Storage(discoveryv1.Resource("endpointslices"))
	if slices == nil {
		return nil, nil
	}
	list, err := slices.List(registry.ReadContext(ctx, discoveryv1.GroupName, "endpointslices", apirequest.NamespaceValue(ctx), ""), &metainternalversion.ListOptions{
		LabelSelector: labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: service}), ResourceVersion: "0",
	})
	if err != nil {
		return nil, err
	}
	items := list.(*discoveryv1.EndpointSliceList).Items
	found := make([]*discoveryv1.EndpointSlice, len(items))
	for i := range items {
		found[i] = &items[i]
	}
	return found, nil
}
