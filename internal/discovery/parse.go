package discovery

import (
	"encoding/json"
	"fmt"
	"mime"
	"slices"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// maxBody is the largest answer that is read from a backend.
	maxBody = 8 << 20
	// maxResources and maxGroupVersion bound what one group-version may put into everybody's discovery document; the
	// second is also what our storage takes in one value.
	maxResources    = 2000
	maxGroupVersion = 1 << 20
)

// parseAggregated takes the wanted group-versions, and no other, out of an aggregated document. A group-version that the
// document does not have is not in the result.
func parseAggregated(body []byte, wanted []schema.GroupVersion) (map[schema.GroupVersion][]apidiscoveryv2.APIResourceDiscovery, error) {
	var list apidiscoveryv2.APIGroupDiscoveryList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("decode aggregated discovery: %w", err)
	}
	found := map[schema.GroupVersion][]apidiscoveryv2.APIResourceDiscovery{}
	for _, group := range list.Items {
		for _, version := range group.Versions {
			gv := schema.GroupVersion{Group: group.Name, Version: version.Version}
			// A backend that aggregates others may call an entry of its own stale: that is no answer.
			if !slices.Contains(wanted, gv) || version.Freshness == apidiscoveryv2.DiscoveryFreshnessStale {
				continue
			}
			found[gv] = version.Resources
		}
	}
	return found, nil
}

// parseLegacy reads the answer of /apis/<group>/<version>.
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

// check refuses what must not reach the merged document.
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

// fill puts an empty kind where there is none, and an empty list of verbs: client-go 0.26.0 to 0.26.3 panics over a
// kind that is left out (kubernetes/kubernetes#118361).
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

// isAggregated reports whether a media type says that the body is aggregated discovery v2. A server that does not know
// aggregated discovery answers the same request with a plain list.
func isAggregated(contentType string) bool {
	_, params, err := mime.ParseMediaType(contentType)
	return err == nil && asksAggregated(params)
}

func asksAggregated(params map[string]string) bool {
	return params["g"] == apidiscoveryv2.GroupName && params["v"] == "v2" && params["as"] == "APIGroupDiscoveryList"
}
