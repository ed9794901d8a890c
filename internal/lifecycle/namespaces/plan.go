package namespaces

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

var errNotDiscovered = errors.New("the local groups are not in discovery yet")

// plan is what is to be deleted in a namespace, and what cannot be.
type plan struct {
	pods *target
	// urgent is deleted first: its backends run in a namespace that is being deleted, this one or another, and are deleted
	// with it.
	urgent [][]target
	// ending are the group-versions of those backends, stable those of all other available backends.
	ending, stable []GroupVersion
	groups         [][]target // the rest, by group and backend; never the pods
	blocked        []GroupVersion
}

// target is a resource whose objects are deleted, in a reachable version.
type target struct {
	schema.GroupVersionResource
	Resource
	// apiService is named in errors; empty for local resources.
	apiService string
	// backend is the name of one of several backends of the group-version, empty for the only one.
	backend string
	// host is the namespace of the backend's Service, empty as well.
	host string
	// hiddenBy is the APIService that hides the objects, empty for objects that clients can reach.
	hiddenBy string
}

// content is a resource in a condition of a namespace.
type content struct {
	schema.GroupResource
	hiddenBy string
}

func (t target) content() content { return content{t.GroupResource(), t.hiddenBy} }

func (c content) String() string {
	text := c.Resource + "." + c.Group
	if c.hiddenBy != "" {
		text += " (stored here and hidden by APIService " + c.hiddenBy + ")"
	}
	return text
}

// newPlan chooses one reachable version of every resource. leaving reports whether a namespace is being deleted.
func newPlan(served []GroupVersion, leaving func(namespace string) bool) (*plan, error) {
	s := &plan{}
	type backendGroup struct{ group, service, backend string }
	byGroup := map[backendGroup][]target{}
	// What is stored here and what an extension server has under the same name are different objects.
	type collection struct {
		schema.GroupResource
		remote bool
	}
	seen := map[collection]schema.GroupVersion{}
	core := false
	for _, gv := range served {
		if gv.blocks() {
			s.blocked = append(s.blocked, gv)
		}
		if !gv.Current || gv.NonPersistent {
			continue
		}
		switch host := gv.Service.Namespace; {
		case host == "" || len(gv.Resources) == 0:
		case leaving(host):
			s.ending = append(s.ending, gv)
		default:
			s.stable = append(s.stable, gv)
		}
		core = core || gv.GroupVersion == schema.GroupVersion{Version: "v1"}
		for _, r := range gv.Resources {
			t := target{gv.WithResource(r.Name), r, gv.remoteAPIService(), gv.backend(), gv.Service.Namespace, gv.HiddenBy}
			place := collection{t.GroupResource(), t.apiService != ""}
			in, before := seen[place]
			switch {
			case before && (in != gv.GroupVersion || t.backend == ""): // each of several backends has objects of its own
			case gv.Group == "" && r.Name == "pods":
				s.pods = &t
			default:
				at := backendGroup{gv.Group, gv.Service.String(), t.backend}
				byGroup[at] = append(byGroup[at], t)
			}
			if !before {
				seen[place] = gv.GroupVersion
			}
		}
	}
	if !core {
		// An empty or half-built answer must never be taken for an empty namespace (an orphan in a backend comes back to life in the next namespace of that name).
		return nil, errNotDiscovered
	}
	for _, targets := range byGroup {
		if host := targets[0].host; host != "" && leaving(host) {
			s.urgent = append(s.urgent, targets)
		} else {
			s.groups = append(s.groups, targets)
		}
	}
	for _, groups := range [][][]target{s.urgent, s.groups} {
		slices.SortFunc(groups, func(a, b []target) int { return strings.Compare(a[0].String(), b[0].String()) })
	}
	slices.SortFunc(s.blocked, func(a, b GroupVersion) int { return strings.Compare(a.String(), b.String()) })
	return s, nil
}

// blame adds the name of the APIService, if any, to an error.
func (t target) blame(err error) error {
	if t.hiddenBy != "" {
		return fmt.Errorf("%s, stored here and hidden by APIService %s: %w", t.GroupVersionResource.String(), t.hiddenBy, err)
	}
	err = fmt.Errorf("%s: %w", t.GroupVersionResource.String(), err)
	if t.apiService == "" {
		return err
	}
	return fmt.Errorf("%s: %w", subject(t.apiService), err)
}

// subject is an APIService, or one of the backends of an APIRoute, in a sentence.
func subject(apiService string) string {
	if name, backend, several := strings.Cut(apiService, "/"); several {
		return "backend " + backend + " of APIRoute " + name
	}
	return "APIService " + apiService
}

// GroupVersion is one group-version in discovery, available or not, or what one of several backends has of it.
type GroupVersion struct {
	schema.GroupVersion
	// Resources are those that are namespaced and have the verb delete; the last-known ones when not Current.
	Resources []Resource
	// Known is false when its list of resources has never been seen: anything may be stored there.
	Known bool
	// Current is false when the backend cannot be reached or its list cannot be believed.
	Current bool
	// APIService, Reason and Since say why it is not Current. Since may be zero. The name of one of several backends is
	// "<APIService>/<backend>".
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
	// HiddenBy is the APIService whose extension server serves the group-version, for what this server stores of it. Clients
	// cannot reach these objects; Config.Hidden does. Empty for what is served.
	HiddenBy string
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

// backend is the name of one of several backends, empty for the only one.
func (gv GroupVersion) backend() string {
	_, backend, _ := strings.Cut(gv.APIService, "/")
	return backend
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
	fmt.Fprintf(&b, "%s: %s is not available (%s", gv.GroupVersion, subject(gv.APIService), gv.Reason)
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
	known map[versionAt]versionResources
}

// versionAt is a group-version at one of its backends.
type versionAt struct {
	schema.GroupVersion
	backend string
}

type versionResources struct {
	uid       types.UID
	resources []Resource
}

// addDropped adds the resources that backends have dropped to those that they serve.
func (m *knownResources) addDropped(served []GroupVersion) []GroupVersion {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := map[versionAt]versionResources{}
	out := slices.Clone(served)
	for i, gv := range served {
		if gv.remoteAPIService() == "" || gv.NonPersistent {
			continue
		}
		before := m.known[versionAt{gv.GroupVersion, gv.backend()}]
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
		now[versionAt{gv.GroupVersion, gv.backend()}] = versionResources{gv.UID, resources}
	}
	m.known = now
	return out
}

// forget removes a resource that is gone.
func (m *knownResources) forget(t target) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := versionAt{t.GroupVersion(), t.backend}
	r := m.known[at]
	r.resources = slices.DeleteFunc(slices.Clone(r.resources), func(o Resource) bool { return o.Name == t.Name })
	m.known[at] = r
}
