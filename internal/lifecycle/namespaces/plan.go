package namespaces

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
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
	// host is the namespace of the backend's Service, empty as well.
	host string
}

// newPlan chooses one reachable version of every resource. leaving reports whether a namespace is being deleted.
func newPlan(served []GroupVersion, leaving func(namespace string) bool) (*plan, error) {
	s := &plan{}
	type backendGroup struct{ group, backend string }
	byGroup := map[backendGroup][]target{}
	seen := map[schema.GroupResource]bool{}
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
			t := target{gv.WithResource(r.Name), r, gv.remoteAPIService(), gv.Service.Namespace}
			switch {
			case seen[t.GroupResource()]:
			case gv.Group == "" && r.Name == "pods":
				s.pods = &t
			default:
				at := backendGroup{gv.Group, gv.Service.String()}
				byGroup[at] = append(byGroup[at], t)
			}
			seen[t.GroupResource()] = true
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
	err = fmt.Errorf("%s: %w", t.GroupVersionResource.String(), err)
	if t.apiService == "" {
		return err
	}
	return fmt.Errorf("APIService %s: %w", t.apiService, err)
}
