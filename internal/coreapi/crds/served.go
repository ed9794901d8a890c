package crds

import (
	"cmp"
	"maps"
	"reflect"
	"slices"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/endpoints/discovery"
)

// Served is an immutable snapshot of the resources served by definitions.
type Served struct {
	// Groups in the form of aggregated discovery, ordered by name, with versions in order of preference.
	Groups []apidiscoveryv2.APIGroupDiscovery
	// resources of each group-version in the form of its discovery document.
	resources map[schema.GroupVersion][]metav1.APIResource
}

// GroupVersions returns the group-versions with a resource, in the order of Groups.
func (s *Served) GroupVersions() []schema.GroupVersion {
	var gvs []schema.GroupVersion
	for _, g := range s.Groups {
		for _, v := range g.Versions {
			gvs = append(gvs, schema.GroupVersion{Group: g.Name, Version: v.Version})
		}
	}
	return gvs
}

// Served returns the current Served, never nil. The caller must not modify it.
func (d *Definitions) Served() *Served { return d.served.Load() }

// Resources returns the resources and subresources of a group-version. The caller must not modify them.
func (s *Served) Resources(gv schema.GroupVersion) []metav1.APIResource { return s.resources[gv] }

// publish updates Served, and calls Config.Changed if it differs.
func (d *Definitions) publish() error {
	crds, err := d.established()
	if err != nil {
		return err
	}
	next := servedBy(crds, d.cfg.BuiltIn)
	if reflect.DeepEqual(d.served.Load(), next) {
		return nil
	}
	d.served.Store(next)
	d.cfg.Changed()
	return nil
}

// servedBy returns the Served of definitions, which must be sorted by name.
func servedBy(crds []*apiextensionsv1.CustomResourceDefinition, builtIn func(schema.GroupVersion) bool) *Served {
	s := &Served{resources: map[schema.GroupVersion][]metav1.APIResource{}}
	byVersion := map[schema.GroupVersion][]apidiscoveryv2.APIResourceDiscovery{}
	for _, crd := range crds {
		for i := range crd.Spec.Versions {
			v := &crd.Spec.Versions[i]
			gv := schema.GroupVersion{Group: crd.Spec.Group, Version: v.Name}
			if !v.Served || builtIn(gv) {
				continue
			}
			resource := describeResource(crd, v)
			byVersion[gv] = append(byVersion[gv], resource)
			s.resources[gv] = append(s.resources[gv], listed(resource, storageVersionHash(crd))...)
		}
	}
	for _, gv := range slices.SortedFunc(maps.Keys(byVersion), byPreference) {
		if last := len(s.Groups) - 1; last < 0 || s.Groups[last].Name != gv.Group {
			s.Groups = append(s.Groups, apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: gv.Group}})
		}
		group := &s.Groups[len(s.Groups)-1]
		group.Versions = append(group.Versions, apidiscoveryv2.APIVersionDiscovery{
			Version: gv.Version, Resources: byVersion[gv], Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent,
		})
	}
	return s
}

func byPreference(a, b schema.GroupVersion) int {
	return cmp.Or(cmp.Compare(a.Group, b.Group), version.CompareKubeAwareVersionStrings(b.Version, a.Version))
}

func byName(a, b *apiextensionsv1.CustomResourceDefinition) int { return cmp.Compare(a.Name, b.Name) }

func isEstablished(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established)
}

// describeResource returns the entry of one version of a definition in aggregated discovery.
func describeResource(crd *apiextensionsv1.CustomResourceDefinition, v *apiextensionsv1.CustomResourceDefinitionVersion) apidiscoveryv2.APIResourceDiscovery {
	names := crd.Status.AcceptedNames
	kind := &metav1.GroupVersionKind{Group: crd.Spec.Group, Version: v.Name, Kind: names.Kind}
	resource := apidiscoveryv2.APIResourceDiscovery{
		Resource: names.Plural, SingularResource: names.Singular, ShortNames: names.ShortNames, Categories: names.Categories,
		ResponseKind: kind, Scope: apidiscoveryv2.ScopeCluster,
		Verbs: []string{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"},
	}
	if crd.Spec.Scope == apiextensionsv1.NamespaceScoped {
		resource.Scope = apidiscoveryv2.ScopeNamespace
	}
	if apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Terminating) {
		resource.Verbs = []string{"delete", "deletecollection", "get", "list", "watch"}
	}
	if v.Subresources == nil {
		return resource
	}
	add := func(name string, kind *metav1.GroupVersionKind) {
		resource.Subresources = append(resource.Subresources, apidiscoveryv2.APISubresourceDiscovery{
			Subresource: name, ResponseKind: kind, Verbs: []string{"get", "patch", "update"},
		})
	}
	if v.Subresources.Status != nil {
		add("status", kind)
	}
	if v.Subresources.Scale != nil {
		add("scale", &metav1.GroupVersionKind{Group: autoscalingv1.GroupName, Version: "v1", Kind: "Scale"})
	}
	return resource
}

// listed returns a resource and its subresources as entries of an APIResourceList.
func listed(r apidiscoveryv2.APIResourceDiscovery, storageHash string) []metav1.APIResource {
	namespaced := r.Scope == apidiscoveryv2.ScopeNamespace
	out := []metav1.APIResource{{
		Name: r.Resource, SingularName: r.SingularResource, Namespaced: namespaced, Kind: r.ResponseKind.Kind,
		Verbs: r.Verbs, ShortNames: r.ShortNames, Categories: r.Categories, StorageVersionHash: storageHash,
	}}
	for _, sub := range r.Subresources {
		entry := metav1.APIResource{
			Name: r.Resource + "/" + sub.Subresource, Namespaced: namespaced, Kind: sub.ResponseKind.Kind, Verbs: sub.Verbs,
		}
		if sub.ResponseKind.Group != r.ResponseKind.Group { // required only for a kind of another group
			entry.Group, entry.Version = sub.ResponseKind.Group, sub.ResponseKind.Version
		}
		out = append(out, entry)
	}
	return out
}

func storageVersionHash(crd *apiextensionsv1.CustomResourceDefinition) string {
	stored, err := apihelpers.GetCRDStorageVersion(crd)
	if err != nil {
		return "" // validation requires a storage version
	}
	return discovery.StorageVersionHash(crd.Spec.Group, stored, crd.Spec.Names.Kind)
}
