package extension

import (
	"bytes"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"portico.dev/internal/respond"
)

const aggregatedMedia = respond.MediaJSON + ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// cachedDocument is a body with the tag that clients revalidate it by.
type cachedDocument struct {
	contentType string
	body        []byte
	compressed  []byte // nil when it is not worth it
	hash        string
}

func newCachedDocument(contentType string, v any) (cachedDocument, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return cachedDocument{}, fmt.Errorf("encode document: %w", err)
	}
	sum := sha512.Sum512(body)
	d := cachedDocument{contentType: contentType, body: body, hash: strings.ToUpper(hex.EncodeToString(sum[:]))}
	if len(body) >= gzipThreshold {
		var small bytes.Buffer
		if err := (&scratch{}).compress(&small, body); err != nil {
			return d, fmt.Errorf("compress document: %w", err)
		}
		d.compressed = small.Bytes()
	}
	return d, nil
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
	if d.compressed != nil && acceptsGzip(r) {
		writeBody(w, r, http.StatusOK, d.contentType, codingGzip, d.compressed)
		return
	}
	writeBody(w, r, http.StatusOK, d.contentType, "", d.body)
}

// newDocuments makes every form of what the group-versions have.
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
	d.aggregated, err = newCachedDocument(aggregatedMedia, aggregated)
	return d, err
}

// inDiscoveryOrder sorts by group, and versions of a group the preferred one first: v2, v1, v1beta1, v1alpha1.
func inDiscoveryOrder(a, b schema.GroupVersion) int {
	if c := strings.Compare(a.Group, b.Group); c != 0 {
		return c
	}
	return -version.CompareKubeAwareVersionStrings(a.Version, b.Version)
}

// aggregatedVersion nests subresources under their resource. One whose resource is not listed, as all of
// custom.metrics.k8s.io, gets a parent without verbs and kind, which clients skip and look below.
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
			// Never nil: client-go v0.26.0 to v0.26.3 fall over it.
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
