package extension

import (
	"cmp"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"portico.dev/internal/respond"
)

// discovery is what the host says it serves, in the legacy and the aggregated form. What is hosted is known when the
// host is made, so every document is made once: a probe of /apis/<group>/<version> costs no more than a write.
type discovery struct {
	groups     *metav1.APIGroupList
	group      map[string]*metav1.APIGroup
	resources  map[schema.GroupVersion]*metav1.APIResourceList
	aggregated cachedDocument
}

// cachedDocument is a body with the tag that clients revalidate it by.
type cachedDocument struct {
	contentType string
	body        []byte
	hash        string
}

const aggregatedMedia = respond.MediaJSON + ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

func newCachedDocument(contentType string, v any) (cachedDocument, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return cachedDocument{}, fmt.Errorf("encode document: %w", err)
	}
	sum := sha512.Sum512(body)
	return cachedDocument{contentType: contentType, body: body, hash: strings.ToUpper(hex.EncodeToString(sum[:]))}, nil
}

// write answers with the document, or with 304 when the client has it. Unlike the library it understands lists and
// weak tags (RFC 9110 13.1.2): proxies in between produce them.
func (d cachedDocument) write(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("ETag", `"`+d.hash+`"`)
	h.Set("Vary", "Accept")
	if h.Get("Cache-Control") == "" {
		h.Set("Cache-Control", "public")
	}
	for tag := range strings.SplitSeq(r.Header.Get("If-None-Match"), ",") {
		tag = strings.TrimPrefix(strings.TrimSpace(tag), "W/")
		if tag == "*" || tag == `"`+d.hash+`"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	writeBody(w, r, d.contentType, d.body)
}

func newDiscovery(resources []Resource) (*discovery, error) {
	d := &discovery{
		group:     map[string]*metav1.APIGroup{},
		resources: map[schema.GroupVersion]*metav1.APIResourceList{},
	}
	var aggregated apidiscoveryv2.APIGroupDiscoveryList
	aggregated.APIVersion, aggregated.Kind = "apidiscovery.k8s.io/v2", "APIGroupDiscoveryList"
	d.groups = &metav1.APIGroupList{Groups: []metav1.APIGroup{}}
	for _, name := range groupNames(resources) {
		group := metav1.APIGroup{Name: name}
		item := apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, gv := range groupVersions(resources, name) {
			group.Versions = append(group.Versions, metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version})
			item.Versions = append(item.Versions, aggregatedVersion(resources, gv))
			d.resources[gv] = legacyResources(resources, gv)
		}
		group.PreferredVersion = group.Versions[0]
		d.groups.Groups = append(d.groups.Groups, group)
		d.group[name] = &group
		aggregated.Items = append(aggregated.Items, item)
	}
	var err error
	d.aggregated, err = newCachedDocument(aggregatedMedia, aggregated)
	return d, err
}

func groupNames(resources []Resource) []string {
	var names []string
	for _, s := range resources {
		names = append(names, s.gvr.Group)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// groupVersions are the versions of a group, the preferred one first: v2, v1, v1beta1, v1alpha1.
func groupVersions(resources []Resource, group string) []schema.GroupVersion {
	var gvs []schema.GroupVersion
	for _, s := range resources {
		if s.gvr.Group == group {
			gvs = append(gvs, s.GroupVersion())
		}
	}
	slices.SortFunc(gvs, func(a, b schema.GroupVersion) int {
		return -version.CompareKubeAwareVersionStrings(a.Version, b.Version)
	})
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

func legacyResources(resources []Resource, gv schema.GroupVersion) *metav1.APIResourceList {
	out := &metav1.APIResourceList{GroupVersion: gv.String(), APIResources: []metav1.APIResource{}}
	for _, s := range resourcesIn(resources, gv) {
		out.APIResources = append(out.APIResources, metav1.APIResource{
			Name: s.gvr.Resource, SingularName: s.singular, Namespaced: s.namespaced, Kind: s.kind.Kind,
			Verbs: s.verbs(), ShortNames: s.shortNames, Categories: s.categories,
		})
	}
	return out
}

func aggregatedVersion(resources []Resource, gv schema.GroupVersion) apidiscoveryv2.APIVersionDiscovery {
	out := apidiscoveryv2.APIVersionDiscovery{Version: gv.Version, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}
	for _, s := range resourcesIn(resources, gv) {
		scope := apidiscoveryv2.ScopeCluster
		if s.namespaced {
			scope = apidiscoveryv2.ScopeNamespace
		}
		out.Resources = append(out.Resources, apidiscoveryv2.APIResourceDiscovery{
			Resource:     s.gvr.Resource,
			ResponseKind: &metav1.GroupVersionKind{Group: s.kind.Group, Version: s.kind.Version, Kind: s.kind.Kind},
			Scope:        scope, SingularResource: s.singular,
			Verbs: s.verbs(), ShortNames: s.shortNames, Categories: s.categories,
		})
	}
	return out
}

// serve answers /apis, /apis/<group> and /apis/<group>/<version>. It reports whether there is such a document.
func (d *discovery) serve(w http.ResponseWriter, r *http.Request) bool {
	rest, ok := strings.CutPrefix(r.URL.Path, "/apis")
	rest = strings.Trim(rest, "/")
	switch segments := strings.Split(rest, "/"); {
	case !ok:
		return false
	case rest == "":
		if wantsAggregated(r.Header.Get("Accept")) {
			d.aggregated.write(w, r)
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

// wantsAggregated reports whether an acceptable clause asks for the aggregated form. As in kube-apiserver such a
// clause wins whatever its quality and place.
func wantsAggregated(accept string) bool {
	for clause := range strings.SplitSeq(accept, ",") {
		media, params, err := mime.ParseMediaType(strings.TrimSpace(clause))
		if err != nil || quality(params["q"]) == 0 {
			continue
		}
		if media != respond.MediaJSON && media != "application/*" && media != "*/*" {
			continue
		}
		if params["g"] == "apidiscovery.k8s.io" && params["v"] == "v2" && params["as"] == "APIGroupDiscoveryList" {
			return true
		}
	}
	return false
}
