// Package authorization defines the kinds of the API group authorization.k8s.io, one per file.
package authorization

import (
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"portico.dev/internal/coreapi/registry"
)

func Group() registry.Group {
	return registry.Group{
		Version: authorizationv1.SchemeGroupVersion, AddToScheme: authorizationv1.AddToScheme, Priority: 17600,
		Required: "extension servers ask by it what a caller may do",

		Virtual: []registry.Virtual{
			{Name: "subjectaccessreviews", Types: []runtime.Object{&authorizationv1.SubjectAccessReview{}}, Storage: newSubjectAccessReviews},
			{Name: "localsubjectaccessreviews", Types: []runtime.Object{&authorizationv1.LocalSubjectAccessReview{}}, Storage: newLocalSubjectAccessReviews},
			{Name: "selfsubjectaccessreviews", Types: []runtime.Object{&authorizationv1.SelfSubjectAccessReview{}}, Storage: newSelfSubjectAccessReviews},
			{Name: "selfsubjectrulesreviews", Types: []runtime.Object{&authorizationv1.SelfSubjectRulesReview{}}, Storage: newSelfSubjectRulesReviews},
		},
	}
}
