package discovery

import (
	"slices"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/discovery/remote"
)

// computed contains the groups with objects that are never stored. If such a resource is missing, no controller deletes
// objects. routetable has the same groups as readOnlyGroups, for the deletion of namespaces.
var computed = []string{"metrics.k8s.io", "custom.metrics.k8s.io", "external.metrics.k8s.io"}

// uniteParts sets the resources of a group-version to the union of the resources of all its backends. It is Stale if one of
// them is, because resources that controllers need may then be missing. Computed groups, and backends with a different
// version, are exempt: a metrics server that has never answered does not affect the metrics of the other backends.
//
// Until each backend of a new APIRoute has been polled once, the previous resources of the APIService's Service are
// included: a group-version never becomes empty because it got an APIRoute. custom contains the custom resources that this
// server has for the group-version, for a backend that consists of these.
func (g *GroupVersion) uniteParts(whole remote.Route, routes map[string]remote.Route, records map[string]*record, custom []apidiscoveryv2.APIResourceDiscovery) {
	g.united, g.Freshness = true, apidiscoveryv2.DiscoveryFreshnessCurrent
	answered, before := false, records[whole.APIService]
	known := before != nil && before.last != nil && before.last.UID == whole.UID
	for _, name := range whole.Parts {
		r, ok := routes[name]
		if ok && r.Local {
			answered = true
			g.Resources = unite(g.Resources, custom)
			g.Parts = append(g.Parts, Part{APIService: name, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent, Resources: custom})
			continue
		}
		rec := records[name]
		if !ok || rec == nil {
			continue
		}
		if known && rec.unasked(r) {
			answered = true
			g.Resources = unite(g.Resources, before.resources(whole))
			g.Parts = append(g.Parts, Part{APIService: name, Freshness: apidiscoveryv2.DiscoveryFreshnessStale, Reason: "NotChecked"})
			continue
		}
		freshness, why := rec.freshness(r)
		if r.GroupVersion == g.GroupVersion {
			g.Parts = append(g.Parts, Part{APIService: name, Freshness: freshness, Reason: why, Resources: rec.resources(r)})
		}
		answered = answered || rec.last != nil && rec.last.UID == r.UID
		if r.GroupVersion != g.GroupVersion || slices.Contains(computed, g.Group) {
			freshness = apidiscoveryv2.DiscoveryFreshnessCurrent
		}
		if freshness == apidiscoveryv2.DiscoveryFreshnessStale && g.Freshness == apidiscoveryv2.DiscoveryFreshnessCurrent {
			g.Freshness, g.Reason = freshness, why
		} else if g.Reason == "" {
			g.Reason = why
		}
		resources := rec.resources(r)
		if r.GroupVersion != g.GroupVersion {
			resources = inVersion(resources, r.GroupVersion, g.GroupVersion)
		}
		g.Resources = unite(g.Resources, resources)
	}
	if !answered {
		g.Freshness = apidiscoveryv2.DiscoveryFreshnessStale
	}
}

// unite adds the additional resources and subresources of the second list to the first. If both contain the same one, or
// differ about the scope, the first one wins. It does not modify either list.
func unite(first, second []apidiscoveryv2.APIResourceDiscovery) []apidiscoveryv2.APIResourceDiscovery {
	if len(first) == 0 {
		return second
	}
	out := slices.Clone(first)
	for _, r := range second {
		at := slices.IndexFunc(out, func(have apidiscoveryv2.APIResourceDiscovery) bool { return have.Resource == r.Resource })
		if at < 0 {
			out = append(out, r)
			continue
		}
		have := &out[at]
		if have.Scope != r.Scope {
			continue
		}
		if len(have.Verbs) == 0 && len(r.Verbs) > 0 { // it was only the parent of subresources
			with := r
			with.Subresources = have.Subresources
			*have = with
		}
		for _, sub := range r.Subresources {
			if !slices.ContainsFunc(have.Subresources, func(s apidiscoveryv2.APISubresourceDiscovery) bool { return s.Subresource == sub.Subresource }) {
				have.Subresources = append(have.Subresources[:len(have.Subresources):len(have.Subresources)], sub)
			}
		}
	}
	return out
}

// readVerbs are the verbs that a backend with a different version supports.
var readVerbs = []string{"get", "list", "watch"}

// inVersion returns the resources of a backend with a different version, as clients may use them in this version.
func inVersion(resources []apidiscoveryv2.APIResourceDiscovery, from, to schema.GroupVersion) []apidiscoveryv2.APIResourceDiscovery {
	out := slices.Clone(resources)
	for i := range out {
		out[i].ResponseKind, out[i].Verbs = kindInVersion(out[i].ResponseKind, from, to), reads(out[i].Verbs)
		out[i].Subresources = slices.Clone(out[i].Subresources)
		for j := range out[i].Subresources {
			sub := &out[i].Subresources[j]
			sub.ResponseKind, sub.Verbs = kindInVersion(sub.ResponseKind, from, to), reads(sub.Verbs)
		}
	}
	return out
}

func reads(verbs []string) []string {
	return slices.DeleteFunc(slices.Clone(verbs), func(verb string) bool { return !slices.Contains(readVerbs, verb) })
}

func kindInVersion(kind *metav1.GroupVersionKind, from, to schema.GroupVersion) *metav1.GroupVersionKind {
	if kind == nil || kind.Group != from.Group || kind.Version != from.Version {
		return kind
	}
	return &metav1.GroupVersionKind{Group: to.Group, Version: to.Version, Kind: kind.Kind}
}

// legacyResources returns the list of /apis/<group>/<version>.
func legacyResources(g GroupVersion) *metav1.APIResourceList {
	list := &metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: g.GroupVersion.String(), APIResources: []metav1.APIResource{},
	}
	add := func(name, singular string, r *apidiscoveryv2.APIResourceDiscovery, kind *metav1.GroupVersionKind, verbs []string) *metav1.APIResource {
		resource := metav1.APIResource{Name: name, SingularName: singular, Namespaced: r.Scope == apidiscoveryv2.ScopeNamespace, Verbs: verbs}
		if kind != nil {
			resource.Kind = kind.Kind
			if kind.Group != g.Group || kind.Version != g.Version {
				resource.Group, resource.Version = kind.Group, kind.Version
			}
		}
		list.APIResources = append(list.APIResources, resource)
		return &list.APIResources[len(list.APIResources)-1]
	}
	for i := range g.Resources {
		r := &g.Resources[i]
		if len(r.Verbs) > 0 || r.ResponseKind != nil && r.ResponseKind.Kind != "" { // otherwise it is only the parent of subresources
			whole := add(r.Resource, r.SingularResource, r, r.ResponseKind, r.Verbs)
			whole.ShortNames, whole.Categories = r.ShortNames, r.Categories
		}
		for _, sub := range r.Subresources {
			add(r.Resource+"/"+sub.Subresource, "", r, sub.ResponseKind, sub.Verbs)
		}
	}
	return list
}
