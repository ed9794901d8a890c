package coreapi

import (
	"slices"
	"sync"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"portico.dev/internal/coreapi/crds"
	"portico.dev/internal/coreapi/openapidocs"
)

// Discovery describes the resources served here in the form of aggregated discovery v2: verbs, names, scopes, response kinds
// and subresources of each resource.
type Discovery struct {
	// Core is for /api: one item without a name.
	Core []apidiscoveryv2.APIGroupDiscovery
	// Groups is for /apis: one item per group in the order of the table, with the preferred version first.
	Groups []apidiscoveryv2.APIGroupDiscovery
}

func (d *Discovery) add(version schema.GroupVersion, resources []apidiscoveryv2.APIResourceDiscovery) {
	item := apidiscoveryv2.APIGroupDiscovery{
		ObjectMeta: metav1.ObjectMeta{Name: version.Group},
		Versions: []apidiscoveryv2.APIVersionDiscovery{{
			Version:   version.Version,
			Resources: resources,
			Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent,
		}},
	}
	if version.Group == "" {
		d.Core = append(d.Core, item)
		return
	}
	for i := range d.Groups {
		if d.Groups[i].Name == item.Name {
			d.Groups[i].Versions = append(d.Groups[i].Versions, item.Versions...)
			return
		}
	}
	d.Groups = append(d.Groups, item)
}

// served is an immutable snapshot of the resources of local groups and of custom resource definitions.
type served struct {
	discovery     Discovery
	groupVersions sets.Set[schema.GroupVersion]
}

// withCustom merges custom resources into the built-in discovery. A group served by both is merged into one group.
func withCustom(builtIn Discovery, versions []schema.GroupVersion, custom *crds.Served) *served {
	s := &served{
		discovery:     Discovery{Core: builtIn.Core, Groups: slices.Clone(builtIn.Groups)},
		groupVersions: sets.New(versions...).Insert(custom.GroupVersions()...),
	}
	for _, group := range custom.Groups {
		at := slices.IndexFunc(s.discovery.Groups, func(g apidiscoveryv2.APIGroupDiscovery) bool { return g.Name == group.Name })
		if at < 0 {
			s.discovery.Groups = append(s.discovery.Groups, group)
			continue
		}
		shared := &s.discovery.Groups[at]
		shared.Versions = slices.Concat(shared.Versions, group.Versions)
	}
	return s
}

// changeNotifier has a channel that is closed at the next change.
type changeNotifier struct {
	mu   sync.Mutex
	next chan struct{}
}

func newChangeNotifier() *changeNotifier { return &changeNotifier{next: make(chan struct{})} }

func (n *changeNotifier) wait() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.next
}

func (n *changeNotifier) notify() {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.next)
	n.next = make(chan struct{})
}

// BuiltIn returns the group-versions that are served as long as the server runs.
func (s *Server) BuiltIn() []schema.GroupVersion { return s.cfg.RuntimeConfig.builtIn() }

// GroupVersions returns the group-versions served now: the built-in ones and, once Ready, the changing set of custom resources.
// The caller must not modify the set.
func (s *Server) GroupVersions() sets.Set[schema.GroupVersion] { return s.served.Load().groupVersions }

// Discovery returns a complete Discovery once Ready, and an empty one before. The caller must not modify it.
func (s *Server) Discovery() Discovery { return s.served.Load().discovery }

// Documents returns the OpenAPI documents of custom resources, once Ready. Package openapidocs contains the documents of
// built-in groups.
func (s *Server) Documents() []openapidocs.Document {
	select {
	case <-s.ready:
		return s.custom.Documents()
	default:
		return nil
	}
}

// Swagger returns the OpenAPI v2 documents of custom resources, once Ready, and none before.
func (s *Server) Swagger() ([]crds.Swagger, error) {
	select {
	case <-s.ready:
		return s.custom.Swagger()
	default:
		return nil, nil
	}
}

// Changed returns a channel that is closed at the next change of Discovery, GroupVersions or Documents. Call it before reading
// them, or a change in between is missed.
func (s *Server) Changed() <-chan struct{} { return s.changes.wait() }
