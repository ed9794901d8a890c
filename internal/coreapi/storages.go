package coreapi

import (
	"context"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiextensionslisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/registry/rest"

	"portico.dev/internal/coreapi/allocation"
	"portico.dev/internal/coreapi/kinds/core"
	"portico.dev/internal/coreapi/registry"
)

// servedGroup is a group-version with the storage of each resource and subresource.
type servedGroup struct {
	version schema.GroupVersion
	storage map[string]rest.Storage
}

// storages contains the storages of all built-in resources.
type storages struct {
	groups     []servedGroup
	namespaces *registry.REST
	repairer   *allocation.Repairer
}

// openStorages opens the storage of every kind and omits kinds disabled by runtime-config from groups. The omitted storages
// stay open for internal use: addresses are allocated even if their resource is not served.
func openStorages(cfg Config, c *codecs, factory *storageFactory, definitions apiextensionslisters.CustomResourceDefinitionLister, mapper meta.RESTMapper) (*storages, error) {
	e := newEnvironment(cfg, c, factory, definitions, mapper)
	if err := e.Open(cfg.Groups, factory.options); err != nil {
		return nil, err
	}
	all := &storages{namespaces: e.Storage(corev1.Resource("namespaces"))}
	for i := range cfg.Groups {
		all.groups = append(all.groups, servedGroup{cfg.Groups[i].Version, e.Serve(&cfg.Groups[i])})
	}
	all.serveOtherVersions(cfg.Groups)
	all.repairer = all.storageOf(corev1.SchemeGroupVersion)["services"].(*core.Services).NewRepairer()
	all.groups = cfg.RuntimeConfig.keep(all.groups)
	return all, nil
}

// newEnvironment returns the parts of this server that kinds may use.
func newEnvironment(cfg Config, c *codecs, factory *storageFactory, definitions apiextensionslisters.CustomResourceDefinitionLister, mapper meta.RESTMapper) *registry.Environment {
	network, kv := cfg.ServiceNetwork.withDefaults(), factory.client.KV
	e := &registry.Environment{
		Scheme: c.scheme, Authorizer: cfg.Authorizer, Rules: cfg.RuleResolver, Aggregate: cfg.Aggregate, Mapper: mapper,
		BuiltIn: cfg.RuntimeConfig.builtIn(), Definitions: definitions,
		DenyPrivileged: cfg.DenyPrivileged, EventTTL: cfg.EventTTL,
		TokenAuthenticator: cfg.TokenAuthenticator, TokenIssuer: cfg.TokenIssuer, Connector: cfg.Connector, MaxTokenExpiration: cfg.MaxTokenExpiration,
		ClusterIPRanges: network.ClusterIPRanges, NodePorts: network.NodePorts,
		Ports: allocation.NewEtcdPorts(kv, cfg.Store.OwnKey(portKeys)), InFlight: newInFlight(cfg, kv),
		CheckStore: func(ctx context.Context) error {
			if err := cfg.Store.Check(ctx); err != nil {
				return err
			}
			return cfg.Store.CheckSpace(ctx)
		},
		Logger: cfg.Logger,
	}
	e.SameNamespace = func(ctx context.Context, name string) error {
		return sameNamespace(ctx, name, currentNamespace(e.Storage(corev1.Resource("namespaces"))))
	}
	return e
}

// serveOtherVersions serves the same storage in other versions of its group.
func (s *storages) serveOtherVersions(groups []registry.Group) {
	for _, g := range groups {
		for _, r := range g.Resources {
			for _, other := range r.AlsoServedIn {
				for path, storage := range s.storageOf(g.Version) {
					if resourceOf(path) == r.Name {
						s.storageOf(other)[path] = storage
					}
				}
			}
		}
	}
}

// storageOf returns the storage map of a group-version.
func (s *storages) storageOf(version schema.GroupVersion) map[string]rest.Storage {
	i := slices.IndexFunc(s.groups, func(g servedGroup) bool { return g.version == version })
	if i < 0 {
		return nil
	}
	return s.groups[i].storage
}

// directoryOf returns the storage directory of a served resource, or "" if it has no storage. Resources with the same directory
// are equivalent: an admission webhook or policy for one of them applies to requests for the others.
func (s *storages) directoryOf(resource schema.GroupResource) string {
	for _, g := range s.groups {
		if g.version.Group != resource.Group {
			continue
		}
		if stored, ok := g.storage[resource.Resource].(interface{ StorageDirectory() string }); ok {
			return stored.StorageDirectory()
		}
	}
	return ""
}

// resources returns the served built-in resources and subresources.
func (s *storages) resources() sets.Set[schema.GroupVersionResource] {
	all := sets.New[schema.GroupVersionResource]()
	for _, g := range s.groups {
		for name := range maps.Keys(g.storage) {
			all.Insert(g.version.WithResource(name))
		}
	}
	return all
}

// ServiceNetwork configures the addresses and ports of Services.
type ServiceNetwork struct {
	// ClusterIPRanges contains one range, or one range per family. The first one is for Services that specify no family.
	// Default allocation.DefaultClusterIPRange. ServiceCIDR objects add ranges.
	ClusterIPRanges []netip.Prefix
	// NodePorts defaults to allocation.DefaultNodePorts.
	NodePorts allocation.PortRange
}

func (n ServiceNetwork) withDefaults() ServiceNetwork {
	if len(n.ClusterIPRanges) == 0 {
		n.ClusterIPRanges = []netip.Prefix{allocation.DefaultClusterIPRange}
	}
	if n.NodePorts == (allocation.PortRange{}) {
		n.NodePorts = allocation.DefaultNodePorts
	}
	return n
}

// portKeys is the directory of node port claims in the store's own keys.
const portKeys = "nodeports/"

// RepairAllocations repairs claims of addresses and ports after a crash, and adds missing fields to Services of older versions.
// It must be called from one goroutine, once Ready.
func (s *Server) RepairAllocations(ctx context.Context) error {
	select {
	case <-s.ready:
		return s.repairer.Repair(ctx)
	default:
		return notReady()
	}
}

// AllocationsAbandoned reports whether a replica ended while it wrote a Service, so that RepairAllocations is necessary. It is
// cheap. It must be called from the goroutine of RepairAllocations, once Ready.
func (s *Server) AllocationsAbandoned(ctx context.Context) (bool, error) {
	select {
	case <-s.ready:
		return s.repairer.Abandoned(ctx)
	default:
		return false, notReady()
	}
}
