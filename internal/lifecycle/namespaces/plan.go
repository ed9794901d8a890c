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

// plan contains the resources to delete in a namespace, and the unreachable group-versions.
type plan struct {
	pods *target
	// urgent is deleted first. Its backends run in this or another namespace that is being deleted, and are deleted with it.
	urgent [][]target
	// ending are the group-versions of those backends, stable the group-versions of all other available backends.
	ending, stable []GroupVersion
	groups         [][]target // all other resources, by group and backend; never pods
	blocked        []GroupVersion
}

// target is a resource to delete, in a reachable version.
type target struct {
	schema.GroupVersionResource
	Resource
	// apiService is named in errors; empty for local resources.
	apiService string
	// backend is the name of one of several backends of the group-version; empty if there is only one.
	backend string
	// host is the namespace of the backend's Service; empty for local resources.
	host string
	// hiddenBy is the APIService that hides the objects; empty for objects that clients can reach.
	hiddenBy string
}

// content identifies a resource in a condition of a namespace.
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
	// Local objects and an extension server's objects of the same resource are different objects.
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
			case before && (in != gv.GroupVersion || t.backend == ""): // each of several backends has different objects
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
		// An empty or incomplete result must never count as an empty namespace: an object orphaned at a backend would reappear
		// in the next namespace of the same name.
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

// subject formats the name of an APIService or a backend of an APIRoute for a message.
func subject(apiService string) string {
	if name, backend, several := strings.Cut(apiService, "/"); several {
		return "backend " + backend + " of APIRoute " + name
	}
	return "APIService " + apiService
}

// GroupVersion is one group-version in discovery, available or not, or the part of it at one of several backends.
type GroupVersion struct {
	schema.GroupVersion
	// Resources are the namespaced resources with the verb delete; the last known ones if not Current.
	Resources []Resource
	// Known is false if the list of resources has never been seen. The backend may then store any objects.
	Known bool
	// Current is false if the backend cannot be reached or its list is not reliable.
	Current bool
	// APIService, Reason and Since describe why it is not Current. Since may be zero. One of several backends has the name
	// "<APIService>/<backend>".
	APIService, Reason string
	Since              time.Time

	// Service is the backend's Service; zero for local group-versions.
	Service types.NamespacedName
	// UID is the UID of the APIService.
	UID types.UID
	// NonPersistent group-versions store nothing, according to their annotation. They are neither deleted nor waited for.
	// Deleting computed objects, such as metrics of terminating pods, would never end.
	NonPersistent bool
	// FinalizeAfter is how long a namespace waits for an unavailable backend. Zero means without limit.
	FinalizeAfter time.Duration
	// HiddenBy is the APIService of the extension server that serves the group-version, if this entry is for objects stored
	// locally. Clients cannot reach these objects, Config.Hidden can. Empty for served group-versions.
	HiddenBy string
	// UnreachableSince is when the last replica lost the backend; zero while a replica reaches it, and while this is unknown.
	UnreachableSince time.Time
}

// remoteAPIService returns the name of the APIService, or "" for a local group-version.
func (gv GroupVersion) remoteAPIService() string {
	if gv.Service.Name == "" {
		return ""
	}
	return gv.APIService
}

// backend returns the name of one of several backends, or "" if there is only one.
func (gv GroupVersion) backend() string {
	_, backend, _ := strings.Cut(gv.APIService, "/")
	return backend
}

// Resource is a namespaced, deletable resource with its other verbs.
type Resource struct {
	Name                   string
	List, DeleteCollection bool
	// dropped reports that the backend used to list the resource, but no longer does; see knownResources.
	dropped bool
}

// blocks reports whether objects of the namespace may be stored at an unreachable backend. An unavailable group-version that is
// known to have no namespaced, deletable resources does not block. Otherwise an unavailable metrics server would block every
// namespace deletion in the cluster (kubernetes/kubernetes#75788).
func (gv GroupVersion) blocks() bool {
	return !gv.Current && !gv.NonPersistent && (!gv.Known || len(gv.Resources) > 0)
}

// problem returns a group-version's part of the condition message: the APIService, since when it is unavailable, and the
// resources it may hold.
func (gv GroupVersion) problem() string {
	var b strings.Builder
	b.WriteString(unavailablePrefix(gv.GroupVersion, gv.APIService) + gv.Reason)
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

// unavailablePrefix returns the start of a group-version's part of the condition message, without the reason.
func unavailablePrefix(gv schema.GroupVersion, apiService string) string {
	return fmt.Sprintf("%s: %s is not available (", gv, subject(apiService))
}

// knownResources records the resources that backends have served. Discovery drops a resource after its backend has repeatedly
// omitted it. A backend that lost its list but not its objects would then leave orphans. Therefore a dropped resource is
// requested again, and counts as deleted when the backend returns 404.
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

// addDropped adds the resources that backends have dropped to the resources that they serve.
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
			before = versionResources{} // another APIService may refer to another backend
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

// forget removes a resource that does not exist.
func (m *knownResources) forget(t target) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := versionAt{t.GroupVersion(), t.backend}
	r := m.known[at]
	r.resources = slices.DeleteFunc(slices.Clone(r.resources), func(o Resource) bool { return o.Name == t.Name })
	m.known[at] = r
}
