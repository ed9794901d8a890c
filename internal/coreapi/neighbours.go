package coreapi

import (
	"context"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionslisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// neighbours are the objects that a written object is looked at beside, for warnings. A rejection would break
// installers that create things in an order of their own.
type neighbours struct {
	definitions apiextensionslisters.CustomResourceDefinitionLister
	services    *stored // set once there are storages
}

// warnAPIService tells of a registration that takes a group-version away from a definition, or that leads nowhere yet.
func warnAPIService(ctx context.Context, n *neighbours, obj runtime.Object) []string {
	spec := &obj.(*apiregistrationv1.APIService).Spec
	if spec.Service == nil {
		return nil
	}
	var warnings []string
	if crd := n.definitionOf(spec.Group, spec.Version); crd != "" {
		warnings = append(warnings, fmt.Sprintf("CustomResourceDefinition %s serves %s/%s too: while this APIService exists, "+
			"requests for its objects go to service %s/%s, and its kinds are not in discovery; register another version, or "+
			"delete one of the two", crd, spec.Group, spec.Version, spec.Service.Namespace, spec.Service.Name))
	}
	if n.lacksService(ctx, spec.Service.Namespace, spec.Service.Name) {
		warnings = append(warnings, fmt.Sprintf("spec.service: service %s/%s does not exist; until it does, requests for "+
			"%s/%s are answered with 503, and namespaces that may hold something of it cannot be deleted completely",
			spec.Service.Namespace, spec.Service.Name, spec.Group, spec.Version))
	}
	return warnings
}

// definitionOf names a definition that serves a group-version; empty when there is none.
func (n *neighbours) definitionOf(group, version string) string {
	crds, err := n.definitions.List(labels.Everything())
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
func (n *neighbours) lacksService(ctx context.Context, namespace, name string) bool {
	_, err := n.services.Get(readContext(ctx, "", "services", namespace, name), name, &metav1.GetOptions{})
	return apierrors.IsNotFound(err)
}
