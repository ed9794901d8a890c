package definitions

import (
	"testing"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

// The builder detects an undefined reference only when it builds a document. The group then has no document.
func TestEveryReferenceIsDefined(t *testing.T) {
	referred := map[string]bool{}
	definitions := GetOpenAPIDefinitions(func(name string) spec.Ref {
		referred[name] = true
		return spec.MustCreateRef("#/definitions/" + name)
	})
	if len(definitions) == 0 {
		t.Fatal("GetOpenAPIDefinitions returned no definitions, want some")
	}
	for name, definition := range definitions {
		for _, dependency := range definition.Dependencies {
			if _, ok := definitions[dependency]; !ok {
				t.Errorf("%s depends on %s, which is not generated, want it generated: add its package to the go:generate line", name, dependency)
			}
		}
	}
	for name := range referred {
		if _, ok := definitions[name]; !ok {
			t.Errorf("the referenced %s is not generated, want it generated: add its package to the go:generate line", name)
		}
	}
}

func TestServedKindsAreDefined(t *testing.T) {
	definitions := GetOpenAPIDefinitions(func(name string) spec.Ref { return spec.MustCreateRef("#/definitions/" + name) })
	for _, name := range []string{
		"io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicy",
		"io.k8s.api.authentication.v1.TokenReview",
		"io.k8s.api.authorization.v1.SelfSubjectRulesReview",
		"io.k8s.api.coordination.v1.Lease",
		"io.k8s.api.core.v1.Namespace",
		"io.k8s.api.discovery.v1.EndpointSlice",
		"io.k8s.api.events.v1.Event",
		"io.k8s.api.flowcontrol.v1.FlowSchema",
		"io.k8s.api.rbac.v1.ClusterRole",
		"io.k8s.apimachinery.pkg.apis.meta.v1.Status",
		"io.k8s.apimachinery.pkg.version.Info",
		"io.k8s.kube-aggregator.pkg.apis.apiregistration.v1.APIService",
	} {
		if _, ok := definitions[name]; !ok {
			t.Errorf("%s is not generated, want a definition", name)
		}
	}
}
