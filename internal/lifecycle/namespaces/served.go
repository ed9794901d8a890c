package namespaces

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// GroupVersion is one group-version in discovery, available or not.
type GroupVersion struct {
	schema.GroupVersion
	// Resources are those that are namespaced and have the verb delete; the last-known ones when not Current.
	Resources []Resource
	// Known is false when its list of resources has never been seen: anything may be stored there.
	Known bool
	// Current is false when the backend cannot be reached or its list cannot be believed.
	Current bool
	// APIService, Reason and Since say why it is not Current. Since may be zero.
	APIService, Reason string
	Since              time.Time

	// Service is the backend's; zero for what this server serves itself.
	Service types.NamespacedName
	// UID is the APIService's.
	UID types.UID
	// NonPersistent ones store nothing, according to their annotation: they are neither deleted nor waited for. Deleting
	// computed objects, such as metrics of terminating pods, would never end.
	NonPersistent bool
	// FinalizeAfter is how long a namespace waits for a dead backend. Zero: as long as it takes.
	FinalizeAfter time.Duration
	// UnreachableSince is since when no replica has reached the backend; zero while one does, and while that is not known.
	UnreachableSince time.Time
}

// remoteAPIService is the name of the APIService, empty for local group-versions.
func (gv GroupVersion) remoteAPIService() string {
	if gv.Service.Name == "" {
		return ""
	}
	return gv.APIService
}

// Resource is a namespaced resource that can be deleted, with what else it can do.
type Resource struct {
	Name                   string
	List, DeleteCollection bool
	// dropped: it is no longer in the backend's list, and was before; see knownResources.
	dropped bool
}

// blocks reports whether objects of the namespace may be stored where they cannot be reached now. A dead group-version that
// is known to hold nothing namespaced and deletable does not block: otherwise a dead metrics server would block every
// namespace deletion in the cluster (kubernetes/kubernetes#75788).
func (gv GroupVersion) blocks() bool {
	return !gv.Current && !gv.NonPersistent && (!gv.Known || len(gv.Resources) > 0)
}

// problem is a group-version's part of the condition's message: which APIService, since when, and what it may hold.
func (gv GroupVersion) problem() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: APIService %s is not available (%s", gv.GroupVersion, gv.APIService, gv.Reason)
	if !gv.Since.IsZero() {
		fmt.Fprintf(&b, " since %s", gv.Since.UTC().Format(time.RFC3339))
	}
	b.WriteString("), ")
	if gv.Known {
		names := make([]string, 0, len(gv.Resources))
		for _, r := range gv.Resources {
			names = append(names, r.Name)
		}
		fmt.Fprintf(&b, "it may hold %s of this namespace", strings.Join(names, ", "))
	} else {
		b.WriteString("what it holds is not known")
	}
	return b.String()
}

// knownResources records what backends have served. Discovery drops a resource when its backend has left it out often
// enough; a backend that lost its list but not its objects would then leave orphans. So a dropped resource is requested
// once more, and is gone when the backend answers 404.
type knownResources struct {
	mu    sync.Mutex // guards known
	known map[schema.GroupVersion]versionResources
}

type versionResources struct {
	uid       types.UID
	resources []Resource
}

// addDropped adds the resources that backends have dropped to those that they serve.
func (m *knownResources) addDropped(served []GroupVersion) []GroupVersion {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := map[schema.GroupVersion]versionResources{}
	out := slices.Clone(served)
	for i, gv := range served {
		if gv.remoteAPIService() == "" || gv.NonPersistent {
			continue
		}
		before := m.known[gv.GroupVersion]
		if before.uid != gv.UID {
			before = versionResources{} // another registration may mean another backend
		}
		resources := slices.Clone(gv.Resources)
		for _, r := range before.resources {
			if !slices.ContainsFunc(resources, func(o Resource) bool { return o.Name == r.Name }) {
				r.dropped = true
				resources = append(resources, r)
			}
		}
		out[i].Resources = resources
		now[gv.GroupVersion] = versionResources{gv.UID, resources}
	}
	m.known = now
	return out
}

// forget removes a resource that is gone.
func (m *knownResources) forget(t target) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.known[t.GroupVersion()]
	r.resources = slices.DeleteFunc(slices.Clone(r.resources), func(o Resource) bool { return o.Name == t.Name })
	m.known[t.GroupVersion()] = r
}
