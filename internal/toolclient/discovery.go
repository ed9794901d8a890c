package toolclient

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// aggregated asks for the one document of all groups and for the older ones of a server that has none.
const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"

// GroupVersion is a group-version that a server has.
type GroupVersion struct {
	schema.GroupVersion
	// Resources and their subresources, as in an APIResourceList.
	Resources []metav1.APIResource
	// Err is why the resources are not known.
	Err error
}

// Version is the version of the server.
func (c *Client) Version(ctx context.Context) (*version.Info, error) {
	var info version.Info
	if err := c.get(ctx, "/version", &info); err != nil {
		return nil, err
	}
	return &info, nil
}

// Resources are the resources of a group-version, from its own document.
func (c *Client) Resources(ctx context.Context, gv schema.GroupVersion) ([]metav1.APIResource, error) {
	path := "/apis/" + gv.String()
	if gv.Group == "" {
		path = "/api/" + gv.Version
	}
	var list metav1.APIResourceList
	if err := c.get(ctx, path, &list); err != nil {
		return nil, err
	}
	return list.APIResources, nil
}

// Discover returns all group-versions: groups in the server's order, and of each group the preferred version first. A group-version whose
// resources are not known has an error; the error of Discover is one of the lists of groups.
func (c *Client) Discover(ctx context.Context) ([]GroupVersion, error) {
	core, err := c.discoverAt(ctx, "/api")
	if err != nil {
		return nil, err
	}
	others, err := c.discoverAt(ctx, "/apis")
	return append(core, others...), err
}

// discoverAt reads one of the two lists of groups. A server that has none, or refuses it, has no groups there: as clients of both do.
func (c *Client) discoverAt(ctx context.Context, path string) ([]GroupVersion, error) {
	var mediaType string
	body, err := c.core.Get().AbsPath(path).SetHeader("Accept", aggregated).Do(ctx).ContentType(&mediaType).Raw()
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", path, err)
	}
	if strings.Contains(mediaType, "as=APIGroupDiscoveryList") {
		var document apidiscoveryv2.APIGroupDiscoveryList
		if err := json.Unmarshal(body, &document); err != nil {
			return nil, fmt.Errorf("decode %s: %w", path, err)
		}
		return fromAggregated(document.Items), nil
	}
	var groups struct {
		// Versions are those of the core group.
		Versions []string          `json:"versions"`
		Groups   []metav1.APIGroup `json:"groups"`
	}
	if err := json.Unmarshal(body, &groups); err != nil {
		return nil, fmt.Errorf("decode %s: %w", path, err)
	}
	var all []GroupVersion
	for _, v := range groups.Versions {
		all = append(all, GroupVersion{GroupVersion: schema.GroupVersion{Version: v}})
	}
	for _, g := range groups.Groups {
		first := len(all)
		for _, v := range g.Versions {
			of := GroupVersion{GroupVersion: schema.GroupVersion{Group: g.Name, Version: v.Version}}
			if v.Version == g.PreferredVersion.Version {
				all = slices.Insert(all, first, of)
			} else {
				all = append(all, of)
			}
		}
	}
	for i := range all {
		all[i].Resources, all[i].Err = c.Resources(ctx, all[i].GroupVersion)
	}
	return all, nil
}

func (c *Client) get(ctx context.Context, path string, into any) error {
	body, err := c.core.Get().AbsPath(path).Do(ctx).Raw()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("decode %s: %w", path, err)
	}
	return nil
}

func fromAggregated(groups []apidiscoveryv2.APIGroupDiscovery) []GroupVersion {
	var all []GroupVersion
	for _, g := range groups {
		for _, v := range g.Versions {
			of := GroupVersion{GroupVersion: schema.GroupVersion{Group: g.Name, Version: v.Version}}
			if v.Freshness == apidiscoveryv2.DiscoveryFreshnessStale {
				of.Err = fmt.Errorf("the server says that what it knows of %s is stale", of.GroupVersion)
			} else {
				of.Resources = FromAggregated(v.Resources)
			}
			all = append(all, of)
		}
	}
	return all
}

// FromAggregated are the resources and subresources of a group-version in aggregated discovery as they are in an APIResourceList. One
// without a kind is left out; it may be the parent of one that has a kind.
func FromAggregated(resources []apidiscoveryv2.APIResourceDiscovery) []metav1.APIResource {
	var all []metav1.APIResource
	add := func(r metav1.APIResource, kind *metav1.GroupVersionKind) {
		if kind != nil && *kind != (metav1.GroupVersionKind{}) {
			r.Group, r.Version, r.Kind = kind.Group, kind.Version, kind.Kind
			all = append(all, r)
		}
	}
	for _, r := range resources {
		parent := metav1.APIResource{
			Name: r.Resource, SingularName: r.SingularResource, Namespaced: r.Scope == apidiscoveryv2.ScopeNamespace, Verbs: r.Verbs,
			ShortNames: r.ShortNames, Categories: r.Categories,
		}
		add(parent, r.ResponseKind)
		for _, s := range r.Subresources {
			add(metav1.APIResource{
				Name: r.Resource + "/" + s.Subresource, SingularName: parent.SingularName, Namespaced: parent.Namespaced, Verbs: s.Verbs,
			}, s.ResponseKind)
		}
	}
	return all
}

// FindResource returns the resource that a word means as kubectl understands it: the plural name, the singular one or a short name; group is
// empty for that of the first group which has one, and otherwise the group or the beginning of its name.
func FindResource(all []GroupVersion, word, group string) (schema.GroupVersionResource, bool) {
	matches := []func(r *metav1.APIResource) bool{
		func(r *metav1.APIResource) bool { return r.Name == word },
		func(r *metav1.APIResource) bool { return r.SingularName == word },
		func(r *metav1.APIResource) bool { return slices.Contains(r.ShortNames, word) },
		func(r *metav1.APIResource) bool { return strings.EqualFold(r.Kind, word) },
	}
	for _, exactGroup := range []bool{true, false} {
		for _, match := range matches {
			for _, gv := range all {
				if group != "" && gv.Group != group && (exactGroup || !strings.HasPrefix(gv.Group, group)) {
					continue
				}
				for i := range gv.Resources {
					if r := &gv.Resources[i]; !strings.Contains(r.Name, "/") && match(r) {
						return gv.WithResource(r.Name), true
					}
				}
			}
		}
	}
	return schema.GroupVersionResource{}, false
}
