// Package defaults fills in what a client may leave out of an object of the local groups, with kube-apiserver's values.
//
// k8s.io/api marks only a few of them; the others live in kube-apiserver, and objects without them break things at a
// distance: a policy without a namespace selector fails every request, a Service port without a protocol merges wrongly.
//
// Defaulting runs on everything that is decoded: what clients send, and also what is read from storage. So it must be
// idempotent and cheap, and must never allocate anything (a cluster IP, a node port) that another object could hold.
package defaults

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
)

// Register adds the defaulting functions of a kind and of its list.
func Register(scheme *runtime.Scheme, object, list runtime.Object, fill func(runtime.Object)) {
	scheme.AddTypeDefaultingFunc(object, func(obj any) { fill(obj.(runtime.Object)) })
	scheme.AddTypeDefaultingFunc(list, func(obj any) {
		// The error of EachListItem is for things that are no lists, and of the callback, which has none.
		_ = meta.EachListItem(obj.(runtime.Object), func(item runtime.Object) error {
			fill(item)
			return nil
		})
	})
}

// Of makes a defaulting function from one over the kind's Go type. The scheme hands it only objects of that type.
func Of[T runtime.Object](fill func(T)) func(runtime.Object) {
	return func(obj runtime.Object) { fill(obj.(T)) }
}

// Set gives a field its default if it is empty.
func Set[T comparable](field *T, value T) {
	if *field == *new(T) {
		*field = value
	}
}

// Point gives an optional field its default if it is absent; an explicit zero is the client's choice and stays.
func Point[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

const (
	RevisionsKept         = 10
	ProgressSeconds       = 600
	JobRetries            = 6
	SuccessfulJobs        = 3
	FailedJobs            = 1
	RolloutShare          = "25%"
	ClaimKind, ClaimGroup = "PersistentVolumeClaim", "v1"
)

// Milli rounds quantities up to thousandths, the finest that kube-apiserver keeps.
func Milli(list corev1.ResourceList) {
	for name, quantity := range list {
		quantity.RoundUp(resource.Milli)
		list[name] = quantity
	}
}
