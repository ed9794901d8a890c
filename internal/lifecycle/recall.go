package lifecycle

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// recall remembers what backends have served. Discovery believes in the end that a resource is gone when its backend has
// left it out often enough; a backend that lost its list and not its objects would leave orphans behind by that. So
// what was dropped is asked for once more, and is gone when the backend does not know it either.
type recall struct {
	mu    sync.Mutex // guards known
	known map[schema.GroupVersion]recalled
}

type recalled struct {
	uid       types.UID
	resources []Resource
}

// complete adds what backends have dropped to what they serve.
func (m *recall) complete(served []GroupVersion) []GroupVersion {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := map[schema.GroupVersion]recalled{}
	out := slices.Clone(served)
	for i, gv := range served {
		if gv.remote() == "" || gv.NonPersistent {
			continue
		}
		before := m.known[gv.GroupVersion]
		if before.uid != gv.UID {
			before = recalled{} // another registration may mean another backend
		}
		resources := slices.Clone(gv.Resources)
		for _, r := range before.resources {
			if !slices.ContainsFunc(resources, func(o Resource) bool { return o.Name == r.Name }) {
				r.dropped = true
				resources = append(resources, r)
			}
		}
		out[i].Resources = resources
		now[gv.GroupVersion] = recalled{gv.UID, resources}
	}
	m.known = now
	return out
}

// forget takes a resource for gone.
func (m *recall) forget(t target) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.known[t.GroupVersion()]
	r.resources = slices.DeleteFunc(slices.Clone(r.resources), func(o Resource) bool { return o.Name == t.Name })
	m.known[t.GroupVersion()] = r
}
