package coreapi

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/internal/coreapi/kinds/admissionregistration"
	"portico.dev/internal/coreapi/registry"
)

// storedParamKind reads policies from their storage and not from a cache: what a cache does not know yet is not readable
// with fewer rights.
func storedParamKind(policies *registry.REST) registry.PolicyGetter {
	return func(ctx context.Context, name string) (*admissionregistrationv1.ParamKind, error) {
		ctx = registry.ReadContext(ctx, admissionregistrationv1.GroupName, policies.Resource.Name, "", name)
		obj, err := policies.Get(ctx, name, &metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		kind, _ := admissionregistration.PolicySpec(obj)
		return kind, nil
	}
}
