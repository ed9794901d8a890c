package aggregator

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	clientdiscovery "k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico.dev/internal/apiservice"
	"portico.dev/internal/coreapi"
	"portico.dev/internal/coreapi/quota"
	"portico.dev/internal/discovery"
	"portico.dev/internal/dispatch"
	"portico.dev/internal/filters"
	"portico.dev/internal/lifecycle"
	"portico.dev/internal/lifecycle/debts"
	"portico.dev/internal/lifecycle/garbage"
	"portico.dev/internal/lifecycle/namespaces"
	"portico.dev/internal/lifecycle/quotas"
	"portico.dev/internal/lifecycle/trust"
	"portico.dev/internal/proxy"
	"portico.dev/internal/routes/v1alpha1"
	"portico.dev/internal/routetable"
	"portico.dev/internal/server"
)

// wireControllers builds the controllers, with a client that also reaches backends.
func (h *parts) wireControllers() error {
	inside := server.NewInternalChain(self, h.Metrics.Requests, h.log.Named("server"), h.router)
	allGroups, err := metadata.NewForConfig(&rest.Config{
		Host: "https://portico.invalid", Transport: jsonDeletions(coreapi.InProcess(inside)), QPS: -1,
		WarningHandler: rest.NoWarnings{}, // warnings about deprecated kinds are for external clients
	})
	if err != nil {
		return fmt.Errorf("client of all groups: %w", err)
	}
	kinds, err := clientdiscovery.NewDiscoveryClientForConfig(&rest.Config{
		Host: "https://portico.invalid", Transport: coreapi.InProcess(inside), QPS: -1, WarningHandler: rest.NoWarnings{},
	})
	if err != nil {
		return fmt.Errorf("client of discovery: %w", err)
	}
	stored, err := h.storedHere()
	if err != nil {
		return err
	}
	choice := lifecycle.Choice(h.cfg.Controllers)
	if choice.Runs(lifecycle.GarbageCollector) {
		h.collector = h.newCollector(allGroups, stored)
	}
	quotas, err := h.quotas()
	if err != nil {
		return err
	}
	c := h.cfg
	h.warnOfRootCA()
	at := func(backend string) metadata.Interface {
		client, err := metadata.NewForConfig(&rest.Config{
			Host: "https://portico.invalid", Transport: toBackend{jsonDeletions(coreapi.InProcess(inside)), backend}, QPS: -1, WarningHandler: rest.NoWarnings{},
		})
		if err != nil { // unreachable: the configuration is the same as above
			h.log.Error("failed to create the client of a backend", zap.Error(err))
			return allGroups
		}
		return client
	}
	h.controllers = lifecycle.New(lifecycle.Config{
		Client: h.clients, BootstrapClient: h.bootstrapClients, Namespaces: h.informers.Namespaces(), ServiceAccounts: h.informers.ServiceAccounts(),
		Election: h.election, Choice: choice,
		Finalization: namespaces.Config{
			Delay:    h.cfg.Embedded.NamespaceDeletionDelay,
			Metadata: allGroups, MetadataAt: at, Hidden: stored, Served: h.served, Defined: h.core.DefinedResources,
			Changed: []func() <-chan struct{}{h.APIServices.Changed, h.Discovery.Changed, h.core.Changed}, Probe: h.APIServices.ProbeSoon, Debts: h.debts,
		},
		Quotas: quotas, RootCA: h.publishedRootCA,
		Trust: trust.Config{
			ClientCA: h.clientCA.PEM, RequestHeaderCA: h.frontProxy.PEM,
			UsernameHeaders: c.RequestHeaderUsernameHeaders, UIDHeaders: c.RequestHeaderUIDHeaders,
			GroupHeaders: c.RequestHeaderGroupHeaders, ExtraHeaderPrefixes: c.RequestHeaderExtraHeaderPrefixes,
			AllowedNames: c.RequestHeaderAllowedNames,
		},
		ClusterRoles: h.informers.ClusterRoles(), FrontDoor: h.frontDoor(),
		ServiceRanges: h.publishedRanges(), ServiceCIDRs: h.informers.ServiceCIDRs(),
		RepairAllocations: h.core.RepairAllocations, AllocationsAbandoned: h.core.AllocationsAbandoned, Discovery: kinds,
		Certificates: h.certificateControllers(), Secrets: h.informers.Secrets(), Logger: h.log,
	})
	return nil
}

// publishedRootCA returns the CA certificates for kube-root-ca.crt: the certificates in --root-ca-file, or Portico's
// own if they verify the serving certificate. Otherwise it returns nil: with only --tls-cert-file, the CA
// certificates that verify it are unknown, and each replica has a different CA.
func (h *parts) publishedRootCA() []byte {
	if h.cfg.RootCAFile != "" {
		return h.rootCA.PEM()
	}
	if len(h.servingCert.Roots(h.rootCA)) == 0 {
		return nil
	}
	return h.rootCA.PEM()
}

// warnOfRootCA logs why kube-root-ca.crt is not published.
func (h *parts) warnOfRootCA() {
	if h.publishedRootCA() == nil {
		h.log.Named("keys").Warn("the ConfigMaps kube-root-ca.crt are not published because the CA certificates of --tls-cert-file are unknown; set --root-ca-file to them, to the same file in every replica",
			zap.String("tls-cert-file", h.cfg.TLSCertFile))
	}
}

// newDebtCleaner builds the cleaner of cleanup debts.
func (h *parts) newDebtCleaner() *debts.Cleaner {
	return debts.NewCleaner(debts.Config{
		Store: h.debts, State: h.apiServiceState, Transport: h.backendTransport, KnownResources: h.knownResources, Changed: h.APIServices.Changed,
		Leads: func() bool {
			_, leads := h.replicas.Received()
			return leads
		},
		Logger: h.log,
	})
}

func (h *parts) routeTo(apiService string) (*routetable.Route, bool) {
	r, ok := h.APIServices.Table().Named(apiService)
	return r, ok && !r.Local
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

// backendTransport reaches a backend that is unavailable because of its debts. Its requests go through the proxy with
// Portico's own identity, like the controllers' requests.
func (h *parts) backendTransport(apiService string) (http.RoundTripper, error) {
	route, ok := h.routeTo(apiService)
	if !ok || route.Backend == nil {
		return nil, fmt.Errorf("APIService %s leads nowhere at the moment", apiService)
	}
	target := proxy.Destination{
		Backend: route.Backend, APIService: route.Name,
		ConvertTable: route.Options.ConvertTable, ConvertMetadata: route.Options.ConvertMetadata,
	}
	carry := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.Proxy.Serve(w, filters.RequestOf(r), target) })
	return jsonDeletions(coreapi.InProcess(server.NewInternalChain(self, h.Metrics.Requests, h.log.Named("server"), carry))), nil
}

// knownResources returns the last-known namespaced resources of a group-version that can be listed and deleted.
func (h *parts) knownResources(gv schema.GroupVersion) []string {
	snapshot := h.Discovery.Current()
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

// newCollector builds the garbage collector. Its client also reaches backends.
func (h *parts) newCollector(allGroups, stored metadata.Interface) *garbage.Collector {
	return garbage.New(garbage.Config{
		Client: allGroups, Hidden: stored,
		Discovery: (&collectorView{
			snapshot: func() *discovery.Snapshot { return h.Discovery.Current() },
			table:    func() *routetable.Table { return h.APIServices.Table() },
			local: func() (coreapi.Discovery, <-chan struct{}) {
				changed := h.core.Changed() // before Discovery, so that no change is missed
				return h.core.Discovery(), changed
			},
		}).now,
		Leads:  h.election,
		Events: h.clients.CoreV1(), Metrics: h.Metrics.Garbage, Logger: h.log,
	})
}

// collectorView converts discovery for the garbage collector. It does so only after a change, because every worker
// reads it for every object.
type collectorView struct {
	snapshot func() *discovery.Snapshot
	table    func() *routetable.Table
	// local returns the resources that this server stores, and a channel that is closed when they change.
	local func() (coreapi.Discovery, <-chan struct{})

	mu           sync.Mutex // guards the fields below
	fromSnapshot *discovery.Snapshot
	fromTable    *routetable.Table
	localChanged <-chan struct{}
	made         *garbage.Discovery
}

func (v *collectorView) now() *garbage.Discovery {
	snapshot, table := v.snapshot(), v.table()
	if snapshot == nil {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	local, changed := v.local()
	if v.made == nil || snapshot != v.fromSnapshot || table != v.fromTable || changed != v.localChanged {
		v.fromSnapshot, v.fromTable, v.localChanged, v.made = snapshot, table, changed, garbageDiscovery(snapshot, table)
		v.made.GroupVersions = append(v.made.GroupVersions, hiddenGarbage(hiddenVersions(table, local))...)
	}
	return v.made
}

// garbageDiscovery marks a group-version as current only if discovery and routing agree: discovery also marks
// unavailable ones without deletable namespaced resources as current, and either may be slightly outdated.
func garbageDiscovery(snapshot *discovery.Snapshot, table *routetable.Table) *garbage.Discovery {
	out := &garbage.Discovery{Synced: snapshot.Synced() && table.Synced()}
	for _, gv := range snapshot.GroupVersions() {
		fresh := gv.Freshness == apidiscoveryv2.DiscoveryFreshnessCurrent
		g := garbage.GroupVersion{
			GroupVersion: gv.GroupVersion, Local: gv.Local, Current: fresh && gv.Reason == "",
			Known: gv.Local || fresh || len(gv.Resources) > 0, APIService: gv.APIService, Reason: gv.Reason,
		}
		keeps := true
		if route, ok := table.Lookup(gv.GroupVersion); ok && !route.Local {
			keeps = !route.Options.NonPersistent
			g.Known = g.Known || !keeps || route.HasReadOnlyDefinition()
			switch {
			case gv.Local:
				g.Current, g.Reason = false, "discovery does not show the extension server of its APIService yet"
			case !route.Reachable():
				g.Current, g.Reason = false, route.Condition.Reason
			}
		} else if !gv.Local {
			g.Current, g.Reason = false, "its APIService is gone, or has become another"
		}
		g.Resources = garbageResources(gv.Resources, keeps)
		out.GroupVersions = append(out.GroupVersions, g)
	}
	return out
}

// garbageResources converts resources for the garbage collector. keeps is false if their server does not store
// objects.
func garbageResources(resources []apidiscoveryv2.APIResourceDiscovery, keeps bool) []garbage.Resource {
	var out []garbage.Resource
	for _, r := range resources {
		if r.ResponseKind == nil || r.ResponseKind.Kind == "" {
			continue // only a parent of subresources
		}
		out = append(out, garbage.Resource{
			Name: r.Resource, Kind: r.ResponseKind.Kind, Namespaced: r.Scope == apidiscoveryv2.ScopeNamespace,
			Collectable: keeps && hasVerbs(r.Verbs, "list", "watch", "delete"),
		})
	}
	return out
}

func hasVerbs(verbs []string, wanted ...string) bool {
	return !slices.ContainsFunc(wanted, func(v string) bool { return !slices.Contains(verbs, v) })
}

// served converts discovery for namespace finalization.
func (h *parts) served() []namespaces.GroupVersion {
	snapshot := h.Discovery.Current()
	if snapshot == nil || !snapshot.Synced() {
		return nil
	}
	table := h.APIServices.Table()
	var out []namespaces.GroupVersion
	discovered := sets.New[schema.GroupVersion]()
	for _, gv := range snapshot.GroupVersions() {
		if route, ok := table.Lookup(gv.GroupVersion); ok && route.Routing != nil && len(gv.Parts) > 0 {
			out = append(out, h.servedByBackends(gv, route, table)...)
			discovered.Insert(gv.GroupVersion)
			continue
		}
		resources := deletable(gv.Resources)
		// An annotation makes the last-known resources of an unavailable backend Current for clients. A namespace
		// still waits for the backend.
		current := gv.Freshness == apidiscoveryv2.DiscoveryFreshnessCurrent && (gv.Reason == "" || len(resources) == 0)
		served := namespaces.GroupVersion{
			GroupVersion: gv.GroupVersion,
			Resources:    resources,
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
	// New registrations are in the routing table before they are in discovery.
	for _, route := range table.Routes() {
		if route.Local || discovered.Has(route.GroupVersion) {
			continue
		}
		served := namespaces.GroupVersion{GroupVersion: route.GroupVersion, APIService: route.Name, Reason: "NotInDiscovery"}
		h.addAPIService(&served, route)
		out = append(out, served)
	}
	for _, hidden := range hiddenVersions(table, h.core.Discovery()) {
		if resources := deletable(hidden.resources); len(resources) > 0 {
			out = append(out, namespaces.GroupVersion{
				GroupVersion: hidden.GroupVersion, Resources: resources, Known: true, Current: true, HiddenBy: hidden.apiService,
			})
		}
	}
	return out
}

// servedByBackends returns the resources of each of several backends of a group-version. An unavailable backend does
// not prevent deletions at the other backends, and a namespace waits for it as for a single backend.
func (h *parts) servedByBackends(gv discovery.GroupVersion, route *routetable.Route, table *routetable.Table) []namespaces.GroupVersion {
	var out []namespaces.GroupVersion
	for _, p := range gv.Parts {
		part, ok := table.Named(p.APIService)
		if !ok {
			part = &routetable.Route{Name: p.APIService} // discovery is slightly outdated
		}
		resources := deletable(p.Resources)
		current := p.Freshness == apidiscoveryv2.DiscoveryFreshnessCurrent && (p.Reason == "" || len(resources) == 0)
		served := namespaces.GroupVersion{
			GroupVersion: gv.GroupVersion, Resources: resources, Known: part.Local || current || len(p.Resources) > 0, Current: current,
			APIService: p.APIService, Reason: p.Reason,
		}
		if !part.Local {
			h.addAPIService(&served, part)
		}
		served.UID, served.NonPersistent, served.FinalizeAfter = route.UID, route.Options.NonPersistent, route.Options.FinalizeAfter
		served.Known = served.Known || route.HasReadOnlyDefinition()
		out = append(out, served)
	}
	return out
}

// addAPIService adds the options of the APIService, and the time since which its backend has been unavailable. If the
// shared status also reports it as unavailable, the time of the status takes precedence: it survives a restart and is
// the same for all replicas.
func (h *parts) addAPIService(served *namespaces.GroupVersion, route *routetable.Route) {
	served.UID, served.NonPersistent, served.FinalizeAfter = route.UID, route.Options.NonPersistent, route.Options.FinalizeAfter
	served.Known = served.Known || route.HasReadOnlyDefinition()
	if s := route.Service; s != nil {
		served.Service = types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
	}
	if route.Reachable() {
		return
	}
	served.Since = route.Condition.LastTransitionTime.Time
	if route.Condition.Reason == apiservice.CleanupDebt {
		return // the backend is reachable
	}
	if since := h.unreachableSince(route.Name); !since.IsZero() {
		served.Since, served.UnreachableSince = since, since
	}
}

// unreachableSince returns the time since which no replica has reached the backend of an APIService. It is zero if a
// replica has reached the backend, or the time is unknown.
func (h *parts) unreachableSince(name string) time.Time {
	if apiService, backend, several := strings.Cut(name, "/"); several {
		return h.backendUnreachableSince(apiService, backend)
	}
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

// backendUnreachableSince is unreachableSince for one backend of an APIRoute.
func (h *parts) backendUnreachableSince(apiRoute, backend string) time.Time {
	object, exists, err := h.apiRoutes.Informer.GetIndexer().GetByKey(apiRoute)
	if err != nil || !exists {
		return time.Time{}
	}
	for _, b := range object.(*v1alpha1.APIRoute).Status.Backends {
		c := meta.FindStatusCondition(b.Conditions, v1alpha1.ConditionAvailable)
		if b.Name == backend && c != nil && c.Status == metav1.ConditionFalse && c.Reason != apiservice.CleanupDebt {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// toBackend sends requests to the named backend.
type toBackend struct {
	next    http.RoundTripper
	backend string
}

func (t toBackend) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context()) // a RoundTripper must not change its request
	r.Header.Set(dispatch.BackendHeader, t.backend)
	return t.next.RoundTrip(r)
}

// quotas returns the configuration of quota controllers. They count with the client of the local groups, so that no
// extension server is called.
func (h *parts) quotas() (quotas.Config, error) {
	local, err := metadata.NewForConfig(unthrottled(h.core.ClientConfig(self)))
	if err != nil {
		return quotas.Config{}, fmt.Errorf("metadata client of the local groups: %w", err)
	}
	measurer := &quota.Measurer{Client: h.clients, Metadata: local, Served: h.servedHere}
	return quotas.Config{
		Quotas: h.informers.ResourceQuotas(), Measure: measurer.Measure, Kinds: h.limitedKinds,
		Metadata: local, Changed: h.core.Changed, Sync: h.cfg.Services.QuotaSync,
	}, nil
}

// limitedKinds returns the resources served here that a quota limits.
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

// servedHere returns a local version of a resource. Objects of a CustomResourceDefinition are counted here even if an
// APIService serves their group-version.
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
