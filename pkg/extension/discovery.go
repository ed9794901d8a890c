package extension

import (
	"cmp"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"portico.dev/internal/respond"
)

// discovery serves the discovery documents of the host, in the legacy and the aggregated form. The documents are rebuilt only
// when they change, so that a probe of /apis/<group>/<version> costs only the write.
type discovery struct {
	resources []Resource // made by Of
	customs   []Resource

	current atomic.Pointer[documents]

	mu     sync.Mutex // guards listed
	listed map[schema.GroupVersion][]metav1.APIResource
}

// documents are all discovery documents at one time.
type documents struct {
	groups     *metav1.APIGroupList
	group      map[string]*metav1.APIGroup
	resources  map[schema.GroupVersion]*metav1.APIResourceList
	aggregated respond.Document
}

func newDiscovery(resources []Resource) (*discovery, error) {
	d := &discovery{}
	for _, s := range resources {
		if s.custom != nil {
			d.customs = append(d.customs, s)
		} else {
			d.resources = append(d.resources, s)
		}
	}
	d.listed = d.list()
	made, err := newDocuments(d.lists(d.listed))
	d.current.Store(made)
	return d, err
}

// now returns the current documents. It rebuilds them if the resources of a custom group-version have changed.
func (d *discovery) now() *documents {
	if len(d.customs) == 0 {
		return d.current.Load()
	}
	listed := d.list()
	d.mu.Lock()
	defer d.mu.Unlock()
	if reflect.DeepEqual(listed, d.listed) {
		return d.current.Load()
	}
	made, err := newDocuments(d.lists(listed))
	if err != nil {
		return d.current.Load() // keep the previous documents if the new ones cannot be encoded
	}
	d.listed = listed
	d.current.Store(made)
	return made
}

// list returns the resources of every custom group-version.
func (d *discovery) list() map[schema.GroupVersion][]metav1.APIResource {
	listed := map[schema.GroupVersion][]metav1.APIResource{}
	for _, s := range d.customs {
		items := slices.Clone(s.custom.Resources())
		items = slices.DeleteFunc(items, func(r metav1.APIResource) bool { return r.Name == "" || r.Kind == "" })
		slices.SortFunc(items, func(a, b metav1.APIResource) int { return cmp.Compare(a.Name, b.Name) })
		for i := range items {
			if items[i].Verbs == nil {
				items[i].Verbs = metav1.Verbs{} // clients expect a list
			}
		}
		listed[s.GroupVersion()] = items
	}
	return listed
}

// lists returns all group-versions with their resources.
func (d *discovery) lists(customs map[schema.GroupVersion][]metav1.APIResource) map[schema.GroupVersion][]metav1.APIResource {
	all := maps.Clone(customs)
	for _, group := range groupNames(d.resources) {
		for _, gv := range groupVersions(d.resources, group) {
			for _, s := range resourcesIn(d.resources, gv) {
				all[gv] = append(all[gv], s.discovered()...)
			}
		}
	}
	return all
}

// discovered returns the discovery entries of a resource and its subresources.
func (s Resource) discovered() []metav1.APIResource {
	out := []metav1.APIResource{{
		Name: s.gvr.Resource, SingularName: s.singular, Namespaced: s.namespaced, Kind: s.kind.Kind,
		Verbs: s.verbs(), ShortNames: s.shortNames, Categories: s.categories,
	}}
	for _, sub := range slices.Sorted(slices.Values(s.subresources)) {
		out = append(out, metav1.APIResource{
			Name: s.gvr.Resource + "/" + sub, Namespaced: s.namespaced, Kind: s.kind.Kind, Verbs: connectVerbs,
		})
	}
	return out
}

// connectVerbs are the verbs of the five methods that a connect subresource accepts.
var connectVerbs = metav1.Verbs{"create", "delete", "get", "patch", "update"}

func groupNames(resources []Resource) []string {
	var names []string
	for _, s := range resources {
		names = append(names, s.gvr.Group)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// groupVersions returns the versions of a group in order of preference: v2, v1, v1beta1, v1alpha1.
func groupVersions(resources []Resource, group string) []schema.GroupVersion {
	var gvs []schema.GroupVersion
	for _, s := range resources {
		if s.gvr.Group == group {
			gvs = append(gvs, s.GroupVersion())
		}
	}
	slices.SortFunc(gvs, inDiscoveryOrder)
	return slices.Compact(gvs)
}

func resourcesIn(resources []Resource, gv schema.GroupVersion) []Resource {
	var in []Resource
	for _, s := range resources {
		if s.GroupVersion() == gv {
			in = append(in, s)
		}
	}
	slices.SortFunc(in, func(a, b Resource) int { return cmp.Compare(a.gvr.Resource, b.gvr.Resource) })
	return in
}

// serve serves /apis, /apis/<group> and /apis/<group>/<version>. It returns false if the document does not exist.
func (live *discovery) serve(w http.ResponseWriter, r *http.Request) bool {
	d := live.now()
	rest, ok := strings.CutPrefix(r.URL.Path, "/apis")
	rest = strings.Trim(rest, "/")
	switch segments := strings.Split(rest, "/"); {
	case !ok:
		return false
	case rest == "":
		if wantsAggregated(r.Header.Get("Accept")) {
			d.aggregated.Serve(w, r)
			return true
		}
		w.Header().Set("Vary", "Accept")
		respond.Object(w, r, http.StatusOK, d.groups)
		return true
	case len(segments) == 1:
		if group, ok := d.group[segments[0]]; ok {
			respond.Object(w, r, http.StatusOK, group)
			return true
		}
	case len(segments) == 2:
		if list, ok := d.resources[schema.GroupVersion{Group: segments[0], Version: segments[1]}]; ok {
			respond.Object(w, r, http.StatusOK, list)
			return true
		}
	}
	return false
}

// wantsAggregated reports whether an acceptable clause of accept requests the aggregated form. As in kube-apiserver, such a
// clause wins regardless of its quality and position.
func wantsAggregated(accept string) bool {
	for c := range respond.Clauses(accept) {
		if c.MediaType != respond.MediaJSON && c.MediaType != "application/*" && c.MediaType != "*/*" {
			continue
		}
		if c.Params["g"] == "apidiscovery.k8s.io" && c.Params["v"] == "v2" && c.Params["as"] == "APIGroupDiscoveryList" {
			return true
		}
	}
	return false
}

const aggregatedMedia = respond.MediaJSON + ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// newDocument returns v as a JSON document, with its hash as the ETag.
func newDocument(contentType string, v any) (respond.Document, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return respond.Document{}, fmt.Errorf("encode document: %w", err)
	}
	d := respond.Document{
		ETag: `"` + respond.Hash(body) + `"`, ContentType: contentType, CacheControl: "public", Vary: "Accept", Plain: body,
	}
	if len(body) >= gzipThreshold {
		if d.Gzip, err = respond.Pack(body, gzip.BestSpeed); err != nil {
			return d, fmt.Errorf("compress document: %w", err)
		}
	}
	return d, nil
}

// newDocuments builds every discovery document of lists.
func newDocuments(lists map[schema.GroupVersion][]metav1.APIResource) (*documents, error) {
	d := &documents{
		groups:    &metav1.APIGroupList{Groups: []metav1.APIGroup{}},
		group:     map[string]*metav1.APIGroup{},
		resources: map[schema.GroupVersion]*metav1.APIResourceList{},
	}
	var aggregated apidiscoveryv2.APIGroupDiscoveryList
	aggregated.APIVersion, aggregated.Kind = "apidiscovery.k8s.io/v2", "APIGroupDiscoveryList"
	aggregated.Items = []apidiscoveryv2.APIGroupDiscovery{}
	gvs := slices.SortedFunc(maps.Keys(lists), inDiscoveryOrder)
	for len(gvs) > 0 {
		group := &metav1.APIGroup{Name: gvs[0].Group}
		item := apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: group.Name}}
		for len(gvs) > 0 && gvs[0].Group == group.Name {
			gv := gvs[0]
			gvs = gvs[1:]
			group.Versions = append(group.Versions, metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version})
			item.Versions = append(item.Versions, aggregatedVersion(gv, lists[gv]))
			d.resources[gv] = &metav1.APIResourceList{GroupVersion: gv.String(), APIResources: append([]metav1.APIResource{}, lists[gv]...)}
		}
		group.PreferredVersion = group.Versions[0]
		d.groups.Groups = append(d.groups.Groups, *group)
		d.group[group.Name] = group
		aggregated.Items = append(aggregated.Items, item)
	}
	var err error
	d.aggregated, err = newDocument(aggregatedMedia, aggregated)
	return d, err
}

// inDiscoveryOrder compares by group, then by version in order of preference: v2, v1, v1beta1, v1alpha1.
func inDiscoveryOrder(a, b schema.GroupVersion) int {
	if c := strings.Compare(a.Group, b.Group); c != 0 {
		return c
	}
	return -version.CompareKubeAwareVersionStrings(a.Version, b.Version)
}

// aggregatedVersion nests subresources under their resource. If the resource itself is not listed, as in
// custom.metrics.k8s.io, the subresource gets a parent without verbs and kind. Clients skip such a parent but read its
// subresources.
func aggregatedVersion(gv schema.GroupVersion, list []metav1.APIResource) apidiscoveryv2.APIVersionDiscovery {
	out := apidiscoveryv2.APIVersionDiscovery{Version: gv.Version, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}
	at := map[string]int{}
	for _, r := range list {
		name, sub, nested := strings.Cut(r.Name, "/")
		scope := apidiscoveryv2.ScopeCluster
		if r.Namespaced {
			scope = apidiscoveryv2.ScopeNamespace
		}
		i, known := at[name]
		if !known {
			i = len(out.Resources)
			at[name] = i
			// Never nil: client-go v0.26.0 to v0.26.3 panic on a nil ResponseKind.
			out.Resources = append(out.Resources, apidiscoveryv2.APIResourceDiscovery{
				Resource: name, ResponseKind: &metav1.GroupVersionKind{}, Scope: scope, Verbs: []string{},
			})
		}
		kind := &metav1.GroupVersionKind{
			Group: firstOf(r.Group, gv.Group), Version: firstOf(r.Version, gv.Version), Kind: r.Kind,
		}
		parent := &out.Resources[i]
		if nested {
			parent.Subresources = append(parent.Subresources, apidiscoveryv2.APISubresourceDiscovery{
				Subresource: sub, ResponseKind: kind, Verbs: r.Verbs,
			})
			continue
		}
		parent.ResponseKind, parent.Scope, parent.SingularResource = kind, scope, r.SingularName
		parent.Verbs, parent.ShortNames, parent.Categories = r.Verbs, r.ShortNames, r.Categories
	}
	return out
}
