package aggregator

import (
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/apiservice"
	"portico.dev/internal/lifecycle/namespaces"
)

// served is discovery as namespace finalization sees it: what can hold objects of a namespace, who is to blame when it
// cannot be asked, and how long it is to be waited for.
func (h *parts) served() []namespaces.GroupVersion {
	snapshot := h.discovery.Current()
	if snapshot == nil || !snapshot.Synced() {
		return nil
	}
	table := h.apiservices.Table()
	var out []namespaces.GroupVersion
	discovered := sets.New[schema.GroupVersion]()
	for _, gv := range snapshot.GroupVersions() {
		current := gv.Freshness == apidiscoveryv2.DiscoveryFreshnessCurrent
		served := namespaces.GroupVersion{
			GroupVersion: gv.GroupVersion,
			Resources:    deletable(gv.Resources),
			Known:        gv.Local || current || len(gv.Resources) > 0,
			Current:      current,
			APIService:   gv.APIService,
			Reason:       gv.Reason,
		}
		if route, ok := table.Lookup(gv.GroupVersion); ok && !route.Local {
			h.addAPIService(&served, route)
		}
		out = append(out, served)
		discovered.Insert(gv.GroupVersion)
	}
	// Requests are routed to what was registered a moment ago before discovery has it.
	for _, route := range table.Routes() {
		if route.Local || discovered.Has(route.GroupVersion) {
			continue
		}
		served := namespaces.GroupVersion{GroupVersion: route.GroupVersion, APIService: route.Name, Reason: "NotInDiscovery"}
		h.addAPIService(&served, route)
		out = append(out, served)
	}
	return out
}

// addAPIService adds what the APIService says of itself, and since when its backend has been away. Wherever the status
// that all replicas share says so too, it is the one that counts: it outlives a restart, and is the same to all.
func (h *parts) addAPIService(served *namespaces.GroupVersion, route *apiservice.Route) {
	served.UID, served.NonPersistent, served.FinalizeAfter = route.UID, route.Options.NonPersistent, route.Options.FinalizeAfter
	if s := route.Service; s != nil {
		served.Service = types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
	}
	if route.Available() {
		return
	}
	served.Since = route.Condition.LastTransitionTime.Time
	if route.Condition.Reason == apiservice.CleanupDebt {
		return // the backend is there
	}
	if since := h.unreachableSince(route.Name); !since.IsZero() {
		served.Since, served.UnreachableSince = since, since
	}
}

// unreachableSince is since when no replica has reached an APIService's backend, zero when one has or nothing is known.
func (h *parts) unreachableSince(name string) time.Time {
	object, err := h.services.Apiregistration().V1().APIServices().Lister().Get(name)
	if err != nil {
		return time.Time{}
	}
	for _, c := range object.Status.Conditions {
		if c.Type == apiregistrationv1.Available && c.Status == apiregistrationv1.ConditionFalse && c.Reason != apiservice.CleanupDebt {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}
