// Package authentication has the kinds of the group of authentication: a file for each, which says everything about it.
package authentication

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"portico.dev/internal/coreapi/registry"
)

func Group() registry.Group {
	return registry.Group{
		Version: authenticationv1.SchemeGroupVersion, AddToScheme: authenticationv1.AddToScheme,
		Virtual: []runtime.Object{&authenticationv1.TokenReview{}, &authenticationv1.SelfSubjectReview{}, &authenticationv1.TokenRequest{}},
	}
}
