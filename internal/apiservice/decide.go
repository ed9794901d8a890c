package apiservice

import (
	"k8s.io/apimachinery/pkg/api/equality"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// managedLabel marks the APIServices that this server manages. Without it, an APIService belongs to a user and is never
// changed, even where it hides a local group-version.
const managedLabel = "kube-aggregator.kubernetes.io/automanaged"

const (
	// managedOnStart is synced once per process: the built-in group-versions.
	managedOnStart = "onstart"
	// managedAlways is synced at all times: the group-versions of CRDs.
	managedAlways = "true"
)

// action is what registration does to one APIService.
type action int

const (
	leave action = iota
	create
	update
	remove
)

func (a action) String() string { return [...]string{"leave", "create", "update", "delete"}[a] }

// decide is kube-aggregator's table of what happens to an APIService, given the one that exists, the one that is
// wanted (either may be nil), whether it existed when this process started, and whether it has been synced since:
//
//	                               not wanted    wanted on start    wanted always
//	absent                         leave         create             create
//	no label                       leave         leave              leave
//	on start, newer than we are    leave         leave              leave
//	on start, older than we are    delete once   update once        update once
//	always                         delete        update once        update
//
// It differs in one cell, on purpose: upstream creates a built-in APIService once per process, so that after `kubectl
// delete apiservice v1.apps` the group is gone from discovery until the next restart while requests to it still work.
// Here it comes back at once.
func decide(current, wanted *apiregistrationv1.APIService, atStart, done bool) action {
	if current == nil {
		if wanted == nil {
			return leave
		}
		return create
	}
	switch current.Labels[managedLabel] {
	case managedOnStart:
		if !atStart || done {
			return leave
		}
	case managedAlways:
		if done && wanted != nil && wanted.Labels[managedLabel] == managedOnStart {
			return leave
		}
	default:
		return leave
	}
	switch {
	case wanted == nil:
		return remove
	case equality.Semantic.DeepEqual(current.Spec, wanted.Spec):
		return leave
	default:
		return update
	}
}
