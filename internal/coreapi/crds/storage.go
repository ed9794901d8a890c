package crds

import (
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
)

// StorageCodec is how kube-apiserver stores definitions: as JSON of v1.
func StorageCodec() runtime.Codec {
	return apiserver.Codecs.LegacyCodec(apiextensionsv1.SchemeGroupVersion)
}

// Storage opens the storage of definitions, and of their status.
func Storage(options generic.RESTOptionsGetter) (map[string]rest.Storage, error) {
	definitions, err := customresourcedefinition.NewREST(apiserver.Scheme, options)
	if err != nil {
		return nil, fmt.Errorf("open customresourcedefinitions: %w", err)
	}
	return map[string]rest.Storage{
		"customresourcedefinitions":        definitions,
		"customresourcedefinitions/status": customresourcedefinition.NewStatusREST(apiserver.Scheme, definitions),
	}, nil
}
