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

// Discovery is what is served here, in the form of aggregated discovery v2: verbs, names, scopes, response kinds and
// subresources of each resource.
type Discovery struct {
	// Core is for /api: one item without a name.
	Core []apidiscoveryv2.APIGroupDiscovery
	// Groups are for /apis, one item per group, in the order of the table, the preferred version first.
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

// served is what the local groups and the definitions of custom resources serve at one moment. It is not changed any
// more.
type served struct {
	discovery     Discovery
	groupVersions sets.Set[schema.GroupVersion]
}

// withCustom adds what definitions serve to what is built in. A group that both serve is one group.
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

// BuiltIn are the group-versions that are served as long as the server runs.
func (s *Server) BuiltIn() []schema.GroupVersion { return s.cfg.RuntimeConfig.builtIn() }

// GroupVersions are those served now: the built-in ones, and, once Ready, those of custom resources, which come and go.
// The caller must not change the set.
func (s *Server) GroupVersions() sets.Set[schema.GroupVersion] { return s.served.Load().groupVersions }

// Discovery is complete once Ready, and empty before. The caller must not change it.
func (s *Server) Discovery() Discovery { return s.served.Load().discovery }

// Documents are the OpenAPI documents of custom resources, once Ready. Those of what is built in are in openapidocs.
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

// Changed is closed when Discovery, GroupVersions or Documents next change. Take it before reading them, or the change
// in between is missed.
func (s *Server) Changed() <-chan struct{} { return s.changes.wait() }
