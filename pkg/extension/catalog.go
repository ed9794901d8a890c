package extension

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/version"
)

// catalog contains the hosted resources and the documents that describe them. It is immutable and replaced as a whole.
type catalog struct {
	resources map[schema.GroupVersionResource]*resourceHandler
	custom    map[schema.GroupVersion]Resource
	discovery *discovery
	openapi   *openapi
}

// newCatalog returns the catalog of resources. It reuses the handlers of before for resources that have not changed, so that
// their watches continue.
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

// find returns the resource that the request names.
func (c *catalog) find(info *apirequest.RequestInfo) (*resourceHandler, bool) {
	s, ok := c.resources[schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}]
	return s, ok
}

// findCustom returns the custom group-version that contains the request.
func (c *catalog) findCustom(info *apirequest.RequestInfo) (Resource, bool) {
	s, ok := c.custom[schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}]
	return s, ok
}

// SetResources replaces the hosted resources. It may be called while the host runs. Discovery and OpenAPI follow, and watches
// of removed resources end with 410 Gone. A Resource that was hosted before, i.e. the same value that Of returned, continues
// without interruption; a new value with the same name replaces the old one. If SetResources returns an error, nothing has
// changed.
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
