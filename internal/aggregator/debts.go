package aggregator

import (
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico.dev/internal/apiservice"
	"portico.dev/internal/coreapi"
	"portico.dev/internal/lifecycle/debts"
	"portico.dev/internal/proxy"
	"portico.dev/internal/server"
)

// newPayer gives cleanup debts their way to the backends.
func (h *house) newPayer() *debts.Payer {
	return debts.NewPayer(debts.Config{
		Ledger: h.ledger, Standing: h.standing, Reach: h.reach, Known: h.knownResources, Changed: h.apiservices.Changed,
		Leads: func() bool {
			_, leads := h.replicas.Hear()
			return leads
		},
		Logger: h.log,
	})
}

func (h *house) routeTo(apiService string) (*apiservice.Route, bool) {
	for _, r := range h.apiservices.Table().Routes() {
		if r.Name == apiService && !r.Local {
			return r, true
		}
	}
	return nil, false
}

func (h *house) standing(apiService string) debts.Standing {
	route, ok := h.routeTo(apiService)
	if !ok {
		return debts.Standing{}
	}
	return debts.Standing{
		Registered: true, Due: route.Backend != nil && route.Condition.Reason == apiservice.CleanupDebt,
		Reason: route.Condition.Reason,
	}
}

// reach leads to a backend past its route, which is closed while there are debts. It is the way of any request from the
// router on, with our own identity, as that of the controllers.
func (h *house) reach(apiService string) (http.RoundTripper, error) {
	route, ok := h.routeTo(apiService)
	if !ok || route.Backend == nil {
		return nil, fmt.Errorf("APIService %s leads nowhere at the moment", apiService)
	}
	target := proxy.Destination{
		Backend: route.Backend, APIService: route.Name,
		ConvertTable: route.Options.ConvertTable, ConvertMetadata: route.Options.ConvertMetadata,
	}
	carry := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.proxy.Serve(w, r, target) })
	return plainDeletions(coreapi.InProcess(server.NewInternalChain(self, h.metrics.Requests, h.log.Named("server"), carry))), nil
}

// knownResources is what a backend was last known to keep in namespaces.
func (h *house) knownResources(gv schema.GroupVersion) []string {
	snapshot := h.discovery.Current()
	if snapshot == nil {
		return nil
	}
	known, _ := snapshot.Lookup(gv)
	var names []string
	for _, r := range deletable(known.Resources) {
		if r.List {
			names = append(names, r.Name)
		}
	}
	return names
}
