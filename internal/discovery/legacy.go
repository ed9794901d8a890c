package discovery

import (
	"fmt"
	"slices"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// fromLegacy turns the answer of /apis/<group>/<version> into what aggregated discovery says of the same resources.
//
// A subresource whose resource is not served (custom.metrics.k8s.io has such) gets a resource without verbs and kind to
// hang on; clients drop that and keep its subresource.
//
// What hangs on no name at all is left out: nothing can be asked for there, and a document is not refused for it. Servers
// on custom-metrics-apiserver list "/custommetrics" as long as they do not say which metrics they have.
func fromLegacy(gv schema.GroupVersion, list *metav1.APIResourceList) ([]apidiscoveryv2.APIResourceDiscovery, error) {
	var resources []apidiscoveryv2.APIResourceDiscovery
	place := map[string]int{}
	for _, r := range list.APIResources {
		if strings.Contains(r.Name, "/") {
			continue
		}
		if _, twice := place[r.Name]; twice {
			return nil, fmt.Errorf("resource %q is listed twice", r.Name)
		}
		place[r.Name] = len(resources)
		resources = append(resources, apidiscoveryv2.APIResourceDiscovery{
			Resource:         r.Name,
			ResponseKind:     kindOf(gv, r),
			Scope:            scopeOf(r),
			SingularResource: r.SingularName,
			Verbs:            slices.Clone(r.Verbs),
			ShortNames:       slices.Clone(r.ShortNames),
			Categories:       slices.Clone(r.Categories),
		})
	}
	for _, r := range list.APIResources {
		name, sub, ok := strings.Cut(r.Name, "/")
		if !ok || name == "" {
			continue
		}
		at, ok := place[name]
		if !ok {
			at = len(resources)
			place[name] = at
			resources = append(resources, apidiscoveryv2.APIResourceDiscovery{
				Resource: name, Scope: scopeOf(r), SingularResource: r.SingularName, ResponseKind: &metav1.GroupVersionKind{},
			})
		}
		if resources[at].Scope != scopeOf(r) {
			return nil, fmt.Errorf("%q is %s and %q is not", r.Name, scopeOf(r), name)
		}
		resources[at].Subresources = append(resources[at].Subresources, apidiscoveryv2.APISubresourceDiscovery{
			Subresource: sub, ResponseKind: kindOf(gv, r), Verbs: slices.Clone(r.Verbs),
		})
	}
	return resources, nil
}

func scopeOf(r metav1.APIResource) apidiscoveryv2.ResourceScope {
	if r.Namespaced {
		return apidiscoveryv2.ScopeNamespace
	}
	return apidiscoveryv2.ScopeCluster
}

// kindOf spells out what an empty group and version mean in the legacy list: those of the list.
func kindOf(gv schema.GroupVersion, r metav1.APIResource) *metav1.GroupVersionKind {
	if r.Kind == "" {
		return &metav1.GroupVersionKind{}
	}
	kind := metav1.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
	if kind.Group == "" && kind.Version == "" {
		kind.Group, kind.Version = gv.Group, gv.Version
	}
	return &kind
}
