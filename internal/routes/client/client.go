// Package client contains the typed client and the informer of routing.portico.dev.
package client

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/listers"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"portico.dev/internal/routes/v1alpha1"
)

// APIRoutes is a client of APIRoutes.
type APIRoutes = gentype.ClientWithList[*v1alpha1.APIRoute, *v1alpha1.APIRouteList]

// New returns a client of APIRoutes. It uses JSON, because the kind has no protobuf encoding.
func New(config *rest.Config) (*APIRoutes, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	c := rest.CopyConfig(config)
	gv := v1alpha1.GroupVersion
	c.GroupVersion, c.APIPath = &gv, "/apis"
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", gv, err)
	}
	return gentype.NewClientWithList[*v1alpha1.APIRoute, *v1alpha1.APIRouteList]("apiroutes", client, runtime.NewParameterCodec(scheme), "",
		func() *v1alpha1.APIRoute { return &v1alpha1.APIRoute{} }, func() *v1alpha1.APIRouteList { return &v1alpha1.APIRouteList{} }), nil
}

// NewInformer returns an informer of all APIRoutes.
func NewInformer(c *APIRoutes) cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return c.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return c.Watch(ctx, o)
		},
	}, &v1alpha1.APIRoute{}, 0, cache.Indexers{})
}

// Lister reads the cache of an informer.
type Lister = listers.ResourceIndexer[*v1alpha1.APIRoute]

// NewLister returns the lister of an informer.
func NewLister(informer cache.SharedIndexInformer) Lister {
	return listers.New[*v1alpha1.APIRoute](informer.GetIndexer(), v1alpha1.GroupVersion.WithResource("apiroutes").GroupResource())
}
