// Package toolclient contains clients for the few kinds needed by tools without an API server. client-go's typed clients and
// its discovery client import kubernetes/scheme, which registers every kind of every group, so that each of them adds 10 MB to
// a program (docs/decisions/0005-binary-size.md). This package uses a scheme with only its own kinds.
package toolclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// Clients of the kinds.
type (
	ConfigMaps          = gentype.ClientWithList[*corev1.ConfigMap, *corev1.ConfigMapList]
	Services            = gentype.ClientWithList[*corev1.Service, *corev1.ServiceList]
	EndpointSlices      = gentype.ClientWithList[*discoveryv1.EndpointSlice, *discoveryv1.EndpointSliceList]
	Roles               = gentype.ClientWithList[*rbacv1.Role, *rbacv1.RoleList]
	RoleBindings        = gentype.ClientWithList[*rbacv1.RoleBinding, *rbacv1.RoleBindingList]
	ClusterRoles        = gentype.ClientWithList[*rbacv1.ClusterRole, *rbacv1.ClusterRoleList]
	ClusterRoleBindings = gentype.ClientWithList[*rbacv1.ClusterRoleBinding, *rbacv1.ClusterRoleBindingList]
	APIServices         = gentype.ClientWithList[*apiregistrationv1.APIService, *apiregistrationv1.APIServiceList]
)

// Client is a client of one API server. It uses JSON.
type Client struct {
	core, discovery, rbac, authorization, apiregistration *rest.RESTClient
	parameters                                            runtime.ParameterCodec
}

// New returns a client whose groups share one transport.
func New(config *rest.Config) (*Client, error) {
	c := *config
	if c.UserAgent == "" {
		c.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	shared, err := rest.HTTPClientFor(&c)
	if err != nil {
		return nil, fmt.Errorf("transport: %w", err)
	}
	return NewForHTTPClient(&c, shared)
}

// NewForHTTPClient returns a client that uses an existing HTTP client. All groups share one QPS limit.
func NewForHTTPClient(config *rest.Config, httpClient *http.Client) (*Client, error) {
	c := *config
	if c.UserAgent == "" {
		c.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	if c.RateLimiter == nil && c.QPS > 0 {
		if c.Burst <= 0 {
			return nil, errors.New("a QPS limit needs a burst of at least one")
		}
		c.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(c.QPS, c.Burst)
	}
	scheme := newScheme()
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	made := &Client{parameters: runtime.NewParameterCodec(scheme)}
	for _, of := range []struct {
		client *(*rest.RESTClient)
		gv     schema.GroupVersion
	}{
		{&made.core, corev1.SchemeGroupVersion},
		{&made.discovery, discoveryv1.SchemeGroupVersion},
		{&made.rbac, rbacv1.SchemeGroupVersion},
		{&made.authorization, authorizationv1.SchemeGroupVersion},
		{&made.apiregistration, apiregistrationv1.SchemeGroupVersion},
	} {
		c.GroupVersion, c.APIPath = &of.gv, "/apis"
		if of.gv.Group == "" {
			c.APIPath = "/api"
		}
		var err error
		if *of.client, err = rest.RESTClientForConfigAndClient(&c, httpClient); err != nil {
			return nil, fmt.Errorf("client of %s: %w", of.gv, err)
		}
	}
	return made, nil
}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"}) // Status
	add := func(gv schema.GroupVersion, kinds ...runtime.Object) {
		scheme.AddKnownTypes(gv, kinds...)
		metav1.AddToGroupVersion(scheme, gv)
	}
	add(corev1.SchemeGroupVersion, &corev1.ConfigMap{}, &corev1.ConfigMapList{}, &corev1.Namespace{}, &corev1.NamespaceList{}, &corev1.Secret{}, &corev1.Service{}, &corev1.ServiceList{})
	add(discoveryv1.SchemeGroupVersion, &discoveryv1.EndpointSlice{}, &discoveryv1.EndpointSliceList{})
	add(rbacv1.SchemeGroupVersion, &rbacv1.Role{}, &rbacv1.RoleList{}, &rbacv1.RoleBinding{}, &rbacv1.RoleBindingList{},
		&rbacv1.ClusterRole{}, &rbacv1.ClusterRoleList{}, &rbacv1.ClusterRoleBinding{}, &rbacv1.ClusterRoleBindingList{})
	add(authenticationv1.SchemeGroupVersion, &authenticationv1.TokenRequest{})
	add(authorizationv1.SchemeGroupVersion, &authorizationv1.SubjectAccessReview{})
	add(apiregistrationv1.SchemeGroupVersion, &apiregistrationv1.APIService{}, &apiregistrationv1.APIServiceList{})
	return scheme
}

// object is a pointer to a kind.
type object[T any] interface {
	*T
	runtime.Object
	metav1.Object
}

// list is a pointer to a list kind.
type list[L any] interface {
	*L
	runtime.Object
}

func of[T, L any, P object[T], Q list[L]](c *Client, group *rest.RESTClient, resource, namespace string) *gentype.ClientWithList[P, Q] {
	return gentype.NewClientWithList(resource, group, c.parameters, namespace, func() P { return P(new(T)) }, func() Q { return Q(new(L)) })
}

// REST returns a client for paths relative to the server's URL.
func (c *Client) REST() rest.Interface { return c.core }

// ConfigMaps returns the client of the ConfigMaps in a namespace.
func (c *Client) ConfigMaps(namespace string) *ConfigMaps {
	return of[corev1.ConfigMap, corev1.ConfigMapList](c, c.core, "configmaps", namespace)
}

// Services returns the client of the Services in a namespace.
func (c *Client) Services(namespace string) *Services {
	return of[corev1.Service, corev1.ServiceList](c, c.core, "services", namespace)
}

// EndpointSlices returns the client of the EndpointSlices in a namespace.
func (c *Client) EndpointSlices(namespace string) *EndpointSlices {
	return of[discoveryv1.EndpointSlice, discoveryv1.EndpointSliceList](c, c.discovery, "endpointslices", namespace)
}

// Roles returns the client of the Roles in a namespace, or in all namespaces if it is empty.
func (c *Client) Roles(namespace string) *Roles {
	return of[rbacv1.Role, rbacv1.RoleList](c, c.rbac, "roles", namespace)
}

// RoleBindings returns the client of the RoleBindings in a namespace, or in all namespaces if it is empty.
func (c *Client) RoleBindings(namespace string) *RoleBindings {
	return of[rbacv1.RoleBinding, rbacv1.RoleBindingList](c, c.rbac, "rolebindings", namespace)
}

// ClusterRoles returns the client of the ClusterRoles.
func (c *Client) ClusterRoles() *ClusterRoles {
	return of[rbacv1.ClusterRole, rbacv1.ClusterRoleList](c, c.rbac, "clusterroles", "")
}

// ClusterRoleBindings returns the client of the ClusterRoleBindings.
func (c *Client) ClusterRoleBindings() *ClusterRoleBindings {
	return of[rbacv1.ClusterRoleBinding, rbacv1.ClusterRoleBindingList](c, c.rbac, "clusterrolebindings", "")
}

// APIServices returns the client of the APIServices.
func (c *Client) APIServices() *APIServices {
	return of[apiregistrationv1.APIService, apiregistrationv1.APIServiceList](c, c.apiregistration, "apiservices", "")
}

// Review creates a SubjectAccessReview and returns the result.
func (c *Client) Review(ctx context.Context, review *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error) {
	return gentype.NewClient("subjectaccessreviews", c.authorization, c.parameters, "", func() *authorizationv1.SubjectAccessReview { return new(authorizationv1.SubjectAccessReview) }).
		Create(ctx, review, metav1.CreateOptions{})
}

// Namespaces is the client of Namespaces.
type Namespaces struct {
	*gentype.ClientWithList[*corev1.Namespace, *corev1.NamespaceList]
}

// Namespaces returns the client of the Namespaces.
func (c *Client) Namespaces() Namespaces {
	return Namespaces{of[corev1.Namespace, corev1.NamespaceList](c, c.core, "namespaces", "")}
}

// Finalize writes the finalizers in a namespace's spec.
func (n Namespaces) Finalize(ctx context.Context, namespace *corev1.Namespace) error {
	return n.GetClient().Put().Resource("namespaces").Name(namespace.Name).SubResource("finalize").Body(namespace).Do(ctx).Error()
}
