package extension

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/version"
)

// catalog is what is hosted at one time, with the documents that tell it. It is replaced as a whole and never changed.
type catalog struct {
	resources map[schema.GroupVersionResource]*resourceHandler
	custom    map[schema.GroupVersion]Resource
	discovery *discovery
	openapi   *openapi
}

// newCatalog makes the catalog of resources. What before holds of the same resources is taken over, so that its watches
// go on.
func newCatalog(resources []Resource, before *catalog, h *Host) (*catalog, error) {
	c := &catalog{resources: map[schema.GroupVersionResource]*resourceHandler{}, custom: map[schema.GroupVersion]Resource{}}
	for _, s := range resources {
		if err := c.add(s, before, h); err != nil {
			return nil, err
		}
	}
	for gvr := range c.resources {
		if _, both := c.custom[gvr.GroupVersion()]; both {
			return nil, fmt.Errorf("group-version %s is hosted as a whole and by resource %q", gvr.GroupVersion(), gvr.Resource)
		}
	}
	var err error
	if c.discovery, err = newDiscovery(resources); err != nil {
		return nil, err
	}
	c.openapi, err = newOpenAPI(resources, version.Portico)
	return c, err
}

func (c *catalog) add(s Resource, before *catalog, h *Host) error {
	if err := s.validate(); err != nil {
		return err
	}
	if s.custom != nil {
		gv := s.GroupVersion()
		if _, twice := c.custom[gv]; twice {
			return fmt.Errorf("group-version %s is hosted twice", gv)
		}
		c.custom[gv] = s
		return nil
	}
	if _, twice := c.resources[s.gvr]; twice {
		return fmt.Errorf("resource %s is hosted twice", s.gvr)
	}
	if before != nil {
		if old, ok := before.resources[s.gvr]; ok && old.id == s.id {
			c.resources[s.gvr] = old
			return nil
		}
	}
	c.resources[s.gvr] = newResourceHandler(s, h)
	return nil
}

// find is the resource that a request names.
func (c *catalog) find(info *apirequest.RequestInfo) (*resourceHandler, bool) {
	s, ok := c.resources[schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}]
	return s, ok
}

// findCustom is the group-version that a request lies in, when it is hosted as a whole.
func (c *catalog) findCustom(info *apirequest.RequestInfo) (Resource, bool) {
	s, ok := c.custom[schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}]
	return s, ok
}

// SetResources makes resources what is hosted, also while the host runs: discovery and OpenAPI follow, and watches of
// what is gone end with 410. A Resource that was hosted before, the same value that Of returned, goes on undisturbed; a
// new one of the same name counts as another. After an error everything is as it was.
func (h *Host) SetResources(resources []Resource) error {
	h.setting.Lock()
	defer h.setting.Unlock()
	before := h.catalog.Load()
	after, err := newCatalog(resources, before, h)
	if err != nil {
		return err
	}
	h.catalog.Store(after)
	for gvr, old := range before.resources {
		if after.resources[gvr] != old {
			old.end()
		}
	}
	return nil
}
