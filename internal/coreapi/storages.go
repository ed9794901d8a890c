package coreapi

import (
	"maps"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
)

// storages are all doors to all resources.
type storages struct {
	groups     []servedGroup
	namespaces *stored
}

// openAll opens the table: each entry, the subresources that follow from it, and then what is not in any entry.
func openAll(cfg Config, c *codecs, shelf *shelf, beside *neighbours) (*storages, error) {
	guard := &guards{authorizer: cfg.Authorizer, rules: cfg.RuleResolver}
	table := groups()
	byResource := map[schema.GroupResource]*stored{}
	all := &storages{}
	for i := range table {
		g := &table[i]
		served := servedGroup{version: g.version, storage: map[string]rest.Storage{}}
		for j := range g.resources {
			r := &g.resources[j]
			main, err := open(c, shelf, g.version, r, guard, beside)
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
	guard.roleRules = storedRoleRules(byResource[rbacv1.Resource("roles")], byResource[rbacv1.Resource("clusterroles")], cfg.Aggregate)
	maps.Copy(all.of(corev1.SchemeGroupVersion), namespaceDoors(c, core("namespaces")))
	if cfg.TokenIssuer != nil {
		all.of(corev1.SchemeGroupVersion)["serviceaccounts/token"] = &tokens{issuer: cfg.TokenIssuer, pods: core("pods")}
	}
	all.of(eventsv1.SchemeGroupVersion)["events"] = eventsOf(core("events"))
	maps.Copy(all.of(authenticationv1.SchemeGroupVersion), authenticationReviews(cfg.TokenAuthenticator))
	maps.Copy(all.of(authorizationv1.SchemeGroupVersion), authorizationReviews(cfg.Authorizer, cfg.RuleResolver))
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
	store.DefaultQualifiedResource.Group = eventsGroup
	store.SingularQualifiedResource.Group = eventsGroup
	return &stored{&store, core.of}
}
