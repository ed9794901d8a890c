package apiservice

import (
	"k8s.io/apimachinery/pkg/api/equality"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// managedLabel marks the APIServices that this server manages. An APIService without it belongs to a user and is never
// changed, even if it hides a local group-version.
const managedLabel = "kube-aggregator.kubernetes.io/automanaged"

const (
	// managedOnStart is the value for the built-in group-versions, which are synced once per process.
	managedOnStart = "onstart"
	// managedAlways is the value for the group-versions of CRDs, which are always synced.
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

// decide implements kube-aggregator's table of actions for an APIService. The inputs are the existing object and the wanted
// object (either may be nil), whether it existed when this process started, and whether it has been synced since:
//
//	                               not wanted    wanted on start    wanted always
//	absent                         leave         create             create
//	no label                       leave         leave              leave
//	on start, created since start  leave         leave              leave
//	on start, found at start       delete once   update once        update once
//	always                         delete        update once        update
//
// It intentionally differs in one cell. Upstream creates a built-in APIService once per process: after `kubectl delete
// apiservice v1.apps` the group is missing from discovery until the next restart, while requests to it still work. Portico
// recreates it immediately.
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
