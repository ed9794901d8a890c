package aggregator

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"portico.dev/internal/coreapi/quota"
	"portico.dev/internal/lifecycle/quotas"
)

// quotas is how quotas are counted: by the client of the local groups, so that no extension server is asked.
func (h *parts) quotas() (quotas.Config, error) {
	local, err := metadata.NewForConfig(unthrottled(h.core.ClientConfig(self)))
	if err != nil {
		return quotas.Config{}, fmt.Errorf("metadata client of the local groups: %w", err)
	}
	measurer := &quota.Measurer{Client: h.clients, Metadata: local, Served: h.servedHere}
	return quotas.Config{
		Quotas: h.informers.Core().V1().ResourceQuotas(), Measure: measurer.Measure, Kinds: h.limitedKinds,
		Metadata: local, Changed: h.core.Changed, Sync: h.cfg.Services.QuotaSync,
	}, nil
}

// limitedKinds are the kinds that a quota is about, of those served here.
func (h *parts) limitedKinds(q *corev1.ResourceQuota) []schema.GroupVersionResource {
	var out []schema.GroupVersionResource
	for name := range q.Spec.Hard {
		for _, kind := range quota.Kinds(name) {
			if at, ok := h.servedHere(kind); ok {
				out = append(out, at)
			}
		}
	}
	return out
}

// servedHere finds a version of the local groups that serves a kind. What an APIService has taken away from a definition
// is not asked at all: the objects are still counted here.
func (h *parts) servedHere(r schema.GroupResource) (schema.GroupVersionResource, bool) {
	all := h.core.Discovery()
	for _, g := range slices.Concat(all.Core, all.Groups) {
		if g.Name != r.Group {
			continue
		}
		for _, v := range g.Versions {
			for _, resource := range v.Resources {
				if resource.Resource == r.Resource {
					return r.WithVersion(v.Version), true
				}
			}
		}
	}
	return schema.GroupVersionResource{}, false
}
