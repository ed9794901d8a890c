// Package client contains the typed client and the informer of routing.portico.dev.
package client

import (
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/listers"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"portico.dev/internal/clients/typedclient"
	"portico.dev/internal/routes/v1alpha1"
)

var resource = v1alpha1.GroupVersion.WithResource("apiroutes")

// APIRoutes is a client of APIRoutes.
type APIRoutes = gentype.ClientWithList[*v1alpha1.APIRoute, *v1alpha1.APIRouteList]

// New returns a client of APIRoutes.
func New(config *rest.Config) (*APIRoutes, error) {
	return typedclient.New(config, resource, v1alpha1.AddToScheme,
		func() *v1alpha1.APIRoute { return &v1alpha1.APIRoute{} }, func() *v1alpha1.APIRouteList { return &v1alpha1.APIRouteList{} })
}

// NewInformer returns an informer of all APIRoutes.
func NewInformer(c *APIRoutes) cache.SharedIndexInformer {
	return typedclient.NewInformer(c, &v1alpha1.APIRoute{})
}

// Lister reads the cache of an informer.
type Lister = listers.ResourceIndexer[*v1alpha1.APIRoute]

// NewLister returns the lister of an informer.
func NewLister(informer cache.SharedIndexInformer) Lister {
	return listers.New[*v1alpha1.APIRoute](informer.GetIndexer(), resource.GroupResource())
}
