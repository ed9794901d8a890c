package coreapi

import (
	"context"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/coreapi/registry"
)

// Serves reports whether r is served here. It is true for every resource of a built-in group-version.
func (s *Server) Serves(r schema.GroupVersionResource) bool {
	select {
	case <-s.ready:
	default:
		return false
	}
	custom := s.custom.Served().Resources(r.GroupVersion())
	if len(custom) == 0 {
		return s.GroupVersions().Has(r.GroupVersion())
	}
	return slices.ContainsFunc(custom, func(served metav1.APIResource) bool { return served.Name == r.Resource })
}

// AwaitDefined handles a resource that is not served yet because another replica has just written its definition. It reads the
// definition from etcd, waits until the resource is served, and reports whether it is. ctx limits the wait.
func (s *Server) AwaitDefined(ctx context.Context, r schema.GroupVersionResource) bool {
	select {
	case <-s.ready:
	default:
		return false
	}
	const definitions = "customresourcedefinitions"
	name := r.GroupResource().String()
	object, err := s.definitions.Get(registry.ReadContext(ctx, apiextensionsv1.GroupName, definitions, "", name), name, &metav1.GetOptions{})
	if err != nil {
		return false // no definition, or etcd does not respond
	}
	crd := object.(*apiextensions.CustomResourceDefinition)
	served := slices.ContainsFunc(crd.Spec.Versions, func(v apiextensions.CustomResourceDefinitionVersion) bool { return v.Name == r.Version && v.Served })
	if !served || !apiextensions.IsCRDConditionTrue(crd, apiextensions.Established) {
		return false
	}
	for {
		changed := s.Changed()
		if s.Serves(r) {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}
