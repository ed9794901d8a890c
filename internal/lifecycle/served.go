package lifecycle

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is what namespace finalization must know of one group-version, alive or dead.
type GroupVersion struct {
	schema.GroupVersion
	// Resources are those that are namespaced and have the verb delete; the last-known ones when not Current.
	Resources []Resource
	// Known is false when nobody has ever seen a list of resources: anything may be stored there.
	Known bool
	// Current is false when the backend cannot be reached or its list cannot be believed.
	Current bool
	// APIService, Reason and Since say who is to blame when not Current. Since may be zero.
	APIService, Reason string
	Since              time.Time
}

// Resource is a namespaced resource that can be deleted, with what else it can do.
type Resource struct {
	Name                   string
	List, DeleteCollection bool
}

// blocks says whether objects of the namespace may be stored where we cannot reach them now. A dead group-version that
// is known to hold nothing namespaced and deletable can hide nothing: this is what keeps a dead metrics server from
// holding every namespace of the cluster hostage (contract.md H1, k/k#75788).
func (gv GroupVersion) blocks() bool {
	return !gv.Current && (!gv.Known || len(gv.Resources) > 0)
}

// complaint is one clause of the condition: which group-version, whose fault, since when, and what is at stake.
func (gv GroupVersion) complaint() string {
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

var errNotDiscovered = errors.New("the local groups are not in discovery yet")

// survey is what is to be cleared in a namespace, and what cannot be.
type survey struct {
	pods    *target
	groups  [][]target // by group; never the pods
	blocked []GroupVersion
}

// target is a resource to clear through the version of it that is reachable.
type target struct {
	schema.GroupVersionResource
	Resource
}

// newSurvey chooses one reachable version of every resource.
func newSurvey(served []GroupVersion) (*survey, error) {
	s := &survey{}
	byGroup := map[string][]target{}
	core := false
	for _, gv := range served {
		switch {
		case gv.blocks():
			s.blocked = append(s.blocked, gv)
			continue
		case !gv.Current:
			continue
		}
		core = core || gv.GroupVersion == schema.GroupVersion{Version: "v1"}
		for _, r := range gv.Resources {
			t := target{GroupVersionResource: gv.WithResource(r.Name), Resource: r}
			if gv.Group == "" && r.Name == "pods" {
				s.pods = &t
				continue
			}
			known := func(o target) bool { return o.Name == r.Name }
			if !slices.ContainsFunc(byGroup[gv.Group], known) {
				byGroup[gv.Group] = append(byGroup[gv.Group], t)
			}
		}
	}
	if !core {
		// An empty or half-built answer must never be taken for an empty namespace (contract.md F.4).
		return nil, errNotDiscovered
	}
	for _, targets := range byGroup {
		s.groups = append(s.groups, targets)
	}
	slices.SortFunc(s.groups, func(a, b []target) int { return strings.Compare(a[0].Group, b[0].Group) })
	slices.SortFunc(s.blocked, func(a, b GroupVersion) int { return strings.Compare(a.String(), b.String()) })
	return s, nil
}
