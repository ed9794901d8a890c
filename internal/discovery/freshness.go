package discovery

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"portico.dev/internal/discovery/remote"
	"portico.dev/internal/logging"
)

// A resource counts as removed if this number of consecutive responses, over this time, lack it. A backend that starts with
// half of its resources has the remaining ones by then.
const (
	confirmations  = 3
	confirmedAfter = 90 * time.Second
)

// known contains the last accepted resources of one group-version.
type known struct {
	// Version is the version of this format, 0 in values written before the field existed.
	Version int `json:"version,omitempty"`
	// UID and Revision are the APIService's at that time.
	UID       types.UID                             `json:"uid,omitempty"`
	Revision  string                                `json:"revision,omitempty"`
	Resources []apidiscoveryv2.APIResourceDiscovery `json:"resources"`
}

// record is the state of one remote group-version.
type record struct {
	// last is nil until a response of the backend has been accepted once, by this process or an earlier one.
	last *known
	// answered is set if the latest poll got a response for the group-version. Otherwise failure contains the reason.
	answered bool
	failure  string
	// missing counts, for each relevant resource, the consecutive responses that lack it.
	missing map[string]absence
	startup logging.Startup
}

// absence counts consecutive responses that lack a resource.
type absence struct {
	answers int
	start   time.Time
}

// update processes a response for the group-version and reports whether last changed.
//
// A missing resource is dangerous. If it is namespaced and can be deleted, a namespace controller would delete nothing and
// finalize the namespace. A backend that is starting, or has lost its storage, sends such responses. Therefore the old
// response stays, and the group-version is Stale, until the absence is confirmed or the registration has been changed,
// which shows intent. Resources of other kinds may change at any time, like the resources of metrics adapters.
func (rec *record) update(r remote.Route, resources []apidiscoveryv2.APIResourceDiscovery, now time.Time) bool {
	rec.answered, rec.failure = true, ""
	if rec.last != nil && rec.last.UID == r.UID && rec.last.Revision == r.Revision && rec.countMissing(resources, now) {
		return false
	}
	rec.missing = nil
	next := &known{UID: r.UID, Revision: r.Revision, Resources: resources}
	if rec.last != nil && equalKnown(rec.last, next) {
		return false
	}
	rec.last = next
	return true
}

// countMissing counts the resources that the response lacks and reports whether some absences are not confirmed yet.
func (rec *record) countMissing(resources []apidiscoveryv2.APIResourceDiscovery, now time.Time) bool {
	missing := map[string]absence{}
	unconfirmed := false
	for _, name := range lostResources(rec.last.Resources, resources) {
		a, known := rec.missing[name]
		if !known {
			a.start = now
		}
		a.answers++
		missing[name] = a
		unconfirmed = unconfirmed || a.answers < confirmations || now.Sub(a.start) < confirmedAfter
	}
	rec.missing = missing
	return unconfirmed
}

// fail records that the latest poll got no response for the group-version. It resets the counts of missing resources, which
// need consecutive responses.
func (rec *record) fail(why string) {
	rec.answered, rec.failure, rec.missing = false, why, nil
}

// freshness reports whether the resources in last are what the backend serves now, and the reason if they are not.
//
// A dead backend stays Current if its last response had no resource that is namespaced and deletable: that response is
// sufficient for every controller that reads discovery. The usual example is metrics.k8s.io: as Stale it would block every
// namespace deletion in the cluster, although its objects cannot be deleted. For other backends the APIService's owner may
// configure the same, as long as there is no doubt about the resources: a backend that answers and omits some is Stale.
func (rec *record) freshness(r remote.Route) (apidiscoveryv2.DiscoveryFreshness, string) {
	why := rec.problem(r)
	switch {
	case why == "":
		return apidiscoveryv2.DiscoveryFreshnessCurrent, ""
	case rec.last == nil || rec.last.UID != r.UID:
		return apidiscoveryv2.DiscoveryFreshnessStale, why
	case !slices.ContainsFunc(rec.last.Resources, holdsNamespaced), r.CurrentWhenUnavailable && len(rec.missing) == 0:
		return apidiscoveryv2.DiscoveryFreshnessCurrent, why
	}
	return apidiscoveryv2.DiscoveryFreshnessStale, why
}

func (rec *record) problem(r remote.Route) string {
	switch {
	case !r.Available && r.ReachedElsewhere && rec.last == nil:
		return "the backend has not answered yet"
	case !r.Available && r.ReachedElsewhere:
		return rec.unconfirmed() // failures of this replica do not count
	case !r.Available && r.Reason != "":
		return r.Reason
	case !r.Available:
		return "the backend is not available"
	case rec.failure != "":
		return rec.failure
	case !rec.answered || rec.last == nil:
		return "the backend has not answered yet"
	}
	return rec.unconfirmed()
}

// unconfirmed returns a reason with the resources that the backend omits without a confirmation, or "".
func (rec *record) unconfirmed() string {
	if len(rec.missing) == 0 {
		return ""
	}
	names := slices.Sorted(maps.Keys(rec.missing))
	return fmt.Sprintf("the backend suddenly leaves out %s, which is not confirmed yet", strings.Join(names, ", "))
}

// unasked reports whether no replica has polled the backend yet since it exists.
func (rec *record) unasked(r remote.Route) bool {
	return (rec.last == nil || rec.last.UID != r.UID) && !rec.answered && rec.failure == "" && (r.Available || r.Untested)
}

// resources returns the resources in the document, fresh or not.
func (rec *record) resources(r remote.Route) []apidiscoveryv2.APIResourceDiscovery {
	// An APIService that was recreated may refer to a different backend.
	if rec.last == nil || rec.last.UID != r.UID {
		return nil
	}
	return rec.last.Resources
}

// holdsNamespaced reports whether objects of the resource can be in a namespace and be deleted with it.
func holdsNamespaced(r apidiscoveryv2.APIResourceDiscovery) bool {
	return r.Scope == apidiscoveryv2.ScopeNamespace &&
		(slices.Contains(r.Verbs, "delete") || slices.Contains(r.Verbs, "deletecollection"))
}

// lostResources returns the resources with objects that a namespace controller would have deleted before and would not
// delete now.
func lostResources(before, after []apidiscoveryv2.APIResourceDiscovery) []string {
	var names []string
	for _, r := range before {
		if !holdsNamespaced(r) {
			continue
		}
		still := slices.ContainsFunc(after, func(a apidiscoveryv2.APIResourceDiscovery) bool {
			return a.Resource == r.Resource && holdsNamespaced(a)
		})
		if !still {
			names = append(names, r.Resource)
		}
	}
	return names
}

func equalKnown(a, b *known) bool {
	return a.UID == b.UID && a.Revision == b.Revision && equality.Semantic.DeepEqual(a.Resources, b.Resources)
}
