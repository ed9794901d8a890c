// Package authorization has the kinds of the group of authorization: a file for each, which says everything about it.
package authorization

import (
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"portico.dev/internal/coreapi/registry"
)

func Group() registry.Group {
	return registry.Group{
		Version: authorizationv1.SchemeGroupVersion, AddToScheme: authorizationv1.AddToScheme,
		Virtual: []runtime.Object{
			&authorizationv1.SubjectAccessReview{}, &authorizationv1.LocalSubjectAccessReview{},
			&authorizationv1.SelfSubjectAccessReview{}, &authorizationv1.SelfSubjectRulesReview{},
		},
	}
}
