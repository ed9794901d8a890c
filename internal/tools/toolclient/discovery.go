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

// aggregated is the Accept header for the aggregated discovery document, with a fallback to the older documents.
const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"

// GroupVersion is a group-version of a server.
type GroupVersion struct {
	schema.GroupVersion
	// Resources contains the resources and subresources, as in an APIResourceList.
	Resources []metav1.APIResource
	// Err is why the resources are unknown.
	Err error
}

// Version returns the version of the server.
func (c *Client) Version(ctx context.Context) (*version.Info, error) {
	var info version.Info
	if err := c.get(ctx, "/version", &info); err != nil {
		return nil, err
	}
	return &info, nil
}

// Resources returns the resources of a group-version from its discovery document.
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

// Discover returns all group-versions: groups in the server's order, and within each group the preferred version first. If the
// resources of a group-version cannot be read, its Err is set. Discover returns an error only if a list of groups cannot be
// read.
func (c *Client) Discover(ctx context.Context) ([]GroupVersion, error) {
	core, err := c.discoverAt(ctx, "/api")
	if err != nil {
		return nil, err
	}
	others, err := c.discoverAt(ctx, "/apis")
	return append(core, others...), err
}

// discoverAt reads one of the two lists of groups. If the server does not have it or refuses access, the list counts as empty,
// as in client-go and kubectl.
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
		// Versions are the versions of the core group.
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

// FromAggregated converts the resources and subresources of a group-version from aggregated discovery to the form of an
// APIResourceList. It omits resources without a kind, which may be parents of subresources with a kind.
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

// FindResource returns the resource that matches a word as in kubectl: its plural name, singular name, short name or kind.
// group is the group or a prefix of its name. If it is empty, the first group with a match is used.
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
