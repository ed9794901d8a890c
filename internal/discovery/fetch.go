package discovery

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/discovery/remote"
)

// fetchTimeout is upstream's timeout for one document of a backend.
const fetchTimeout = 5 * time.Second

// aggregatorIdentity is kube-aggregator's identity, which extension servers are configured to allow.
var aggregatorIdentity = remote.Identity{User: "system:kube-aggregator", Groups: []string{"system:masters"}}

// result contains the resources of one group-version, or the error.
type result struct {
	resources []apidiscoveryv2.APIResourceDiscovery
	err       error
}

// session is the state that is kept of a backend between polls, so that the next response may be a 304. Only the backend's
// Poll uses it.
type session struct {
	etag   string
	wanted []schema.GroupVersion
	found  map[schema.GroupVersion][]apidiscoveryv2.APIResourceDiscovery
	// rejected contains the errors of the found resources, or nil.
	rejected map[schema.GroupVersion]error
	// sum is the hash of the body that contained the found resources. Many servers send no ETag, or change it on a restart,
	// and nearly always send the same body.
	sum [sha256.Size]byte
}

// fetchAll fetches all wanted group-versions from one backend: the aggregated document, then the legacy document of each
// group-version that is missing in it. Some released versions of k8s.io/apiserver serve group-versions that they do not
// list.
func fetchAll(ctx context.Context, f *remote.Fetcher, b remote.Backend, wanted []schema.GroupVersion, s *session) map[schema.GroupVersion]result {
	fetched := map[schema.GroupVersion]result{}
	err := s.fetchAggregated(ctx, f, b, wanted)
	for _, gv := range wanted {
		var a result
		switch resources, ok := s.found[gv]; {
		case err != nil:
			a.err = err
		case ok:
			a.resources, a.err = resources, s.rejected[gv]
		default:
			if a.resources, a.err = fetchLegacy(ctx, f, b, gv); a.err == nil {
				a.err = check(a.resources)
			}
		}
		fetched[gv] = a
	}
	return fetched
}

// fetchAggregated updates s.found. An error means that the backend cannot be reached. For a backend without aggregated
// discovery, or with an invalid document, s.found is empty.
func (s *session) fetchAggregated(ctx context.Context, f *remote.Fetcher, b remote.Backend, wanted []schema.GroupVersion) error {
	etag := s.etag
	if !slices.Equal(wanted, s.wanted) {
		etag = ""
	}
	a, err := f.Fetch(ctx, b, remote.Request{
		Path:    "/apis",
		Accept:  "application/json;" + aggregatedParams,
		ETag:    etag,
		As:      aggregatorIdentity,
		Limit:   maxBody,
		Timeout: fetchTimeout,
	})
	switch {
	case errors.Is(err, remote.ErrTooLarge): // the documents of the individual group-versions may be small enough
	case err != nil:
		*s = session{}
		return err
	case a.Code == http.StatusNotModified && etag != "":
		return nil
	case a.Code == http.StatusServiceUnavailable || a.Code == http.StatusTooManyRequests:
		*s = session{}
		return fmt.Errorf("get /apis from %s: answered %d", b.Name(), a.Code)
	case a.Code == http.StatusOK && isAggregated(a.ContentType):
		sum := sha256.Sum256(a.Body)
		if s.found != nil && sum == s.sum && slices.Equal(wanted, s.wanted) {
			s.etag = a.ETag
			return nil
		}
		if found, err := parseAggregated(a.Body, wanted); err == nil {
			*s = session{etag: a.ETag, wanted: wanted, found: found, sum: sum}
			s.checkFound()
			return nil
		}
	}
	*s = session{}
	return nil
}

// checkFound sets s.rejected.
func (s *session) checkFound() {
	for gv, resources := range s.found {
		if err := check(resources); err != nil {
			if s.rejected == nil {
				s.rejected = map[schema.GroupVersion]error{}
			}
			s.rejected[gv] = err
		}
	}
}

func fetchLegacy(ctx context.Context, f *remote.Fetcher, b remote.Backend, gv schema.GroupVersion) ([]apidiscoveryv2.APIResourceDiscovery, error) {
	a, err := f.Fetch(ctx, b, remote.Request{
		Path:    pathOf(gv),
		Accept:  "application/json",
		As:      aggregatorIdentity,
		Limit:   maxBody,
		Timeout: fetchTimeout,
	})
	if err != nil {
		return nil, err
	}
	if a.Code != http.StatusOK {
		return nil, fmt.Errorf("get %s from %s: answered %d", pathOf(gv), b.Name(), a.Code)
	}
	return parseLegacy(a.Body, gv)
}

func pathOf(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "/api/" + gv.Version
	}
	return "/apis/" + gv.Group + "/" + gv.Version
}

const (
	// maxBody is the maximum size of a response that is read from a backend.
	maxBody = 8 << 20
	// maxResources and maxGroupVersion limit how much one group-version may add to the discovery document of all clients.
	// maxGroupVersion is also the maximum size of a stored value.
	maxResources    = 2000
	maxGroupVersion = 1 << 20
)

// parseAggregated returns the wanted group-versions of an aggregated document. A group-version that is missing in the
// document is not in the result.
func parseAggregated(body []byte, wanted []schema.GroupVersion) (map[schema.GroupVersion][]apidiscoveryv2.APIResourceDiscovery, error) {
	var list apidiscoveryv2.APIGroupDiscoveryList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("decode aggregated discovery: %w", err)
	}
	found := map[schema.GroupVersion][]apidiscoveryv2.APIResourceDiscovery{}
	for _, group := range list.Items {
		for _, version := range group.Versions {
			gv := schema.GroupVersion{Group: group.Name, Version: version.Version}
			// A backend that is itself an aggregator may mark an entry as stale, which does not count as a response.
			if !slices.Contains(wanted, gv) || version.Freshness == apidiscoveryv2.DiscoveryFreshnessStale {
				continue
			}
			found[gv] = version.Resources
		}
	}
	return found, nil
}

// parseLegacy parses a response of /apis/<group>/<version>.
func parseLegacy(body []byte, gv schema.GroupVersion) ([]apidiscoveryv2.APIResourceDiscovery, error) {
	var list metav1.APIResourceList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("decode the resources of %s: %w", gv, err)
	}
	if list.Kind != "APIResourceList" || list.GroupVersion != gv.String() {
		return nil, fmt.Errorf("the answer is a %q of %q and not the APIResourceList of %s", list.Kind, list.GroupVersion, gv)
	}
	return fromLegacy(gv, &list)
}

// check rejects resources that must not be in the merged document.
func check(resources []apidiscoveryv2.APIResourceDiscovery) error {
	if len(resources) > maxResources {
		return fmt.Errorf("%d resources are more than the %d allowed in one group-version", len(resources), maxResources)
	}
	seen := make(map[string]bool, len(resources))
	for _, r := range resources {
		switch {
		case r.Resource == "" || strings.Contains(r.Resource, "/"):
			return fmt.Errorf("%q is no name for a resource", r.Resource)
		case seen[r.Resource]:
			return fmt.Errorf("resource %q is listed twice", r.Resource)
		case r.Scope != apidiscoveryv2.ScopeNamespace && r.Scope != apidiscoveryv2.ScopeCluster:
			return fmt.Errorf("resource %q has the unknown scope %q", r.Resource, r.Scope)
		}
		seen[r.Resource] = true
	}
	size, err := json.Marshal(resources)
	if err != nil {
		return fmt.Errorf("encode resources: %w", err)
	}
	if len(size) > maxGroupVersion {
		return fmt.Errorf("%d bytes are more than the %d allowed for one group-version", len(size), maxGroupVersion)
	}
	return nil
}

// fill sets missing kinds to an empty kind and missing verbs to an empty list: client-go 0.26.0 to 0.26.3 panics if the
// kind is missing (kubernetes/kubernetes#118361).
func fill(resources []apidiscoveryv2.APIResourceDiscovery) []apidiscoveryv2.APIResourceDiscovery {
	for i := range resources {
		r := &resources[i]
		if r.ResponseKind == nil {
			r.ResponseKind = &metav1.GroupVersionKind{}
		}
		if r.Verbs == nil {
			r.Verbs = []string{}
		}
		for j := range r.Subresources {
			s := &r.Subresources[j]
			if s.ResponseKind == nil {
				s.ResponseKind = &metav1.GroupVersionKind{}
			}
			if s.Verbs == nil {
				s.Verbs = []string{}
			}
		}
	}
	return resources
}

// isAggregated reports whether a media type identifies aggregated discovery v2. A server without aggregated discovery
// answers the same request with a plain list.
func isAggregated(contentType string) bool {
	_, params, err := mime.ParseMediaType(contentType)
	return err == nil && asksAggregated(params)
}

func asksAggregated(params map[string]string) bool {
	return params["g"] == apidiscoveryv2.GroupName && params["v"] == "v2" && params["as"] == "APIGroupDiscoveryList"
}

// fromLegacy converts a response of /apis/<group>/<version> to the form of aggregated discovery.
//
// A subresource without a served resource (custom.metrics.k8s.io has such) gets a resource without verbs and kind. Clients
// drop that resource and keep its subresource.
//
// Entries without a resource name are skipped, and the document is not rejected for them. Servers based on
// custom-metrics-apiserver list "/custommetrics" until they have metrics.
func fromLegacy(gv schema.GroupVersion, list *metav1.APIResourceList) ([]apidiscoveryv2.APIResourceDiscovery, error) {
	var resources []apidiscoveryv2.APIResourceDiscovery
	place := map[string]int{}
	for _, r := range list.APIResources {
		if strings.Contains(r.Name, "/") {
			continue
		}
		if _, twice := place[r.Name]; twice {
			return nil, fmt.Errorf("resource %q is listed twice", r.Name)
		}
		place[r.Name] = len(resources)
		resources = append(resources, apidiscoveryv2.APIResourceDiscovery{
			Resource:         r.Name,
			ResponseKind:     kindOf(gv, r),
			Scope:            scopeOf(r),
			SingularResource: r.SingularName,
			Verbs:            slices.Clone(r.Verbs),
			ShortNames:       slices.Clone(r.ShortNames),
			Categories:       slices.Clone(r.Categories),
		})
	}
	for _, r := range list.APIResources {
		name, sub, ok := strings.Cut(r.Name, "/")
		if !ok || name == "" {
			continue
		}
		at, ok := place[name]
		if !ok {
			at = len(resources)
			place[name] = at
			resources = append(resources, apidiscoveryv2.APIResourceDiscovery{
				Resource: name, Scope: scopeOf(r), SingularResource: r.SingularName, ResponseKind: &metav1.GroupVersionKind{},
			})
		}
		if resources[at].Scope != scopeOf(r) {
			return nil, fmt.Errorf("%q is %s and %q is not", r.Name, scopeOf(r), name)
		}
		resources[at].Subresources = append(resources[at].Subresources, apidiscoveryv2.APISubresourceDiscovery{
			Subresource: sub, ResponseKind: kindOf(gv, r), Verbs: slices.Clone(r.Verbs),
		})
	}
	return resources, nil
}

func scopeOf(r metav1.APIResource) apidiscoveryv2.ResourceScope {
	if r.Namespaced {
		return apidiscoveryv2.ScopeNamespace
	}
	return apidiscoveryv2.ScopeCluster
}

// kindOf returns the kind with its group and version. In the legacy list, an empty group and version mean the group and
// version of the list.
func kindOf(gv schema.GroupVersion, r metav1.APIResource) *metav1.GroupVersionKind {
	if r.Kind == "" {
		return &metav1.GroupVersionKind{}
	}
	kind := metav1.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
	if kind.Group == "" && kind.Version == "" {
		kind.Group, kind.Version = gv.Group, gv.Version
	}
	return &kind
}
