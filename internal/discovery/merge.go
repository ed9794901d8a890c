package discovery

import (
	"cmp"
	"slices"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/discovery/remote"
)

// Local is what this server serves itself, in the form of the aggregated documents of /api and /apis.
type Local struct {
	Core   []apidiscoveryv2.APIGroupDiscovery
	Groups []apidiscoveryv2.APIGroupDiscovery
}

// resources returns what is served of each group-version.
func (l Local) resources() map[schema.GroupVersion][]apidiscoveryv2.APIResourceDiscovery {
	served := map[schema.GroupVersion][]apidiscoveryv2.APIResourceDiscovery{}
	for _, groups := range [][]apidiscoveryv2.APIGroupDiscovery{l.Core, l.Groups} {
		for _, group := range groups {
			for _, version := range group.Versions {
				gv := schema.GroupVersion{Group: group.Name, Version: version.Version}
				served[gv] = fill(version.DeepCopy().Resources)
			}
		}
	}
	return served
}

// merge says, for each route, what can be asked for there. The order is the table's, which is that of legacy discovery.
//
// A local route that nothing is behind is left out, as upstream does: an APIService without a service can be made by
// anybody for any name. A local group-version that no route leads to is left out too, since requests would not arrive.
func merge(local Local, table remote.Table, testimonies map[string]*testimony) []GroupVersion {
	served := local.resources()
	merged := make([]GroupVersion, 0, len(table.Routes))
	for _, r := range table.Routes {
		g := GroupVersion{GroupVersion: r.GroupVersion, APIService: r.APIService, Local: r.Local, groupPriority: r.GroupPriority}
		if r.Local {
			resources, ok := served[r.GroupVersion]
			if !ok {
				continue
			}
			g.Freshness, g.Resources = apidiscoveryv2.DiscoveryFreshnessCurrent, resources
		} else {
			t := testimonies[r.APIService]
			g.Freshness, g.Reason = t.freshness(r)
			g.Resources = t.resources(r)
		}
		merged = append(merged, g)
	}
	return registrationFirst(merged)
}

// registrationFirst puts apiregistration.k8s.io before everything else, whatever anybody's priorities: it is how the rest
// is found.
func registrationFirst(gvs []GroupVersion) []GroupVersion {
	slices.SortStableFunc(gvs, func(a, b GroupVersion) int {
		return cmp.Compare(rank(a.Group), rank(b.Group))
	})
	return gvs
}

func rank(group string) int {
	if group == "apiregistration.k8s.io" {
		return 0
	}
	return 1
}

// aggregatedList is the v2 document of the group-versions for which keep holds: groups by priority, then by name, which
// is not quite the order of the legacy list.
func aggregatedList(gvs []GroupVersion, keep func(GroupVersion) bool) *apidiscoveryv2.APIGroupDiscoveryList {
	list := &apidiscoveryv2.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: apidiscoveryv2.SchemeGroupVersion.String()},
		Items:    []apidiscoveryv2.APIGroupDiscovery{},
	}
	place, priority := map[string]int{}, map[string]int32{}
	for _, g := range gvs {
		if !keep(g) {
			continue
		}
		at, ok := place[g.Group]
		if !ok {
			at = len(list.Items)
			place[g.Group] = at
			list.Items = append(list.Items, apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: g.Group}})
		}
		priority[g.Group] = max(priority[g.Group], g.groupPriority)
		list.Items[at].Versions = append(list.Items[at].Versions, apidiscoveryv2.APIVersionDiscovery{
			Version: g.Version, Resources: g.Resources, Freshness: g.Freshness,
		})
	}
	slices.SortFunc(list.Items, func(a, b apidiscoveryv2.APIGroupDiscovery) int {
		return cmp.Or(
			cmp.Compare(rank(a.Name), rank(b.Name)),
			cmp.Compare(priority[b.Name], priority[a.Name]),
			cmp.Compare(a.Name, b.Name),
		)
	})
	return list
}

// legacyGroups are the groups of the legacy list. A group with nothing but dead backends is in it: hiding it made
// namespace controllers orphan objects (kubernetes/kubernetes#66932).
func legacyGroups(gvs []GroupVersion) []metav1.APIGroup {
	groups := []metav1.APIGroup{}
	place := map[string]int{}
	for _, g := range gvs {
		if g.Group == "" {
			continue
		}
		version := metav1.GroupVersionForDiscovery{GroupVersion: g.GroupVersion.String(), Version: g.Version}
		at, ok := place[g.Group]
		if !ok {
			at = len(groups)
			place[g.Group] = at
			groups = append(groups, metav1.APIGroup{Name: g.Group, PreferredVersion: version})
		}
		groups[at].Versions = append(groups[at].Versions, version)
	}
	return groups
}

func legacyVersions(gvs []GroupVersion, address string) *metav1.APIVersions {
	versions := &metav1.APIVersions{
		TypeMeta:                   metav1.TypeMeta{Kind: "APIVersions"},
		Versions:                   []string{},
		ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{{ClientCIDR: "0.0.0.0/0", ServerAddress: address}},
	}
	for _, g := range gvs {
		if g.Group == "" {
			versions.Versions = append(versions.Versions, g.Version)
		}
	}
	return versions
}
