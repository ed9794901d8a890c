package coreapi

import (
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Discovery is what is served here, in the form of aggregated discovery v2: verbs, names, scopes, response kinds and
// subresources of each resource.
type Discovery struct {
	// Core is for /api: one item without a name.
	Core []apidiscoveryv2.APIGroupDiscovery
	// Groups are for /apis, one item per group, in the order of the table, the preferred version first.
	Groups []apidiscoveryv2.APIGroupDiscovery
}

func (d *Discovery) add(version schema.GroupVersion, resources []apidiscoveryv2.APIResourceDiscovery) {
	item := apidiscoveryv2.APIGroupDiscovery{
		ObjectMeta: metav1.ObjectMeta{Name: version.Group},
		Versions: []apidiscoveryv2.APIVersionDiscovery{{
			Version:   version.Version,
			Resources: resources,
			Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent,
		}},
	}
	if version.Group == "" {
		d.Core = append(d.Core, item)
		return
	}
	for i := range d.Groups {
		if d.Groups[i].Name == item.Name {
			d.Groups[i].Versions = append(d.Groups[i].Versions, item.Versions...)
			return
		}
	}
	d.Groups = append(d.Groups, item)
}
