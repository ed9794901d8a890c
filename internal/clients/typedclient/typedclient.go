// Package typedclient makes clients of kinds outside Kubernetes' own groups. It links no other kinds.
package typedclient

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Object is an object with metadata, of a kind outside Kubernetes' own groups.
type Object interface {
	metav1.Object
	runtime.Object
}

// New returns a client of a cluster-scoped kind outside Kubernetes' own groups. It uses JSON, because such kinds have no protobuf
// encoding.
func New[T Object, L runtime.Object](config *rest.Config, resource schema.GroupVersionResource, addToScheme func(*runtime.Scheme) error, newObject func() T, newList func() L) (*gentype.ClientWithList[T, L], error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	if err := addToScheme(scheme); err != nil {
		return nil, err
	}
	c := rest.CopyConfig(config)
	gv := resource.GroupVersion()
	c.GroupVersion, c.APIPath = &gv, "/apis"
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", gv, err)
	}
	return gentype.NewClientWithList[T, L](resource.Resource, client, runtime.NewParameterCodec(scheme), "", newObject, newList), nil
}

// NewInformer returns an informer of all objects like example.
func NewInformer[T Object, L runtime.Object](c *gentype.ClientWithList[T, L], example T) cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return c.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return c.Watch(ctx, o)
		},
	}, example, 0, cache.Indexers{})
}
