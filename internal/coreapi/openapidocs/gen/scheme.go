package main

import (
	"fmt"
	"maps"

	apiextensionsscheme "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/scheme"
	apiextensionsopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	"k8s.io/kube-openapi/pkg/common"

	"portico.dev/internal/coreapi/definitions"
	fleet "portico.dev/internal/fleet/v1alpha1"
	routes "portico.dev/internal/routes/v1alpha1"
)

// newScheme returns a scheme with only the kinds of the served group-versions, because the documents of kinds in every group,
// such as DeleteOptions, list all groups of the scheme.
func newScheme(gvs []schema.GroupVersion) (*runtime.Scheme, error) {
	scheme, own := runtime.NewScheme(), runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	for _, add := range []func(*runtime.Scheme) error{routes.AddToScheme, fleet.AddToScheme} {
		if err := add(own); err != nil {
			return nil, err
		}
	}
	for _, gv := range gvs {
		known := 0
		for _, from := range []*runtime.Scheme{clientscheme.Scheme, aggregatorscheme.Scheme, apiextensionsscheme.Scheme, own} {
			for kind := range from.KnownTypes(gv) {
				obj, err := from.New(gv.WithKind(kind))
				if err != nil {
					return nil, fmt.Errorf("register %s: %w", gv, err)
				}
				if !scheme.Recognizes(gv.WithKind(kind)) {
					scheme.AddKnownTypeWithName(gv.WithKind(kind), obj)
				}
				known++
			}
		}
		if known == 0 {
			return nil, fmt.Errorf("no scheme has the kinds of %s: add the one that has to newScheme", gv)
		}
		metav1.AddToGroupVersion(scheme, gv)
	}
	return scheme, nil
}

// knownDefinitions returns the definitions of local groups, and upstream's definitions for custom resource definitions.
func knownDefinitions(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	known := apiextensionsopenapi.GetOpenAPIDefinitions(ref)
	maps.Copy(known, definitions.GetOpenAPIDefinitions(ref))
	return known
}
