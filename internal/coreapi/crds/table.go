package crds

import (
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionslisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
)

// TableConvertor returns a convertor with the current columns of a definition.
func TableConvertor(definitions apiextensionslisters.CustomResourceDefinitionLister, resource schema.GroupVersionResource) (rest.TableConvertor, error) {
	crd, err := definitions.Get(resource.GroupResource().String())
	if err != nil {
		return nil, err
	}
	for _, v := range crd.Spec.Versions {
		if v.Name != resource.Version {
			continue
		}
		columns := v.AdditionalPrinterColumns
		if len(columns) == 0 {
			columns = []apiextensionsv1.CustomResourceColumnDefinition{{
				Name: "Age", Type: "date", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"], JSONPath: ".metadata.creationTimestamp",
			}}
		}
		return tableconvertor.New(columns)
	}
	return nil, fmt.Errorf("%s has no version %s", crd.Name, resource.Version)
}
