package routetable

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestRoutesAreInLegacyDiscoveryOrder(t *testing.T) {
	route := func(group, version string, groupPriority, versionPriority int32) *Route {
		gv := schema.GroupVersion{Group: group, Version: version}
		return &Route{GroupVersion: gv, Name: version + "." + group, GroupPriority: groupPriority, VersionPriority: versionPriority}
	}
	for name, test := range map[string]struct {
		routes []*Route
		want   []string
	}{
		"higher group priority first": {
			[]*Route{route("low.io", "v1", 100, 1), route("high.io", "v1", 200, 1)},
			[]string{"high.io/v1", "low.io/v1"},
		},
		"equal priorities go by the name of the object, which begins with the version": {
			[]*Route{route("a.io", "v2", 100, 1), route("z.io", "v1", 100, 1)},
			[]string{"z.io/v1", "a.io/v2"},
		},
		"a group takes the place of its best version": {
			[]*Route{route("mixed.io", "v1", 50, 1), route("mixed.io", "v2", 300, 1), route("other.io", "v1", 200, 1)},
			[]string{"mixed.io/v2", "mixed.io/v1", "other.io/v1"},
		},
		"versions by priority, then by maturity, then by number": {
			[]*Route{
				route("g.io", "v1alpha1", 100, 10), route("g.io", "v1", 100, 10), route("g.io", "v2", 100, 10),
				route("g.io", "v2beta1", 100, 10), route("g.io", "v1beta1", 100, 20), route("g.io", "strange", 100, 10),
			},
			[]string{"g.io/v1beta1", "g.io/v2", "g.io/v1", "g.io/v2beta1", "g.io/v1alpha1", "g.io/strange"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, r := range NewTable(test.routes, true).Routes() {
				got = append(got, r.GroupVersion.String())
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("Routes() = %v, want %v", got, test.want)
			}
		})
	}
}

func TestZeroTableIsEmptyAndNotSynced(t *testing.T) {
	var table Table
	if _, ok := table.Lookup(schema.GroupVersion{Version: "v1"}); ok || table.Synced() || len(table.Routes()) != 0 {
		t.Error("the zero Table has a route or is synced, want neither: a 404 for an early request makes clients delete objects")
	}
}
