package garbage

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Discovery is what is served at one moment. It is immutable.
type Discovery struct {
	// Synced is false until every APIService has been seen: what is absent may exist.
	Synced bool
	// GroupVersions are in order of preference within a group.
	GroupVersions []GroupVersion
}

// GroupVersion is what is known of one group-version, alive or dead.
type GroupVersion struct {
	schema.GroupVersion
	// Local group-versions are stored in our own etcd.
	Local bool
	// Current: its server answers now, and Resources is up to date.
	Current bool
	// Known is false when its list of resources has never been seen: anything may be stored there.
	Known bool
	// APIService is the name of its registration, Reason what is wrong with the backend when not Current.
	APIService, Reason string
	// Resources are the last-known ones when not Current.
	Resources []Resource
}

// Resource is one kind of object.
type Resource struct {
	Name, Kind string
	Namespaced bool
	// Collectable resources can be listed, watched and deleted.
	Collectable bool
}

func (g GroupVersion) same(o GroupVersion) bool {
	return g.GroupVersion == o.GroupVersion && g.Local == o.Local && g.Current == o.Current && g.Known == o.Known &&
		g.APIService == o.APIService && slices.Equal(g.Resources, o.Resources)
}

// lookup returns a group-version, or an unknown one when it is not served.
func (d *Discovery) lookup(gv schema.GroupVersion) GroupVersion {
	for _, g := range d.GroupVersions {
		if g.GroupVersion == gv {
			return g
		}
	}
	return GroupVersion{GroupVersion: gv}
}

// kind finds the resource of a kind. When its version is not served, another that is Current will do if it is local: all
// versions of a local kind share their storage. For a backend that is not known.
func (d *Discovery) kind(gvk schema.GroupVersionKind) (GroupVersion, Resource, bool) {
	named := d.lookup(gvk.GroupVersion())
	if r, ok := named.kind(gvk.Kind); ok {
		return named, r, true
	}
	for _, g := range d.GroupVersions {
		if g.Group == gvk.Group && g.Local && g.Current {
			if r, ok := g.kind(gvk.Kind); ok {
				return g, r, true
			}
		}
	}
	return named, Resource{}, false
}

func (g GroupVersion) kind(name string) (Resource, bool) {
	i := slices.IndexFunc(g.Resources, func(r Resource) bool { return r.Kind == name })
	if i < 0 {
		return Resource{}, false
	}
	return g.Resources[i], true
}

func (g GroupVersion) resource(name string) (Resource, bool) {
	i := slices.IndexFunc(g.Resources, func(r Resource) bool { return r.Name == name })
	if i < 0 {
		return Resource{}, false
	}
	return g.Resources[i], true
}
