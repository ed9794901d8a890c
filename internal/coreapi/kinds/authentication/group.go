// Package authentication defines the kinds of the API group authentication.k8s.io, one per file.
package authentication

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"portico.dev/internal/coreapi/registry"
)

func Group() registry.Group {
	return registry.Group{
		Version: authenticationv1.SchemeGroupVersion, AddToScheme: authenticationv1.AddToScheme, Priority: 17700,
		Required: "extension servers ask by it who a caller is",

		Virtual: []registry.Virtual{
			{Name: "tokenreviews", Types: []runtime.Object{&authenticationv1.TokenReview{}}, Storage: newTokenReviews},
			{Name: "selfsubjectreviews", Types: []runtime.Object{&authenticationv1.SelfSubjectReview{}}, Storage: newSelfSubjectReviews},
		},
		Types: []runtime.Object{&authenticationv1.TokenRequest{}},
	}
}
