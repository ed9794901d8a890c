package aggregator

import (
	"fmt"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"portico.dev/internal/coreapi"
	"portico.dev/internal/lifecycle/garbage"
	"portico.dev/internal/routetable"
)

// hiddenVersion is a group-version of which this server stores objects, usually custom resources, while an APIService
// routes it to an extension server. Clients cannot reach the objects until the APIService is deleted. The controllers
// therefore treat them like all other objects: they are deleted with their namespace and their owners, and count as
// owners.
type hiddenVersion struct {
	schema.GroupVersion
	apiService string
	resources  []apidiscoveryv2.APIResourceDiscovery
}

// hiddenVersions returns the hidden group-versions. Custom resources that are a backend of an APIRoute are not
// hidden. The core group is omitted, because it does not have an APIService with an extension server.
func hiddenVersions(table *routetable.Table, local coreapi.Discovery) []hiddenVersion {
	var out []hiddenVersion
	for _, group := range local.Groups {
		for _, version := range group.Versions {
			gv := schema.GroupVersion{Group: group.Name, Version: version.Version}
			route, ok := table.Lookup(gv)
			if !ok || route.Local || route.Routing != nil && route.Routing.CustomResources() >= 0 {
				continue
			}
			out = append(out, hiddenVersion{gv, route.Name, version.Resources})
		}
	}
	return out
}

// hiddenGarbage converts hidden group-versions for the garbage collector.
func hiddenGarbage(versions []hiddenVersion) []garbage.GroupVersion {
	out := make([]garbage.GroupVersion, 0, len(versions))
	for _, v := range versions {
		out = append(out, garbage.GroupVersion{
			GroupVersion: v.GroupVersion, Local: true, Hidden: true, Current: true, Known: true, APIService: v.apiService,
			Resources: garbageResources(v.resources, true),
		})
	}
	return out
}

// storedHere returns a metadata client of the objects that this server stores, regardless of APIServices.
func (h *parts) storedHere() (metadata.Interface, error) {
	config := unthrottled(h.core.ClientConfig(self))
	config.Transport = jsonDeletions(config.Transport)
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client of what is stored here: %w", err)
	}
	return client, nil
}
