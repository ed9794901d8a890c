package coreapi

import (
	"context"
	"maps"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"

	"portico.dev/internal/coreapi/allocation"
	"portico.dev/internal/coreapi/kinds"
	"portico.dev/internal/coreapi/kinds/certificates"
	"portico.dev/internal/coreapi/kinds/core"
	"portico.dev/internal/coreapi/kinds/events"
	"portico.dev/internal/coreapi/kinds/scheduling"
	"portico.dev/internal/coreapi/registry"
)

// storages are all doors to all resources.
type storages struct {
	groups     []servedGroup
	namespaces *registry.REST
	repairer   *allocation.Repairer
}

// openAll opens the table: each entry, the subresources that follow from it, and then what is not in any entry.
func openAll(cfg Config, c *codecs, shelf *shelf, beside *registry.RelatedObjects, mapper meta.RESTMapper) (*storages, error) {
	guard := &registry.WriteAuthorizer{
		Authorizer: cfg.Authorizer, Rules: cfg.RuleResolver, Mapper: mapper, BuiltIn: cfg.RuntimeConfig.builtIn(), Related: beside,
	}
	table := kinds.All()
	byResource := map[schema.GroupResource]*registry.REST{}
	all := &storages{}
	for i := range table {
		g := &table[i]
		served := servedGroup{version: g.Version, storage: map[string]rest.Storage{}}
		for j := range g.Resources {
			r := &g.Resources[j]
			if r.Name == "events" && cfg.EventTTL > 0 {
				r.TTL = cfg.EventTTL
			}
			main, err := registry.Open(c.scheme, shelf.options(g.Version, r), g.Version, r, guard, beside, cfg.DenyPrivileged)
			if err != nil {
				return nil, err
			}
			byResource[schema.GroupResource{Group: g.Version.Group, Resource: r.Name}] = main
			served.storage[r.Name] = main
			if r.Status != nil {
				served.storage[r.Name+"/status"] = registry.NewSubresource(main.Store, registry.StatusStrategy{Strategy: registry.NewStrategy(c.scheme, r)})
			}
		}
		all.groups = append(all.groups, served)
	}

	inCore := func(resource string) *registry.REST { return byResource[corev1.Resource(resource)] }
	all.namespaces = inCore("namespaces")
	beside.Services = inCore("services")
	network := func(resource string) *registry.REST { return byResource[networkingv1.Resource(resource)] }
	allocator := newAllocator(cfg, inCore("services"), network("ipaddresses"), network("servicecidrs"), allocation.NewEtcdPorts(shelf.client.KV, cfg.Store.OwnKey(portKeys)), newInFlight(cfg, shelf.client.KV))
	allocated := newServices(inCore("services"), allocator)
	all.repairer = newRepairer(allocator, allocated)
	maps.Copy(all.of(corev1.SchemeGroupVersion), serviceDoors(c, allocated))
	guard.RoleRules = storedRoleRules(byResource[rbacv1.Resource("roles")], byResource[rbacv1.Resource("clusterroles")], cfg.Aggregate)
	policies := func(resource string) registry.PolicyGetter {
		return storedParamKind(byResource[admissionregistrationv1.Resource(resource)])
	}
	guard.ValidatingPolicy, guard.MutatingPolicy = policies("validatingadmissionpolicies"), policies("mutatingadmissionpolicies")
	maps.Copy(all.of(corev1.SchemeGroupVersion), namespaceDoors(c, inCore("namespaces")))
	all.of(corev1.SchemeGroupVersion)["componentstatuses"] = core.NewComponentStatuses(func(ctx context.Context) error {
		if err := cfg.Store.Check(ctx); err != nil {
			return err
		}
		return cfg.Store.CheckSpace(ctx)
	})
	if cfg.TokenIssuer != nil {
		all.of(corev1.SchemeGroupVersion)["serviceaccounts/token"] = &tokens{
			issuer: cfg.TokenIssuer, accounts: inCore("serviceaccounts"), pods: inCore("pods"), namespace: currentNamespace(inCore("namespaces")),
			most: int64(cfg.MaxTokenExpiration.Seconds()),
		}
	}
	requests := byResource[schema.GroupResource{Group: certificatesv1.GroupName, Resource: "certificatesigningrequests"}]
	maps.Copy(all.of(certificatesv1.SchemeGroupVersion), certificates.CertificateDoors(c.scheme, requests))
	ofPods := byResource[schema.GroupResource{Group: certificatesv1.GroupName, Resource: "podcertificaterequests"}]
	all.of(certificatesv1.SchemeGroupVersion)["podcertificaterequests/status"] = registry.NewSubresource(ofPods.Store,
		certificates.PodCertificateStatus{StatusStrategy: registry.StatusStrategy{Strategy: registry.NewStrategy(c.scheme, ofPods.Resource)}, Authorizer: cfg.Authorizer})
	priorities := byResource[schema.GroupResource{Group: schedulingv1.GroupName, Resource: "priorityclasses"}]
	all.of(schedulingv1.SchemeGroupVersion)["priorityclasses"] = scheduling.PriorityClasses{REST: priorities}
	all.addWorkloadDoors(c, byResource)
	all.of(eventsv1.SchemeGroupVersion)["events"] = eventsOf(inCore("events"))
	maps.Copy(all.of(authenticationv1.SchemeGroupVersion), authenticationReviews(cfg.TokenAuthenticator))
	maps.Copy(all.of(authorizationv1.SchemeGroupVersion), authorizationReviews(cfg.Authorizer, cfg.RuleResolver))
	all.groups = cfg.RuntimeConfig.keep(all.groups)
	return all, nil
}

// of is the storage map of a group-version of the table.
func (s *storages) of(version schema.GroupVersion) map[string]rest.Storage {
	for _, g := range s.groups {
		if g.version == version {
			return g.storage
		}
	}
	return nil
}

func namespaceDoors(c *codecs, all *registry.REST) map[string]rest.Storage {
	main := newNamespaces(all) // first: the doors below share its rules of removal
	s := registry.NewStrategy(c.scheme, all.Resource)
	return map[string]rest.Storage{
		"namespaces":          main,
		"namespaces/status":   registry.NewSubresource(all.Store, registry.StatusStrategy{Strategy: s}),
		"namespaces/finalize": &finalizer{registry.NewSubresource(all.Store, finalizeStrategy{s})},
	}
}

// eventsOf shows the events of core in events.k8s.io: the same storage, under the resource's other name.
func eventsOf(core *registry.REST) *registry.REST {
	store := *core.Store
	store.DefaultQualifiedResource.Group = eventsv1.GroupName
	store.SingularQualifiedResource.Group = eventsv1.GroupName
	strict := events.StrictEvents{Strategy: store.CreateStrategy.(registry.Strategy)}
	store.CreateStrategy, store.UpdateStrategy = strict, strict
	return &registry.REST{Store: &store, Resource: core.Resource}
}
