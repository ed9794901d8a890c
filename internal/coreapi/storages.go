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
)

// storages are all doors to all resources.
type storages struct {
	groups     []servedGroup
	namespaces *stored
	repairer   *allocation.Repairer
}

// openAll opens the table: each entry, the subresources that follow from it, and then what is not in any entry.
func openAll(cfg Config, c *codecs, shelf *shelf, beside *neighbours, mapper meta.RESTMapper) (*storages, error) {
	guard := &guards{
		authorizer: cfg.Authorizer, rules: cfg.RuleResolver, mapper: mapper, builtIn: cfg.RuntimeConfig.builtIn(), beside: beside,
	}
	table := groups()
	byResource := map[schema.GroupResource]*stored{}
	all := &storages{}
	for i := range table {
		g := &table[i]
		served := servedGroup{version: g.version, storage: map[string]rest.Storage{}}
		for j := range g.resources {
			r := &g.resources[j]
			if r.name == "events" && cfg.EventTTL > 0 {
				r.lifetime = cfg.EventTTL
			}
			main, err := open(c.scheme, shelf.options(g.version, r), g.version, r, guard, beside, cfg.DenyPrivileged)
			if err != nil {
				return nil, err
			}
			byResource[schema.GroupResource{Group: g.version.Group, Resource: r.name}] = main
			served.storage[r.name] = main
			if r.status != nil {
				served.storage[r.name+"/status"] = newSubresource(main.Store, statusStrategy{newStrategy(c.scheme, r)})
			}
		}
		all.groups = append(all.groups, served)
	}

	core := func(resource string) *stored { return byResource[corev1.Resource(resource)] }
	all.namespaces = core("namespaces")
	beside.services = core("services")
	network := func(resource string) *stored { return byResource[networkingv1.Resource(resource)] }
	allocator := newAllocator(cfg, core("services"), network("ipaddresses"), network("servicecidrs"), allocation.NewEtcdPorts(shelf.client.KV, cfg.Store.OwnKey(portKeys)), newInFlight(cfg, shelf.client.KV))
	allocated := newServices(core("services"), allocator)
	all.repairer = newRepairer(allocator, allocated)
	maps.Copy(all.of(corev1.SchemeGroupVersion), serviceDoors(c, allocated))
	guard.roleRules = storedRoleRules(byResource[rbacv1.Resource("roles")], byResource[rbacv1.Resource("clusterroles")], cfg.Aggregate)
	policies := func(resource string) policyGetter {
		return storedParamKind(byResource[admissionregistrationv1.Resource(resource)])
	}
	guard.validatingPolicy, guard.mutatingPolicy = policies("validatingadmissionpolicies"), policies("mutatingadmissionpolicies")
	maps.Copy(all.of(corev1.SchemeGroupVersion), namespaceDoors(c, core("namespaces")))
	all.of(corev1.SchemeGroupVersion)["componentstatuses"] = newComponentStatuses(func(ctx context.Context) error {
		if err := cfg.Store.Check(ctx); err != nil {
			return err
		}
		return cfg.Store.CheckSpace(ctx)
	})
	if cfg.TokenIssuer != nil {
		all.of(corev1.SchemeGroupVersion)["serviceaccounts/token"] = &tokens{
			issuer: cfg.TokenIssuer, accounts: core("serviceaccounts"), pods: core("pods"), namespace: currentNamespace(core("namespaces")),
			most: int64(cfg.MaxTokenExpiration.Seconds()),
		}
	}
	requests := byResource[schema.GroupResource{Group: certificatesv1.GroupName, Resource: "certificatesigningrequests"}]
	maps.Copy(all.of(certificatesv1.SchemeGroupVersion), certificateDoors(c.scheme, requests))
	ofPods := byResource[schema.GroupResource{Group: certificatesv1.GroupName, Resource: "podcertificaterequests"}]
	all.of(certificatesv1.SchemeGroupVersion)["podcertificaterequests/status"] = newSubresource(ofPods.Store,
		podCertificateStatus{statusStrategy{newStrategy(c.scheme, ofPods.of)}, cfg.Authorizer})
	priorities := byResource[schema.GroupResource{Group: schedulingv1.GroupName, Resource: "priorityclasses"}]
	all.of(schedulingv1.SchemeGroupVersion)["priorityclasses"] = priorityClasses{priorities}
	all.addWorkloadDoors(c, byResource)
	all.of(eventsv1.SchemeGroupVersion)["events"] = eventsOf(core("events"))
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

func namespaceDoors(c *codecs, all *stored) map[string]rest.Storage {
	main := newNamespaces(all) // first: the doors below share its rules of removal
	s := newStrategy(c.scheme, all.of)
	return map[string]rest.Storage{
		"namespaces":          main,
		"namespaces/status":   newSubresource(all.Store, statusStrategy{s}),
		"namespaces/finalize": &finalizer{newSubresource(all.Store, finalizeStrategy{s})},
	}
}

// eventsOf shows the events of core in events.k8s.io: the same storage, under the resource's other name.
func eventsOf(core *stored) *stored {
	store := *core.Store
	store.DefaultQualifiedResource.Group = eventsv1.GroupName
	store.SingularQualifiedResource.Group = eventsv1.GroupName
	strict := strictEvents{store.CreateStrategy.(strategy)}
	store.CreateStrategy, store.UpdateStrategy = strict, strict
	return &stored{&store, core.of}
}
