package custommetrics

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resource is a kind of object that a metric may describe.
type Resource struct {
	schema.GroupVersionResource
	Kind, Singular string
	Namespaced     bool
}

// APIVersion is how an object of the resource spells its version.
func (r Resource) APIVersion() string { return r.GroupVersion().String() }

// Catalogue is the resources known at one moment. It does not change.
type Catalogue struct {
	all    []Resource
	exact  map[schema.GroupResource]Resource // by plural, singular and kind
	byName map[string]Resource               // the same in whichever group has it first
}

func newCatalogue(resources []Resource) *Catalogue {
	c := &Catalogue{exact: map[schema.GroupResource]Resource{}, byName: map[string]Resource{}}
	for _, r := range resources {
		if _, known := c.exact[r.GroupResource()]; known {
			continue
		}
		c.all = append(c.all, r)
		for _, name := range []string{r.Resource, r.Singular, strings.ToLower(r.Kind)} {
			key := schema.GroupResource{Group: r.Group, Resource: name}
			if _, taken := c.exact[key]; !taken {
				c.exact[key] = r
			}
			if _, taken := c.byName[name]; !taken {
				c.byName[name] = r
			}
		}
	}
	return c
}

// Lookup finds a resource by its plural, its singular or its kind in lower case. Without a group the first group that
// has it counts, the core group before all others.
func (c *Catalogue) Lookup(group, name string) (Resource, bool) {
	name = strings.ToLower(name)
	if r, ok := c.exact[schema.GroupResource{Group: group, Resource: name}]; ok || group != "" {
		return r, ok
	}
	r, ok := c.byName[name]
	return r, ok
}

// WellKnown is the catalogue of what every cluster has.
func WellKnown() *Catalogue { return newCatalogue(wellKnown()) }

// All lists the resources, those of the core group first.
func (c *Catalogue) All() []Resource { return c.all }

// Resources names them, in the same order.
func (c *Catalogue) Resources() []schema.GroupResource {
	out := make([]schema.GroupResource, len(c.all))
	for i, r := range c.all {
		out[i] = r.GroupResource()
	}
	return out
}

// wellKnown is what metrics describe before discovery has been read, and where a front door does not serve a group
// whose objects somebody measures all the same.
func wellKnown() []Resource {
	var out []Resource
	for _, g := range []struct {
		gv    schema.GroupVersion
		kinds []string
	}{
		{schema.GroupVersion{Version: "v1"}, []string{"Pod", "Service", "PersistentVolumeClaim", "ReplicationController",
			"-Namespace", "-Node", "-PersistentVolume"}},
		{schema.GroupVersion{Group: "apps", Version: "v1"}, []string{"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"}},
		{schema.GroupVersion{Group: "batch", Version: "v1"}, []string{"Job", "CronJob"}},
		{schema.GroupVersion{Group: "networking.k8s.io", Version: "v1"}, []string{"Ingress"}},
		{schema.GroupVersion{Group: "autoscaling", Version: "v2"}, []string{"HorizontalPodAutoscaler"}},
	} {
		for _, kind := range g.kinds {
			name, clusterScoped := strings.CutPrefix(kind, "-")
			singular := strings.ToLower(name)
			plural := singular + "s"
			if strings.HasSuffix(singular, "s") {
				plural = singular + "es"
			}
			out = append(out, Resource{g.gv.WithResource(plural), name, singular, !clusterScoped})
		}
	}
	return out
}
