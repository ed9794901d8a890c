package registry

import (
	"context"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionslisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// RelatedObjects are the objects that a written object is looked at beside, for warnings. A rejection would break
// installers that create things in an order of their own.
type RelatedObjects struct {
	Definitions apiextensionslisters.CustomResourceDefinitionLister
	Services    *REST // set once there are storages
}

// definitionOf names a definition that serves a group-version; empty when there is none.
func (n *RelatedObjects) DefinitionOf(group, version string) string {
	crds, err := n.Definitions.List(labels.Everything())
	if err != nil {
		return "" // the list is of a cache in memory
	}
	for _, crd := range crds {
		if crd.Spec.Group == group && slices.ContainsFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
			return v.Name == version && v.Served
		}) {
			return crd.Name
		}
	}
	return ""
}

// lacksService reads from etcd: a cache may not have seen the Service that the same command created a moment ago.
func (n *RelatedObjects) LacksService(ctx context.Context, namespace, name string) bool {
	_, err := n.Services.Get(ReadContext(ctx, "", "services", namespace, name), name, &metav1.GetOptions{})
	return apierrors.IsNotFound(err)
}

// ReadContext turns the context of one request into that of a read which storage makes on its behalf, so that keys and
// error messages are about the object read.
func ReadContext(ctx context.Context, group, resource, namespace, name string) context.Context {
	ctx = apirequest.WithNamespace(ctx, namespace)
	return apirequest.WithRequestInfo(ctx, &apirequest.RequestInfo{
		IsResourceRequest: true, Verb: "get", APIPrefix: "apis", APIGroup: group, APIVersion: "v1",
		Resource: resource, Namespace: namespace, Name: name,
	})
}
