package apitest_test

import (
	"context"
	"fmt"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico.dev/pkg/apitest"
)

// Clients wait for the document of a group-version, and then map kinds by the merged documents.
func TestServedDefinitionIsInAllDiscoveryDocuments(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	client, err := clientset.NewForConfig(env.Config)
	must(t, err)
	ctx := t.Context()
	for i := range 5 {
		group := fmt.Sprintf("g%d.example.com", i)
		_, err := client.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: "taxis." + group},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: group, Scope: apiextensionsv1.NamespaceScoped,
				Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "taxis", Kind: "Taxi"},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
					Name: "v1", Served: true, Storage: true,
					Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
				}},
			},
		}, metav1.CreateOptions{})
		must(t, err)
		eventually(t, "it is served", func(context.Context) (bool, error) {
			_, err := client.Discovery().ServerResourcesForGroupVersion(group + "/v1")
			return err == nil, nil
		})
		groups, err := client.Discovery().ServerGroups()
		must(t, err)
		found := false
		for _, g := range groups.Groups {
			found = found || g.Name == group
		}
		if !found {
			t.Errorf("ServerGroups() does not contain %s, want it in /apis once the definition is served", group)
		}
	}
}
