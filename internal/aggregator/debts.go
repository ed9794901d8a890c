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

// newDebtCleaner gives cleanup debts their way to the backends.
func (h *parts) newDebtCleaner() *debts.Cleaner {
	return debts.NewCleaner(debts.Config{
		Store: h.debts, State: h.apiServiceState, Transport: h.backendTransport, KnownResources: h.knownResources, Changed: h.apiservices.Changed,
		Leads: func() bool {
			_, leads := h.replicas.Hear()
			return leads
		},
		Logger: h.log,
	})
}

func (h *parts) routeTo(apiService string) (*apiservice.Route, bool) {
	for _, r := range h.apiservices.Table().Routes() {
		if r.Name == apiService && !r.Local {
			return r, true
		}
	}
	return nil, false
}

func (h *parts) apiServiceState(apiService string) debts.APIServiceState {
	route, ok := h.routeTo(apiService)
	if !ok {
		return debts.APIServiceState{}
	}
	return debts.APIServiceState{
		Registered: true, Ready: route.Backend != nil && route.Condition.Reason == apiservice.CleanupDebt,
		Reason: route.Condition.Reason,
	}
}

// backendTransport leads to a backend past its route, which is closed while there are debts. It is the way of any request from the
// router on, with our own identity, as that of the controllers.
func (h *parts) backendTransport(apiService string) (http.RoundTripper, error) {
	route, ok := h.routeTo(apiService)
	if !ok || route.Backend == nil {
		return nil, fmt.Errorf("APIService %s leads nowhere at the moment", apiService)
	}
	target := proxy.Target{
		Backend: route.Backend, APIService: route.Name,
		ConvertTable: route.Options.ConvertTable, ConvertMetadata: route.Options.ConvertMetadata,
	}
	carry := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.proxy.Serve(w, r, target) })
	return jsonDeletions(coreapi.InProcess(server.NewInternalChain(self, h.metrics.Requests, h.log.Named("server"), carry))), nil
}

// knownResources is what a backend was last known to keep in namespaces.
func (h *parts) knownResources(gv schema.GroupVersion) []string {
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
